"""The judge alone: CPU of one look at 64 holders by 200 rules, as `time.process_time` counts it.

It judges built looks, reads no GPU and starts nothing. Each figure is the median of many looks in a row,
between which every holder's memory and use change and nothing else does: so a host is most of the time.
The policies: three rules for everybody; 200 of which each concerns some users or units, as on a shared
host; and, as the worst that a policy can ask, 200 that all concern everybody.

    python -m benchmarks.rule_cost [--json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.judge.evaluate import JudgeContext, evaluate
from reclaimerd.judge.protections import Ours
from reclaimerd.judge.series import Past
from reclaimerd.model.identity import DeviceNumber, FileIdentity, GpuUuid, ProcessRef
from reclaimerd.model.policy import Mode, Policy, Rule, RuleKind, Selector, Threshold
from reclaimerd.model.process import ProcessReading, TaskReading, Workload, WorkloadKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import (
    ContextKind,
    DriverReading,
    DriverState,
    GpuMemory,
    GpuProcess,
    GpuReading,
    Holder,
    RecoveryAction,
    ScanCoverage,
    Snapshot,
    Utilisation,
)
from reclaimerd.model.verdict import Sustained

_HOLDERS = 64
_GPUS = 8
_USERS = 40
_RULES = 200
_LOOKS = 60
_WARM_LOOKS = 8
_INTERVAL_SECONDS = 2.0
_WINDOW_SECONDS = 100.0
_GIB = 1024**3
_TARGET_MS = 5.0
_BOOT = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True, slots=True)
class Figure:
    """What judging one look costs under one policy; `first_ms` is the first look of a new policy."""

    name: str
    rules: int
    pairs: int
    median_ms: float
    first_ms: float
    target_ms: float | None


def rule_of(place: int, kind: RuleKind, *, everybody: bool) -> Rule:
    """Return the rule of one team's user, of a range of uids or of some units, with one exemption each."""
    user = 1000 + place % _USERS
    sides = (
        Selector(uids=((user, user),)),
        Selector(users=(f"user{user}",)),
        Selector(cgroup=(f"/system.slice/team{place % _USERS}-*",)),
        Selector(exe=(f"/opt/team{place % _USERS}/*",)),
    )
    return Rule(
        name=f"rule-{place}",
        kind=kind,
        above=Threshold(above_bytes=(60 + place % 10) * _GIB),
        match=Selector(uids=((0, 4294967294),)) if everybody else sides[place % len(sides)],
        exempt=Selector(cmdline=("--keep-this-one",)),
        mode=Mode.ENFORCE,
        growth_bytes_per_second=1024.0**2 if kind is RuleKind.MEMORY_GROWTH else None,
        idle_percent=5.0 if kind is RuleKind.IDLE else None,
        window_seconds=_WINDOW_SECONDS,
        older_than_seconds=86400.0 * 365 if kind is RuleKind.AGE else None,
    )


