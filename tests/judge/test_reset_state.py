"""A GPU's own state, its tasks and the ledger: each refusal, with who is concerned."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.reset_gate import last_reasons, reset_reasons
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.process import PF_DUMPCORE, PF_EXITING
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import BusyThread, ErrorCounters, ModuleUse, Virtualisation
from reclaimerd.model.reset_run import GpuBreaker, ResetPhase, Untouchable
from reclaimerd.model.snapshot import Snapshot, unreadable_gpu
from reclaimerd.model.step import Reason, ReasonKind
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_process,
    a_ref,
    a_row,
    a_snapshot,
    a_task,
)
from tests.judge.kernel_builders import a_ktask, a_look
from tests.judge.reset_builders import (
    a_run,
    a_unit,
    asking,
    gpu_facts,
    modules,
    ready,
    with_facts,
    with_kernel,
    with_units,
)


def ask(snapshot: Snapshot, **overrides: Any) -> tuple[Reason, ...]:
    """Return the gate's reasons for GPU A, with nobody as the target."""
    return reset_reasons(GPU_A, frozenset(), asking(snapshot, **overrides))


def kinds(snapshot: Snapshot, **overrides: Any) -> list[ReasonKind]:
    """Return the kinds of the reasons."""
    return [reason.kind for reason in ask(snapshot, **overrides)]


# The GPU's own state


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("display_active", True, ReasonKind.KERNEL_CLIENT),
        ("drain_state", True, ReasonKind.DRAIN_STATE),
        ("mig_pending", True, ReasonKind.MIG),
        ("virtualisation", Virtualisation.VGPU_GUEST, ReasonKind.NOT_SUPPORTED),
        ("virtualisation", Virtualisation.VGPU_HOST, ReasonKind.NOT_SUPPORTED),
    ],
)
def test_a_state_that_forbids_a_reset(field: str, value: object, kind: ReasonKind) -> None:
    """Each by its own kind; unreadable refuses too, absent refuses nothing."""

    def refused(reading: Any) -> list[ReasonKind]:
        fields: dict[str, Any] = {field: reading}
        return kinds(with_facts(gpu_facts(**fields)))

    assert refused(Known(value)) == [kind]
    assert refused(Unreadable("x")) == [ReasonKind.UNREADABLE]
    assert refused(Absent("x")) == []


def test_passthrough_alone_refuses_nothing() -> None:
    """The vendor's tool decides there."""
    assert kinds(with_facts(gpu_facts(virtualisation=Known(Virtualisation.PASSTHROUGH)))) == []


def test_a_virtual_gpu_in_mig_mode_says_both() -> None:
    """The reason tells that it is a part of a part."""
    facts = gpu_facts(virtualisation=Known(Virtualisation.VGPU_GUEST))
    snapshot = with_facts(facts)
    snapshot = replace(snapshot, gpus=(replace(snapshot.gpus[0], mig=Known(value=True)),))
    reasons = ask(snapshot)
    assert [reason.kind for reason in reasons] == [ReasonKind.MIG, ReasonKind.NOT_SUPPORTED]
    assert "MIG mode" in reasons[1].text


@pytest.mark.parametrize("field", ["uncorrected_ecc", "remapped_rows", "remap_failed"])
def test_counters_must_be_readable_since_the_verdict_compares_them(field: str) -> None:
    """What could not be compared afterwards is refused before; a GPU without the counter is not."""
    counters = ErrorCounters(Known(3), Known(0), Known(value=True))
    assert kinds(with_facts(gpu_facts(counters=counters))) == []
    blind = replace(counters, **{field: Unreadable("x")})
    assert kinds(with_facts(gpu_facts(counters=blind))) == [ReasonKind.UNREADABLE]
    none = replace(counters, **{field: Absent("no ECC")})
    assert kinds(with_facts(gpu_facts(counters=none))) == []


def test_mig_names_the_instances_of_others() -> None:
    """Who uses which instance, and which are not the target's; none is made anew by us."""
    rows = (
        a_row(100, gpu_instance=1, compute_instance=0),
        a_row(101, gpu_instance=2, compute_instance=1),
        a_row(102, gpu_instance=3),
        a_row(103),
    )
    gpu = a_gpu(processes=rows, mig=Known(value=True))
    readings = [a_process(pid) for pid in (100, 101, 102, 103)]
    holders = [a_holder(reading) for reading in readings]
    snapshot = ready(a_snapshot(gpus=(gpu,), processes=readings, holders=holders))
    found = reset_reasons(GPU_A, frozenset({a_ref(100)}), asking(snapshot))
    (mig,) = [reason for reason in found if reason.kind is ReasonKind.MIG]
    assert "GI 1/CI 0 by pid 100 (the target)" in mig.text
    assert "not the target's: GI 2/CI 1, GI 3, an instance that is not told" in mig.text
    assert mig.processes == (a_ref(100),)
    alone = ready(a_snapshot(gpus=(a_gpu(processes=rows[:1], mig=Known(value=True)),)))
    (only,) = [
        one
        for one in reset_reasons(GPU_A, frozenset({a_ref(100)}), asking(alone))
        if one.kind is ReasonKind.MIG
    ]
    assert "not the target's" not in only.text
    unread = replace(gpu, processes=Unreadable("x"))
    assert ReasonKind.MIG in kinds(ready(a_snapshot(gpus=(unread,))))


