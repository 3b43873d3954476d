"""The step and the incident of a reset that nobody has ordered yet, or that is under way; values only.

The gates are asked with them as they would be for an operator, so the answer holds all that binds one.
"""

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.model.identity import GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, Incident, Plan, Stage, Subject, Target
from reclaimerd.model.policy import ListedStage, Scope
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.step import Step

_ASKER = Actor(ActorKind.OPERATOR, "whoever asks")


def asked_for(
    name: IncidentId,
    gpus: tuple[GpuUuid, ...],
    targets: frozenset[ProcessRef],
    context: GateContext,
    *,
    force: bool,
) -> tuple[Step, Incident]:
    """Return an operator's step for these GPUs and an incident of this name to which it belongs."""
    members = tuple(sorted(targets))
    target = Target(
        scope=Scope.PROCESS,
        root=ProcessRef(context.snapshot.boot_id, 0, 0),
        members=members,
        gpus=gpus,
        uid=0,
        exe="",
        command="",
        workload=Workload(WorkloadKind.NONE, "no workload"),
    )
    plan = Plan((ListedStage.RESET,), 0.0, 0.0, 0.0, 0.0, force=force)
    incident = Incident(
        id=name,
        boot_id=context.snapshot.boot_id,
        actor=_ASKER,
        reason="asked about",
        target=target,
        plan=plan,
        opened_at=context.wall,
        opened_mono=context.now,
        subject=Subject.GPU,
    )
    step = Step(name, Stage.RESET, _ASKER, target, (), incident.reason, force=force)
    return step, incident
