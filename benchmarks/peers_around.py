"""The rest of the comparison: a search of all descriptors beside fuser and lsof, and rest beside OOM daemons.

Starts instances of its own of earlyoom and systemd-oomd, both in dry run, and no service. systemd-oomd
gets a mount namespace of its own: a cgroup2 tree where the host has none with a memory controller, and
a socket on which we answer in systemd's place that `/` is to be watched.
"""

import json
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.peers_gpu import HeldGpus
from benchmarks.peers_looks import Cost, cpu_of, our_daemon
from benchmarks.rig import rollup_bytes
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.observe.holders import scan
from reclaimerd.observe.processes import ProcessReader

NVIDIA_MAJOR = 195
SETTLE_SECONDS = 3.0
OOMD_NAMESPACE = r"""
set -e
if ! grep -qsw memory /sys/fs/cgroup/cgroup.controllers; then
    mount -t cgroup2 none /sys/fs/cgroup
    mount --bind "$1/controllers" /sys/fs/cgroup/cgroup.controllers
fi
mount --bind "$1/run" /run
exec "$2" --dry-run
"""
WATCHED = {
    "parameters": {
        "cgroups": [
            {"mode": "kill", "path": "/", "property": "ManagedOOMMemoryPressure"},
            {"mode": "kill", "path": "/", "property": "ManagedOOMSwap"},
        ]
    },
    "continues": True,
}


def _cost_of(act: Callable[[], int], who: int) -> Cost:
    before, began = resource.getrusage(who), time.monotonic()
    shown = act()
    wall, after = time.monotonic() - began, resource.getrusage(who)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, 0, shown)


def _least(costs: list[Cost]) -> Cost:
    return Cost(min(c.cpu_seconds for c in costs), min(c.wall_seconds for c in costs), 0, costs[0].shown)


def scan_costs(gpus: HeldGpus, programs: dict[str, str | None], times: int) -> dict[str, Cost | str]:
    """Return what one search for who has the first GPU's node costs: ours, fuser, lsof; in turn, the best."""
    node = str(gpus.node)
    commands = {"fuser": [programs["fuser"], node], "lsof": [programs["lsof"], "-w", "-t", node]}
    found: dict[str, list[Cost]] = {"reclaimerd": [], "fuser": [], "lsof": []}
    reader = ProcessReader()
    reader.watch_devices([DeviceNumber(NVIDIA_MAJOR, 0)])
    for _ in range(times):
        found["reclaimerd"].append(_cost_of(lambda: _our_scan(reader), resource.RUSAGE_SELF))
        for name, argv in commands.items():
            if argv[0] is not None:
                found[name].append(_cost_of(lambda: _pids_shown(argv), resource.RUSAGE_CHILDREN))  # noqa: B023  # called here
    return {name: _least(costs) if costs else "not installed" for name, costs in found.items()}


def _our_scan(reader: ProcessReader) -> int:
    return len(scan(reader, root=None, deep=False).rows)


def _pids_shown(argv: list[str | None]) -> int:
    words = [word for word in argv if word is not None]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return len(done.stdout.split())


@contextmanager
def _started(argv: list[str]) -> Iterator[int]:
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        try:
            time.sleep(SETTLE_SECONDS)  # nothing of theirs tells when they have settled
            if process.poll() is not None:
                words.seek(0)
                last = words.read().decode(errors="replace").strip().splitlines()[-1:]
                raise ChildProcessError(f"ended at once: {''.join(last)}")
            yield process.pid
        finally:
            process.kill()
            process.wait()


@contextmanager
def _oomd(program: str) -> Iterator[int]:
    with tempfile.TemporaryDirectory(prefix="peers-oomd-") as name, socket.socket(socket.AF_UNIX) as door:
        folder = Path(name)
        (folder / "run" / "systemd" / "oom").mkdir(parents=True)
        (folder / "controllers").write_text("cpu memory pids\n", encoding="ascii")
        door.bind(str(folder / "run" / "systemd" / "io.system.ManagedOOM"))
        door.listen()
        threading.Thread(target=_answer_as_systemd, args=(door,), daemon=True).start()
        argv = ["unshare", "--mount", "sh", "-c", OOMD_NAMESPACE, "sh", str(folder), program]
        with _started(argv) as pid:
            yield pid


def _answer_as_systemd(door: socket.socket) -> None:
    """Tell the one who asks which cgroups it is to watch, and keep the line until it goes."""
    line, _ = door.accept()
    with line:
        while words := line.recv(65536):
            if words.endswith(b"\0"):
                line.sendall(json.dumps(WATCHED).encode() + b"\0")


def idle_costs(gpus: HeldGpus, programs: dict[str, str | None], seconds: float) -> dict[str, Cost | str]:
    """Return CPU per second of rest of each daemon, side by side in one window, and its PSS."""
    told: dict[str, Cost | str] = {}
    running: dict[str, list[int]] = {}
    with ExitStack() as stack:
        daemon, _ = stack.enter_context(our_daemon(gpus, "2s"))
        for name, start in {
            "earlyoom": lambda program: _started([program, "--dryrun", "-r", "3600"]),
            "systemd-oomd": _oomd,
        }.items():
            program = programs[name]
            if program is None:
                told[name] = "not installed"
                continue
            try:
                running[name] = [stack.enter_context(start(program))]
            except (ChildProcessError, FileNotFoundError) as error:
                told[name] = str(error)
        running["reclaimerd"] = list(daemon.pids().values())
        before = {name: cpu_of(pids) for name, pids in running.items()}
        began = time.monotonic()
        time.sleep(seconds)  # the window that is measured
        window = time.monotonic() - began
        for name, pids in running.items():
            cpu = (cpu_of(pids) - before[name]) / window
            told[name] = Cost(cpu, 0.0, sum(rollup_bytes(pid, "Pss") for pid in pids), -1)
    return told
