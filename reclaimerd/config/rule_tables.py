"""The form of the rules that may take a GPU back, one table for each kind.

The docstring of a kind goes into docs/policy.md: a sentence, and what the kind can't see. Tables inherit
from `rule_bases`.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StrictBool, with_config

from reclaimerd.config.rule_bases import (
    CLOSED,
    RULE,
    ActingRuleTable,
    EnforceOnKey,
    EvenIfAllocated,
    GraceKey,
    KindKey,
    ModeKey,
    NameKey,
    OlderThan,
    SigkillKey,
    StagesKey,
    WindowKey,
)
from reclaimerd.config.value_kinds import (
    ActionsOfDriver,
    Cap,
    Duration,
    FaultActionWord,
    GpuName,
    IdleShare,
    PerWord,
    PositiveCount,
    PositiveDuration,
    Rate,
    SpanWord,
    XidClasses,
)
from reclaimerd.model import policy as model
from reclaimerd.model.policy import RuleKind

_FAULT_RULE = model.FaultRule(name="")


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `memory`: more memory is held than the cap.

    It can't see what a program maps as managed memory: the driver tells less than it uses. Where the driver
    tells no figure of a process (WSL, GB10, MIG without rights) the rule is undetermined and does nothing.
    """

    kind: KindKey = RuleKind.MEMORY
    above: Annotated[
        Cap,
        Field(description='The cap: a size, or a share of the GPU such as "70%". Must be given.'),
    ] = RULE.above
    span: Annotated[
        SpanWord,
        Field(alias="gpus", description='"one": on one GPU. "all": summed over the GPUs that it holds.'),
    ] = RULE.span
    per: Annotated[
        PerWord,
        Field(description="Over whom it is summed: each process alone, a job or container, or one uid."),
    ] = RULE.per
    even_if_allocated: EvenIfAllocated = RULE.even_if_allocated


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `memory_growth`: memory rose all the while, as a leak's does.

    It can't tell a leak from a program that always grows for longer than the window before it gives back,
    and sees no leak inside an allocator that took all memory at its start.
    """

    kind: KindKey = RuleKind.MEMORY_GROWTH
    growth_bytes_per_second: Annotated[
        Rate | None,
        Field(alias="growth", description="By the median slope over the window. Must be given."),
    ] = None
    window_seconds: WindowKey = RULE.window_seconds
    older_than_seconds: OlderThan = None
    even_if_allocated: EvenIfAllocated = RULE.even_if_allocated


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgeRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `age`: memory is held by a process that started so long ago.

    It can't see whether the time was used well, and a program that is started anew each hour is always young.
    """

    kind: KindKey = RuleKind.AGE
    older_than_seconds: Annotated[
        PositiveDuration | None,
        Field(alias="older_than", description="Since the start of the process. Must be given."),
    ] = None


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `idle`: memory was held over the whole window without using the GPU.

    It can't tell a forgotten notebook from a server that nobody asked anything, and who makes load to look
    busy is not idle. In MIG mode, under MPS and where the driver tells no shares nobody is known to be idle.
    """

    kind: KindKey = RuleKind.IDLE
    idle_percent: Annotated[
        IdleShare | None,
        Field(alias="idle", description="The share of the GPU up to which it is idle. Must be given."),
    ] = None
    window_seconds: WindowKey = RULE.window_seconds
    older_than_seconds: OlderThan = None


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnallocatedRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `unallocated`: a process holds a GPU that its scheduler gave to somebody else.

    It can't see what a resource claim (DRA) gave, nor who may use a GPU that is shared in turns; there, and
    wherever the scheduler's own word is missing, old or in doubt, nobody is convicted.
    """

    kind: KindKey = RuleKind.UNALLOCATED
    pod_shares: Annotated[
        StrictBool,
        Field(description="true: what one container of a pod was given counts for all of its containers."),
    ] = RULE.pod_shares
    static_pods: Annotated[
        StrictBool,
        Field(description="true: also pods that the kubelet runs from files."),
    ] = RULE.static_pods
    outside_pods: Annotated[
        StrictBool,
        Field(description="true: also processes that belong to no pod, on a host with a kubelet."),
    ] = RULE.outside_pods
    outside_jobs: Annotated[
        StrictBool,
        Field(description="true: on a Slurm node also processes of no job, such as of an ssh session."),
    ] = RULE.outside_jobs


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class LingeringRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `lingering`: a process outlived its pod or job, and its owner's deadline is past.

    It can't know a deadline that nobody tells: without the cluster's API or Slurm's controller everybody is
    unknown, and so is who was over before our own start until the time has passed again.
    """

    kind: KindKey = RuleKind.LINGERING


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimitRuleTable(ActingRuleTable):
    """`[[rule]]` of kind `user_limit`: one user holds more GPUs of this host than the limit.

    It can't see the user's GPUs on other hosts, nor who stands behind a uid that several people or all
    containers share.
    """

    kind: KindKey = RuleKind.USER_LIMIT
    gpus_at_most: Annotated[
        PositiveCount | None,
        Field(description="How many GPUs one uid may hold; over it the youngest goes first. Must be given."),
    ] = None


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRuleTable:
    """`[[rule]]` of kind `fault`: the GPU itself is at fault.

    It can't see a fault of which the driver says nothing, and what is unknown is never reset.
    """

    name: NameKey = _FAULT_RULE.name
    kind: KindKey = _FAULT_RULE.kind
    xid_classes: Annotated[
        XidClasses,
        Field(alias="xid_class", description="What the kernel log's Xids ask for."),
    ] = _FAULT_RULE.xid_classes
    recovery_actions: Annotated[
        ActionsOfDriver,
        Field(
            alias="recovery_action",
            description="Or what the driver's recovery action says (reset: gpu_reset). One of the two "
            "must be given, and one suffices.",
        ),
    ] = _FAULT_RULE.recovery_actions
    gpus: Annotated[
        tuple[GpuName, ...],
        Field(alias="gpu", description="On which GPUs; left out, on all."),
    ] = _FAULT_RULE.gpus
    for_seconds: Annotated[
        Duration,
        Field(alias="for", description="How long the fault must stand."),
    ] = _FAULT_RULE.for_seconds
    mode: ModeKey = _FAULT_RULE.mode
    enforce_on_percent: EnforceOnKey = _FAULT_RULE.enforce_on_percent
    action: Annotated[
        FaultActionWord,
        Field(
            description='"observe" reports. "reclaim" mends the GPU, as far as `stages` and the mode allow.'
        ),
    ] = _FAULT_RULE.action
    stages: StagesKey = _FAULT_RULE.stages
    sigterm_seconds: GraceKey = None
    sigkill_seconds: SigkillKey = None
