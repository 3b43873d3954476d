"""What runs inside the guest: the whole daemon, and holders that hang in a device with the real numbers.

It makes things happen and writes down what it saw, one JSON file for each part; whether that is right is
judged outside. `python -m tests.qemu.guest`, as the guest's only program.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reclaimerd.cli.http_socket import HTTP_OK, NoAnswer, Request, ask_daemon
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.simulation.claims import live_claims
from reclaimerd.simulation.host import SimulatedGpu, SimulatedHost, write_simulated_host

T = TypeVar("T")
Json = dict[str, Any]

GPU = "GPU-00000000-0000-4000-8000-0000000000aa"
GIB = 1 << 30
RESULTS = Path("/run/results")
SIMULATION = Path("/run/host")
POLICY = Path("/run/policy.toml")
PARAMETERS = Path("/sys/module/nvidia/parameters")
GROUPS = Path("/sys/fs/cgroup")
STEP_SECONDS = 120.0
"""The longest that one thing may take here; the guest as a whole has its own limit."""
LOOK_SECONDS = 0.3
FREED_SECONDS = 10.0
JUDGED_SECONDS = 30.0
PASS, SPIN, SLEEP, IN_IOCTL = "0", "1", "2", "1"
OVER_CAP, SMALL = 5 * GIB, GIB
"""What the policy's rule takes back, and what it leaves to an operator."""
EXIT_GRACE_SECONDS = 2
POLICY_TEXT = f"""
[daemon]
mode = "enforce"
interval = "500ms"
[workers]
answer_within = "60s"
hung_after = "200s"
[ladder]
sigterm = "1s"
operator_sigterm = "1s"
sigkill = "2s"
exit_grace = "{EXIT_GRACE_SECONDS}s"
proof = "2s"
reset = "5s"
[gates]
settling = "0s"
workload_cooldown = "0s"
gpu_cooldown = "0s"
[budgets]
workloads_per_window = 50
workloads_per_day = 50
resets_per_gpu = 50
drains_per_day = 50
[breaker]
workloads_per_pass = 50
gpu_percent = 100
[drain]
fault_domains = ["driver", "hardware", "unknown"]
[[signature]]
name = "stand-in"
title = "the stand-in device"
meaning = "a test told the device to hang"
mend = "write 0 to the module's parameter"
fault_domain = "driver"
symbols = ["stand_in_*"]
modules = ["nvidia"]
[[rule]]
name = "over-cap"
kind = "memory"
above = "4GiB"
for = "1s"
readings = 2
mode = "enforce"
action = "reclaim"
stages = ["sigterm", "sigkill", "reset", "drain"]
grace = "1s"
match = {{ uid = ["0-4294967294"] }}
"""


def main() -> None:
    """Run every part in turn; what fails ends the guest, and its console says where."""
    began = time.monotonic()
    write_simulation()
    daemon = start_daemon()
    try:
        wait_for(lambda: answers(daemon), "the daemon answers")
        write_finding("started", {"seconds": time.monotonic() - began})
        hang("spinning", "in_release", SPIN, words=("listed",))
        hang("sleeping", "in_release", SLEEP, words=(), size=SMALL)
        hang("in_ioctl", "in_ioctl", IN_IOCTL, words=("ioctl",))
        write_finding("audit", {"records": records()})
    finally:
        daemon.terminate()
        daemon.wait(STEP_SECONDS)
    write_finding("done", {"seconds": time.monotonic() - began})


def write_simulation() -> None:
    """Set up one simulated GPU whose device has NVIDIA's number: every process may hold it."""
    (SIMULATION / "claims").mkdir(parents=True)
    gpu = SimulatedGpu(GPU, "Guest", 80 * GIB, device="/dev/nvidia0")
    host = SimulatedHost((gpu,), shared_devices=("/dev/nvidiactl",), all_processes=True)
    write_simulated_host(SIMULATION, host)
    POLICY.write_text(POLICY_TEXT, encoding="utf-8")


def start_daemon() -> "subprocess.Popen[bytes]":
    """Start the daemon; its log goes to the console."""
    words = ["-m", "reclaimerd.daemon.main", "--config", str(POLICY), "--simulate", str(SIMULATION)]
    return subprocess.Popen([sys.executable, *words], stdin=subprocess.DEVNULL)


def hang(name: str, parameter: str, value: str, *, words: Sequence[str], size: int = OVER_CAP) -> None:
    """Let a holder hang in the device, write down what is seen of it, let go, and write down what then."""
    group = GROUPS / name
    group.mkdir()
    (PARAMETERS / parameter).write_text(value)
    holder = start_holder(size, words, group)
    pid = holder.pid
    pidfd = os.pidfd_open(pid)
    wait_for(lambda: row_of(pid), "the daemon sees the holder")
    found: Json = {"pid": pid}
    if size == SMALL:
        limits = ("--force", "--grace", "1s", "--timeout", "8s")
        found["kill"] = reclaimctl("kill", "--pid", str(pid), *limits)
    found["ended"] = wait_for(lambda: record_of("incident_ended", pid), "its incident ends")
    write_finding(name, found | what_is_seen(name, pid) | {"cgroup": killed_as_group(group, pidfd)})
    (PARAMETERS / parameter).write_text(PASS)
    freed = bool(select.select([pidfd], [], [], FREED_SECONDS)[0])
    late = wait_for(lambda: record_of("late_release", pid), "the late release is on record")
    holder.wait(STEP_SECONDS)
    os.close(pidfd)
    write_finding(f"{name}_freed", {"freed": freed, "late": late, "row": row_of(pid), **explained(name)})


