"""What the cycle carries of ends from pass to pass, the alarm on a hidden process, and the words of `ps`."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.allocation_rows import allocation_faults, allocation_rows, allocation_word
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.policy import BreakerSettings, GateSettings, RuleKind
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import HiddenListing, Snapshot
from tests.builders import GIB, GPU_A, MONO, WALL, a_busy_snapshot, a_policy, a_process, a_rule
from tests.fakes import Rig, a_rig
from tests.judge.allocation_builders import OTHERS, a_pod_process, a_view, given
from tests.judge.ending_builders import a_cluster, a_job, a_job_process, a_pod, a_slurm, last_of, seen_at

HIDDEN = HiddenListing(GPU_A, 87315, Known(GIB), "it lives, and /proc does not list it")
WATCHFUL = a_policy(a_rule("hidden", kind=RuleKind.HIDDEN))
JOB = a_job_process()
ENDED = a_job(state="COMPLETED", ended_at=WALL)


def alarms_of(rig: Rig) -> list[str]:
    """Return the alarms on record, in order."""
    return [record.reason for record in rig.recorder.of_kind(RecordKind.ALARM)]


def test_a_hidden_process_is_one_alarm_while_it_stands() -> None:
    """Over several passes; gone and back it is another one; nobody is touched."""
    rig = a_rig(a_busy_snapshot(a_process(), hidden=(HIDDEN,)), WATCHFUL)
    said = f"pid 87315 holds {GPU_A} and is hidden from the process table: {HIDDEN.why}"
    asyncio.run(rig.passes(3))
    assert alarms_of(rig) == [said]
    shown = rig.sampler.snapshot
    rig.sampler.snapshot = replace(shown, hidden=())
    asyncio.run(rig.passes())
    rig.sampler.snapshot = replace(rig.sampler.snapshot, hidden=(HIDDEN,))
    asyncio.run(rig.passes())
    assert alarms_of(rig) == [said, said]
    assert rig.events == ["alarm", "alarm"]


def test_without_such_a_rule_a_hidden_process_is_no_alarm() -> None:
    """The rule is what asks for it."""
    rig = a_rig(a_busy_snapshot(a_process(), hidden=(HIDDEN,)), a_policy(a_rule("cap", above=99 * GIB)))
    asyncio.run(rig.passes(2))
    assert alarms_of(rig) == []


def slurm_at(look: Snapshot) -> Snapshot:
    """Return a look with a fresh answer about the ended job."""
    return replace(look, slurm=Known(a_slurm(ENDED, at=look.at)))


def test_the_cycle_remembers_since_when_a_job_ends_and_signals_only_what_lingers() -> None:
    """A pass every 30 s: nothing before its 210 s are over, then SIGTERM; the look carries the memory."""
    rule = a_rule("lingering", kind=RuleKind.LINGERING, large_jobs=True)
    policy = a_policy(
        rule,
        gates=GateSettings(settling_seconds=0.0),
        breaker=BreakerSettings(workloads_per_pass=9, gpu_percent=100.0),
    )
    rig = a_rig(slurm_at(seen_at(MONO, JOB)), policy)

    async def over(passes: int) -> None:
        for _ in range(passes):
            rig.sampler.snapshot = slurm_at(rig.sampler.snapshot)
            await rig.passes(step=30.0)

    asyncio.run(over(8))  # the last of them at 210 s
    assert rig.events == []
    asyncio.run(over(1))
    assert "act sigterm" in rig.events
    assert rig.cycle.state.snapshot is not None
    (kept,) = rig.cycle.state.snapshot.departures
    assert (kept.id, kept.ends_since) == ("12", MONO)
    assert rig.cycle.state.departures == (kept,)


def test_ps_says_where_a_process_stands() -> None:
    """Lingering, ending, allowed, unallocated, unknown, and nothing where nobody gives GPUs."""
    policy, pod = a_policy(), a_pod_process()
    deleted = a_pod(deletes_at=WALL)
    looks = [seen_at(at, pod, cluster=a_cluster(deleted, at=at)) for at in (MONO, MONO + 151)]
    given_it = Known(a_view(given("worker", GPU_A), OTHERS))
    for look, word in (
        (last_of(*looks), "lingering"),
        (last_of(looks[0]), "ending"),
        (seen_at(MONO, pod, cluster=Absent("nobody is asked"), allocations=given_it), "allowed"),
        (seen_at(MONO, pod), "-"),
        (last_of(seen_at(MONO, JOB, slurm=a_slurm(a_job(gpu_indices=())))), "unallocated"),
        (seen_at(MONO, JOB, slurm=Unreadable("away")), "unknown"),
        (seen_at(MONO, pod, cluster=Unreadable("away")), "unknown"),
    ):
        assert allocation_word(look.holders[0], look, policy) == word
        (process,) = look.processes.values()
        rows = allocation_rows(process, look, policy)
        assert [row["ruling"] for row in rows] == ([] if word == "-" else [word])
    unread = replace(seen_at(MONO, slurm=Unreadable("away")), processes={})
    assert allocation_word(unread.holders[0], unread, policy) == "unknown"


@pytest.mark.parametrize(
    ("field", "reading", "said"),
    [
        ("allocations", Unreadable("it hangs"), ("who was given which GPU: it hangs",)),
        ("allocations", Known(a_view()), ("who was given which GPU: the kubelet's list is empty",)),
        ("allocations", Known(a_view(OTHERS, why="no socket")), ("who was given which GPU: no socket",)),
        ("slurm", Unreadable("away"), ("which job has which GPU: away",)),
        ("slurm", Known(a_slurm(why="no map")), ("which job has which GPU: no map",)),
        ("cluster", Unreadable("401"), ("which pods end: 401",)),
        (
            "cluster",
            Known(replace(a_cluster(), pods=())),
            ("which pods end: the cluster's list names no pod",),
        ),
        ("allocations", Known(a_view(OTHERS)), ()),
        ("slurm", Known(a_slurm()), ()),
        ("cluster", Known(a_cluster()), ()),
        ("cluster", Absent("nobody is asked"), ()),
    ],
)
def test_status_says_what_nobody_can_be_judged_by(
    field: str, reading: Reading[Any], said: tuple[str, ...]
) -> None:
    """Each giver of GPUs that does not answer, or whose answer is of no use."""
    fields: dict[str, Any] = {field: reading}
    assert allocation_faults(a_busy_snapshot(a_process(), **fields)) == said
    assert allocation_faults(None) == ()
