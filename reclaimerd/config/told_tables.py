"""The form of the rules that only tell, one table for each kind: what they see is a sign and no proof.

None of them has a key to act with. Tables inherit from `rule_bases`.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, with_config

from reclaimerd.config.rule_bases import (
    CLOSED,
    RULE,
    HolderRuleTable,
    KindKey,
    SelectingRuleTable,
    WarningRuleTable,
    WindowKey,
)
from reclaimerd.config.value_kinds import OnlyObserves, OnlyWarns, Score
from reclaimerd.model.policy import RuleAction, RuleKind


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class MinerRuleTable(WarningRuleTable):
    """`[[rule]]` of kind `miner`: independent signs of mining add up to the score. It never reclaims.

    It can't look into a program: who renames it, talks through a tunnel and does some I/O shows few signs,
    and honest work may show some. So it tells people, and they decide.
    """

    kind: KindKey = RuleKind.MINER
    score: Annotated[
        Score,
        Field(description="The sum of the signs' weights from which on it holds; 1 needs two kinds of sign."),
    ] = RULE.score
    window_seconds: WindowKey = RULE.window_seconds
    action: Annotated[
        OnlyWarns,
        Field(description='"observe" reports, "warn" also tells the owner.'),
    ] = RuleAction.WARN


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRuleTable(SelectingRuleTable):
    """`[[rule]]` of kind `orphan`: a process of a login session that is over. It is only reported.

    It can't tell who forgot a process from who left it on purpose (nohup, a detached terminal).
    """

    kind: KindKey = RuleKind.ORPHAN
    action: Annotated[
        OnlyObserves,
        Field(description="A sign is all that it is, so it never acts."),
    ] = RuleAction.OBSERVE


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRuleTable(HolderRuleTable):
    """`[[rule]]` of kind `hidden`: the driver names a live pid that the process table does not show.

    It can't see through whoever changed the kernel itself: who hides from the driver too is not seen.
    """

    kind: KindKey = RuleKind.HIDDEN
    action: Annotated[
        OnlyObserves,
        Field(description="It is an alarm for a person, so it never acts."),
    ] = RuleAction.OBSERVE
