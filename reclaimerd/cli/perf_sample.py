"""Sample the kernel stack of tasks in R, whose /proc stack is empty: one second of the CPU each runs on.

Root's foreground alone. Only the CPUs named are sampled, never the whole machine: perf would then read
every process's maps, and such a read can hang. No sysrq. It changes nothing and leaves no file.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reclaimerd.host.child import Finished, Overran, run_bounded
from reclaimerd.host.files import refuse_unsafe

PERF = Path("/usr/bin/perf")
_MOST_CPUS = 4
_MOST_STACKS = 8
_RECORD_SECONDS = 15.0
_SCRIPT_SECONDS = 15.0
_HEAD = re.compile(r"\s*(?P<tid>\d+)\s*", re.ASCII)
_FRAME = re.compile(r"\s+(?P<address>[0-9a-f]+) (?P<symbol>[^\s(+]+)(?:\+0x[0-9a-f]+)? \((?P<object>[^)]*)\)")
_KERNEL_ADDRESS = "ffff"
"""How an address of the kernel begins (16 digits, the upper half)."""

Page = dict[str, Any]


def running_tasks(page: Mapping[str, Any]) -> dict[int, int]:
    """Return the tasks of an evidence page that were last seen in R, and the CPU of each."""
    found: dict[int, int] = {}
    for task in page.get("tasks") or ():
        samples = task.get("samples") or ()
        if samples and samples[-1].get("state") == "R":
            found[int(task["tid"])] = int(samples[-1]["processor"])
    return found


def sample_running(tasks: Mapping[int, int]) -> Page:
    """Return what perf saw of the tasks, or in `text` why there is nothing; takes some 2 s per CPU."""
    if not tasks:
        return _without("no task in R: the stacks above tell it all")
    if os.geteuid() != 0:
        return _without("not available: sampling needs root")
    if not PERF.exists():
        return _without("not available: install linux-perf")
    concern = refuse_unsafe(PERF)
    if concern is not None:
        return _without(f"not available: {concern}")
    return asyncio.run(_sample(tasks))


def _without(text: str) -> Page:
    return {"text": text, "stacks": []}


async def _sample(tasks: Mapping[int, int]) -> Page:
    cpus = sorted(set(tasks.values()))
    folder = Path(tempfile.mkdtemp(prefix="reclaimctl-perf-"))
    stacks: Counter[tuple[int, tuple[str, ...]]] = Counter()
    faults: list[str] = []
    try:
        for cpu in cpus[:_MOST_CPUS]:
            tids = [tid for tid, on in tasks.items() if on == cpu]
            found = await _sample_cpu(cpu, tids, folder / f"cpu{cpu}")
            if isinstance(found, str):
                faults.append(found)
            else:
                stacks.update(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not stacks and not faults:
        faults.append("no task was met there: it moved to another CPU meanwhile, or ran no kernel code")
    if len(cpus) > _MOST_CPUS:
        faults.append(f"{len(cpus) - _MOST_CPUS} more CPUs were not sampled")
    shown = [
        {"tid": tid, "samples": count, "stack": list(stack)}
        for (tid, stack), count in stacks.most_common(_MOST_STACKS)
    ]
    text = f"one second of CPU {', '.join(map(str, cpus[:_MOST_CPUS]))}, 199 times a second, kernel only"
    return {"text": "; ".join((text, *faults)), "stacks": shown}


async def _sample_cpu(
    cpu: int, tids: Sequence[int], file: Path
) -> Counter[tuple[int, tuple[str, ...]]] | str:
    """Return how often each stack was seen on one CPU, or why it could not be sampled."""
    record = [
        str(PERF), "record", "-q", "-C", str(cpu), "--synth=no", "-e", "cpu-clock:k", "-F", "199", "-g",
        "-o", str(file), "--", "/bin/sleep", "1",
    ]  # fmt: skip
    ended = await run_bounded(record, deadline_seconds=_RECORD_SECONDS)
    if isinstance(ended, Overran) or ended.code != 0:
        return f"CPU {cpu}: perf record {_how(ended)}"
    wanted = ",".join(map(str, tids))
    script = [str(PERF), "script", "-i", str(file), "--tid", wanted, "-F", "tid,ip,sym,dso"]
    ended = await run_bounded(script, deadline_seconds=_SCRIPT_SECONDS)
    if isinstance(ended, Overran) or ended.code != 0:
        return f"CPU {cpu}: perf script {_how(ended)}"
    return counted_stacks(ended.out)


def _how(ended: Finished | Overran) -> str:
    if isinstance(ended, Overran):
        return "did not end in time"
    said = (ended.err or ended.out).strip().splitlines()
    return f"ended with {ended.code}" + (f": {said[-1][:200]}" if said else "")


def counted_stacks(text: str) -> Counter[tuple[int, tuple[str, ...]]]:
    """Return how often each kernel stack of each task stands in perf's text, innermost frame first."""
    found: Counter[tuple[int, tuple[str, ...]]] = Counter()
    tid = 0
    frames: list[str] = []
    for line in [*text.splitlines(), ""]:
        head, frame = _HEAD.fullmatch(line), _FRAME.match(line)
        if head is not None:
            tid, frames = int(head["tid"]), []
        elif frame is not None and frame["address"].startswith(_KERNEL_ADDRESS):
            module = frame["object"].strip("[]")
            kernel = module.startswith(("kernel", "guest.kernel")) or "/" in module
            frames.append(frame["symbol"] if kernel else f"{frame['symbol']} [{module}]")
        elif not line.strip() and frames:
            found[tid, tuple(frames)] += 1
            frames = []
    return found