def start_holder(size: int, words: Sequence[str], group: Path) -> "subprocess.Popen[bytes]":
    """Start a holder in a cgroup of its own and wait until it holds."""
    argv = [sys.executable, "-m", "tests.qemu.holder", str(SIMULATION), GPU, str(size), *words]
    holder = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    (group / "cgroup.procs").write_text(str(holder.pid))
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n", "the holder did not start"
    return holder


def what_is_seen(name: str, pid: int) -> Json:
    """Return what the kernel and the daemon show of a holder that hangs."""
    return {
        "kernel": what_the_kernel_shows(pid),
        "listed": [claim.pid for claim in live_claims(SIMULATION)],
        "row": row_of(pid),
        "process": process_of(pid),
        "drains": [json.loads(path.read_text()) for path in SIMULATION.glob("state/drain/*.json")],
        "records": [one for one in records() if pid_of(one) == pid],
        "module_users": int(Path("/sys/module/nvidia/refcnt").read_text()),
        **explained(name),
    }


def process_of(pid: int) -> Json:
    """Return what the daemon tells of one process, as soon as it has judged how the process leaves."""
    until = time.monotonic() + JUDGED_SECONDS
    while True:
        told = ask(f"/v1/processes/{pid}") or {}
        judged = (told.get("plight") or {}).get("leaving") not in (None, "progressing", "not_leaving")
        if judged or time.monotonic() > until:
            return told
        time.sleep(LOOK_SECONDS)


def explained(name: str) -> Json:
    """Return what the reset gate says; for the first part by the command as well."""
    # A fresh look at everything takes a slow guest longer than a caller waits; then it is asked again.
    answer = wait_for(lambda: ask("/v1/explain/reset", gpu=GPU), "the reset gate's answer")
    if name != "spinning":
        return {"explain": answer}
    return {"explain": answer, "command": reclaimctl("explain", "reset", "--gpu", GPU)}


def what_the_kernel_shows(pid: int) -> Json:
    """Return what /proc says of a process, and how many ticks of CPU it uses in a second."""
    proc = Path(f"/proc/{pid}")
    before = parse_stat((proc / "stat").read_text())
    time.sleep(1)
    after = parse_stat((proc / "stat").read_text())
    return {
        "state": after.state,
        "flags": after.flags,
        "ticks": after.utime + after.stime - before.utime - before.stime,
        "fds": sorted(os.listdir(proc / "fd")),  # noqa: PTH208  # the kernel's own listing
        "maps": (proc / "maps").read_text(),
        "cmdline": (proc / "cmdline").read_bytes().decode(),
        "status": (proc / "status").read_text(),
        "stacks": [(proc / "stack").read_text() for _ in range(5)],
        "wchan": (proc / "wchan").read_text(),
    }


def killed_as_group(group: Path, pidfd: int) -> Json:
    """Kill a whole cgroup and return what is left of it a second later."""
    (group / "cgroup.kill").write_text("1")
    died = bool(select.select([pidfd], [], [], 1)[0])
    return {"died": died, "events": (group / "cgroup.events").read_text()}


def reclaimctl(*words: str) -> Json:
    """Run one command to its end; its exit code and what it printed."""
    argv = [sys.executable, "-m", "reclaimerd.cli.main", *words, "--json", "--simulate", str(SIMULATION)]
    done = subprocess.run(
        [*argv, "--config", str(POLICY)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_SECONDS,
        check=False,
    )
    answer = json.loads(done.stdout) if done.stdout.startswith("{") else None
    return {"code": done.returncode, "answer": answer, "out": done.stdout, "err": done.stderr}


def ask(path: str, **query: str) -> Json | None:
    """Return the daemon's answer to one question, None while there is none."""
    reply = ask_daemon(SIMULATION / "reclaimerd.sock", Request("GET", path, query), None)
    return None if isinstance(reply, NoAnswer) or reply.status != HTTP_OK else reply.body


def answers(daemon: "subprocess.Popen[bytes]") -> Json | None:
    """Return the daemon's status once it has looked at the host; it must not have ended instead."""
    assert daemon.poll() is None, f"the daemon ended at once with {daemon.returncode}"
    status = ask("/v1/status")
    return status if status and status["gpus"] else None


def row_of(pid: int) -> Json | None:
    """Return one holder's row in the daemon's table."""
    table = ask("/v1/ps") or {"rows": []}
    return next((dict(row) for row in table["rows"] if row["pid"] == pid), None)


def records() -> list[Json]:
    """Return the audit log's whole lines, oldest first."""
    path = SIMULATION / "log" / "audit.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [dict(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]


def pid_of(record: Json) -> int | None:
    """Return the pid that a record is about."""
    return ((record.get("target") or {}).get("root") or {}).get("pid")


def record_of(kind: str, pid: int) -> Json | None:
    """Return the first record of a kind about a process."""
    return next((one for one in records() if one["kind"] == kind and pid_of(one) == pid), None)


def wait_for(look: Callable[[], T | None], what: str) -> T:
    """Return what a look finds as soon as it finds it; the bound is generous, the guest is slow."""
    until = time.monotonic() + STEP_SECONDS
    while time.monotonic() < until:
        found = look()
        if found is not None:
            return found
        time.sleep(LOOK_SECONDS)
    story = "\n".join(
        str({key: one.get(key) for key in ("kind", "action", "end", "reason")}) for one in records()
    )
    raise AssertionError(f"not in {STEP_SECONDS:g} s: {what}\n{story}")


def write_finding(name: str, found: Mapping[str, object]) -> None:
    """Hand one finding out of the guest, whole or not at all."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    fresh = RESULTS / f"{name}.part"
    fresh.write_text(json.dumps({**found, "uptime": uptime}), encoding="utf-8")
    fresh.rename(RESULTS / f"{name}.json")
    sys.stdout.write(f"guest: {name} at {uptime:.1f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
