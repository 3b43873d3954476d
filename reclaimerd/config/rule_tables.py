"""The form of a rule in the policy file: one table for each kind, told apart by the key `kind`."""

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
    Kind,
    ModeWord,
    Name,
    Pattern,
    PositiveDuration,
    ProgramGlob,
    Readings,
    ScopeWord,
    SpanWord,
    StageWord,
    UidRange,
    Word,
    XidClasses,
)
from reclaimerd.model import policy as model
from reclaimerd.model.policy import Threshold

_CLOSED = ConfigDict(extra="forbid")
_RULE = model.Rule(name="", above=Threshold())
_FAULT_RULE = model.FaultRule(name="")
MEMORY, FAULT = _RULE.kind, _FAULT_RULE.kind


@with_config(_CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorTable:
    """`match` and `exempt` of a rule."""

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
    for_seconds: Annotated[Duration, Field(alias="for")] = _RULE.for_seconds
    readings: Readings = _RULE.readings
    match: SelectorTable = SelectorTable()
    exempt: SelectorTable = SelectorTable()
    mode: ModeWord = _RULE.mode
    action: ActionWord = _RULE.action
    stages: tuple[StageWord, ...] = _RULE.stages
    scope: ScopeWord = _RULE.scope
    sigterm_seconds: Annotated[Duration | None, Field(alias="grace")] = None
    sigkill_seconds: Annotated[PositiveDuration | None, Field(alias="sigkill")] = None
    even_if_allocated: StrictBool = _RULE.even_if_allocated


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


def kind_of(rule: object) -> str:
    """Return the kind whose keys a rule is held against; a misspelt one is guessed by the keys it has."""
    if not isinstance(rule, dict) or rule.get("kind", MEMORY) == MEMORY:
        return MEMORY
    return FAULT if rule["kind"] == FAULT or {"xid_class", "recovery_action"} & rule.keys() else MEMORY


RuleItem = Annotated[
    Annotated[RuleTable, Tag(MEMORY)] | Annotated[FaultRuleTable, Tag(FAULT)],
    Discriminator(kind_of),
]
