"""Datagrams to a service manager on a real socket; none when there is nobody."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reclaimerd.daemon.notify import LifeSigns, notify, watchdog_seconds


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the manager's end of the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "n"))
        end.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        yield end


def test_fields_come_as_lines_of_one_datagram(manager: socket.socket) -> None:
    """sd_notify(3): newline-separated assignments."""
    assert notify("READY=1", "STATUS=all is well")
    assert manager.recv(4096) == b"READY=1\nSTATUS=all is well"


def test_a_reload_says_when_it_began(manager: socket.socket) -> None:
    """MONOTONIC_USEC is wanted by Type=notify-reload; READY ends it."""
    signs = LifeSigns(ready=True)
    signs.reload_began()
    first, second = manager.recv(4096).decode().split("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    signs.reload_ended()
    assert manager.recv(4096) == b"READY=1"


def words_said(manager: socket.socket) -> list[str]:
    """Return the first field of everything that waits for the manager but what fills its socket."""
    manager.setblocking(False)
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(manager.recv(8192).decode().partition("\n")[0])
    return [word for word in found if not word.startswith("STATUS=x")]


def fill_up() -> None:
    """Leave no room in the manager's socket."""
    while notify("STATUS=x"):
        pass


@pytest.mark.parametrize("full_from", ["began", "ended"])
def test_the_end_of_a_reload_comes_to_a_manager_that_had_no_room(
    manager: socket.socket, full_from: str
) -> None:
    """Else the unit is "reloading" for ever: what was not taken is said before the next word, in order."""
    signs = LifeSigns(ready=True)
    said: list[str] = []
    if full_from == "began":
        fill_up()
    signs.reload_began()
    if full_from == "ended":
        said += words_said(manager)
        fill_up()
    signs.reload_ended()
    signs.passed("WATCHDOG=1")
    said += words_said(manager)
    assert "READY=1" not in said
    signs.passed("WATCHDOG=1")
    said += words_said(manager)
    assert said == ["RELOADING=1", "READY=1", "WATCHDOG=1"]
    signs.passed("WATCHDOG=1")
    assert words_said(manager) == ["WATCHDOG=1"]


def test_many_reloads_under_a_busy_manager_are_told_as_one(manager: socket.socket) -> None:
    """What is owed does not grow: the newest reload's beginning and end stand for all."""
    signs = LifeSigns(ready=True)
    fill_up()
    for _ in range(50):
        signs.reload_began()
        signs.reload_ended()
    words_said(manager)
    signs.passed("WATCHDOG=1")
    assert words_said(manager) == ["RELOADING=1", "READY=1", "WATCHDOG=1"]


def test_a_reload_before_the_first_pass_does_not_say_ready(manager: socket.socket) -> None:
    """READY is said after the first pass and not before, whoever asks for a reload meanwhile."""
    signs = LifeSigns()
    signs.reload_began()
    signs.reload_ended()
    assert words_said(manager) == []
    signs.passed("WATCHDOG=1")
    assert manager.recv(64) == b"READY=1\nWATCHDOG=1"


def test_an_abstract_address_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """`@name` is the abstract namespace, as unix(7) writes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0reclaimerd-test-{os.getpid()}")
        end.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@reclaimerd-test-{os.getpid()}")
        assert notify("WATCHDOG=1")
        assert end.recv(64) == b"WATCHDOG=1"


def test_nobody_to_tell_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable, no socket there: false, and nothing raised."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    assert not notify("READY=1")


def test_a_manager_that_does_not_read_never_blocks_us(manager: socket.socket) -> None:
    """A full socket drops the message and the loop goes on."""
    sent = 0
    while notify(f"STATUS={'x' * 4000}"):
        sent += 1
        assert sent < 10_000
    assert sent
    assert manager.recv(8192)


def test_the_watchdog_is_ours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """WATCHDOG_PID of another process, or no number, is no watchdog."""
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert watchdog_seconds() is None
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    assert watchdog_seconds() == 60.0
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_seconds() is None
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("WATCHDOG_USEC", "soon")
    assert watchdog_seconds() is None


GIVEN = """
import json, os, socket, sys
from pathlib import Path
from reclaimerd.daemon.notify import given_listener
made, wanted, pid, count = sys.argv[1:]
datagram, stream = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0], socket.socket(socket.AF_UNIX)
stream.bind(made)
if count != "unheard":
    stream.listen()
os.dup2(datagram.fileno(), 50)
os.dup2(stream.fileno(), 51)
os.dup2(50, 3, inheritable=True)
os.dup2(51, 4, inheritable=True)
os.environ["LISTEN_PID"] = pid or str(os.getpid())
os.environ["LISTEN_FDS"] = count.replace("unheard", "2")
os.environ["LISTEN_FDNAMES"] = "a:b"
given = given_listener(Path(wanted))
print(json.dumps({
    "given": None if given is None else given.fileno(),
    "blocks": given is not None and given.getblocking(),
    "inherited": [number for number in (3, 4) if os.get_inheritable(number)],
    "left": sorted(name for name in os.environ if name.startswith("LISTEN_")),
}))
"""


def given(path: Path, *, wanted: str = "", pid: str = "", count: str = "2") -> dict[str, object]:
    """Return what a process makes of a datagram socket at 3 and a listening one at 4."""
    words = [sys.executable, "-P", "-c", GIVEN, str(path), wanted or str(path), pid, count]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    return dict(json.loads(done.stdout))


def test_the_managers_socket_is_taken_by_its_path(tmp_path: Path) -> None:
    """The one that listens where we would listen; no child inherits any, nor the variables."""
    found = given(tmp_path / "s")
    assert found == {"given": 4, "blocks": False, "inherited": [], "left": []}


@pytest.mark.parametrize(
    "change",
    [{"wanted": "/run/other.sock"}, {"pid": "1"}, {"count": "1"}, {"count": "some"}, {"count": "unheard"}],
)
def test_what_is_not_for_us_is_no_socket_of_ours(tmp_path: Path, change: dict[str, str]) -> None:
    """Another path, another process, no such descriptor, no number, a socket that does not listen: none."""
    found = given(tmp_path / "s", **change)
    assert (found["given"], found["left"]) == (None, [])
