"""`reclaimctl top` in a real terminal, over the real daemon on a simulated host."""

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.canned import Answer, canned
from tests.cli.test_commands import HOSTILE, PS, STATUS
from tests.e2e.rig import GPU_B, Rig, is_alive, rule, simulated_host
from tests.rigs.simulated import wait_until
from tests.rigs.tmux import TMUX, Terminal, a_terminal

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(TMUX is None, reason="tmux is not installed"),
]
TOP = (sys.executable, "-m", "reclaimerd.cli.main", "top", "--interval", "0.2")
COLOUR = re.compile(r"\x1b\[[0-9;]*\b3[0-7]m")


@pytest.fixture(scope="module")
def host() -> Iterator[tuple[Rig, int, int]]:
    """Give a host whose daemon leaves its two holders alone: both hold less than the rule's cap."""
    with simulated_host(rule()) as rig:
        small, large = rig.launch(size="1GiB").pid, rig.launch(gpu=GPU_B, size="2GiB").pid
        rig.start_daemon()
        wait_until(lambda: len(rig.ask("/v1/ps")["rows"]) == 2, "both holders are seen")
        yield rig, small, large


def order(screen: str, *pids: int) -> list[int]:
    """Return these pids as they stand on the screen, from above."""
    found = [int(line.split()[0]) for line in screen.splitlines() if re.match(r" *\d+ +\S+ +[01] ", line)]
    return [pid for pid in found if pid in pids]


def on(rig: Rig) -> list[str]:
    """Return the command line of `top` on this host."""
    return [*TOP, "--simulate", str(rig.host)]


def pid_of_top(terminal: Terminal) -> int:
    """Return the pid of what runs in the terminal's shell."""
    pane = int(terminal.ask("display-message", "-p", "#{pane_pid}"))
    return int(Path(f"/proc/{pane}/task/{pane}/children").read_text(encoding="ascii").split()[0])


def left(terminal: Terminal, code: int) -> str:
    """Wait for the end with this code; return the last screen, whose terminal is as it was."""
    terminal.wait(f"left {code}", without=["/ filter"])
    screen = terminal.screen("-J")
    was, now = re.search(r"was (\S+)", screen), re.search(r"\bis (\S+)", screen)
    assert was is not None, screen
    assert now is not None, screen
    assert was[1] == now[1]
    return screen


def test_a_walk(host: tuple[Rig, int, int]) -> None:
    """Holders, order, filter, one process, help, and out; all of it was looking: nothing is on record."""
    rig, small, large = host
    before = rig.records()
    with a_terminal(on(rig)) as terminal:
        screen = terminal.wait(str(small), str(large), "2 rows by memory", "driver: responsive")
        assert order(screen, small, large) == [large, small]
        terminal.press("g")
        assert order(terminal.wait("2 rows by gpu"), small, large) == [small, large]
        terminal.press("r")
        assert order(terminal.wait("2 rows by gpu, reversed"), small, large) == [large, small]
        terminal.press("/")
        terminal.wait("filter: _")
        terminal.press("1", ".", "0", "Space", "G", "i", "B")
        terminal.wait("filter: 1.0 GiB_", "1 of 2 rows", without=[f" {large} "])
        terminal.press("Enter", "Enter")
        shown = terminal.wait(f"process {small}@", "holds GPU", "verdict: watch")
        assert "GPU-00000000-0000-4000-8000-00000000000a" in shown
        terminal.press("Escape")
        terminal.wait("1 of 2 rows")
        terminal.press("Escape")
        terminal.wait("2 rows by gpu", str(large))
        terminal.press("?")
        terminal.wait("It only looks")
        terminal.press("q")
        terminal.wait("2 rows by gpu")
        terminal.press("Down", "Enter")
        terminal.wait(f"process {small}@")
        terminal.press("q", "q")
        left(terminal, 0)
    assert is_alive(small)
    assert is_alive(large)
    assert [one["kind"] for one in rig.records()] == [one["kind"] for one in before]


def test_sizes(host: tuple[Rig, int, int]) -> None:
    """A wider screen shows more columns, a narrower fewer; one that is too small says so and comes back."""
    rig, small, large = host
    with a_terminal(on(rig), (80, 24)) as terminal:
        terminal.wait(str(small), "WORKLOAD", without=["WHY"])
        terminal.resize(200, 40)
        terminal.wait(str(small), "WHY", "not more than 4.0 GiB")
        terminal.resize(20, 5)
        terminal.wait("terminal too small", "needs 40x10", without=[str(small)])
        terminal.resize(60, 12)
        terminal.wait(str(small), str(large), without=["too small", "COMMAND"])
        terminal.press("q")
        left(terminal, 0)


