"""A simulated host whose driver can be made to hang and to come back, and a service manager that listens.

The simulated NVML reads a file whose answer is withheld, so the worker is beyond SIGKILL until the
file system lets go. Root and raw FUSE are needed.
"""

import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reclaimerd.cli.http_socket import HTTP_OK, Reply, Request, ask_daemon
from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from tests.e2e.rig import Daemon, Json, Rig, Table, simulated_host
from tests.rigs.raw_fuse import RawFuse
from tests.rigs.simulated import state_of, wait_until

WORKERS: Table = {"answer_within": "500ms", "hung_after": "2s"}
ROLE = "\0--role\0nvml\0"
"""What stands in the command line of an nvml worker."""


@dataclass(slots=True)
class HungHost:
    """A simulated host whose driver can be made to hang and to come back."""

    rig: Rig
    fuse: RawFuse

    def hang(self) -> None:
        """Let the next NVML call, and every later one, never return."""
        self.set(block_on=str(self.fuse.path("driver")))

    def come_back(self) -> None:
        """Let new calls work, and free the one that hangs."""
        self.set(block_on="")
        self.fuse.release()

    def set(self, **changes: object) -> None:
        """Change how the simulated driver behaves."""
        host = read_simulated_host(self.rig.host)
        write_simulated_host(self.rig.host, replace(host, **changes))  # type: ignore[arg-type]  # one of its fields

    @property
    def driver(self) -> Json:
        """Return what `status` says of the driver."""
        return dict(self.rig.ask("/v1/status")["driver"])

    def wait_state(self, state: str) -> Json:
        """Wait until `status` says this of the driver, and return what it says."""
        try:
            wait_until(lambda: self.told().get("state") == state, f"the driver is {state}", 30.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.told()}; {self.rig.daemons[-1].words()}") from None
        return self.driver

    def told(self) -> Json:
        """Return what is told of the driver; the error instead while a new daemon can't tell who asks."""
        asked = Request("GET", "/v1/status")
        reply = ask_daemon(self.rig.host / "reclaimerd.sock", asked, None)
        if isinstance(reply, Reply):
            return dict(reply.body["driver"]) if reply.status == HTTP_OK else reply.body
        return {"no answer": reply.why}

    def start(self, state: str = "responsive") -> Daemon:
        """Start the daemon and wait until it says this of the driver."""
        daemon = self.rig.start_daemon()
        self.wait_state(state)
        return daemon

    def hang_until_abandoned(self, daemon: Daemon) -> int:
        """Hang the driver, wait until the worker was killed and left behind, and return its pid."""
        (worker,) = nvml_workers(daemon)
        self.hang()
        self.fuse.wait_withheld(timeout=15.0)
        wait_until(lambda: "killed and has not ended" in self.driver["text"], "the worker is abandoned")
        assert state_of(worker) == "D"
        assert kill_is_pending(worker), "it was not even killed"
        return worker


@contextmanager
def hung_host(**tables: Table) -> Iterator[HungHost]:
    """Set up a host whose driver works, until it is told to hang; all is freed at the end."""
    with ExitStack() as stack:
        rig = stack.enter_context(simulated_host(tables={"workers": WORKERS, **tables}))
        host = HungHost(rig, stack.enter_context(RawFuse(withhold="read")))
        stack.callback(host.come_back)
        yield host


def nvml_workers(daemon: Daemon) -> list[int]:
    """Return the pids of a daemon's own nvml workers (of no other process: its reader may hang)."""
    found = []
    for task in Path(f"/proc/{daemon.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            children = (task / "children").read_text().split()
            found += [int(one) for one in children if ROLE in Path(f"/proc/{one}/cmdline").read_text()]
    return found


def kill_is_pending(pid: int) -> bool:
    """Tell whether SIGKILL waits for a process (status, ShdPnd and SigPnd)."""
    text = Path(f"/proc/{pid}/status").read_text()
    masks = [int(text.partition(f"{name}:")[2].split()[0], 16) for name in ("SigPnd", "ShdPnd")]
    return any(mask & 1 << (signal.SIGKILL - 1) for mask in masks)


def drains(rig: Rig) -> list[Path]:
    """Return the drain requests that were made."""
    directory = rig.state / "drain"
    return sorted(path for path in directory.iterdir() if path.is_file()) if directory.exists() else []


@dataclass(slots=True)
class ServiceManager:
    """A real notification socket, and what a service manager would hear on it."""

    address: str
    end: socket.socket
    heard: list[tuple[float, str]] = field(default_factory=list)

    def beats(self) -> list[float]:
        """Return when each sign of life came (monotonic)."""
        return [at for at, text in self.heard if "WATCHDOG=1" in text]

    def listen(self) -> None:
        """Hear until the socket is shut."""
        while text := self.end.recv(65536).decode():
            self.heard.append((time.monotonic(), text))


@contextmanager
def service_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceManager]:
    """Be a service manager that wants a sign of life every second."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        heard = ServiceManager(f"{folder}/notify", end)
        end.bind(heard.address)
        listener = threading.Thread(target=heard.listen)
        listener.start()
        try:
            with monkeypatch.context() as patch:
                patch.setenv("NOTIFY_SOCKET", heard.address)
                patch.setenv("WATCHDOG_USEC", "1000000")
                yield heard
        finally:
            end.shutdown(socket.SHUT_RDWR)
            listener.join(5)
