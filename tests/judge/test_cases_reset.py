"""Public incidents that concern the reset gate, by their case id: what others did wrong is refused here."""

from dataclasses import replace

import pytest

from reclaimerd.judge.gates import admit, explain
from reclaimerd.judge.gpu_fault import fault_of
from reclaimerd.judge.reset_gate import last_reasons, reset_reasons
from reclaimerd.judge.reset_plan import plan_of, verified
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import FileIdentity, GpuUuid
from reclaimerd.model.incident import Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import ListedStage
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.reset_facts import DisplayClient, Generation, ModuleUse, NvLinks
from reclaimerd.model.reset_run import ChangeKind
from reclaimerd.model.snapshot import RecoveryAction, Utilisation
from reclaimerd.model.step import ReasonKind, Refusal
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    GPU_B,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_plan,
    a_process,
    a_row,
    a_snapshot,
    a_step,
    a_target,
    a_workload,
    an_incident,
)
from tests.judge.reset_builders import (
    a_run,
    a_unit,
    asking,
    gpu_facts,
    modules,
    ready,
    reset_policy,
    with_facts,
    with_kernel,
    with_units,
)


def test_c27_a_gpu_that_reads_busy_with_nobody_on_it_asks_for_nothing() -> None:
    """100 % and 0 MiB without a holder: no fault, no reason for a reset, and none against one."""
    latched = ready(a_snapshot(gpus=(a_gpu(utilisation=Known(Utilisation(100, 0))),)))
    assert fault_of(GPU_A, latched, Ledger()).fault is FaultClass.NONE
    assert reset_reasons(GPU_A, frozenset(), asking(latched)) == ()


def test_c37_persistence_mode_alone_is_a_step_for_that_gpu_only() -> None:
    """Off by UUID, what it was is kept, and nobody else's process is touched for it."""
    daemon = a_process(70, uids=(0, 0, 0, 0), workload=a_workload("nvidia-persistenced.service"))
    rows = [a_holder(daemon, gpu, listed=False) for gpu in (GPU_A, GPU_B)]
    snapshot = ready(a_snapshot(gpus=(a_gpu(), a_gpu(GPU_B)), processes=[daemon], holders=rows))
    answer = explain(GPU_A, asking(snapshot))
    assert answer.permitted
    changes = plan_of(GPU_A, asking(snapshot)).changes
    assert [(change.kind, change.name, change.before) for change in changes] == [
        (ChangeKind.PERSISTENCE, GPU_A, "1")
    ]
    assert [one.kind for one in last_reasons((GPU_A,), asking(snapshot))] != []


@pytest.mark.parametrize("name", ["nvidia_drm", "nvidia_modeset"])
def test_c39_a_kernel_client_is_named_and_no_module_is_unloaded(name: str) -> None:
    """No process holds the GPU and the driver would still refuse: a kernel client, by its name."""
    snapshot = with_kernel(modules=modules(**{name: ModuleUse(name, Known(2), ("x",))}))
    (reason,) = reset_reasons(GPU_A, frozenset(), asking(snapshot))
    assert reason.kind is ReasonKind.KERNEL_CLIENT
    assert name in reason.text
    assert "unloads no module" in reason.mend
    display = with_kernel(displays=(DisplayClient("0000:00:00.0", "nvidia_drm drives card0"),))
    assert "nvidia_drm drives card0" in reset_reasons(GPU_A, frozenset(), asking(display))[0].text


def test_c40_a_monitor_that_is_not_ours_to_stop_is_refused_by_name() -> None:
    """The exporter's pod would be started again within the second: its name, and no kill as the mend."""
    exporter = a_process(
        70,
        comm="dcgm-exporter",
        exe=Known("/usr/bin/dcgm-exporter"),
        workload=a_workload("pod", unit="", path="/kubepods/pod"),
    )
    (reason,) = reset_reasons(
        GPU_A,
        frozenset(),
        asking(ready(a_snapshot(processes=[exporter], holders=[a_holder(exporter, listed=False)]))),
    )
    assert reason.kind is ReasonKind.HOLDERS
    assert "looks like NVIDIA DCGM" in reason.text
    assert "kill" not in reason.mend
    host_file = FileIdentity(1, 60)
    engine = a_process(
        71,
        uids=(0, 0, 0, 0),
        exe_file=Known(host_file),
        workload=a_workload("nvidia-dcgm.service"),
    )
    held = a_snapshot(
        processes=[engine],
        holders=[a_holder(engine, listed=False)],
        host_files={host_file: "/usr/bin/nv-hostengine"},
    )
    unlisted = asking(with_units(a_unit(), snapshot=held), policy=reset_policy(stop_units=()))
    (reason,) = reset_reasons(GPU_A, frozenset(), unlisted)
    assert reason.kind is ReasonKind.PROTECTED
    assert "NVIDIA DCGM" in reason.text
    assert reset_reasons(GPU_A, frozenset(), asking(with_units(a_unit(), snapshot=held))) == ()


def test_c41_the_holder_is_looked_for_again_right_before() -> None:
    """Whoever came since the first look refuses at the last one, and the device is never unbound."""
    came = a_busy_snapshot(a_process(300))
    assert ReasonKind.HOLDERS in {one.kind for one in last_reasons((GPU_A,), asking(ready(came)))}
    steps = " ".join(explain(GPU_A, asking(ready())).steps)
    assert "unbind" not in steps
    assert "rmmod" not in steps


