"""Which processes the kernel is asked about, and that an unreadable figure is never a release."""

from dataclasses import replace

from reclaimerd.daemon.plights import pids_in_exit, with_plights
from reclaimerd.judge.plight import PlightMemory
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Stage
from reclaimerd.model.kernel import Leaving
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import Snapshot
from tests.builders import MONO, a_busy_snapshot, a_gpu, a_process, a_row, a_task, an_incident
from tests.judge.kernel_builders import EXIT, SETTINGS, a_ktask, a_look

ME = a_process()
SENT = Attempt(AttemptId("inc-1.1"), Stage.SIGKILL, (ME.ref,), 1.0, Outcome(OutcomeKind.SENT))
KILLED = an_incident(stage=Stage.SIGKILL, stage_mono=MONO, attempts=(SENT,))


def test_only_those_that_we_killed_are_asked_about() -> None:
    """A target before SIGKILL costs no kernel look; one that is gone costs none any more."""
    look = a_busy_snapshot(ME)
    assert pids_in_exit([an_incident()], look) == ()
    assert pids_in_exit([KILLED], look) == (ME.ref.pid,)
    assert pids_in_exit([KILLED], replace(look, exited=frozenset({ME.ref}))) == ()
    assert pids_in_exit([KILLED], None) == (ME.ref.pid,)


def test_one_that_writes_a_core_is_followed_before_any_signal() -> None:
    """How long it is spared depends on whether its core grows."""
    look = a_busy_snapshot(replace(ME, dumping_core=True))
    assert pids_in_exit([an_incident()], look) == (ME.ref.pid,)


def test_holders_that_wait_in_the_kernel_are_looked_at_beside_them() -> None:
    """One of them may be what a target waits for."""
    blocked = a_process(pid=222, tasks=(a_task(tid=222, state="D"),))
    leaving = a_process(pid=333, tasks=(a_task(tid=333, flags=PF_EXITING),))
    assert pids_in_exit([], a_busy_snapshot(ME, blocked, leaving)) == (222, 333)


def stuck_look(seconds: float, used: Unreadable | None) -> Snapshot:
    """Return a look at the target, stuck in the driver, with this figure in NVML's list."""
    frames = f"uvm_spin_loop/nvidia_uvm uvm_release/nvidia_uvm __fput {EXIT}"
    task = a_ktask(ME.ref.pid, "D", PF_EXITING, frames)
    look = replace(a_look(ME.ref.pid, task), ref=ME.ref, at=MONO + seconds)
    row = replace(a_row(ME.ref.pid, 8), used_bytes=used) if used is not None else a_row(ME.ref.pid, 8)
    gpu = a_gpu(used=8, processes=(row,))
    return replace(a_busy_snapshot(ME, at=MONO + seconds), gpus=(gpu,), kernel={ME.ref.pid: look})


def test_a_task_stuck_in_the_driver_is_named_after_its_grace() -> None:
    """Several looks over the grace, the same frames and nothing released: stuck, with its signature."""
    memory = PlightMemory()
    for seconds in (0.0, 40.0, 80.0, 121.0):
        look, memory = with_plights(stuck_look(seconds, None), memory, [KILLED], SETTINGS)
    plight = look.plights[ME.ref]
    assert plight.leaving is Leaving.STUCK_BLOCKED
    assert plight.signature


def test_a_figure_that_can_not_be_read_is_no_release() -> None:
    """A list that stops giving figures must not look like memory that came back."""
    memory = PlightMemory()
    for seconds, used in (
        (0.0, None),
        (40.0, Unreadable("no figure")),
        (80.0, Unreadable("no figure")),
        (121.0, None),
    ):
        look, memory = with_plights(stuck_look(seconds, used), memory, [KILLED], SETTINGS)
    assert look.plights[ME.ref].leaving is Leaving.STUCK_BLOCKED


def test_without_a_kernel_look_nothing_is_said() -> None:
    """No look, no plight, and the memory stays."""
    memory = PlightMemory()
    look = a_busy_snapshot(ME)
    assert with_plights(look, memory, [KILLED], SETTINGS) == (look, memory)
