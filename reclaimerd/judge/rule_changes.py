"""Say which rules mean something else than in the last look: what held by the old one has held for no time.

A policy that is taken anew keeps a rule's name and may change what the name stands for. `for` and
`readings` are about what the rule says now. Pure.
"""

from collections.abc import Iterable
from dataclasses import replace

from reclaimerd.judge.series import Past
from reclaimerd.model.policy import Rule
from reclaimerd.model.verdict import Sustained

_PLAIN = Rule("")


def started_anew(
    sustained: tuple[Sustained, ...], past: Past, rules: Iterable[Rule]
) -> tuple[tuple[Sustained, ...], Past]:
    """Return the memory of what holds without that of rules whose condition is another one by now."""
    before = {rule.name: rule for rule in past.concerns.rules}
    changed = {
        rule.name
        for rule in rules
        if rule.name in before and _condition(before[rule.name]) != _condition(rule)
    }
    if not changed:
        return sustained, past
    kept = tuple(item for item in sustained if item.rule not in changed)
    chosen = {key: ref for key, ref in past.chosen.items() if key[0] not in changed}
    return kept, replace(past, chosen=chosen)


def _condition(rule: Rule) -> Rule:
    """Return the rule without what says how long it must hold, how far it goes and who goes first."""
    return replace(
        rule,
        for_seconds=_PLAIN.for_seconds,
        readings=_PLAIN.readings,
        mode=_PLAIN.mode,
        action=_PLAIN.action,
        stages=_PLAIN.stages,
        scope=_PLAIN.scope,
        sigterm_seconds=_PLAIN.sigterm_seconds,
        sigkill_seconds=_PLAIN.sigkill_seconds,
        avoid=_PLAIN.avoid,
        priority=_PLAIN.priority,
        warn_before_seconds=_PLAIN.warn_before_seconds,
        large_jobs=_PLAIN.large_jobs,
        enforce_on_percent=_PLAIN.enforce_on_percent,
    )
