"""Evidence as JSON for tools and as text for people, both within a size that a report may have. Pure.

What does not fit is left out by whole tasks and lines, and the pages say how much.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from reclaimerd import __version__
from reclaimerd.daemon.evidence import MOST_BYTES, Evidence
from reclaimerd.host.proc_text import printable
from reclaimerd.model.kernel import KernelLook, KernelTask
from reclaimerd.model.process import DEAD_STATES, ProcessReading
from reclaimerd.model.reading import Known, text_of

SCHEMA = 1
Page = dict[str, Any]
_FIRST_TASKS = 64


def as_json(evidence: Evidence, *, most_bytes: int = MOST_BYTES) -> Page:
    """Return the evidence as plain JSON of at most `most_bytes` when written compactly."""
    tasks, lines = _FIRST_TASKS, len(evidence.log.lines)
    while True:
        page = _page(evidence, tasks, lines)
        if _size(page) <= most_bytes or (tasks <= 1 and lines == 0):
            return page
        tasks, lines = max(1, tasks // 2), lines // 2


def as_text(page: Mapping[str, Any]) -> str:
    """Return the same for people, from the JSON page; whatever a name holds, it stays in its line."""
    return "\n".join(map(printable, _text_lines(page))) + "\n"


def _size(page: Page) -> int:
    return len(json.dumps(page, separators=(",", ":")))


def _page(evidence: Evidence, most_tasks: int, most_lines: int) -> Page:
    last = evidence.looks[-1]
    order = sorted(last.tasks, key=_worst_first)
    unshown = last.task_count - min(len(order), most_tasks)
    left_out = [f"{unshown} more tasks"] if unshown > 0 else []
    log = evidence.log.lines
    if len(log) > most_lines:
        left_out.append(f"{len(log) - most_lines} older kernel lines")
    plight = evidence.plight
    return {
        "schema": SCHEMA,
        "reclaimerd": __version__,
        "host": evidence.host,
        "kernel": evidence.kernel,
        "taken_at": evidence.taken_at,
        "pid": evidence.ref.pid,
        "ref": str(evidence.ref),
        "comm": last.comm,
        "plight": "" if plight is None else plight.text,
        "leaving": "" if plight is None else plight.leaving.value,
        "signature": "" if plight is None else plight.signature,
        "fault_domain": "" if plight is None or not plight.signature else plight.fault_domain.value,
        "signs": [] if plight is None else list(plight.evidence),
        "process": _process(evidence.process, last),
        "tasks": [_task(task.tid, evidence.looks) for task in order[:most_tasks]],
        "wait_chain": [
            {"role": link.role, "pid": link.pid, "ref": link.ref, "comm": link.comm, "text": link.text}
            for link in evidence.chain
        ],
        "locks": list(evidence.locks),
        "kernel_log": [
            {"ago_seconds": round(max(0.0, last.at - line.at), 1), "topic": line.topic, "text": line.text}
            for line in (log[-most_lines:] if most_lines else ())
        ],
        "driver": dict(evidence.driver),
        "missing": [*evidence.missing, *left_out],
    }


def _worst_first(task: KernelTask) -> tuple[int, int]:
    place = "DRtTSIZX".find(task.state)
    return (place if place >= 0 else 99, task.tid)


def _process(reading: ProcessReading | None, look: KernelLook) -> Page:
    """Return what holds for the whole process; the command line comes masked from its reader."""
    page: Page = {
        "ppid": look.ppid,
        "ns_pids": list(look.ns_pids),
        "threads": look.task_count,
        "resident_bytes": look.resident_bytes,
        "dumping_core": look.dumping_core,
        "tracer_pid": look.tracer_pid,
        "frozen": text_of(look.frozen),
        "freezer": look.freezer,
        "written_bytes": text_of(look.written_bytes),
        "cgroup_bytes": text_of(look.cgroup_bytes),
    }
    if reading is None:
        return page
    return page | {
        "command": " ".join(reading.cmdline.value)
        if isinstance(reading.cmdline, Known)
        else text_of(reading.cmdline),
        "exe": text_of(reading.exe),
        "uids": list(reading.uids),
        "age_seconds": round(reading.age_seconds, 1),
        "threads": reading.thread_count,
        "workload": reading.workload.best_name,
        "cgroup": reading.cgroup,
    }


def _task(tid: int, looks: Sequence[KernelLook]) -> Page:
    """Return one task over all looks; a stack that did not change is written once."""
    samples: list[Page] = []
    shown: object = None
    name = ""
    for look in looks:
        task = next((one for one in look.tasks if one.tid == tid), None)
        if task is None:
            continue
        name = task.comm
        stack = (
            [str(one) if one.reliable else f"? {one}" for one in task.frames.value]
            if isinstance(task.frames, Known)
            else text_of(task.frames)
        )
        sample: Page = {
            "at_seconds": round(look.at - looks[0].at, 3),
            "state": task.state,
            "flags": f"{task.flags:#x}",
            "cpu_ticks": task.cpu_ticks,
            "processor": task.processor,
            "switches": [task.voluntary_switches, task.involuntary_switches],
            "sigkill_pending": task.kill_pending,
            "wchan": task.wchan,
        }
        samples.append(sample | ({"same_stack": True} if stack == shown else {"stack": stack}))
        shown = stack
    return {"tid": tid, "comm": name, "samples": samples}


def _text_lines(page: Mapping[str, Any]) -> list[str]:
    lines = [
        f"evidence of process {page['ref']} ({page['comm']}) on {page['host']}",
        f"taken {_moment(page['taken_at'])} by reclaimerd {page['reclaimerd']}, kernel {page['kernel']}",
        f"verdict: {page['plight'] or _nothing(page)}",
        *(f"  {sign}" for sign in page["signs"]),
        "",
        "PROCESS",
        *(f"  {name}: {_plain(value)}" for name, value in page["process"].items()),
        "",
        "DRIVER",
        *(f"  {name}: {_plain(value)}" for name, value in page["driver"].items()),
        "",
        "TASKS",
    ]
    for task in page["tasks"]:
        lines += _task_lines(task)
    lines += ["", "WAITS FOR, AND WAITED FOR BY"]
    lines += [f"  {one['role']} {one['ref']} ({one['comm']}): {one['text']}" for one in page["wait_chain"]]
    lines += [f"  {lock}" for lock in page["locks"]]
    lines += ["", "KERNEL LOG"]
    lines += [f"  {one['ago_seconds']:>8.1f} s ago  {one['text']}" for one in page["kernel_log"]]
    lines += ["", "NOT HERE"]
    lines += [f"  {one}" for one in page["missing"]] or ["  nothing is missing"]
    return lines


def _nothing(page: Mapping[str, Any]) -> str:
    """Return why there is no verdict; a dead process is not a healthy one."""
    states = {task["samples"][-1]["state"] for task in page["tasks"]}
    if states and states <= DEAD_STATES:
        return f"dead: it holds nothing, and its parent {page['process'].get('ppid')} has not reaped it yet"
    return "nothing that leaves, waits or is held"


def _task_lines(task: Mapping[str, Any]) -> list[str]:
    lines = [f"  task {task['tid']} ({task['comm']})"]
    for one in task["samples"]:
        pending = ", SIGKILL pending" if one["sigkill_pending"] else ""
        lines.append(
            f"    +{one['at_seconds']:.2f} s  {one['state']}  flags {one['flags']}  cpu {one['processor']}"
            f"  ticks {one['cpu_ticks']}  switches {one['switches'][0]}/{one['switches'][1]}"
            f"  wchan {one['wchan'] or '-'}{pending}"
        )
        if one.get("same_stack"):
            lines.append("      the same stack")
        elif isinstance(one["stack"], str):
            lines.append(f"      stack {one['stack']}")
        else:
            lines += [f"      {frame}" for frame in one["stack"]] or ["      no stack shows"]
    return lines


def _moment(wall: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(_plain(one) for one in value) or "none"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(one)}" for name, one in value.items())
    return "unknown" if value is None else str(value).replace("\n", "; ")
