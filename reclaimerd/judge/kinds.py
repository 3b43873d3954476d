"""The condition of each kind of rule about holders: one place that knows them all, and nothing else."""

from collections.abc import Sequence
from typing import assert_never

from reclaimerd.judge.conditions import Condition, DoesNotHold, memory_condition
from reclaimerd.judge.held_conditions import Basis, held_condition
from reclaimerd.judge.miners import miner_condition
from reclaimerd.judge.orphans import orphan_condition
from reclaimerd.judge.unallocated import lingering_condition, unallocated_condition
from reclaimerd.model.policy import Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Holder


def condition_of(  # noqa: PLR0911  # one answer for each kind
    rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis
) -> Condition:
    """Return whether the rule's condition holds for a process on those of its GPUs that it concerns."""
    match rule.kind:
        case RuleKind.MEMORY:
            return memory_condition(rule, rows, basis.snapshot, basis.listed)
        case RuleKind.MEMORY_GROWTH | RuleKind.AGE | RuleKind.IDLE:
            return held_condition(rule, reading, rows, basis)
        case RuleKind.UNALLOCATED:
            return unallocated_condition(rule, reading, rows, basis)
        case RuleKind.LINGERING:
            return lingering_condition(rule, reading, rows, basis)
        case RuleKind.ORPHAN:
            return orphan_condition(reading, rows, basis.snapshot)
        case RuleKind.MINER:
            return miner_condition(rule, reading, rows, basis)
        case RuleKind.USER_LIMIT:
            return DoesNotHold("the rule is about all of a user's processes together")
        case RuleKind.HIDDEN:
            return DoesNotHold("the rule is about processes that can't be seen")
        case RuleKind.FAULT:
            return DoesNotHold("the rule is about GPUs, not processes")
        case _:
            assert_never(rule.kind)
