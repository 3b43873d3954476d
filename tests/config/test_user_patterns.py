"""The administrator's patterns: RE2's words, in linear time, on a bounded text."""

import time

import pytest

from reclaimerd.config.user_patterns import MOST_TEXT_BYTES, compile_patterns, refusal_of
from reclaimerd.model.policy import Policy, Rule, Selector, Threshold


def policy_with(*patterns: str) -> Policy:
    """Return a policy whose one rule has these patterns, the last one as an exemption."""
    *match, exempt = patterns
    rule = Rule(
        name="cap",
        above=Threshold(above_bytes=1),
        match=Selector(cmdline=tuple(match)),
        exempt=Selector(cmdline=(exempt,)),
    )
    return Policy(rules=(rule,))


def test_a_pattern_is_searched_anywhere() -> None:
    """Match and exempt are both ready, and are found in the middle of a text."""
    found = compile_patterns(policy_with(r"train\.py", "^python"))
    assert found(r"train\.py", "python train.py --x")
    assert not found(r"train\.py", "python trainxpy")
    assert found("^python", "python train.py")
    assert not found("^python", "/usr/bin/python")


def test_a_stranger_pattern_is_a_bug() -> None:
    """Nothing is compiled after the load."""
    with pytest.raises(KeyError):
        compile_patterns(policy_with("a", "b"))("c", "c")


def test_no_patterns_need_no_policy_rules() -> None:
    """A policy without rules compiles to a search that knows nothing."""
    with pytest.raises(KeyError):
        compile_patterns(Policy())("a", "a")


def test_text_beyond_the_bound_is_not_seen() -> None:
    """A flood of arguments costs a bounded amount, also when its characters are wide."""
    found = compile_patterns(policy_with("end", "é"))
    assert found("end", "x" * (MOST_TEXT_BYTES - 3) + "end")
    assert not found("end", "x" * MOST_TEXT_BYTES + "end")
    assert not found("end", "é" * (MOST_TEXT_BYTES // 2) + "end")


def test_bytes_that_are_no_text_do_no_harm() -> None:
    """A command line of arbitrary bytes is searched as it is."""
    found = compile_patterns(policy_with("tail", "x"))
    assert found("tail", b"\xff\xfe\x00tail".decode("utf-8", "surrogateescape"))


def test_a_pattern_that_would_explode_does_not() -> None:
    """Nested repeats, which take a backtracking engine for ever, end at once."""
    found = compile_patterns(policy_with("(a+)+$", "(a|a)*b"))
    begin = time.process_time()
    assert not found("(a+)+$", "a" * 60_000 + "!")
    assert not found("(a|a)*b", "a" * 60_000)
    assert time.process_time() - begin < 2.0


def test_refusals_say_why_and_log_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """What RE2 does not take comes back with its reason, and nothing goes to stderr."""
    assert refusal_of("plain") is None
    for pattern in (r"(a)\1", "(?!a)", "(", "(x{1000}){1000}", "((x{900}){900})"):
        assert refusal_of(pattern)
    assert capfd.readouterr() == ("", "")
