"""Owners' words: a mark, and whether a pod's job is spread; nothing else of what they wrote leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.owner_text import MORE_THAN_ONE, MOST_MARK, hosts_of, mark_in_environment, mark_of


@pytest.mark.parametrize("value", ["", "  ", "0", "false", "No", "OFF", None, True, 5, ["yes"]])
def test_a_no_is_no_mark(value: object) -> None:
    """Absent, empty, something else than text, or a plain no."""
    assert mark_of(value) == ""


def test_a_mark_is_told_as_it_is_printable_and_bounded() -> None:
    """Its own words; controls as escapes, and not without end."""
    assert mark_of(" evaluation runs till friday ") == "evaluation runs till friday"
    assert mark_of("a\x1b[31m") == "a\\x1b[31m"
    assert len(mark_of("x" * 1000)) == MOST_MARK


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("RECLAIMERD_SPARE=yes", "yes"),
        ('PATH=/bin TOKEN=hush "RECLAIMERD_SPARE=two words" A=b', "two words"),
        ("RECLAIMERD_SPARE=yes RECLAIMERD_SPARE=no", ""),
        ("RECLAIMERD_SPARE=no RECLAIMERD_SPARE=yes", "yes"),
        ('"NOTE=I have no RECLAIMERD_SPARE=yes"', ""),
        ("NOT_RECLAIMERD_SPARE=yes", ""),
        ("RECLAIMERD_SPARE", ""),
        ('"unbalanced RECLAIMERD_SPARE=yes', ""),
        ("", ""),
    ],
)
def test_a_units_environment_says_only_the_mark(text: str, mark: str) -> None:
    """The last setting counts; a value that contains the words is no setting; no other variable is told."""
    assert mark_in_environment(text) == mark


@given(st.text(max_size=200))
def test_no_environment_raises(text: str) -> None:
    """Whatever systemd prints."""
    assert mark_in_environment(text).isprintable()


@pytest.mark.parametrize(
    ("keys", "owner", "hosts"),
    [
        (("app", "training.kubeflow.org/job-name"), "", MORE_THAN_ONE),
        (("batch.kubernetes.io/job-completion-index",), "Job/sweep", MORE_THAN_ONE),
        ((), "PyTorchJob/llm", MORE_THAN_ONE),
        (("app",), "Job/one", None),
        ((), "ReplicaSet/PyTorchJob", None),
        ((), "", None),
    ],
)
def test_what_may_be_spread_counts_as_spread(keys: tuple[str, ...], owner: str, hosts: int | None) -> None:
    """Known labels and kinds of controllers; a name that only looks like one says nothing."""
    assert hosts_of(keys, owner) == hosts
