"""What one value of a fault rule says about another; pure."""

from collections.abc import Iterator

from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.stage_flaws import grace_flaws, needed_flaws, stage_flaws
from reclaimerd.config.values import RESET_ACTIONS, RESET_CLASSES
from reclaimerd.model.policy import FaultRule, ListedStage, RuleAction

_ENDS = (ListedStage.RESET, ListedStage.DRAIN)


def fault_rule_flaws(rule: FaultRule, base: KeyPath, seen: Refused) -> Iterator[Flaw]:
    """Return every fault of one rule that no single value shows; `base` is its place in the file."""
    waits: tuple[KeyPath, ...] = ((*base, "xid_class"), (*base, "recovery_action"))
    stages: tuple[KeyPath, ...] = ((*base, "stages"), (*base, "action"))
    if not rule.name and not seen.touches((*base, "name")):
        yield Flaw((*base, "name"), "the rule has no name", 'add name = "..."')
    if not seen.touches(*waits) and not (rule.xid_classes or rule.recovery_actions):
        mend = 'add xid_class = "reset" or recovery_action = "reset"'
        yield Flaw(waits[0], "the rule waits for no fault", mend)
    if not seen.touches(*stages):
        yield from stage_flaws(rule, base)
        yield from _step_flaws(rule, base)
        if not seen.touches(*waits):
            yield from _end_flaws(rule, base)
    if not seen.touches(stages[0], (*base, "grace")):
        yield from grace_flaws(rule, base)


def _step_flaws(rule: FaultRule, base: KeyPath) -> Iterator[Flaw]:
    # A reset needs no signal before it; but where holders are told to go they must also be made to go.
    needs = {ListedStage.SIGKILL: ListedStage.SIGTERM}
    if ListedStage.SIGTERM in rule.stages:
        needs[ListedStage.RESET] = ListedStage.SIGKILL
    yield from needed_flaws(rule.stages, base, needs)


def _end_flaws(rule: FaultRule, base: KeyPath) -> Iterator[Flaw]:
    """Return the flaw of a rule whose steps can't answer what it waits for."""
    if rule.action is not RuleAction.RECLAIM or not rule.stages:
        return
    key = (*base, "stages")
    if not any(stage in rule.stages for stage in _ENDS):
        yield Flaw(key, "signals alone mend no fault of a GPU", 'add "reset", "drain" or both')
        return
    waits = (*rule.xid_classes, *rule.recovery_actions)
    is_mended = any(word in RESET_CLASSES or word in RESET_ACTIONS for word in waits)
    if waits and not is_mended and ListedStage.DRAIN not in rule.stages:
        yield Flaw(key, "a reset mends none of the faults that the rule waits for", 'add "drain"')
