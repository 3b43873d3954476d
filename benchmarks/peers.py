"""reclaimerd side by side with gpustat, nvitop, fuser, lsof, earlyoom and systemd-oomd, in one run.

CPU, wall time and memory of one look at the GPUs, of one search through all descriptors, and of rest;
and how they grow with 1, 4 and 16 times the holders and the processes. Without --real all programs load
one small library with fixed answers in the driver's place, ours too (nothing is simulated on our side);
with --real they read this host's driver, and CUDA processes of our own hold the GPU. Nothing is
signalled but what this started, no GPU is set up or reset. What is not installed is left out, by name.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install gpustat nvitop
    .venv/bin/python -m benchmarks.peers --peers-python /tmp/peers/bin/python --out /tmp/peers-result

Writes result.json, result.md and growth.svg into the folder of --out.
"""

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.peers_around import idle_costs, scan_costs
from benchmarks.peers_gpu import HeldGpus, fake_gpus, real_gpus
from benchmarks.peers_looks import Cost, command_cost, our_cost, our_daemon, peer_cost
from benchmarks.peers_plot import Panel, svg
from benchmarks.rig import sleepers

TIMES = (1, 4, 16)
MIB = 1 << 20
Costs = dict[str, Cost | str]
Hold = Callable[[int], AbstractContextManager[HeldGpus]]


@dataclass(frozen=True, slots=True)
class Findings:
    """All that was measured; looks by holders and by processes, scans by processes."""

    host: dict[str, str]
    by_holders: dict[int, Costs] = field(default_factory=dict)
    by_processes: dict[int, Costs] = field(default_factory=dict)
    scans: dict[int, Costs] = field(default_factory=dict)
    commands: Costs = field(default_factory=dict)
    idle: Costs = field(default_factory=dict)


def looks(options: argparse.Namespace, gpus: HeldGpus) -> Costs:
    """Return what one look of each program costs on these GPUs."""
    costs: Costs = {"reclaimerd": our_cost(gpus, options.blocks)}
    for name in ("gpustat", "nvitop"):
        costs[name] = peer_cost(options.peers_python, name, gpus, options.blocks)
    return {name: compared(cost, gpus.holders) for name, cost in costs.items()}


def compared(cost: Cost | str, holders: int) -> Cost | str:
    """Return a cost only if the program showed every holder: else it did other work than the rest."""
    if isinstance(cost, Cost) and cost.shown < holders:
        return f"it showed {cost.shown} holders of {holders}"
    return cost


def commands(options: argparse.Namespace, gpus: HeldGpus) -> Costs:
    """Return what each program costs as a command that prints once and ends."""
    python = options.peers_python
    found: Costs = {
        "gpustat --json": command_cost([python, "-m", "gpustat", "--json"], gpus, options.times),
        "nvitop -1": command_cost([python, "-m", "nvitop", "-1"], gpus, options.times),
    }
    if options.real:
        query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"]
        found["nvidia-smi"] = command_cost(query, gpus, options.times)
    with our_daemon(gpus, "2s") as (_, door):
        argv = [sys.executable, "-m", "reclaimerd.cli.main", "--socket", str(door), "ps", "--json"]
        found["reclaimctl ps --json"] = command_cost(argv, gpus, options.times)
    return found


def programs(tree: Path | None) -> dict[str, str | None]:
    """Return where the other programs are: in a folder of unpacked packages, or installed."""
    places = {
        "fuser": ("bin/fuser", "usr/bin/fuser"),
        "lsof": ("usr/bin/lsof",),
        "earlyoom": ("usr/bin/earlyoom",),
        "systemd-oomd": ("lib/systemd/systemd-oomd", "usr/lib/systemd/systemd-oomd"),
    }
    found: dict[str, str | None] = {}
    for name, paths in places.items():
        unpacked = [tree / path for path in paths] if tree else []
        own = next((str(path) for path in unpacked if path.exists()), None)
        found[name] = own or shutil.which(name) or shutil.which(f"/{paths[-1]}")
    return found


