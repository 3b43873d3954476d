"""Claims about the scheduler's fence, with real hooks."""

import os
from functools import partial
from pathlib import Path

import pytest

from reclaimerd.act.fence import Fence
from reclaimerd.model.ports import ChangeFailed, ChangeMade
from tests.act.reset_tools import program, runs

NODE, INCIDENT = "gpu01.example", "20260101T000000-abcd"
pytestmark = pytest.mark.process


def _hook(tmp_path: Path, body: str) -> Fence:
    """Return a fence over a hook that notes its calls and then does as the body says."""
    hook = program(tmp_path / "hook", f'echo "$@" >> {tmp_path}/calls\n{body}')
    return Fence(hook, any_owner=os.geteuid() != 0, seconds=20.0)


def _calls(tmp_path: Path) -> list[str]:
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_fence_is_asked_and_read_back(tmp_path: Path) -> None:
    """Held means: asked with 0 and read back with 0; the words are those of the reading."""
    fence = _hook(tmp_path, 'echo "$1: drained"')
    assert runs(lambda: fence.ask(NODE, INCIDENT)) == ChangeMade("read: drained")
    assert _calls(tmp_path) == [f"ask {NODE} {INCIDENT}", f"read {NODE} {INCIDENT}"]


@pytest.mark.parametrize(("verb", "calls"), [("ask", 1), ("read", 2)])
def test_either_no_is_a_no(tmp_path: Path, verb: str, calls: int) -> None:
    """A scheduler that refuses, or does not say so when read, leaves no fence; nothing is tried again."""
    fence = _hook(tmp_path, f'[ "$1" = {verb} ] && {{ echo "node is in use" >&2; exit 3; }}; echo ok')
    answer = runs(lambda: fence.ask(NODE, INCIDENT))
    assert answer == ChangeFailed(f"the fence hook's `{verb}` ended with 3 and said: node is in use")
    assert len(_calls(tmp_path)) == calls


def test_a_release_names_the_incident(tmp_path: Path) -> None:
    """What is taken back is what was asked for this incident."""
    fence = _hook(tmp_path, "echo released")
    assert runs(lambda: fence.release(NODE, INCIDENT)) == ChangeMade("released")
    assert _calls(tmp_path) == [f"release {NODE} {INCIDENT}"]


def test_a_hook_that_hangs_is_a_no(tmp_path: Path) -> None:
    """Past its bound the hook is killed, and there is no fence."""
    hook = program(tmp_path / "hook", "exec sleep 60")
    fence = Fence(hook, any_owner=os.geteuid() != 0, seconds=0.3)
    answer = runs(lambda: fence.ask(NODE, INCIDENT))
    assert isinstance(answer, ChangeFailed)
    assert "did not end within 0.3 s" in answer.why


def test_without_a_hook_there_is_no_fence() -> None:
    """An empty key is a no, with what to set."""
    answer = runs(lambda: Fence("").ask(NODE, INCIDENT))
    assert isinstance(answer, ChangeFailed)
    assert "fence_hook" in answer.why


@pytest.mark.root
def test_only_a_hook_of_roots_is_run(tmp_path: Path) -> None:
    """A hook that others may write is not run as root; nor is one by a relative path."""
    fence = _hook(tmp_path, "exit 0")
    Path(fence.hook).chmod(0o777)
    for hook in (fence.hook, "hook", "/nonexistent"):
        answer = runs(partial(Fence(hook).ask, NODE, INCIDENT))
        assert isinstance(answer, ChangeFailed)
        assert "fence_hook" in answer.why
    assert _calls(tmp_path) == []


@pytest.mark.parametrize(("node", "incident"), [("", INCIDENT), (NODE, ""), ("-x", INCIDENT), ("a b", "-")])
def test_a_name_is_never_an_option(tmp_path: Path, node: str, incident: str) -> None:
    """A host or an incident without a plain name reaches no hook."""
    fence = _hook(tmp_path, "exit 0")
    assert isinstance(runs(lambda: fence.ask(node, incident)), ChangeFailed)
    assert _calls(tmp_path) == []


def test_what_a_hook_prints_is_shown_safely(tmp_path: Path) -> None:
    """Control characters of the hook do not reach the record."""
    fence = _hook(tmp_path, r"printf '\033[2Jheld\n'")
    assert runs(lambda: fence.ask(NODE, INCIDENT)) == ChangeMade("?[2Jheld")