def policy_of(count: int, *kinds: RuleKind, everybody: bool) -> Policy:
    """Return an enforcing policy of so many rules, their kinds by turns."""
    rules = tuple(
        rule_of(place, kinds[(place // 4) % len(kinds)], everybody=everybody) for place in range(count)
    )
    return Policy(mode=Mode.ENFORCE, rules=rules, interval_seconds=_INTERVAL_SECONDS)


def process_of(number: int) -> ProcessReading:
    """Return one healthy process of one of the teams."""
    pid, team = 1000 + number, number % _USERS
    unit = f"team{team}-{number}.service"
    return ProcessReading(
        ref=ProcessRef(_BOOT, pid, 5000 + number),
        ppid=1,
        uids=(1000 + team,) * 4,
        comm="python3",
        thread_count=1,
        tasks=(TaskReading(pid, "S", 0, 0),),
        whole=True,
        kill_pending=False,
        dumping_core=False,
        tracer_pid=0,
        ns_pids=(pid,),
        age_seconds=7200.0,
        exe=Known(f"/opt/team{team}/bin/python3"),
        exe_file=Known(FileIdentity(1, 7)),
        cmdline=Known(("python3", "train.py", "--epochs", "90")),
        cgroup=f"0::/system.slice/{unit}",
        workload=Workload(WorkloadKind.UNIT, unit, path=f"/system.slice/{unit}", unit=unit),
    )


def gpu_of(index: int, rows: tuple[GpuProcess, ...]) -> GpuReading:
    """Return one GPU of 141 GiB that these use."""
    used = sum(row.used_bytes.value for row in rows if isinstance(row.used_bytes, Known))
    return GpuReading(
        uuid=GpuUuid(f"GPU-{index:08d}-0000-0000-0000-000000000000"),
        index=index,
        pci_address=f"00000000:{index:02x}:00.0",
        minor=index,
        name="NVIDIA H200",
        device=DeviceNumber(195, index),
        memory=Known(GpuMemory(141 * _GIB, used, 0)),
        processes=Known(rows),
        utilisation=Known(Utilisation(90, 50)),
        mig=Known(value=False),
        persistence=Known(value=True),
        recovery_action=Known(RecoveryAction.NONE),
    )


def look_of(turn: int) -> Snapshot:
    """Return the look of this turn: all readings made anew, memory and use a little changed."""
    readings = [process_of(number) for number in range(_HOLDERS)]
    rows: dict[int, list[GpuProcess]] = {index: [] for index in range(_GPUS)}
    for number, reading in enumerate(readings):
        used = (4 + number % 5) * _GIB + turn * 4096
        share = Known(40 + (turn + number) % 50)
        row = GpuProcess(reading.ref.pid, Known(used), ContextKind.COMPUTE, sm_percent=share)
        rows[number % _GPUS].append(row)
    gpus = tuple(gpu_of(index, tuple(own)) for index, own in rows.items())
    used_of = {row.pid: row.used_bytes for own in rows.values() for row in own}
    holders = tuple(
        Holder(one.ref, gpus[number % _GPUS].uuid, listed=True, node=True, used_bytes=used_of[one.ref.pid])
        for number, one in enumerate(readings)
    )
    at = 10_000.0 + turn * _INTERVAL_SECONDS
    return Snapshot(
        taken_at=1_800_000_000.0 + at,
        at=at,
        boot_id=_BOOT,
        driver=DriverReading(DriverState.RESPONSIVE, since=0.0),
        gpus=gpus,
        processes={reading.ref.pid: reading for reading in readings},
        unreadable={},
        holders=holders,
        dead_listings=(),
        scan=ScanCoverage(full_at=at, full_now=True),
        exited=frozenset(),
        frozen={reading.ref.pid: Known(value=False) for reading in readings},
    )


def figure_of(name: str, policy: Policy, target_ms: float | None) -> Figure:
    """Return what judging costs under this policy, once the series reach over their windows."""
    users = {f"user{1000 + number}": 1000 + number for number in range(_USERS)}
    context = JudgeContext(Ours(pid=1), lambda pattern, text: pattern in text, users)
    sustained: tuple[Sustained, ...] = ()
    past, costs, pairs = Past(), [], 0
    for turn in range(_LOOKS):
        look = look_of(turn)
        began = time.process_time()
        found = evaluate(look, policy, sustained, context, past)
        costs.append(1000.0 * (time.process_time() - began))
        sustained, past = found.sustained, found.past
        pairs = sum(
            reason.text != "the rule does not concern it" for one in found.verdicts for reason in one.reasons
        )
    steady = statistics.median(costs[-_WARM_LOOKS:])
    return Figure(name, len(policy.rules), pairs, steady, costs[0], target_ms)


def figures() -> Iterator[Figure]:
    """Measure each policy."""
    memory, mixed = (
        (RuleKind.MEMORY,),
        (RuleKind.MEMORY, RuleKind.IDLE, RuleKind.MEMORY_GROWTH, RuleKind.AGE),
    )
    yield figure_of("three for everybody", policy_of(3, *memory, everybody=True), None)
    yield figure_of("shared host, memory", policy_of(_RULES, *memory, everybody=False), _TARGET_MS)
    yield figure_of("shared host, mixed kinds", policy_of(_RULES, *mixed, everybody=False), _TARGET_MS)
    yield figure_of("worst: all for all, memory", policy_of(_RULES, *memory, everybody=True), None)
    yield figure_of("worst: all for all, idle", policy_of(_RULES, RuleKind.IDLE, everybody=True), None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    found = list(figures())
    if as_json:
        print(json.dumps({one.name: one.median_ms for one in found}))
        return
    print(f"{_HOLDERS} holders on {_GPUS} GPUs; CPU of judging one look, ms")
    print(f"{'policy':<28} {'rules':>5} {'pairs':>6} {'a look':>8} {'first':>8}  target")
    for one in found:
        target = "" if one.target_ms is None else f"{one.target_ms:g}"
        numbers = f"{one.rules:>5} {one.pairs:>6} {one.median_ms:>8.2f} {one.first_ms:>8.1f}"
        print(f"{one.name:<28} {numbers}  {target}")


if __name__ == "__main__":
    main()
