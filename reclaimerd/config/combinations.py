"""What one value of the policy says about another; pure.

It sees the typed policy, in which a key that was refused has its default: so each check names the
keys it looks at, and stays silent when one of them was refused already.
"""

from collections.abc import Iterator

from reclaimerd.config.drain_combinations import drain_flaws, drain_warnings
from reclaimerd.config.fault_combinations import fault_rule_flaws
from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.holder_combinations import action_flaws, holder_rule_flaws, match_flaws
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.outlet_combinations import outlet_flaws, outlet_warnings
from reclaimerd.config.stage_flaws import grace_flaws, needed_flaws, stage_flaws
from reclaimerd.config.typed import TypedFile
from reclaimerd.config.units import format_duration
from reclaimerd.config.values import MOST_UID
from reclaimerd.model.policy import ListedStage, Mode, Policy, Rule, RuleAction

_NEEDS_BEFORE = {ListedStage.SIGKILL: ListedStage.SIGTERM, ListedStage.RESET: ListedStage.SIGKILL}
"""A reset is refused while its target lives, so without SIGKILL before it it could never be permitted."""
_MODE_RANK = {Mode.OBSERVE: 0, Mode.DRY_RUN: 1, Mode.ENFORCE: 2}
_BUILT_IN = "built-in"
_OUR_UNIT = "reclaimerd.service"
_RECONFIGURES = "nvidia-persistenced.service"
_DAYS, _WEEKDAYS = 31, 7
_EVERYBODY = ((0, MOST_UID),)


def impossible_combinations(typed: TypedFile) -> tuple[Flaw, ...]:
    """Return every fault that no single value shows; keys that were refused before are passed over."""
    policy, seen = typed.policy, Refused(typed.refused)
    flaws = [
        *_daemon_flaws(policy, seen),
        *drain_flaws(policy.drain, seen),
        *_reset_flaws(policy, seen),
        *_protect_flaws(policy, seen),
        *outlet_flaws(policy, seen),
    ]
    names: dict[int, str] = {}
    for place, fault_rule in zip(typed.fault_rule_places, policy.fault_rules, strict=True):
        names[place] = fault_rule.name
        flaws += fault_rule_flaws(fault_rule, ("rule", place), seen)
    for place, rule in zip(typed.rule_places, policy.rules, strict=True):
        names[place] = rule.name
        base: KeyPath = ("rule", place)
        flaws += [
            *holder_rule_flaws(rule, policy.interval_seconds, base, seen),
            *action_flaws(rule, base, seen),
        ]
        if not seen.touches((*base, "stages"), (*base, "action")):
            flaws += [*stage_flaws(rule, base), *needed_flaws(rule.stages, base, _NEEDS_BEFORE)]
        if not seen.touches((*base, "stages"), (*base, "grace")):
            flaws += grace_flaws(rule, base)
        if not seen.touches((*base, "match"), (*base, "mode"), (*base, "action")):
            flaws += match_flaws(rule, base)
    flaws += _twice("rule", [names[place] for place in sorted(names)])
    flaws += _signature_flaws(policy, seen)
    flaws += _twice("signature", [signature.name for signature in policy.signatures])
    flaws += _twice("protect", [protection.name for protection in policy.protections])
    flaws += _twice("notify", [target.name for target in policy.notices])
    return tuple(flaws)


def warnings_of(policy: Policy) -> tuple[str, ...]:
    """Return what is allowed but may not be meant, a sentence each."""
    modes = {rule.name: rule.mode for rule in policy.rules} | {
        rule.name: rule.mode for rule in policy.fault_rules
    }
    said = [
        f'rule "{name}" says mode "{mode}", but [daemon] mode "{policy.mode}" caps it'
        for name, mode in modes.items()
        if _MODE_RANK[mode] > _MODE_RANK[policy.mode]
    ]
    if _RECONFIGURES in policy.reset.stop_units:
        said.append(f"[reset] stops {_RECONFIGURES}, which sets up every GPU of the host anew when it starts")
    for rule in policy.rules:
        match = rule.match
        globs = (
            *match.exe,
            *match.cgroup,
            *match.unit,
            *match.namespaces,
            *match.partitions,
            *match.accounts,
        )
        everybody = match.uids == _EVERYBODY or "*" in globs
        if rule.mode is Mode.ENFORCE and everybody:
            said.append(f'rule "{rule.name}" enforces on everybody: its match leaves nobody out')
    return (
        *said,
        *_warnings_of_warning(policy),
        *_warnings_of_windows(policy),
        *drain_warnings(policy),
        *outlet_warnings(policy),
    )


