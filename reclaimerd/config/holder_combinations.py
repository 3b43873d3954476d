"""What one value of a rule about holders says about another; pure."""

from collections.abc import Iterator

from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import format_duration
from reclaimerd.model.policy import (
    ONLY_TOLD,
    LabelOperator,
    Mode,
    Rule,
    RuleAction,
    RuleKind,
    Selector,
    Threshold,
)

_NEVER_HEARD = ONLY_TOLD - {RuleKind.MINER}
LEAST_LOOKS = 20
"""Of a window: what rises or rests is told from its parts, and each part needs a look."""
_LOOKING_BACK = (RuleKind.MEMORY_GROWTH, RuleKind.IDLE, RuleKind.MINER)
_CHOOSING = (LabelOperator.IN, LabelOperator.EXISTS)


def holder_rule_flaws(rule: Rule, interval_seconds: float, base: KeyPath, seen: Refused) -> Iterator[Flaw]:
    """Return what a rule lacks, and what its values make impossible; `base` is its place in the file."""
    if not rule.name and not seen.touches((*base, "name")):
        yield Flaw((*base, "name"), "the rule has no name", 'add name = "..."')
    lacks = _lacking(rule)
    if lacks is not None and not seen.touches((*base, lacks[0])):
        key, what, mend = lacks
        yield Flaw((*base, key), what, mend)
    least = LEAST_LOOKS * interval_seconds
    if (
        rule.kind in _LOOKING_BACK
        and rule.window_seconds < least
        and not seen.touches((*base, "window"), ("daemon", "interval"))
    ):
        yield Flaw(
            (*base, "window"),
            f"it has less than {LEAST_LOOKS} looks (interval is {format_duration(interval_seconds)})",
            f"make it at least {format_duration(least)}",
        )


def _lacking(rule: Rule) -> tuple[str, str, str] | None:
    """Return the key without which a rule of its kind says nothing, when it has it not."""
    if rule.kind is RuleKind.MEMORY and rule.above == Threshold():
        return "above", "the rule has no cap", 'add above = "8GiB" or above = "70%"'
    if rule.kind is RuleKind.MEMORY_GROWTH and rule.growth_bytes_per_second is None:
        return "growth", "the rule has no rate", 'add growth = "50MiB/s"'
    if rule.kind is RuleKind.AGE and rule.older_than_seconds is None:
        return "older_than", "the rule has no age", 'add older_than = "1h"'
    if rule.kind is RuleKind.IDLE and rule.idle_percent is None:
        return "idle", "the rule has no share", "add idle = 1"
    if rule.kind is RuleKind.USER_LIMIT and rule.gpus_at_most is None:
        return "gpus_at_most", "the rule has no limit", "add gpus_at_most = 2"
    return None


def action_flaws(rule: Rule, base: KeyPath, seen: Refused) -> Iterator[Flaw]:
    """Return what the rule's action makes of its other keys: what could never be, or must not."""
    action: KeyPath = (*base, "action")
    warn: KeyPath = (*base, "warn_before")
    if seen.touches(action):
        return
    observes = rule.action is RuleAction.OBSERVE
    if observes and rule.mode is Mode.ENFORCE and not seen.touches((*base, "mode")):
        yield Flaw(
            (*base, "mode"),
            'there is nothing to enforce: the action is "observe"',
            'write mode = "observe"'
            if rule.kind in _NEVER_HEARD
            else 'write action = "warn" or mode = "observe"',
        )
    if seen.touches(warn):
        return
    if observes and rule.warn_before_seconds is not None:
        yield Flaw(
            warn, 'nobody is warned: the action is "observe"', 'take it out, or write action = "reclaim"'
        )
    idle = rule.kind is RuleKind.IDLE and rule.action is RuleAction.RECLAIM
    if idle and rule.warn_before_seconds is None:
        yield Flaw(
            warn,
            "whoever is idle may only be away, so an idle rule must warn first",
            'add warn_before = "10m", or write action = "warn" or "observe"',
        )


def match_flaws(rule: Rule, base: KeyPath) -> Iterator[Flaw]:
    """Return the flaw of an enforcing rule that does not say whom it concerns."""
    if rule.mode is not Mode.ENFORCE or rule.action is not RuleAction.RECLAIM:
        return
    if _says_whose(rule.match):
        return
    mend = (
        "say whom it concerns by user, uid, group, exe, sha256, unit, cgroup, namespace, labels, partition "
        'or account, or write mode = "observe"'
    )
    if rule.match.is_empty:
        yield Flaw((*base, "match"), f"an enforcing {rule.kind} rule needs a match", mend)
    else:
        what = "a command line, a runtime, a GPU or a label's absence alone does not say whose process it is"
        yield Flaw((*base, "match"), what, mend)


def _says_whose(match: Selector) -> bool:
    """Tell whether a selector names somebody; that a label is absent holds for nearly everybody."""
    processes = match.users or match.uids or match.groups or match.exe or match.sha256
    places = match.unit or match.cgroup or match.namespaces or match.partitions or match.accounts
    return bool(processes or places) or any(term.operator in _CHOOSING for term in match.labels)
