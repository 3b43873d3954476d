"""One sentence for the person who is paged: what it does, since when, where, and what helps."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.advice import duration, kill_pending_means, words
from reclaimerd.model.kernel import KernelLook, Leaving, Plight, TaskCondition
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import (
    PF_EXITING,
    PF_KTHREAD,
)
from reclaimerd.model.reading import Known
from tests.builders import MONO, a_ref
from tests.judge.kernel_builders import EXIT, SIGNATURES, a_ktask, a_look, by_pid, exiting

NOW = MONO + 250
FROZEN = TaskCondition.FROZEN


def a_plight(condition: TaskCondition, leaving: Leaving, **overrides: Any) -> Plight:
    """Return a plight of process 100, seen for 4 m 10 s."""
    return replace(Plight(a_ref(100), condition, leaving, MONO, MONO + 10, 60, ""), **overrides)


def said(condition: TaskCondition, leaving: Leaving, look: KernelLook | None = None, **overrides: Any) -> str:
    """Return its sentence."""
    looks = {} if look is None else by_pid(look)
    return words(a_plight(condition, leaving, **overrides), looks, NOW, SIGNATURES)


SPIN: dict[str, Any] = {"signature": "uvm_spin_loop", "fault_domain": FaultDomain.DRIVER}


def test_the_seed_incident_reads_as_promised() -> None:
    """State, time, place, whose fault, and that neither SIGKILL nor a reset helps."""
    assert said(TaskCondition.EXITING, Leaving.STUCK_SPINNING, **SPIN) == (
        "exiting for 4 m 10 s; spinning in uvm_spin_loop (driver); SIGKILL cannot help; a reset is refused; "
        "reboot the node (public issue https://github.com/NVIDIA/open-gpu-kernel-modules/issues/456)"
    )


def test_without_the_signatures_at_hand_its_name_and_its_domain_do() -> None:
    """The sentence is poorer, never wrong."""
    plight = a_plight(TaskCondition.EXITING, Leaving.STUCK_BLOCKED, **(SPIN | {"signature": "nvidia_close"}))
    assert "blocked in nvidia close (driver)" in words(plight, {}, NOW)
    assert words(plight, {}, NOW).endswith("reboot the node")


@pytest.mark.parametrize(
    ("domain", "mend"),
    [
        (FaultDomain.DRIVER, "reboot the node"),
        (FaultDomain.HARDWARE, "reboot the node"),
        (FaultDomain.WORKLOAD, "not the GPU's fault"),
        (FaultDomain.UNKNOWN, "let a person decide"),
    ],
)
def test_a_place_that_is_not_known_is_said_to_be_so(domain: FaultDomain, mend: str) -> None:
    """Motionless, in no known place, with a mend by whose fault it is."""
    text = said(TaskCondition.EXITING, Leaving.STUCK_BLOCKED, fault_domain=domain)
    assert "motionless, in no known place" in text
    assert mend in text


def test_a_signature_may_permit_a_reset_and_have_no_public_issue() -> None:
    """Then neither is spoken of."""
    own = replace(SIGNATURES[0], forbids_reset=False, issue="")
    text = words(a_plight(TaskCondition.EXITING, Leaving.STUCK_SPINNING, **SPIN), {}, NOW, (own,))
    assert "reset" not in text
    assert text.endswith("reboot the node")


def test_the_flush_of_a_dead_mount_is_not_the_gpus_fault() -> None:
    """The abort hint is in the sentence."""
    text = said(
        TaskCondition.EXITING,
        Leaving.STUCK_BLOCKED,
        signature="fuse_flush",
        fault_domain=FaultDomain.WORKLOAD,
    )
    assert "not the GPU's fault" in text
    assert "/sys/fs/fuse/connections" in text


def test_after_one_look_neither_a_time_nor_a_verdict_is_claimed() -> None:
    """`exiting for 0 s, not stuck` of a process that hangs for an hour would send its reader away."""
    text = said(TaskCondition.EXITING, Leaving.PROGRESSING, looks=1)
    assert text == "exiting, seen once; one look can't tell whether it is stuck: look again in a minute"
    text = said(TaskCondition.ZOMBIE_LEADER, Leaving.NOT_LEAVING, looks=1)
    assert text.startswith("its leader is dead and other threads live, seen once; it still holds")


def test_a_pending_sigkill_on_an_exiting_task_means_nothing() -> None:
    """It is said, so that nobody sends another."""
    pending = a_look(100, a_ktask(100, "D", PF_EXITING, kill_pending=True))
    text = said(TaskCondition.EXITING, Leaving.PROGRESSING, pending, **SPIN)
    assert "not stuck as far as can be told" in text
    assert "a pending SIGKILL means nothing now" in text
    assert "in uvm_spin_loop (driver)" in text
    assert "SIGKILL" not in said(TaskCondition.EXITING, Leaving.PROGRESSING, exiting())
    assert "SIGKILL" not in said(TaskCondition.BLOCKED, Leaving.PROGRESSING, pending)


@pytest.mark.parametrize(
    ("condition", "look", "part"),
    [
        (FROZEN, {"freezer": "v1 /job"}, "(v1 /job); a signal waits until a person thaws it"),
        (FROZEN, {"freezer": "v2 /job"}, "(v2 /job); SIGKILL ends it all the same"),
        (FROZEN, {}, "a signal waits until a person thaws it"),
        (FROZEN, None, "a signal waits until a person thaws it"),
        (TaskCondition.STOPPED, {}, "SIGTERM waits until SIGCONT, SIGKILL works"),
        (TaskCondition.TRACED, {"tracer_pid": 7}, "the tracer 7 must let it go"),
        (TaskCondition.TRACED, {}, "the tracer must let it go"),
        (TaskCondition.TRACED, None, "the tracer must let it go"),
    ],
)
def test_each_kind_of_holding_has_its_own_way_out(
    condition: TaskCondition, look: dict[str, Any] | None, part: str
) -> None:
    """Frozen, stopped and traced: not stuck in the kernel, each with its own advice."""
    text = said(condition, Leaving.HELD, None if look is None else a_look(100, **look))
    assert "not stuck in the kernel" in text
    assert part in text


def test_a_core_dump_has_words_of_its_own() -> None:
    """In time, too long, and not growing at all: SIGKILL cuts it short each time."""
    core = TaskCondition.DUMPING_CORE
    for leaving in (Leaving.PROGRESSING, Leaving.NO_RELEASE, Leaving.STUCK_BLOCKED):
        text = said(core, leaving)
        assert text.startswith("dumping core for 4 m 10 s")
        assert "SIGKILL cuts the core short" in text
        assert "cannot help" not in text


def test_motion_without_release_is_called_undetermined() -> None:
    """With the time since the last release, and never as stuck."""
    text = said(TaskCondition.EXITING, Leaving.NO_RELEASE)
    assert "let go of nothing for 4 m 00 s; undetermined" in text
    assert "stuck" not in text
    assert "last seen in uvm_spin_loop (driver)" in said(TaskCondition.EXITING, Leaving.NO_RELEASE, **SPIN)


@pytest.mark.parametrize(
    ("condition", "leaving", "start"),
    [
        (TaskCondition.RUNNING, Leaving.STUCK_SPINNING, "sent SIGKILL and not exiting for 4 m 10 s"),
        (TaskCondition.RUNNING, Leaving.UNDETERMINED, "seen for 4 m 10 s; what it does can't be read"),
        (TaskCondition.BLOCKED, Leaving.NOT_LEAVING, "blocked in the kernel for 4 m 10 s; not asked to end"),
        (TaskCondition.ZOMBIE_LEADER, Leaving.NOT_LEAVING, "its leader is dead and other threads live"),
        (TaskCondition.GONE, Leaving.NOT_LEAVING, "dead for"),
    ],
)
def test_each_sentence_begins_with_what_it_does(
    condition: TaskCondition, leaving: Leaving, start: str
) -> None:
    """And for how long it was seen so."""
    assert said(condition, leaving).startswith(start)


def test_a_wait_that_nobody_asked_to_end_names_its_place() -> None:
    """In the driver or not."""
    assert "in uvm_spin_loop (driver); not asked" in said(TaskCondition.BLOCKED, Leaving.NOT_LEAVING, **SPIN)


def test_a_kernel_thread_is_called_one() -> None:
    """Nobody shall look for its command line."""
    thread = a_look(100, a_ktask(100, "D", PF_KTHREAD))
    assert said(TaskCondition.BLOCKED, Leaving.STUCK_BLOCKED, thread).startswith("a kernel thread, blocked")
    assert said(TaskCondition.BLOCKED, Leaving.STUCK_BLOCKED, a_look(100)).startswith("blocked in the kernel")
    other = replace(thread, ref=a_ref(100, 9))
    assert said(TaskCondition.BLOCKED, Leaving.STUCK_BLOCKED, other).startswith("blocked in the kernel")


def test_the_one_it_waits_for_is_named_or_that_none_can_be_told() -> None:
    """By the plight, or for the init of a namespace by the reason."""
    text = said(TaskCondition.EXITING, Leaving.PROGRESSING, culprit=a_ref(7))
    assert text.endswith("it waits for 7@1")
    init = a_look(100, a_ktask(100, "S", PF_EXITING, f"zap_pid_ns_processes {EXIT}"), ns_pids=(100, 1))
    assert "nobody of its namespace was looked at" in said(TaskCondition.EXITING, Leaving.PROGRESSING, init)


@pytest.mark.parametrize(
    ("look", "part"),
    [
        (a_look(100), ""),
        (a_look(100, a_ktask(100, "Z", PF_EXITING, kill_pending=True)), ""),
        (a_look(100, a_ktask(100, "D", PF_EXITING, kill_pending=True)), "means nothing"),
        (a_look(100, a_ktask(100, "D", kill_pending=True), frozen=Known(value=True)), "thaws"),
        (a_look(100, a_ktask(100, "D", kill_pending=True)), "by an exec, a core dump"),
    ],
)
def test_what_a_pending_sigkill_says(look: KernelLook, part: str) -> None:
    """Nothing on an exit, a freezer on a frozen one, and never that we sent it."""
    text = kill_pending_means(look)
    assert part in text
    assert bool(text) is bool(part)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0.9, "0 s"), (59, "59 s"), (60, "1 m 00 s"), (250, "4 m 10 s"), (7500, "2 h 05 m")],
)
def test_times_are_written_for_people(seconds: float, text: str) -> None:
    """Seconds, minutes and hours."""
    assert duration(seconds) == text
