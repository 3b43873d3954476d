"""The form of a rule in the policy file: one table for each kind, told apart by the key `kind`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Discriminator, Field, StrictBool, Tag, with_config

from reclaimerd.config.value_kinds import (
    ActionsOfDriver,
    ActionWord,
    Cap,
    CgroupGlob,
    Duration,
    GpuName,
    IdleShare,
    Kind,
    ModeWord,
    Name,
    Pattern,
    PerWord,
    PositiveDuration,
    Priority,
    ProgramGlob,
    Rate,
    Readings,
    ScopeWord,
    SpanWord,
    StageWord,
    UidRange,
    Word,
    XidClasses,
)
from reclaimerd.model import policy as model
from reclaimerd.model.policy import RuleKind

_CLOSED = ConfigDict(extra="forbid")
_RULE = model.Rule(name="")
_FAULT_RULE = model.FaultRule(name="")
MEMORY, FAULT = RuleKind.MEMORY, RuleKind.FAULT


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorTable:
    """`match`, `exempt` and `avoid` of a rule."""

    users: Annotated[tuple[Word, ...], Field(alias="user")] = ()
    uids: Annotated[tuple[UidRange, ...], Field(alias="uid")] = ()
    exe: tuple[ProgramGlob, ...] = ()
    cmdline: tuple[Pattern, ...] = ()
    cgroup: tuple[CgroupGlob, ...] = ()
    gpus: Annotated[tuple[GpuName, ...], Field(alias="gpu")] = ()


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTable:
    """`[[rule]]` of kind `memory`.

    A missing `name` or `above` is told by `combinations`, so that it hides nothing else.
    """

    name: Name = _RULE.name
    kind: Kind = _RULE.kind
    above: Cap = _RULE.above
    span: Annotated[SpanWord, Field(alias="gpus")] = _RULE.span
    per: PerWord = _RULE.per
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    avoid: SelectorTable = SelectorTable()
    priority: Priority = _RULE.priority
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None
    even_if_allocated: StrictBool = _RULE.even_if_allocated


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRuleTable:
    """`[[rule]]` of kind `memory_growth`."""

    name: Name = _RULE.name
    kind: Kind = RuleKind.MEMORY_GROWTH
    growth_bytes_per_second: Annotated[Rate | None, Field(alias="growth")] = None
    window_seconds: Annotated[PositiveDuration, Field(alias="window")] = _RULE.window_seconds
    older_than_seconds: Annotated[PositiveDuration | None, Field(alias="older_than")] = None
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    avoid: SelectorTable = SelectorTable()
    priority: Priority = _RULE.priority
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None
    even_if_allocated: StrictBool = _RULE.even_if_allocated


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AgeRuleTable:
    """`[[rule]]` of kind `age`."""

    name: Name = _RULE.name
    kind: Kind = RuleKind.AGE
    older_than_seconds: Annotated[PositiveDuration | None, Field(alias="older_than")] = None
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    avoid: SelectorTable = SelectorTable()
    priority: Priority = _RULE.priority
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRuleTable:
    """`[[rule]]` of kind `idle`."""

    name: Name = _RULE.name
    kind: Kind = RuleKind.IDLE
    idle_percent: Annotated[IdleShare | None, Field(alias="idle")] = None
    window_seconds: Annotated[PositiveDuration, Field(alias="window")] = _RULE.window_seconds
    older_than_seconds: Annotated[PositiveDuration | None, Field(alias="older_than")] = None
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    avoid: SelectorTable = SelectorTable()
    priority: Priority = _RULE.priority
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnallocatedRuleTable:
    """`[[rule]]` of kind `unallocated`."""

    name: Name = _RULE.name
    kind: Kind = RuleKind.UNALLOCATED
    pod_shares: StrictBool = _RULE.pod_shares
    static_pods: StrictBool = _RULE.static_pods
    outside_pods: StrictBool = _RULE.outside_pods
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    avoid: SelectorTable = SelectorTable()
    priority: Priority = _RULE.priority
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRuleTable:
    """`[[rule]]` of kind `fault`."""

    name: Name = _FAULT_RULE.name
    kind: Kind = _FAULT_RULE.kind
    xid_classes: Annotated[XidClasses, Field(alias="xid_class")] = _FAULT_RULE.xid_classes
    recovery_actions: Annotated[ActionsOfDriver, Field(alias="recovery_action")] = (
        _FAULT_RULE.recovery_actions
    )
    gpus: Annotated[tuple[GpuName, ...], Field(alias="gpu")] = _FAULT_RULE.gpus
    for_seconds: Annotated[Duration, Field(alias="for")] = _FAULT_RULE.for_seconds
    mode: ModeWord = _FAULT_RULE.mode
    action: ActionWord = _FAULT_RULE.action
    stages: tuple[StageWord, ...] = _FAULT_RULE.stages
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None


HolderRuleTable = RuleTable | GrowthRuleTable | AgeRuleTable | IdleRuleTable | UnallocatedRuleTable
"""The rules about holders: each becomes a `model.rules.Rule`."""
HOLDER_TABLES: Mapping[str, type[HolderRuleTable]] = {
    MEMORY: RuleTable,
    RuleKind.MEMORY_GROWTH: GrowthRuleTable,
    RuleKind.AGE: AgeRuleTable,
    RuleKind.IDLE: IdleRuleTable,
    RuleKind.UNALLOCATED: UnallocatedRuleTable,
}
_TELLING: Mapping[str, frozenset[str]] = {
    FAULT: frozenset({"xid_class", "recovery_action"}),
    RuleKind.MEMORY_GROWTH: frozenset({"growth"}),
    RuleKind.IDLE: frozenset({"idle"}),
    RuleKind.UNALLOCATED: frozenset({"pod_shares", "static_pods", "outside_pods"}),
    RuleKind.AGE: frozenset({"older_than"}),
}
"""Keys by which a misspelt kind is guessed, the surest first."""


def kind_of(rule: object) -> str:
    """Return the kind whose keys a rule is held against; a misspelt one is guessed by the keys it has."""
    if not isinstance(rule, dict) or rule.get("kind", MEMORY) == MEMORY:
        return MEMORY
    kind = rule["kind"]
    if isinstance(kind, str) and kind in (*HOLDER_TABLES, FAULT):
        return kind
    return next((guess for guess, keys in _TELLING.items() if keys & rule.keys()), MEMORY)


RuleItem = Annotated[
    Annotated[RuleTable, Tag(MEMORY)]
    | Annotated[GrowthRuleTable, Tag(RuleKind.MEMORY_GROWTH)]
    | Annotated[AgeRuleTable, Tag(RuleKind.AGE)]
    | Annotated[IdleRuleTable, Tag(RuleKind.IDLE)]
    | Annotated[UnallocatedRuleTable, Tag(RuleKind.UNALLOCATED)]
    | Annotated[FaultRuleTable, Tag(FAULT)],
    Discriminator(kind_of),
]
