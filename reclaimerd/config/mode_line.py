"""Finds the one line of a policy file that says how far a rule may go, and changes it and nothing else; pure.

Only the plain form is touched: `mode = "..."` on a line of its own. Whatever is written in another way is
refused, with the line that a person should look at.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd.config.check import examine
from reclaimerd.config.lines import key_lines
from reclaimerd.config.source import Source
from reclaimerd.errors import ConfigError, ExitCode, NoTargetError, ReclaimerdError
from reclaimerd.model.policy import Mode, Policy

_WORDS = "|".join(re.escape(mode.value) for mode in Mode)
_PLAIN = re.compile(rf"""(\s*mode\s*=\s*)(["'])({_WORDS})\2(\s*(?:#.*)?)""", re.ASCII)


class NotPlainError(ReclaimerdError):
    """What was asked for is not the change of one plain line; nothing was changed."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class ModeLine:
    """Where a rule's mode stands: the line (1-based), as it is and as it would be.

    `old` is "" where the rule has no such line: then `new` belongs below line `line`, and nothing is changed
    by us. `capped_by` is the daemon's own mode where that lets the rule go less far than `mode`.
    """

    path: Path
    line: int
    old: str
    new: str
    capped_by: Mode | None = None

    @property
    def where(self) -> str:
        """Return the place as compilers name it."""
        return f"{self.path}:{self.line}"


def mode_line(source: Source, rule: str, mode: Mode) -> ModeLine:
    """Return the line to change so that this rule has this mode.

    Raises ConfigError for a file with faults, NoTargetError where it has no such rule, and NotPlainError
    where the mode is written in a way that is not ours to change.
    """
    policy = _sound(source)
    rules = _rules(policy)
    if rule not in rules:
        mend = f"it has {', '.join(sorted(rules))}" if rules else "it has no rule at all"
        raise NoTargetError(f"{source.path} has no rule {rule!r}", mend)
    text = source.content.decode("utf-8")
    lines = key_lines(text)
    tables = tomllib.loads(text)["rule"]
    place = next(number for number, table in enumerate(tables) if table.get("name") == rule)
    capped = policy.mode if _rank(policy.mode) < _rank(mode) else None
    number = lines.get(("rule", place, "mode"))
    if number is None:
        below = lines["rule", place, "name"]
        return ModeLine(source.path, below, "", f'mode = "{mode}"', capped)
    old = text.split("\n")[number - 1]
    found = _PLAIN.fullmatch(old.removesuffix("\r"))
    if found is None:
        where = f"{source.path}:{number}"
        raise NotPlainError(
            f"{where}: the mode of {rule!r} is not on a plain line of its own", "edit it by hand"
        )
    before, quote, _, after = found.groups()
    return ModeLine(source.path, number, old, f"{before}{quote}{mode}{quote}{after}", capped)


def with_mode(source: Source, rule: str, mode: Mode) -> bytes:
    """Return the file's bytes with that one line changed; all others stay as they are.

    Raises as `mode_line` does, and NotPlainError where the rule has no such line, or where the result
    would have faults or say anything else that the file did not say before.
    """
    found = mode_line(source, rule, mode)
    if not found.old:
        mend = f"add the line {found.new} below {found.where} by hand"
        raise NotPlainError(f"rule {rule!r} has no line that says its mode", mend)
    lines = source.content.decode("utf-8").split("\n")
    end = "\r" if found.old.endswith("\r") else ""
    lines[found.line - 1] = found.new + end
    content = "\n".join(lines).encode("utf-8")
    before, after = _sound(source), _sound(replace(source, content=content))
    if after != _changed(before, rule, mode):
        raise NotPlainError(
            f"{found.where}: changing this line would change more than a mode", "edit it by hand"
        )
    return content


def _sound(source: Source) -> Policy:
    """Return the policy of a file; raise ConfigError with every fault."""
    examined = examine(source)
    if examined.faults:
        raise ConfigError(tuple(str(fault) for fault in examined.faults))
    return examined.policy


def _rules(policy: Policy) -> frozenset[str]:
    return frozenset(rule.name for rule in policy.rules) | {rule.name for rule in policy.fault_rules}


def _rank(mode: Mode) -> int:
    return list(Mode).index(mode)


def _changed(policy: Policy, rule: str, mode: Mode) -> Policy:
    """Return the policy with this rule's mode and nothing else changed."""
    return replace(
        policy,
        rules=tuple(replace(one, mode=mode) if one.name == rule else one for one in policy.rules),
        fault_rules=tuple(replace(one, mode=mode) if one.name == rule else one for one in policy.fault_rules),
    )
