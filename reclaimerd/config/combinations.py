"""What one value of the policy says about another; pure.

It sees the typed policy, in which a key that was refused has its default: so each check names the
keys it looks at, and stays silent when one of them was refused already.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.config.faults import Flaw
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import format_duration
from reclaimerd.config.values import MOST_UID
from reclaimerd.model.policy import ListedStage, Mode, Policy, Rule, RuleAction, Threshold

_ORDER = tuple(ListedStage)
_NEEDS_BEFORE = {ListedStage.SIGKILL: ListedStage.SIGTERM, ListedStage.RESET: ListedStage.SIGKILL}
"""A reset is refused while its target lives, so without SIGKILL before it it could never be permitted."""
_MODE_RANK = {Mode.OBSERVE: 0, Mode.DRY_RUN: 1, Mode.ENFORCE: 2}
_BUILT_IN = "built-in"
_EVERYBODY = ((0, MOST_UID),)


@dataclass(frozen=True, slots=True)
class _Refused:
    """The keys that were refused already."""

    paths: frozenset[KeyPath]

    def touches(self, *keys: KeyPath) -> bool:
        """Tell whether one of these keys, or something in or around it, was refused."""
        return any(key[: len(path)] == path or path[: len(key)] == key for key in keys for path in self.paths)


def impossible_combinations(policy: Policy, refused: frozenset[KeyPath]) -> tuple[Flaw, ...]:
    """Return every fault that no single value shows; `refused` are the keys found faulty before."""
    seen = _Refused(refused)
    flaws = [*_daemon_flaws(policy, seen), *_protect_flaws(policy, seen)]
    for index, rule in enumerate(policy.rules):
        base: KeyPath = ("rule", index)
        flaws += _missing_flaws(rule, base, seen)
        if not seen.touches((*base, "stages"), (*base, "action")):
            flaws += _stage_flaws(rule, base)
        if not seen.touches((*base, "stages"), (*base, "grace")):
            flaws += _grace_flaws(rule, base)
        if not seen.touches((*base, "match"), (*base, "mode"), (*base, "action")):
            flaws += _match_flaws(rule, base)
    flaws += _twice("rule", [rule.name for rule in policy.rules])
    flaws += _signature_flaws(policy, seen)
    flaws += _twice("signature", [signature.name for signature in policy.signatures])
    flaws += _twice("protect", [protection.name for protection in policy.protections])
    return tuple(flaws)


def warnings_of(policy: Policy) -> tuple[str, ...]:
    """Return what is allowed but may not be meant, a sentence each."""
    said: list[str] = []
    for rule in policy.rules:
        if _MODE_RANK[rule.mode] > _MODE_RANK[policy.mode]:
            said.append(
                f'rule "{rule.name}" says mode "{rule.mode}", but [daemon] mode "{policy.mode}" caps it',
            )
        match = rule.match
        everybody = match.uids == _EVERYBODY or "*" in match.exe or "*" in match.cgroup
        if rule.mode is Mode.ENFORCE and everybody:
            said.append(f'rule "{rule.name}" enforces on everybody: its match leaves nobody out')
    return tuple(said)


def _daemon_flaws(policy: Policy, seen: _Refused) -> Iterator[Flaw]:
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


def _protect_flaws(policy: Policy, seen: _Refused) -> Iterator[Flaw]:
    for index, protection in enumerate(policy.protections):
        base: KeyPath = ("protect", index)
        if not protection.name and not seen.touches((*base, "name")):
            yield Flaw((*base, "name"), "the protection has no name", 'add name = "..."')
        if protection.name == _BUILT_IN:
            yield Flaw((*base, "name"), f'"{_BUILT_IN}" is the name of our own', "choose another name")
        if not seen.touches(base) and not (protection.exe or protection.unit or protection.uids):
            yield Flaw(base, "it protects nothing", "add exe, unit or uids")


def _signature_flaws(policy: Policy, seen: _Refused) -> Iterator[Flaw]:
    for index, signature in enumerate(policy.signatures):
        base: KeyPath = ("signature", index)
        told = {"name": signature.name, "meaning": signature.meaning, "mend": signature.mend}
        for key, value in told.items():
            if not value and not seen.touches((*base, key)):
                yield Flaw((*base, key), "a signature must say it", f"add {key}")
        places = signature.symbols or signature.modules or signature.kernel_threads
        if not places and not seen.touches((*base, "symbols"), (*base, "modules"), (*base, "kernel_threads")):
            yield Flaw(base, "it matches nothing", "add symbols, modules or kernel_threads")


def _missing_flaws(rule: Rule, base: KeyPath, seen: _Refused) -> Iterator[Flaw]:
    if not rule.name and not seen.touches((*base, "name")):
        yield Flaw((*base, "name"), "the rule has no name", 'add name = "..."')
    if rule.above == Threshold() and not seen.touches((*base, "above")):
        yield Flaw((*base, "above"), "the rule has no cap", 'add above = "8GiB" or above = "70%"')


def _stage_flaws(rule: Rule, base: KeyPath) -> Iterator[Flaw]:
    stages = rule.stages
    key = (*base, "stages")
    places = [_ORDER.index(stage) for stage in stages]
    if len(set(places)) < len(places):
        yield Flaw(key, "a stage stands there twice", "list each stage once")
    if places != sorted(places):
        listed = ", ".join(f'"{stage}"' for stage in _ORDER if stage in stages)
        yield Flaw(key, "the stages are out of order", f"write them gentlest first: [{listed}]")
    for stage, needed in _NEEDS_BEFORE.items():
        if stage in stages and needed not in stages:
            yield Flaw(
                key, f'"{stage}" without "{needed}" before it', f'add "{needed}", or take "{stage}" out'
            )
    if rule.action is RuleAction.RECLAIM and not stages:
        yield Flaw(
            key, "a rule that reclaims has no stage to take", 'list stages, or write action = "observe"'
        )


def _grace_flaws(rule: Rule, base: KeyPath) -> Iterator[Flaw]:
    if rule.sigterm_seconds == 0 and ListedStage.SIGTERM in rule.stages:
        yield Flaw(
            (*base, "grace"),
            "a grace of zero sends SIGKILL at once, so SIGTERM would be for nothing",
            'give it a time, such as grace = "30s"',
        )


def _match_flaws(rule: Rule, base: KeyPath) -> Iterator[Flaw]:
    if rule.mode is not Mode.ENFORCE or rule.action is not RuleAction.RECLAIM:
        return
    match = rule.match
    if match.users or match.uids or match.exe or match.cgroup:
        return
    mend = 'say whom it concerns by user, uid, exe or cgroup, or write mode = "observe"'
    if match.is_empty:
        yield Flaw((*base, "match"), "an enforcing memory rule needs a match", mend)
    else:
        yield Flaw((*base, "match"), "a command line or a GPU alone does not say whose process it is", mend)


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