def test_faults_that_a_reset_does_not_mend() -> None:
    """Lost, reboot, other and unknown refuse by each source; a reset's own class does not."""

    def with_xid(fault: FaultClass) -> list[ReasonKind]:
        xid = StandingXid(GPU_A, BOOT, 48, fault, seq=1, at=WALL)
        return kinds(ready(), ledger=Ledger(xids=(xid,)))

    assert with_xid(FaultClass.RESET) == with_xid(FaultClass.APPLICATION) == []
    assert with_xid(FaultClass.LOST) == [ReasonKind.GPU_LOST]
    for fault in (FaultClass.UNKNOWN, FaultClass.OTHER, FaultClass.REBOOT):
        assert with_xid(fault) == [ReasonKind.RECOVERY_ACTION]


def test_a_lost_gpu_is_refused_with_what_can_not_be_read() -> None:
    """Both are told: what is lost, and what nobody could read."""
    gpu = a_gpu(memory=Unreadable("GPU is lost"))
    assert kinds(ready(a_snapshot(gpus=(gpu,)))) == [ReasonKind.UNREADABLE, ReasonKind.GPU_LOST]


# Tasks


def test_a_frame_of_the_exit_counts_as_the_flag_does() -> None:
    """A task that reads healthy by its flags and stands in do_exit refuses."""
    look = a_look(100, a_ktask(100, "S", frames="nv_wait/nvidia do_exit"))
    assert kinds(ready(a_busy_snapshot(kernel={100: look}))) == [ReasonKind.EXIT_PATH]
    other = replace(look, ref=a_ref(100, 9))
    assert kinds(ready(a_busy_snapshot(kernel={100: other}))) == [ReasonKind.HOLDERS]


def test_a_task_blocked_in_the_driver_refuses_on_whatever_gpu() -> None:
    """The driver's locks are of all GPUs: a stranger's task in D inside it concerns this one too."""
    look = a_look(300, a_ktask(300, "D", frames="rm_ioctl/nvidia"))
    snapshot = replace(ready(), kernel={300: look})
    # What the driver says of the GPU meanwhile is not believed either.
    assert kinds(snapshot) == [ReasonKind.RECOVERY_ACTION, ReasonKind.DRIVER_BLOCKED]
    text = reset_reasons(GPU_A, frozenset(), asking(snapshot))[-1].text
    assert text.startswith("pid 300: task 300 (python3) waits in rm_ioctl [nvidia]")
    assert "whatever GPU" in text


def test_an_exit_in_the_driver_is_told_once() -> None:
    """A holder in the exit path and in D inside the driver has one reason, not two."""
    leaving = a_process(tasks=(a_task(100, "D", PF_EXITING),))
    look = a_look(100, a_ktask(100, "D", PF_EXITING, "nv_close/nvidia do_exit"))
    gpu = a_gpu(recovery_action=Absent("older driver"), processes=[a_row()])
    snapshot = a_snapshot(gpus=(gpu,), processes=[leaving], holders=[a_holder(leaving)], kernel={100: look})
    assert kinds(ready(snapshot)) == [ReasonKind.EXIT_PATH]


@pytest.mark.parametrize("frames", [None, Unreadable("no permission"), Absent("no stacks")])
def test_a_holder_in_d_whose_stack_nobody_sees_is_unknown(frames: Any) -> None:
    """It may be blocked inside the driver; nobody can say it is not."""
    reading = a_process(tasks=(a_task(100, "D"),))
    looks = {} if frames is None else {100: a_look(100, a_ktask(100, "D", frames="x"))}
    if frames is not None:
        looks[100] = replace(looks[100], tasks=(replace(looks[100].tasks[0], frames=frames),))
    found = kinds(ready(a_busy_snapshot(reading, kernel=looks)))
    assert found == [ReasonKind.UNREADABLE, ReasonKind.HOLDERS]


