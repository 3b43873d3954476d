"""What one value of a rule about holders says about another; pure."""

from collections.abc import Iterator

from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import format_duration
from reclaimerd.model.policy import Mode, Rule, RuleAction, RuleKind, Threshold

LEAST_LOOKS = 20
"""Of a window: what rises or rests is told from its parts, and each part needs a look."""
_LOOKING_BACK = (RuleKind.MEMORY_GROWTH, RuleKind.IDLE)


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
    return None


def match_flaws(rule: Rule, base: KeyPath) -> Iterator[Flaw]:
    """Return the flaw of an enforcing rule that does not say whom it concerns."""
    if rule.mode is not Mode.ENFORCE or rule.action is not RuleAction.RECLAIM:
        return
    match = rule.match
    if match.users or match.uids or match.exe or match.cgroup:
        return
    mend = 'say whom it concerns by user, uid, exe or cgroup, or write mode = "observe"'
    if match.is_empty:
        yield Flaw((*base, "match"), f"an enforcing {rule.kind} rule needs a match", mend)
    else:
        yield Flaw((*base, "match"), "a command line or a GPU alone does not say whose process it is", mend)