def test_the_daemon_goes_and_comes_back(host: tuple[Rig, int, int]) -> None:
    """What was seen stays with its age, the first line says who does not answer, and it goes on by itself.

    And `status` knows the last act, to whom and how it ended, before the restart and after it alike.
    """
    rig, small, _ = host
    taken = rig.launch().pid
    incident = rig.wait_record("incident_ended", pid=taken)["incident"]
    wait_until(lambda: rig.ask("/v1/status")["last_act"]["end"] == "reclaimed", "its end is told")
    told = rig.ask("/v1/status")["last_act"]
    assert (told["pid"], told["stage"], told["outcome"]) == (taken, "sigterm", "sent")
    assert (told["incident"], told["actor"], told["dry_run"]) == (incident, "rule over-cap", False)
    with a_terminal(on(rig)) as terminal:
        terminal.wait(str(small), "mode enforce")
        rig.daemons[-1].stop()
        terminal.wait("NO ANSWER, figures ", "s old: no daemon is running", str(small))
        rig.start_daemon()
        terminal.wait(str(small), "mode enforce", without=["NO ANSWER"])
        assert rig.ask("/v1/status")["last_act"] == told
        rig.daemons[-1].send(signal.SIGSTOP)
        terminal.wait("SLOW: waiting for the daemon for ")
        terminal.wait("NO ANSWER, figures ", "did not answer within 2 s", str(small))
        rig.daemons[-1].send(signal.SIGCONT)
        terminal.wait("mode enforce", without=["NO ANSWER", "SLOW"])
        terminal.press("C-c")
        left(terminal, 130)


def test_its_end_by_a_signal(host: tuple[Rig, int, int]) -> None:
    """SIGTERM restores the terminal too."""
    rig, small, _ = host
    with a_terminal(on(rig)) as terminal:
        terminal.wait(str(small))
        os.kill(pid_of_top(terminal), signal.SIGTERM)
        left(terminal, 130)


def test_a_terminal_that_goes_away(host: tuple[Rig, int, int]) -> None:
    """Also where nobody tells it by SIGHUP, it ends, and does not spin for keys that can't come."""
    rig, small, _ = host
    deaf = ["sh", "-c", f"trap '' HUP; exec {shlex.join(on(rig))}"]
    with a_terminal(deaf) as terminal:
        terminal.wait(str(small))
        top = pid_of_top(terminal)
    try:
        wait_until(lambda: not is_alive(top), "it is gone", 30.0)
    finally:
        if is_alive(top):
            os.kill(top, signal.SIGKILL)


@pytest.mark.parametrize("name", ["nonsense", "dumb"])
def test_a_terminal_that_cannot_be_drawn_on(name: str) -> None:
    """A kind that nobody knows, or without a cursor that moves: exit 2 and what to call in its place."""
    with a_terminal([*TOP, "--socket", "/nowhere"], extra={"TERM": name}) as terminal:
        screen = terminal.wait("left 2")
    assert f"TERM='{name}'" in screen.replace("\n", "")
    assert "reclaimctl ps" in screen.replace("\n", "")


@pytest.mark.parametrize(
    ("extra", "coloured"),
    [({"LC_ALL": "C.UTF-8"}, True), ({"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}, False), ({"LC_ALL": "C"}, True)],
)
def test_names_charset_and_colour(tmp_path: Path, extra: dict[str, str], *, coloured: bool) -> None:
    """A hostile name is shown as escapes; in C nothing but ASCII goes out; NO_COLOR is obeyed."""
    row = {**PS["rows"][0], "command": f"{HOSTILE} größe", "workload": "漢字"}
    answers = {
        "GET /v1/status": Answer(body={**STATUS, "attention": [f"look {HOSTILE}"]}),
        "GET /v1/ps": Answer(body={**PS, "rows": [row]}),
    }
    path = tmp_path / "s"
    with canned(path, answers), a_terminal([*TOP, "--socket", str(path)], (200, 30), extra) as terminal:
        screen = terminal.wait("4242", r"look \x1b[2Jroot\x0a\u202eexe\x07\x9b31m")
        assert "reclaimerd: mode enforce" in screen.splitlines()[0]
        wide = extra["LC_ALL"] != "C"
        assert ("größe" in screen, r"gr\xf6\xdfe" in screen) == (wide, not wide)
        assert ("漢字" in screen, r"\u6f22\u5b57" in screen) == (wide, not wide)
        assert bool(COLOUR.search(terminal.screen("-e"))) == coloured
        terminal.press("q")
        left(terminal, 0)