def test_c43_an_xid_that_blames_udev_makes_no_target() -> None:
    """Xid 154 asks for a reset, 109 names a system daemon: the class is reset, and no pid is in it."""
    xids = (
        StandingXid(GPU_A, BOOT, 154, FaultClass.RESET, seq=2, at=WALL, text="GPU Reset Required"),
        StandingXid(GPU_A, BOOT, 109, FaultClass.RESET, seq=3, at=WALL, text="pid=619, name=(udev-worker)"),
    )
    found = fault_of(GPU_A, ready(), Ledger(xids=xids))
    assert found.fault is FaultClass.RESET
    assert "619" not in " ".join(source[2] for source in found.sources)
    assert reset_reasons(GPU_A, frozenset(), asking(ready(), ledger=Ledger(xids=xids))) == ()


def test_c44_one_gpu_of_a_board_is_not_reset_under_the_others_jobs() -> None:
    """A100 on NVSwitch without its Fabric Manager: refused, also with peers while one of them is busy."""
    links = Known(NvLinks(12, switched=True))
    board = [
        gpu_facts(uuid, index, generation=Known(Generation.AMPERE), links=links)
        for index, uuid in enumerate((GPU_A, GPU_B))
    ]
    snapshot = with_facts(*board)
    (reason,) = reset_reasons(GPU_A, frozenset(), asking(snapshot))
    assert reason.kind is ReasonKind.PEERS
    assert GPU_B in reason.text
    job = a_process(100)
    busy = replace(snapshot, processes={100: job}, holders=(a_holder(job, GPU_B, listed=False),))
    allowed = asking(busy, policy=reset_policy(peers=True))
    assert [one.kind for one in reset_reasons(GPU_A, frozenset(), allowed)] == [ReasonKind.HOLDERS]
    hopper = gpu_facts(links=links, fabric=Known("in progress"))
    assert reset_reasons(GPU_A, frozenset(), asking(with_facts(hopper))) == ()


def test_c45_no_target_is_an_error_and_never_all_gpus() -> None:
    """A step that names no GPU, or an unknown one, is refused; no plan's command is without a UUID."""
    incident = an_incident(
        a_target(members=(), gpus=()), actor=OPERATOR, plan=a_plan(stages=(ListedStage.RESET,))
    )
    answer = admit(a_step(incident, Stage.RESET, targets=()), incident, asking(ready()))
    assert isinstance(answer, Refusal)
    assert [reason.kind for reason in answer.reasons] == [ReasonKind.GPU_UNKNOWN]
    for name in ("GPU-none", ""):
        asked = explain(GpuUuid(name), asking(ready()))
        assert [reason.kind for reason in asked.reasons] == [ReasonKind.GPU_UNKNOWN]
    assert verified(a_run(gpus=(), before=()), ready(), Ledger()) != ()


def test_c63_no_utilisation_on_mig_says_nothing() -> None:
    """Absent is not 0 %: the refusal is for MIG, and names who is on which instance."""
    gpu = a_gpu(
        processes=[a_row(7, gpu_instance=1, compute_instance=0)],
        mig=Known(value=True),
        utilisation=Absent("not supported"),
    )
    reading = a_process(7)
    snapshot = ready(a_snapshot(gpus=(gpu,), processes=[reading], holders=[a_holder(reading)]))
    found = reset_reasons(GPU_A, frozenset(), asking(snapshot))
    assert {reason.kind for reason in found} == {ReasonKind.HOLDERS, ReasonKind.MIG}
    assert "GI 1/CI 0 by pid 7" in " ".join(reason.text for reason in found)


def test_c76_a_row_without_a_figure_is_a_holder() -> None:
    """Memory that is not told is neither 0 nor 16 EiB: the pid counts, the figure decides nothing."""
    gpu = a_gpu(used=14 * GIB, processes=[a_row(79, used_bytes=Absent("not available"))])
    found = reset_reasons(GPU_A, frozenset(), asking(ready(a_snapshot(gpus=(gpu,)))))
    assert [reason.kind for reason in found] == [ReasonKind.HOLDERS]
    assert "pid 79" in found[0].text


def test_c78_memory_that_nobody_accounts_for_asks_for_no_reset() -> None:
    """Managed memory makes a gap between the device and its processes: no fault, and the holder refuses."""
    gpu = a_gpu(used=60 * GIB, processes=[a_row(100, used=5 * GIB)])
    snapshot = ready(replace(a_busy_snapshot(), gpus=(gpu,)))
    assert fault_of(GPU_A, snapshot, Ledger()).fault is FaultClass.NONE
    assert [one.kind for one in reset_reasons(GPU_A, frozenset(), asking(snapshot))] == [ReasonKind.HOLDERS]
    ghost = ready(a_snapshot(gpus=(a_gpu(used=60 * GIB),)))
    assert fault_of(GPU_A, ghost, Ledger()).fault is FaultClass.NONE
    assert reset_reasons(GPU_A, frozenset(), asking(ghost)) == ()


def test_a_lost_gpu_that_asks_for_a_reset_gets_none() -> None:
    """The device is gone from PCI while the last word of the driver was reset: only a reboot helps."""
    asks = a_snapshot(gpus=(a_gpu(recovery_action=Known(RecoveryAction.GPU_RESET)),))
    snapshot = with_kernel(asks, present=(), missing=("0000:00:00.0",))
    assert [one.kind for one in reset_reasons(GPU_A, frozenset(), asking(snapshot))] == [ReasonKind.GPU_LOST]