def _warnings_of_warning(policy: Policy) -> Iterator[str]:
    warns = [rule.name for rule in policy.rules if RuleAction.WARN in (rule.action, _first_action(rule))]
    if warns and not policy.warn.terminals and not policy.warn.hook:
        yield (
            f'rule "{warns[0]}" warns, but [warn] has neither terminals nor a hook: '
            "who was not warned is left alone"
        )


def _first_action(rule: Rule) -> RuleAction:
    return RuleAction.WARN if rule.warn_before_seconds is not None else rule.action


def _warnings_of_windows(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        for window in rule.windows:
            if len(window.days) < _DAYS and len(window.weekdays) < _WEEKDAYS:
                yield f'rule "{rule.name}" counts in "{window.text}" on either: the day of month, or of week'


def _daemon_flaws(policy: Policy, seen: Refused) -> Iterator[Flaw]:
    workers = policy.workers
    pair = (("workers", "answer_within"), ("workers", "hung_after"))
    if not seen.touches(*pair) and workers.hung_after_seconds < workers.answer_within_seconds:
        answer = format_duration(workers.answer_within_seconds)
        yield Flaw(
            ("workers", "hung_after"),
            f"a worker would count as hung before its answer is due (answer_within is {answer})",
            f"make it at least {answer}",
        )
    pair = (("daemon", "interval"), ("daemon", "full_scan"))
    if not seen.touches(*pair) and policy.full_scan_seconds < policy.interval_seconds:
        interval = format_duration(policy.interval_seconds)
        yield Flaw(
            ("daemon", "full_scan"),
            f"it is shorter than one pass (interval is {interval})",
            f"make it at least {interval}",
        )
    if not seen.touches(("gates", "hold_files")) and not policy.gates.hold_files:
        yield Flaw(
            ("gates", "hold_files"),
            "without a HOLD file nobody can stop acts by rule by hand",
            'list at least one, such as "/run/reclaimerd/HOLD"',
        )


def _reset_flaws(policy: Policy, seen: Refused) -> Iterator[Flaw]:
    key: KeyPath = ("reset", "stop_units")
    units = policy.reset.stop_units
    if seen.touches(key):
        return
    if len(set(units)) < len(units):
        yield Flaw(key, "a unit stands there twice", "list each unit once")
    if _OUR_UNIT in units:
        yield Flaw(
            key, f"{_OUR_UNIT} is this program itself", "take it out: it would stop in the midst of a reset"
        )


def _protect_flaws(policy: Policy, seen: Refused) -> Iterator[Flaw]:
    for index, protection in enumerate(policy.protections):
        base: KeyPath = ("protect", index)
        if not protection.name and not seen.touches((*base, "name")):
            yield Flaw((*base, "name"), "the protection has no name", 'add name = "..."')
        if protection.name == _BUILT_IN:
            yield Flaw((*base, "name"), f'"{_BUILT_IN}" is the name of our own', "choose another name")
        if not seen.touches(base) and not (protection.exe or protection.unit or protection.uids):
            yield Flaw(base, "it protects nothing", "add exe, unit or uids")


def _signature_flaws(policy: Policy, seen: Refused) -> Iterator[Flaw]:
    for index, signature in enumerate(policy.signatures):
        base: KeyPath = ("signature", index)
        told = {"name": signature.name, "meaning": signature.meaning, "mend": signature.mend}
        for key, value in told.items():
            if not value and not seen.touches((*base, key)):
                yield Flaw((*base, key), "a signature must say it", f"add {key}")
        places = signature.symbols or signature.modules or signature.kernel_threads
        if not places and not seen.touches((*base, "symbols"), (*base, "modules"), (*base, "kernel_threads")):
            yield Flaw(base, "it matches nothing", "add symbols, modules or kernel_threads")


def _twice(table: str, names: list[str]) -> Iterator[Flaw]:
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name and name in first:
            yield Flaw(
                (table, index, "name"),
                f'the name "{name}" is taken by {table}[{first[name]}]',
                "give each its own name: records and budgets go by it",
            )
        first.setdefault(name, index)