@pytest.mark.parametrize("frames", [None, Unreadable("no permission"), Absent("no stacks")])
@pytest.mark.parametrize("flags", [0, PF_EXITING], ids=["waits", "leaves"])
def test_a_holder_of_another_gpu_in_d_whose_stack_nobody_sees_is_unknown_too(frames: Any, flags: int) -> None:
    """The driver's locks are of all GPUs; at the last look as before. Who is known to be elsewhere passes."""
    reading = a_process(300, tasks=(a_task(300), a_task(301, "D", flags)))
    looks = {300: a_look(300, a_ktask(301, "D", flags, frames="fuse_wait/fuse"))}
    busy = replace(ready(), processes={300: reading}, holders=(a_holder(reading, GPU_B),))
    assert kinds(replace(busy, kernel=looks)) == []
    task = looks[300].tasks[0]
    looks[300] = replace(looks[300], tasks=() if frames is None else (replace(task, frames=frames),))
    snapshot = replace(busy, kernel=looks)
    for reasons in (
        reset_reasons(GPU_A, frozenset(), asking(snapshot)),
        last_reasons((GPU_A,), asking(snapshot)),
    ):
        (reason,) = reasons
        assert reason.kind is ReasonKind.UNREADABLE
        assert reason.processes == (a_ref(300),)
        assert "task 301 in D" in reason.text
    assert kinds(replace(snapshot, exited=frozenset({a_ref(300)}))) == []
    assert kinds(replace(snapshot, processes={})) == []


def test_a_holder_in_d_elsewhere_is_a_holder() -> None:
    """Its stack shows where it waits, and that is not the driver."""
    reading = a_process(tasks=(a_task(100, "D"),))
    look = a_look(100, a_ktask(100, "D", frames="fuse_wait/fuse"))
    assert kinds(ready(a_busy_snapshot(reading, kernel={100: look}))) == [ReasonKind.HOLDERS]


def test_a_holder_that_dumps_its_core_says_so() -> None:
    """It still holds the GPU, maybe for minutes."""
    reading = a_process(tasks=(a_task(100, "D", PF_DUMPCORE),), dumping_core=True)
    look = a_look(100, a_ktask(100, "D", frames="fuse_wait/fuse"))
    reasons = ask(ready(a_busy_snapshot(reading, kernel={100: look})))
    assert "dumping core" in reasons[0].text


def test_one_that_is_only_remembered_and_reads_whole_is_no_holder() -> None:
    """It held the GPU once; whole and healthy without the node, it holds nothing. Read in part: it may."""
    row = a_holder(listed=False, node=False, remembered=True)
    whole = a_snapshot(processes=[a_process()], holders=[row])
    assert kinds(ready(whole)) == []
    part = a_snapshot(processes=[a_process(whole=False)], holders=[row])
    assert kinds(ready(part)) == [ReasonKind.HOLDERS]
    named = reset_reasons(GPU_A, frozenset({a_ref()}), asking(ready(whole)))
    assert [reason.kind for reason in named] == [ReasonKind.HOLDERS]


# The ledger


def test_do_not_touch_binds_until_the_next_boot() -> None:
    """A tool that was left alone on this GPU in this boot; its process is named."""
    mark = Untouchable((GPU_A,), BOOT, WALL, "the tool did not end", a_ref(55))
    reasons = ask(ready(), ledger=Ledger(untouchable=(mark,)))
    assert [reason.kind for reason in reasons] == [ReasonKind.DO_NOT_TOUCH]
    assert reasons[0].processes == (a_ref(55),)
    nameless = replace(mark, tool=None)
    assert ask(ready(), ledger=Ledger(untouchable=(nameless,)))[0].processes == ()
    for other in (replace(mark, boot_id="earlier"), replace(mark, gpus=(GPU_B,))):
        assert kinds(ready(), ledger=Ledger(untouchable=(other,))) == []


def test_the_breaker_of_a_gpu_is_its_own() -> None:
    """Another GPU's breaker binds nothing here."""
    assert kinds(ready(), ledger=Ledger(gpu_breakers=(GpuBreaker(GPU_A, "2 failed", WALL),))) == [
        ReasonKind.BREAKER
    ]
    assert kinds(ready(), ledger=Ledger(gpu_breakers=(GpuBreaker(GPU_B, "2 failed", WALL),))) == []


def test_one_reset_at_a_time_on_a_host() -> None:
    """A run on any GPU refuses until it is done."""
    assert kinds(ready(), ledger=Ledger(resets=(a_run(GPU_B),))) == [ReasonKind.RESET_IN_FLIGHT]
    done = a_run(GPU_B, phase=ResetPhase.DONE)
    assert kinds(ready(), ledger=Ledger(resets=(done,))) == []


