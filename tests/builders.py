"""Short typed builders of the model's values: each makes a sane whole, overrides change one thing."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.protections import Ours
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.identity import DeviceNumber, FileIdentity, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, Incident, Plan, Stage, Target
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import DEFAULT_STAGES, GpuSpan, Mode, Policy, Rule, Scope, Selector, Threshold
from reclaimerd.model.process import (
    ProcessReading,
    TaskReading,
    Workload,
    WorkloadKind,
)
from reclaimerd.model.reading import Absent, Known
from reclaimerd.model.snapshot import (
    ContextKind,
    DriverReading,
    DriverState,
    GpuMemory,
    GpuProcess,
    GpuReading,
    Holder,
    RecoveryAction,
    ScanCoverage,
    Snapshot,
    Utilisation,
)
from reclaimerd.model.step import Step

BOOT = "11111111-2222-3333-4444-555555555555"
GIB = 1024**3
GPU_A = GpuUuid("GPU-aaaaaaaa-0000-0000-0000-000000000000")
GPU_B = GpuUuid("GPU-bbbbbbbb-0000-0000-0000-000000000000")
WALL = 1_800_000_000.0
"""Wall-clock seconds of a built snapshot."""
MONO = 10_000.0
"""Monotonic seconds of a built snapshot."""


def a_ref(pid: int = 100, start: int = 1, boot_id: str = BOOT) -> ProcessRef:
    """Return the identity of one process."""
    return ProcessRef(boot_id, pid, start)


def a_task(tid: int = 100, state: str = "S", flags: int = 0, cpu_ticks: int = 0) -> TaskReading:
    """Return one thread: asleep and healthy."""
    return TaskReading(tid, state, flags, cpu_ticks)


def a_workload(name: str = "train.service", **overrides: Any) -> Workload:
    """Return a trusted system unit."""
    unit = Workload(WorkloadKind.UNIT, name, path=f"/system.slice/{name}", unit=name)
    return replace(unit, **overrides)


def a_process(pid: int = 100, start: int = 1, **overrides: Any) -> ProcessReading:
    """Return a healthy process of uid 1000 in a unit of its own: `/usr/bin/python3 train.py`."""
    reading = ProcessReading(
        ref=a_ref(pid, start),
        ppid=50,
        uids=(1000, 1000, 1000, 1000),
        comm="python3",
        thread_count=1,
        tasks=(a_task(pid),),
        whole=True,
        kill_pending=False,
        dumping_core=False,
        tracer_pid=0,
        ns_pids=(pid,),
        age_seconds=3600.0,
        exe=Known("/usr/bin/python3"),
        exe_file=Known(FileIdentity(1, 7)),
        cmdline=Known(("python3", "train.py")),
        cgroup=f"0::/system.slice/train-{pid}.service",
        workload=a_workload(f"train-{pid}.service"),
    )
    return replace(reading, **overrides)


def a_row(pid: int = 100, used: int = 8 * GIB, **overrides: Any) -> GpuProcess:
    """Return one row of NVML's compute list."""
    return replace(GpuProcess(pid, Known(used), ContextKind.COMPUTE), **overrides)


def a_gpu(
    uuid: str = GPU_A,
    *,
    used: int | None = None,
    total: int = 80 * GIB,
    processes: Iterable[GpuProcess] = (),
    **overrides: Any,
) -> GpuReading:
    """Return a healthy GPU; `used` of None is the sum of what its rows hold."""
    rows = tuple(processes)
    held = sum(row.used_bytes.value for row in rows if isinstance(row.used_bytes, Known))
    index = 1 if uuid == GPU_B else 0
    gpu = GpuReading(
        uuid=GpuUuid(uuid),
        index=index,
        pci_address=f"00000000:0{index}:00.0",
        minor=index,
        name="NVIDIA H200",
        device=DeviceNumber(195, index),
        memory=Known(GpuMemory(total, held if used is None else used, 0)),
        processes=Known(rows),
        utilisation=Known(Utilisation(0, 0)),
        mig=Known(value=False),
        persistence=Known(value=True),
        recovery_action=Known(RecoveryAction.NONE),
    )
    return replace(gpu, **overrides)


def a_holder(
    process: ProcessReading | ProcessRef | int = 100,
    gpu: str = GPU_A,
    *,
    used: int = 8 * GIB,
    **overrides: Any,
) -> Holder:
    """Return a holder that both NVML and /proc show."""
    match process:
        case ProcessReading(ref=ref):
            pass
        case ProcessRef() as ref:
            pass
        case pid:
            ref = a_ref(pid)
    holder = Holder(ref, GpuUuid(gpu), listed=True, node=True, used_bytes=Known(used))
    return replace(holder, **overrides)


