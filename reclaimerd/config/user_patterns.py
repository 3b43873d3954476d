"""The administrator's regular expressions, run by RE2: linear time, whatever the text.

Python's own `re` may never see a pattern from the policy: a backtracking match on a hostile
command line can stop the daemon for hours.
"""

from collections.abc import Callable

import re2

from reclaimerd.model.policy import Policy

MOST_TEXT_BYTES = 64 * 1024
"""How much of a command line is looked at; a flood costs a bounded amount per pass."""


def refusal_of(pattern: str) -> str | None:
    """Return why RE2 does not take this pattern, or None when it does."""
    try:
        _compiled(pattern)
    except re2.error as error:
        said = error.args[0] if error.args else "no reason given"
        return said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return None


def compile_patterns(policy: Policy) -> Callable[[str, str], bool]:
    """Return a search `(pattern, text) -> found` over the patterns of this policy.

    Every pattern is compiled here, once. A pattern of another policy raises KeyError: that is a
    bug. Text beyond 64 KiB (as UTF-8) is not looked at.
    """
    patterns = {
        pattern
        for rule in policy.rules
        for side in (rule.match, rule.exempt, rule.avoid)
        for pattern in side.cmdline
    }
    compiled = {pattern: _compiled(pattern) for pattern in patterns}

    def found(pattern: str, text: str) -> bool:
        # Linux hands out bytes; surrogateescape gives back exactly those.
        raw = text[:MOST_TEXT_BYTES].encode("utf-8", "surrogateescape")[:MOST_TEXT_BYTES]
        return compiled[pattern].search(raw) is not None

    return found


def _compiled(pattern: str) -> "re2._Regexp":
    """Return the pattern compiled on bytes, with RE2's own log to stderr off."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern.encode("utf-8", "surrogateescape"), options)