def test_another_incident_on_the_gpu_refuses() -> None:
    """It ends first; one on another GPU is no matter."""
    assert kinds(ready(), open_gpus={GPU_A: (IncidentId("inc-9"),)}) == [ReasonKind.OTHER_INCIDENT]
    assert kinds(ready(), open_gpus={GPU_B: (IncidentId("inc-9"),)}) == []


def test_what_the_ledger_knows_counts_though_the_gpu_was_not_seen() -> None:
    """A GPU that vanished under an abandoned tool is both unknown and not to be touched."""
    mark = Untouchable((GPU_A,), BOOT, WALL, "the tool did not end")
    found = kinds(ready(a_snapshot(gpus=(a_gpu(GPU_B),))), ledger=Ledger(untouchable=(mark,)))
    assert found == [ReasonKind.GPU_UNKNOWN, ReasonKind.DO_NOT_TOUCH]


# The last look


def last(snapshot: Snapshot, **overrides: Any) -> list[ReasonKind]:
    """Return the kinds of the last look's reasons."""
    return [reason.kind for reason in last_reasons((GPU_A,), asking(snapshot, **overrides))]


def blind(snapshot: Snapshot) -> Snapshot:
    """Return a look without the driver: GPUs by identity alone, no facts of NVML's."""
    unread = Unreadable("our own probe is closed for a reset")
    gpus = tuple(unreadable_gpu(gpu, unread.why) for gpu in snapshot.gpus)
    facts = snapshot.reset_facts
    told = None if facts is None else replace(facts, gpus=unread, units=unread)
    return replace(snapshot, gpus=gpus, reset_facts=told)


def test_the_last_look_asks_nothing_of_nvml() -> None:
    """With our probe closed, an empty host is clear."""
    assert last(blind(ready())) == []


def test_the_last_look_excuses_nobody() -> None:
    """A unit that should have been stopped, and our own worker, must be gone by now."""
    reading = a_process(70, workload=a_process().workload)
    held = a_snapshot(processes=[reading], holders=[a_holder(reading, listed=False)])
    listed = replace(reading, workload=replace(reading.workload, unit="nvidia-dcgm.service"))
    snapshot = with_units(a_unit(), snapshot=replace(held, processes={70: listed}))
    assert kinds(snapshot) == []
    assert last(blind(snapshot)) == [ReasonKind.HOLDERS]
    worker = a_process(901)
    snapshot = ready(a_snapshot(processes=[worker], holders=[a_holder(worker, listed=False)]))
    assert kinds(snapshot) == []
    assert last(blind(snapshot))[0] in (ReasonKind.HOLDERS, ReasonKind.PROTECTED)


@pytest.mark.parametrize(
    ("snapshot", "kind"),
    [
        (a_snapshot(unreadable={12: "hung"}), ReasonKind.UNREADABLE),
        (
            a_snapshot(kernel={300: a_look(300, a_ktask(300, "D", frames="x/nvidia"))}),
            ReasonKind.DRIVER_BLOCKED,
        ),
        (a_busy_snapshot(a_process(tasks=(a_task(100, "R", PF_EXITING),))), ReasonKind.EXIT_PATH),
    ],
)
def test_the_last_look_sees_tasks_and_gaps(snapshot: Snapshot, kind: ReasonKind) -> None:
    """Whoever leaves, waits in the driver or can't be read."""
    assert last(blind(ready(snapshot))) == [kind]


def test_the_last_look_sees_what_the_kernel_holds() -> None:
    """Busy threads, hidden uses, a device that went or that another driver has, and no word of the kernel."""
    thread = BusyThread(77, "nv_queue", "x [nvidia]")
    assert last(blind(with_kernel(busy_threads=(thread,)))) == [ReasonKind.DEFERRED_CLOSE]
    hidden = modules(nvidia=ModuleUse("nvidia", Known(1)))
    assert last(blind(with_kernel(modules=hidden))) == [ReasonKind.KERNEL_CLIENT]
    gone = with_kernel(present=(), missing=("0000:00:00.0",))
    assert last(blind(gone)) == [ReasonKind.GPU_LOST]
    taken = with_kernel(present=())
    assert last(blind(taken)) == [ReasonKind.RECOVERY_ACTION]
    assert last(blind(a_snapshot())) == [ReasonKind.UNREADABLE]


def test_the_last_look_reads_the_hold_file_and_misses_no_gpu() -> None:
    """Somebody said hold in the last second; a GPU that is not in the look is unknown."""
    assert last(blind(ready()), hold_file="/run/reclaimerd/HOLD") == [ReasonKind.HOLD]
    assert last(blind(ready(a_snapshot(gpus=(a_gpu(GPU_B),))))) == [ReasonKind.GPU_UNKNOWN]