def a_snapshot(
    *,
    gpus: Iterable[GpuReading] | None = None,
    processes: Iterable[ProcessReading] = (),
    holders: Iterable[Holder] = (),
    at: float = MONO,
    **overrides: Any,
) -> Snapshot:
    """Return a whole look at a healthy host; without `gpus` there is one, idle."""
    snapshot = Snapshot(
        taken_at=WALL + (at - MONO),
        at=at,
        boot_id=BOOT,
        driver=DriverReading(DriverState.RESPONSIVE, since=0.0, version=Known("580.159.04")),
        gpus=(a_gpu(),) if gpus is None else tuple(gpus),
        processes={reading.ref.pid: reading for reading in processes},
        unreadable={},
        holders=tuple(holders),
        dead_listings=(),
        scan=ScanCoverage(full_at=at, full_now=True),
        exited=frozenset(),
    )
    return replace(snapshot, **overrides)


def a_busy_snapshot(
    *readings: ProcessReading, used: int = 8 * GIB, at: float = MONO, **overrides: Any
) -> Snapshot:
    """Return a host whose GPU A each of these processes holds with `used` bytes."""
    found = readings or (a_process(),)
    rows = tuple(a_row(reading.ref.pid, used) for reading in found)
    holders = tuple(a_holder(reading, used=used) for reading in found)
    gpus = (a_gpu(GPU_A, processes=rows), a_gpu(GPU_B))
    return a_snapshot(gpus=gpus, processes=found, holders=holders, at=at, **overrides)


def a_rule(name: str = "over-cap", *, above: int = 4 * GIB, **overrides: Any) -> Rule:
    """Return an enforcing memory rule that holds at once for anyone over `above` bytes."""
    rule = Rule(
        name=name,
        above=Threshold(above_bytes=above),
        span=GpuSpan.ONE,
        for_seconds=0.0,
        readings=1,
        match=Selector(uids=((0, 4294967294),)),
        mode=Mode.ENFORCE,
    )
    return replace(rule, **overrides)


def a_policy(*rules: Rule, **overrides: Any) -> Policy:
    """Return an enforcing policy with the shipped figures; without rules it has `a_rule()`."""
    return replace(Policy(mode=Mode.ENFORCE, rules=rules or (a_rule(),)), **overrides)


def a_target(*readings: ProcessReading, **overrides: Any) -> Target:
    """Return a target with these members (the first is the root), on GPU A."""
    found = readings or (a_process(),)
    root = found[0]
    target = Target(
        scope=Scope.PROCESS if len(found) == 1 else Scope.TREE,
        root=root.ref,
        members=tuple(reading.ref for reading in found),
        gpus=(GPU_A,),
        uid=root.uids[0],
        exe="/usr/bin/python3",
        command="python3 train.py",
        workload=root.workload,
        held_bytes=((GPU_A, 8 * GIB),),
    )
    return replace(target, **overrides)


def a_plan(**overrides: Any) -> Plan:
    """Return the default stages with short waits."""
    plan = Plan(
        stages=DEFAULT_STAGES,
        sigterm_seconds=30.0,
        sigkill_seconds=60.0,
        exit_grace_seconds=120.0,
        proof_seconds=10.0,
    )
    return replace(plan, **overrides)


RULE_ACTOR = Actor(ActorKind.RULE, "over-cap", policy_digest="built-in")
OPERATOR = Actor(ActorKind.OPERATOR, "root", uid=0, pid=4000)


def an_incident(target: Target | None = None, **overrides: Any) -> Incident:
    """Return an incident by rule that was opened this instant."""
    incident = Incident(
        id=IncidentId("inc-1"),
        boot_id=BOOT,
        actor=RULE_ACTOR,
        reason="over-cap: holds 8.0 GiB, more than 4.0 GiB",
        target=a_target() if target is None else target,
        plan=a_plan(),
        opened_at=WALL,
        opened_mono=MONO,
        stage_mono=MONO,
    )
    return replace(incident, **overrides)


def a_step(incident: Incident | None = None, stage: Stage = Stage.SIGTERM, **overrides: Any) -> Step:
    """Return the step that takes `stage` for every process of the incident."""
    found = an_incident() if incident is None else incident
    step = Step(
        incident=found.id,
        stage=stage,
        actor=found.actor,
        target=found.target,
        targets=found.processes,
        reason=found.reason,
        dry_run=found.plan.dry_run,
        force=found.plan.force,
    )
    return replace(step, **overrides)


OURS = Ours(pid=900, ancestors=frozenset({1, 800}), workers=frozenset({901, 902}))
JUDGE = JudgeContext(OURS, lambda pattern, text: pattern in text, {"alice": 1000})


def a_context(**overrides: Any) -> GateContext:
    """Return a context in which nothing forbids an act by rule on `a_busy_snapshot`'s holder."""
    context = GateContext(
        policy=a_policy(),
        snapshot=a_busy_snapshot(),
        ledger=Ledger(),
        now=MONO,
        wall=WALL,
        started_mono=MONO - 3600.0,
        judge=JUDGE,
    )
    return replace(context, **overrides)


NOT_LISTED = Absent("not listed by NVML")
"""What a holder's memory reads as when only its open node shows it."""
