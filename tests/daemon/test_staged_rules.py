"""A rule for a share of the hosts: what the daemon reads of itself, and what `status` says."""

from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.cli.staged_text import staged_lines
from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon import this_host
from reclaimerd.daemon.rule_rows import rules_part
from reclaimerd.daemon.this_host import on_this_host, read_machine_id
from reclaimerd.model.policy import Mode
from tests.builders import a_policy, a_rule

ID = "0123456789abcdef0123456789abcdef"


def files(tmp_path: Path, *contents: str | None) -> tuple[Path, ...]:
    """Return files with these contents; None is a file that does not exist."""
    paths = tuple(tmp_path / f"machine-id-{number}" for number in range(len(contents)))
    for path, content in zip(paths, contents, strict=True):
        if content is not None:
            path.write_text(content, encoding="utf-8")
    return paths


@pytest.mark.parametrize("contents", [(f"{ID}\n",), (None, ID), ("uninitialized\n", f"{ID}\n")])
def test_the_machine_id_is_the_first_that_is_one(tmp_path: Path, contents: tuple[str | None, ...]) -> None:
    """machine-id(5): 32 small hex digits and a newline; the bus's copy where the first file has none."""
    assert read_machine_id(files(tmp_path, *contents)) == ID


@pytest.mark.parametrize(
    "content", ["", "uninitialized\n", ID.upper(), f"{ID}0", f"{ID}\n\n", "\u00e9" * 32, None]
)
def test_what_is_no_machine_id_is_none(tmp_path: Path, content: str | None) -> None:
    """Half a file, or one that is not written yet, must not place a host."""
    assert read_machine_id(files(tmp_path, content)) == ""


def test_a_policy_is_loaded_as_it_holds_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same policy on a host with an id and on one without: only the first is in a share of nearly all."""
    loaded = LoadedPolicy(a_policy(a_rule(enforce_on_percent=99.9999)), {"alice": 1000})
    monkeypatch.setattr(this_host, "read_machine_id", lambda: ID)
    here = on_this_host(loaded)
    assert here.policy.enforces_here == {"over-cap"}
    assert here.user_ids == loaded.user_ids
    monkeypatch.setattr(this_host, "read_machine_id", lambda: read_machine_id(files(tmp_path, None)))
    assert on_this_host(loaded).policy.enforces_here == frozenset()


def test_status_says_which_host_this_is() -> None:
    """A line for each staged rule and none for others: enforcing here, in dry run, or not at all."""
    staged = [a_rule(name, enforce_on_percent=5.0) for name in ("here", "not-here")]
    dry = a_rule("dry", enforce_on_percent=50.0, mode=Mode.DRY_RUN)
    policy = replace(a_policy(*staged, dry, a_rule("whole")), enforces_here=frozenset({"here", "dry"}))
    part = rules_part(policy)
    assert part["rules"] == 4
    assert list(staged_lines(part)) == [
        "rule here: enforces here: 5 % of hosts enforce",
        "rule not-here: dry run here: 5 % of hosts enforce",
        "rule dry: dry-run; once it enforces, 50 % of hosts enforce, this one too",
    ]


def test_an_older_daemon_s_status_has_no_such_line() -> None:
    """A field that is missing shows nothing; one that is odd is no traceback."""
    assert list(staged_lines({})) == []
    assert list(staged_lines({"staged": [{"rule": "x", "mode": "enforce"}]})) == [
        "rule x: dry run here: some hosts enforce"
    ]
    assert list(staged_lines({"staged": [{"rule": "x", "mode": "dry-run", "percent": 5}]})) == [
        "rule x: dry-run; once it enforces, 5 % of hosts enforce, not this one"
    ]
