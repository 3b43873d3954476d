"""What the benchmarks share: a crowd of real processes, a simulated host, the daemon on it, its figures.

Measures from outside, with public means: utime and stime of /proc/PID/stat, smaps_rollup, and the
daemon's own sd_notify datagrams, one for each pass. Ends everything that it starts.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.keeper import Keeper

GIB = 1 << 30
GPUS = 8
HOLDERS = 64
OTHERS = 2000
CROWD = Path(__file__).with_name("crowd.py")
_PASS_WITHIN_SECONDS = 10.0
_STOP_WITHIN_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def _end_politely() -> None:
    """Let SIGTERM (of `timeout`, say) end us by an exception, so that whatever was started is ended too."""

    def leave(_number: int, _frame: object) -> None:
        raise SystemExit("ended by SIGTERM")

    signal.signal(signal.SIGTERM, leave)


@contextmanager
def sleepers(count: int) -> Iterator[tuple[int, ...]]:
    """Start `count` real sleeping processes that hold nothing, and end them at the end."""
    _end_politely()
    sleep = shutil.which("sleep") or "/bin/sleep"
    with Path(os.devnull).open("r+b") as null:
        actions = [(os.POSIX_SPAWN_DUP2, null.fileno(), number) for number in range(3)]
        pids = tuple(os.posix_spawn(sleep, ["sleep", "3600"], {}, file_actions=actions) for _ in range(count))
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


@contextmanager
def simulated_host(gpus: int = GPUS) -> Iterator[Keeper]:
    """Build a simulated host in a folder of its own, and take both away at the end."""
    _end_politely()
    hardware = [SimulatedGpu(f"GPU-{number}", f"Simulated {number}", 80 * GIB) for number in range(gpus)]
    with (
        tempfile.TemporaryDirectory(prefix="reclaimerd-benchmark-") as folder,
        Keeper(Path(folder) / "host", hardware) as keeper,
    ):
        yield keeper
        for name in ("state", "log"):
            shutil.rmtree(keeper.directory / name, ignore_errors=True)


def hold(keeper: Keeper, holders: int, threads: int) -> None:
    """Start holders of so many threads each, spread over the host's GPUs; the keeper ends them."""
    argv = [sys.executable, str(CROWD), str(keeper.directory), str(holders), str(threads)]
    keeper.launch_commands([argv])


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon: its process, and the socket where it says that a pass is over."""

    process: subprocess.Popen[bytes]
    beats: socket.socket
    log: Path

    def wait_passes(self, count: int) -> None:
        """Wait until so many more passes are over."""
        seen = 0
        try:
            while seen < count:
                seen += b"WATCHDOG=1" in self.beats.recv(65536)
        except TimeoutError:
            words = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise SystemExit(f"the daemon made no pass in {_PASS_WITHIN_SECONDS:g} s: {words}") from None

    def forget_passes(self) -> None:
        """Take no notice of the passes that are over already."""
        self.beats.setblocking(False)
        try:
            while self.beats.recv(65536):
                pass
        except BlockingIOError:
            self.beats.settimeout(_PASS_WITHIN_SECONDS)

    def pids(self) -> dict[str, int]:
        """Return the pids of the daemon and of its workers, by what they are."""
        return {"daemon": self.process.pid} | workers_of(self.process.pid)


def clean_environment() -> dict[str, str]:
    """Return our environment, without what would make each start compile the source anew."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def daemon(keeper: Keeper, policy: str) -> Iterator[Daemon]:
    """Run the daemon on a simulated host by this policy; it has made a pass when this returns."""
    folder = keeper.directory.parent
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    address = folder / "notify"
    argv = [sys.executable, "-m", "reclaimerd.daemon.main", "--simulate", str(keeper.directory)]
    argv += ["--config", str(folder / "policy.toml")]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as beats,
        (folder / "daemon.log").open("wb") as log,
    ):
        beats.bind(str(address))
        beats.settimeout(_PASS_WITHIN_SECONDS)
        environment = clean_environment() | {"NOTIFY_SOCKET": str(address)}
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log, env=environment)
        try:
            running = Daemon(process, beats, folder / "daemon.log")
            running.wait_passes(1)
            yield running
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_WITHIN_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            address.unlink()


def workers_of(pid: int) -> dict[str, int]:
    """Return the pids of a daemon's workers by their roles; a role's second worker is at the door."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--role" in words:
                role = words[words.index("--role") + 1]
                found[f"{role} of the door" if role in found else role] = int(child)
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far, user and system, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    words = fields.split()
    return (int(words[11]) + int(words[12])) / _TICKS


def cpu_of_passes(running: Daemon, passes: int) -> dict[str, float]:
    """Return the CPU seconds of one pass (mean over `passes`), of the daemon and of each worker."""
    pids = running.pids()
    running.forget_passes()
    running.wait_passes(1)
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    running.wait_passes(passes)
    after = {name: cpu_seconds(pid) for name, pid in pids.items()}
    if running.pids() != pids:
        raise SystemExit("a worker was replaced while it was measured: the machine is too busy, try again")
    return {name: (after[name] - before[name]) / passes for name in pids}


def rollup_bytes(pid: int, key: str) -> int:
    """Return one figure of a process of ours, such as Pss (proc(5), smaps_rollup)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(text.partition(f"\n{key}:")[2].split()[0]) * 1024


def print_table(title: str, rows: list[tuple[str, str, str]]) -> None:
    """Print rows of what was measured, the figure, and its target."""
    print(title)
    for what, figure, target in rows:
        print(f"  {what:<58} {figure:>12}   {target}")
