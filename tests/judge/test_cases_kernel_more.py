"""More public incidents by their numbers: what is stuck beside the driver, and what is not stuck at all."""

from typing import Any

import pytest

from reclaimerd.judge.evaluate import Evaluation, JudgeContext, evaluate
from reclaimerd.judge.plight import needs_drain
from reclaimerd.judge.proof import Proven, StillHeld, finding_of
from reclaimerd.judge.protections import protection_of
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.kernel import Leaving
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.process import PF_EXITING, ProcessReading, WorkloadKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import DriverReading, DriverState, Snapshot, Utilisation
from reclaimerd.model.verdict import Ruling
from reclaimerd.observe.workloads import workload_of
from tests.builders import (
    GIB,
    MONO,
    OURS,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_row,
    a_rule,
    a_snapshot,
    a_target,
    a_task,
    a_workload,
    an_incident,
)
from tests.judge.kernel_builders import GRACE, SYSTEM_CALL, Watch, a_ktask, a_look

CONTEXT = JudgeContext(ours=OURS, patterns=lambda _pattern, _text: False, user_ids={})
OVER_CAP = a_policy(a_rule(above=GIB))
FULLY_BUSY = Known(Utilisation(100, 0))


def judged(snapshot: Snapshot) -> Evaluation:
    """Return what an enforcing cap of 1 GiB for everybody makes of a look."""
    return evaluate(snapshot, OVER_CAP, (), CONTEXT)


def test_c05_a_task_that_is_blocked_elsewhere_is_not_laid_to_the_driver() -> None:
    """C05: the kernel's hung task watch names a task of a file system; it drains nobody, and is let be."""
    frames = f"__schedule schedule io_schedule folio_wait_bit_common filemap_fault {SYSTEM_CALL}"
    task = a_ktask(620917, "D", 0x2, frames, comm="cache_mgr_event")
    found = Watch().stay(a_look(620917, task, comm="cache_mgr_event"), GRACE * 4)
    assert found.leaving is Leaving.NOT_LEAVING
    assert found.fault_domain is not FaultDomain.DRIVER
    assert not needs_drain(found, MONO + GRACE * 5, GRACE)


def infrastructure(comm: str, path: str, unit: str, uid: int) -> ProcessReading:
    """Return a daemon of the host that sleeps in D since boot."""
    return a_process(
        935,
        comm=comm[:15],
        uids=(uid,) * 4,
        tasks=(a_task(935, "D"),),
        exe=Known(path),
        exe_file=Known(FileIdentity(8, 1)),
        workload=a_workload(unit),
    )


@pytest.mark.parametrize(
    ("comm", "unit", "uid"),
    [
        ("nvidia-persistenced", "nvidia-persistenced.service", 120),
        ("nv-hostengine", "nvidia-dcgm.service", 0),
    ],
)
def test_c24_the_drivers_own_daemons_are_protected_in_d_as_well(comm: str, unit: str, uid: int) -> None:
    """C24: stuck since boot, they are still infrastructure: SPARE, whatever they are said to hold."""
    path = f"/usr/bin/{comm}"
    reading = infrastructure(comm, path, unit, uid)
    files = {FileIdentity(8, 1): path}
    assert protection_of(reading, host_files=files, policy=OVER_CAP, ours=OURS) is not None
    (verdict,) = judged(a_busy_snapshot(reading, host_files=files)).verdicts
    assert verdict.ruling is Ruling.SPARE


def test_c24_while_the_driver_never_answered_nobody_is_a_target() -> None:
    """C24: nvidia-smi and a plugin that no list protects are stuck with it: no act by rule on either."""
    silent = DriverReading(DriverState.UNRESPONSIVE, since=0.0, why="driver unresponsive")
    for comm in ("nvidia-smi", "nvidia-docker-plugin"):
        stuck = infrastructure(comm, f"/usr/bin/{comm}", f"{comm}.service", 0)
        (verdict,) = judged(a_busy_snapshot(stuck, driver=silent)).verdicts
        assert verdict.ruling is Ruling.UNDETERMINED, comm


