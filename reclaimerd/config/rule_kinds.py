"""All kinds of rules that the policy file may have, and how they are told apart."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Discriminator, Tag

from reclaimerd.config.rule_bases import HolderRuleTable
from reclaimerd.config.rule_tables import (
    AgeRuleTable,
    FaultRuleTable,
    GrowthRuleTable,
    IdleRuleTable,
    LingeringRuleTable,
    MemoryRuleTable,
    UnallocatedRuleTable,
    UserLimitRuleTable,
)
from reclaimerd.config.told_tables import HiddenRuleTable, MinerRuleTable, OrphanRuleTable
from reclaimerd.model.policy import RuleKind

MEMORY, FAULT = RuleKind.MEMORY, RuleKind.FAULT
HOLDER_TABLES: Mapping[str, type[HolderRuleTable]] = {
    MEMORY: MemoryRuleTable,
    RuleKind.MEMORY_GROWTH: GrowthRuleTable,
    RuleKind.AGE: AgeRuleTable,
    RuleKind.IDLE: IdleRuleTable,
    RuleKind.UNALLOCATED: UnallocatedRuleTable,
    RuleKind.LINGERING: LingeringRuleTable,
    RuleKind.USER_LIMIT: UserLimitRuleTable,
    RuleKind.MINER: MinerRuleTable,
    RuleKind.ORPHAN: OrphanRuleTable,
    RuleKind.HIDDEN: HiddenRuleTable,
}
"""The rules about processes: each becomes a `model.rules.Rule`."""
RULE_TABLES: Mapping[str, type[HolderRuleTable] | type[FaultRuleTable]] = {
    **HOLDER_TABLES,
    FAULT: FaultRuleTable,
}
_TELLING: Mapping[str, frozenset[str]] = {
    FAULT: frozenset({"xid_class", "recovery_action"}),
    RuleKind.MEMORY_GROWTH: frozenset({"growth"}),
    RuleKind.IDLE: frozenset({"idle"}),
    RuleKind.UNALLOCATED: frozenset({"pod_shares", "static_pods", "outside_pods", "outside_jobs"}),
    RuleKind.USER_LIMIT: frozenset({"gpus_at_most"}),
    RuleKind.MINER: frozenset({"score"}),
    RuleKind.AGE: frozenset({"older_than"}),
}
"""Keys by which a misspelt kind is guessed, the surest first."""


def kind_of(rule: object) -> str:
    """Return the kind whose keys a rule is held against; a misspelt one is guessed by the keys it has."""
    if not isinstance(rule, dict) or rule.get("kind", MEMORY) == MEMORY:
        return MEMORY
    kind = rule["kind"]
    if isinstance(kind, str) and kind in RULE_TABLES:
        return kind
    return next((guess for guess, keys in _TELLING.items() if keys & rule.keys()), MEMORY)


RuleItem = Annotated[
    Annotated[MemoryRuleTable, Tag(MEMORY)]
    | Annotated[GrowthRuleTable, Tag(RuleKind.MEMORY_GROWTH)]
    | Annotated[AgeRuleTable, Tag(RuleKind.AGE)]
    | Annotated[IdleRuleTable, Tag(RuleKind.IDLE)]
    | Annotated[UnallocatedRuleTable, Tag(RuleKind.UNALLOCATED)]
    | Annotated[LingeringRuleTable, Tag(RuleKind.LINGERING)]
    | Annotated[UserLimitRuleTable, Tag(RuleKind.USER_LIMIT)]
    | Annotated[MinerRuleTable, Tag(RuleKind.MINER)]
    | Annotated[OrphanRuleTable, Tag(RuleKind.ORPHAN)]
    | Annotated[HiddenRuleTable, Tag(RuleKind.HIDDEN)]
    | Annotated[FaultRuleTable, Tag(FAULT)],
    Discriminator(kind_of),
]
