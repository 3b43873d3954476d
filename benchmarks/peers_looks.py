"""What one look at the GPUs costs: reclaimerd's pass, gpustat's and nvitop's own look, and each as a command.

All three stay in memory and look again after the same pause. Measured from outside for ours (daemon
and workers together), from inside for the peers (one process). The best of several blocks is taken,
because the machine may be busy with other work; a mean of ten looks is in each block.
"""

import json
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers_gpu import HeldGpus
from benchmarks.rig import Daemon, cpu_seconds, rollup_bytes
from reclaimerd.cli.http_socket import Reply, Request, ask_daemon

ROOT = Path(__file__).resolve().parents[1]
CHILD = Path(__file__).with_name("peers_child.py")
RULE = '\n[[rule]]\nname = "cap"\nkind = "memory"\nabove = "70%"\naction = "observe"\n'
PAUSE_SECONDS = 0.2
BLOCK = 10
MOST_WAITS = 20
PASS_WITHIN_SECONDS = 60.0
STOP_WITHIN_SECONDS = 20.0
PEER_WITHIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and wall seconds of one look, the memory of whoever looks, and how many holders it showed."""

    cpu_seconds: float
    wall_seconds: float
    pss_bytes: int
    shown: int


def best(values: Sequence[float]) -> float:
    """Return the least mean of the blocks of these values."""
    blocks = [values[at : at + BLOCK] for at in range(0, len(values), BLOCK)]
    return min(sum(block) / len(block) for block in blocks)


def peer_cost(python: str, name: str, gpus: HeldGpus, blocks: int) -> Cost | str:
    """Return what a look of gpustat or nvitop costs, or why it can't be measured."""
    argv = [python, str(CHILD), name, str(blocks * BLOCK), str(PAUSE_SECONDS)]
    done = subprocess.run(
        argv, env=gpus.environment, capture_output=True, text=True, timeout=PEER_WITHIN_SECONDS, check=False
    )
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or ["no word"])[-1]
    told = json.loads(done.stdout)
    return Cost(best(told["cpu"]), best(told["wall"]), told["pss"], told["shown"])


@contextmanager
def our_daemon(gpus: HeldGpus, interval: str) -> Iterator[tuple[Daemon, Path]]:
    """Run the real daemon, observe only, on these GPUs with a state of its own; yields its socket too."""
    with tempfile.TemporaryDirectory(prefix="peers-daemon-") as name:
        folder = Path(name)
        policy = folder / "policy.toml"
        policy.write_text(f'[daemon]\nmode = "observe"\ninterval = "{interval}"\n' + RULE, encoding="utf-8")
        argv = [sys.executable, "-m", "reclaimerd.daemon.main", "--config", str(policy)]
        argv += ["--state-dir", str(folder / "state"), "--log-dir", str(folder / "log")]
        argv += ["--socket", str(folder / "socket")]
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as beats,
            (folder / "words").open("wb") as words,
        ):
            beats.bind(str(folder / "notify"))
            beats.settimeout(PASS_WITHIN_SECONDS)
            environment = {**gpus.environment, "NOTIFY_SOCKET": str(folder / "notify")}
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words, env=environment, cwd=ROOT
            )
            try:
                running = Daemon(process, beats, folder / "words")
                running.wait_passes(5)
                yield running, folder / "socket"
            finally:
                process.terminate()
                try:
                    process.wait(STOP_WITHIN_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def our_cost(gpus: HeldGpus, blocks: int) -> Cost:
    """Return what one of our passes costs, daemon and workers together."""
    with our_daemon(gpus, f"{PAUSE_SECONDS * 1000:.0f}ms") as (running, door):
        pids = running.pids()
        before = _pass_times(door)
        cpu = [_block_cpu(running, pids) for _ in range(blocks)]
        wall = _mean_wall(running, door, before)
        pids = running.pids()
        pss = sum(rollup_bytes(pid, "Pss") for pid in pids.values())
        reply = ask_daemon(door, Request("GET", "/v1/ps"), None)
    if not isinstance(reply, Reply):
        raise SystemExit(f"the daemon does not answer: {reply}")
    return Cost(min(cpu), wall, pss, len(reply.body["rows"]))


def _block_cpu(running: Daemon, pids: dict[str, int]) -> float:
    running.forget_passes()
    running.wait_passes(1)
    before = cpu_of(pids.values())
    running.wait_passes(BLOCK)
    return (cpu_of(pids.values()) - before) / BLOCK


def _mean_wall(running: Daemon, door: Path, before: tuple[float, float]) -> float:
    """Return the mean wall seconds of the passes since `before`; metrics are told now and then."""
    for _ in range(MOST_WAITS):
        after = _pass_times(door)
        if after[1] - before[1] >= BLOCK:
            return (after[0] - before[0]) / (after[1] - before[1])
        running.wait_passes(BLOCK)
    raise SystemExit("the daemon's metrics do not tell of its passes")


def _pass_times(door: Path) -> tuple[float, float]:
    """Return the seconds of all passes so far and their number, from the daemon's metrics."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PASS_WITHIN_SECONDS)
        line.connect(str(door))
        line.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    found = [
        re.search(rf"^reclaimerd_pass_duration_seconds_{part} (\S+)", text, re.MULTILINE)
        for part in ("sum", "count")
    ]
    if found[0] is None or found[1] is None:
        raise SystemExit(f"the daemon told no pass times: {text[:200]}")
    return float(found[0][1]), float(found[1][1])


def cpu_of(pids: Iterable[int]) -> float:
    """Return the CPU seconds of these processes so far, to the nanosecond where the kernel counts them."""
    return sum(_cpu(pid) for pid in pids)


def _cpu(pid: int) -> float:
    """Return one process's CPU seconds: schedstat of its threads (time on a processor), else its ticks."""
    try:
        tasks = [task / "schedstat" for task in Path(f"/proc/{pid}/task").iterdir()]
        return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9
    except FileNotFoundError:
        return cpu_seconds(pid)


def command_cost(argv: Sequence[str], gpus: HeldGpus, times: int) -> Cost | str:
    """Return what a command costs from start to end, its children's CPU too; the best of `times` runs."""
    cpu, wall = [], []
    for _ in range(times):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        try:
            done = subprocess.run(argv, env=gpus.environment, capture_output=True, check=False, cwd=ROOT)
        except FileNotFoundError:
            return "not installed"
        wall.append(time.monotonic() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr.decode(errors='replace').strip()[-200:]}"
    return Cost(min(cpu), min(wall), 0, -1)