def measure(options: argparse.Namespace, findings: Findings) -> None:
    """Measure everything, one thing after the other, into the findings."""
    hold: Hold = real_gpus if options.real else fake_gpus
    others = programs(options.tree)
    with hold(0) as gpus:
        findings.idle.update(idle_costs(gpus, others, options.idle))
    with sleepers(options.processes):
        for times in TIMES:
            with hold(options.holders * times) as gpus:
                tell(f"{gpus.holders} holders")
                findings.by_holders[gpus.holders] = looks(options, gpus)
    with hold(options.holders * TIMES[1]) as gpus:
        for times in TIMES:
            with sleepers(options.processes * times):
                tell(f"{options.processes * times} more processes")
                count = sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
                findings.by_processes[count] = looks(options, gpus)
                findings.scans[count] = scan_costs(gpus, others, options.times)
        tell("commands")
        findings.commands.update(commands(options, gpus))


def host_words(options: argparse.Namespace) -> dict[str, str]:
    """Return what a figure means nothing without."""
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return {
        "kernel": platform.release(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "load at start": load,
        "driver": "real" if options.real else "one library with fixed answers, 8 GPUs",
    }


def tell(words: str) -> None:
    """Say on stderr how far we are."""
    sys.stderr.write(f"peers: {words}\n")


def row(name: str, cost: Cost | str) -> str:
    """Return one line of a table; at rest nothing has a wall time."""
    if isinstance(cost, str):
        return f"| {name} | not measured: {cost} | | |"
    memory = f"{cost.pss_bytes / MIB:.1f} MiB" if cost.pss_bytes else ""
    wall = f"{cost.wall_seconds * 1e3:.1f} ms" if cost.wall_seconds else ""
    return f"| {name} | {cost.cpu_seconds * 1e3:.2f} ms | {wall} | {memory} |"


def table(title: str, costs: Mapping[str, Cost | str]) -> list[str]:
    """Return one table in Markdown."""
    head = ["", f"### {title}", "", "| program | CPU | wall | PSS |", "| --- | --- | --- | --- |"]
    return head + [row(name, cost) for name, cost in costs.items()]


def report(findings: Findings) -> str:
    """Return all tables in Markdown."""
    lines = [", ".join(f"{name}: {words}" for name, words in findings.host.items())]
    for holders, costs in findings.by_holders.items():
        lines += table(f"One look, {holders} holders", costs)
    for count, costs in findings.by_processes.items():
        lines += table(f"One look, {count} processes on the host", costs)
    for count, costs in findings.scans.items():
        lines += table(f"One search of all descriptors, {count} processes on the host", costs)
    lines += table("As a command", findings.commands)
    lines += table("At rest, CPU in one second", findings.idle)
    return "\n".join(lines) + "\n"


def lines_of(measured: Mapping[int, Costs]) -> dict[str, list[tuple[float, float]]]:
    """Return one line (count, milliseconds of CPU) for each program that was measured."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for count, costs in measured.items():
        for name, cost in costs.items():
            if isinstance(cost, Cost):
                lines.setdefault(name, []).append((float(count), cost.cpu_seconds * 1e3))
    return lines


def picture(findings: Findings) -> str:
    """Return the plot of the growth."""
    return svg(
        [
            Panel("CPU of a look by holders", "holders", lines_of(findings.by_holders)),
            Panel("CPU of a look by processes", "processes", lines_of(findings.by_processes)),
            Panel("CPU of a search by processes", "processes", lines_of(findings.scans)),
        ]
    )


def main() -> None:
    """Measure, print, write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--peers-python", default=sys.executable, help="has gpustat and nvitop installed")
    options.add_argument("--tree", type=Path, help="unpacked packages (earlyoom, systemd-oomd, psmisc, lsof)")
    options.add_argument("--real", action="store_true", help="read this host's driver, hold by CUDA")
    options.add_argument("--holders", type=int, default=4, help="once, 4 and 16 times as many")
    options.add_argument("--processes", type=int, default=125, help="once, 4 and 16 times as many")
    options.add_argument("--blocks", type=int, default=3, help="of ten looks; the best one counts")
    options.add_argument("--times", type=int, default=5, help="of each command and search; the best counts")
    options.add_argument("--idle", type=float, default=30.0, help="seconds of rest")
    options.add_argument("--out", type=Path, required=True)
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    findings = Findings(host_words(chosen))
    try:
        measure(chosen, findings)
    finally:  # a run that broke off keeps what it had measured
        text = report(findings)
        (chosen.out / "result.json").write_text(json.dumps(asdict(findings), indent=1), encoding="utf-8")
        (chosen.out / "result.md").write_text(text, encoding="utf-8")
        (chosen.out / "growth.svg").write_text(picture(findings), encoding="utf-8")
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
