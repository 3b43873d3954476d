"""Claims about drain requests by a program of root's, with real programs."""

import json
import os
import time
from functools import partial
from pathlib import Path

import pytest

from reclaimerd.act.drain_body import Action, action_bytes, request_body
from reclaimerd.act.drain_command import DrainCommand
from reclaimerd.model.drain_policy import CommandTarget
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, Foreign, NotAsked, TargetAnswer
from tests.act.drain_builders import a_request
from tests.act.reset_tools import program, runs

pytestmark = pytest.mark.process


def command(tmp_path: Path, body: str, seconds: float = 20.0) -> DrainTargetPort:
    """Return a target over a program that keeps its word and its input, then does as the body says."""
    path = program(tmp_path / "drain", f'echo "$#:$1" >> {tmp_path}/words\ncat > {tmp_path}/input\n{body}')
    return DrainCommand(CommandTarget(path, seconds), any_owner=os.geteuid() != 0)


def asked(target: DrainTargetPort) -> TargetAnswer:
    """Ask once."""
    return runs(lambda: target.request(a_request()))


def words(tmp_path: Path) -> list[str]:
    """Return what it was called with, each time."""
    path = tmp_path / "words"
    return path.read_text().splitlines() if path.exists() else []


def test_a_program_gets_one_word_and_the_request(tmp_path: Path) -> None:
    """No shell and no other argument; the JSON is the file's with its action."""
    assert asked(command(tmp_path, "echo drained by us; echo more")) == Asked("drained by us")
    assert words(tmp_path) == ["1:request"]
    assert json.loads((tmp_path / "input").read_text()) == {"action": "request", **request_body(a_request())}


def test_each_action_has_its_word(tmp_path: Path) -> None:
    """Withdrawal and question come to the same program."""
    target = command(tmp_path, 'echo "$1"')
    assert runs(lambda: target.withdraw(a_request())) == Asked("withdraw")
    assert runs(lambda: target.status(a_request())) == Asked("status")
    assert words(tmp_path) == ["1:withdraw", "1:status"]


@pytest.mark.parametrize(
    ("body", "kind", "lasting"),
    [
        ("exit 0", Asked, False),
        ("echo alice; exit 3", Foreign, False),
        ("exit 75", NotAsked, False),
        ("kill -TERM $$", NotAsked, False),
        ("kill -KILL $$", NotAsked, False),
        ("exit 1", NotAsked, True),
        ("exit 2", NotAsked, True),
        ("exit 126", NotAsked, True),
        ("exit 255", NotAsked, True),
    ],
)
def test_the_exit_code_is_the_answer(tmp_path: Path, body: str, kind: type, *, lasting: bool) -> None:
    """0 took it, 3 is another's, 75 and a signal are tried again, all else waits for a person."""
    answer = asked(command(tmp_path, body))
    assert isinstance(answer, kind), answer
    assert isinstance(answer, Asked | Foreign) or answer.lasting is lasting
    assert words(tmp_path) == ["1:request"]


def test_a_no_has_the_program_s_words(tmp_path: Path) -> None:
    """Of what went wrong the first line is told."""
    answer = asked(command(tmp_path, "echo 'no such node' >&2; exit 1"))
    assert answer == NotAsked(
        f"{tmp_path}/drain request: exit code 1, and it said: no such node", lasting=True
    )


def test_a_program_that_hangs_is_bounded(tmp_path: Path) -> None:
    """Past its limit it is killed, and run again another time."""
    began = time.monotonic()
    answer = asked(command(tmp_path, "exec sleep 60", seconds=0.5))
    assert time.monotonic() - began < 20.0
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "did not end within 0.5 s" in answer.text


def test_what_it_prints_is_cut_and_shown_safely(tmp_path: Path) -> None:
    """One line of at most 200 characters without control characters goes into the record."""
    answer = asked(command(tmp_path, r"printf '\033[2Jheld%0500d\nmore\n' 7"))
    assert isinstance(answer, Asked)
    assert answer.text.startswith("?[2Jheld000")
    assert len(answer.text) == 200


@pytest.mark.root
def test_only_a_program_of_roots_is_run(tmp_path: Path) -> None:
    """One that others may write, one by a relative path, and none at all: nothing runs."""
    if os.geteuid() != 0:
        pytest.skip("another user's programs are never root's")
    command(tmp_path, "exit 0")
    (tmp_path / "drain").chmod(0o777)
    for path in (str(tmp_path / "drain"), "drain", "/nonexistent", str(tmp_path)):
        answer = runs(partial(DrainCommand(CommandTarget(path)).request, a_request()))
        assert isinstance(answer, NotAsked)
        assert answer.lasting
        assert "[drain.command] program" in answer.text
    assert words(tmp_path) == []


def test_a_plan_is_what_would_be_run(tmp_path: Path) -> None:
    """The command, and its input byte for byte; nothing runs."""
    target = command(tmp_path, "exit 0")
    text = action_bytes(Action.REQUEST, a_request()).decode()
    assert target.plan(a_request()) == f"{tmp_path}/drain request\n\n{text}"
    assert words(tmp_path) == []