def test_c26_a_listed_pid_that_a_stranger_has_now_is_watched_and_never_a_target() -> None:
    """C26: NVML names the pid, and whoever has it now has no node open: one source is no proof."""
    stranger = a_process(4711, start=99)
    listed = a_holder(stranger, used=10 * GIB, node=False)
    gpu = a_gpu(processes=(a_row(4711, 10 * GIB),))
    (verdict,) = judged(a_snapshot(gpus=(gpu,), processes=(stranger,), holders=(listed,))).verdicts
    assert verdict.ruling is Ruling.WATCH
    assert "only one source" in verdict.reasons[0].text


def test_c26_no_such_process_is_not_reclaimed_while_nvml_lists_it() -> None:
    """C26: its pidfd says gone, and the driver still lists it with its memory: held, not proven."""
    dead = a_process(4711)
    gpu = a_gpu(processes=(a_row(4711, 10 * GIB),), utilisation=FULLY_BUSY)
    found = finding_of(an_incident(a_target(dead)), a_snapshot(gpus=(gpu,), exited=frozenset({dead.ref})))
    assert isinstance(found, StillHeld)
    assert "still lists 4711" in found.why


def test_c27_a_gpu_that_reads_busy_with_nobody_on_it_is_nobodys_fault() -> None:
    """C27: 100 %, no memory, no process: no verdict, hence no act and no reset; nor memory of it."""
    found = judged(a_snapshot(gpus=(a_gpu(used=0, utilisation=FULLY_BUSY),)))
    assert (found.verdicts, found.sustained, found.lookalikes) == ((), (), ())


@pytest.mark.parametrize(("percent", "shared"), [(100, False), (99, False), (100, True)])
def test_c27_a_kill_may_leave_the_counter_latched_and_that_is_said(*, percent: int, shared: bool) -> None:
    """C27: reclaimed all the same, with a word on the latch; on a shared GPU the load is the others'."""
    target = a_process(100)
    others: dict[str, Any] = {"processes": (a_row(200, GIB),)} if shared else {}
    gpu = a_gpu(utilisation=Known(Utilisation(percent, 0)), **others)
    holders = (a_holder(200, used=GIB),) if shared else ()
    look = a_snapshot(gpus=(gpu,), holders=holders, exited=frozenset({target.ref}))
    found = finding_of(an_incident(a_target(target)), look)
    assert isinstance(found, Proven)
    assert ("no cause for a reset" in found.proof.text) is (percent == 100 and not shared)


def test_c31_a_process_that_outlived_its_container_is_not_exempt() -> None:
    """C31: its cgroup still names the container, root made that name, and nothing protects its process."""
    cid = "5e" * 32
    workload = workload_of(f"0::/system.slice/docker-{cid}.scope\n", lambda _controllers, _path: True)
    assert (workload.kind, workload.container_id, workload.trusted) == (WorkloadKind.CONTAINER, cid, True)
    worker = a_process(comm="VLLM::Worker", uids=(0, 0, 0, 0), workload=workload)
    (verdict,) = judged(a_busy_snapshot(worker, used=11 * GIB)).verdicts
    assert verdict.ruling is Ruling.RECLAIM


def test_c35_a_dead_leader_that_nvml_lists_is_a_holder_as_long_as_a_thread_lives() -> None:
    """C35: Z is not "already dead": with a living thread it is judged like any other holder."""
    half = a_process(31794, tasks=(a_task(31794, "Z", PF_EXITING), a_task(31795)), thread_count=2)
    policy = a_policy(a_rule(above=GIB))
    (verdict,) = evaluate(a_busy_snapshot(half), policy, (), CONTEXT).verdicts
    assert verdict.ruling is Ruling.RECLAIM
