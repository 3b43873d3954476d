"""Two lives of the daemon over one real store and audit log: what binds, what is said once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from reclaimerd.daemon.state import State
from reclaimerd.model.incident import OutcomeKind, Stage
from reclaimerd.model.policy import AuditSettings, BreakerSettings, GateSettings, Policy
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import Stored
from tests.builders import BOOT, a_busy_snapshot, a_policy, a_process, a_ref, a_snapshot
from tests.fakes import Rig, a_rig

CALM = a_policy(
    gates=GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0),
    breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0),
)


@asynccontextmanager
async def a_life(
    folder: Path, snapshot: Snapshot, policy: Policy = CALM
) -> AsyncIterator[tuple[Rig, Stored]]:
    """Open the records, and give a cycle over them that knows what the store held."""
    places = Places(folder / "state", folder / "log", BOOT, AuditSettings())
    recorder = Recorder(lambda: open_records(places))
    stored = await recorder.load()
    rig = a_rig(snapshot, policy, recorder=recorder)
    handed = {one.id: one for one in stored.handed_over}
    opened = {one.id: one for one in stored.open_incidents}
    rig.cycle.state = State(incidents=opened, handed=handed, ledger=stored.ledger)
    try:
        yield rig, stored
    finally:
        await recorder.close()


def kinds(folder: Path) -> list[str]:
    """Return the kinds of all records on the disk, in order."""
    return [str(record["kind"]) for record in read_records(folder / "log", where=lambda _record: True)]


def test_a_budget_that_was_spent_binds_after_a_restart(tmp_path: Path) -> None:
    """One workload per window: the second life sends nothing to the second one."""
    one, two = a_process(100), a_process(200, start=2)

    async def story() -> tuple[Rig, Rig]:
        async with a_life(tmp_path, a_busy_snapshot(one)) as (first, _):
            await first.passes()
        async with a_life(tmp_path, a_busy_snapshot(two)) as (second, _):
            second.cycle.state.incidents.clear()
            await second.passes(3)
        return first, second

    first, second = asyncio.run(story())
    assert first.executor.sent == {one.ref: ["sigterm"]}
    assert second.executor.permits == []


def test_an_open_incident_goes_on_where_it_stood_without_a_second_sigterm(tmp_path: Path) -> None:
    """The store has the attempt with its outcome: the next life waits, then takes the next stage."""

    async def story() -> Rig:
        async with a_life(tmp_path, a_busy_snapshot()) as (first, _):
            await first.passes()
        async with a_life(tmp_path, a_busy_snapshot()) as (second, stored):
            (kept,) = stored.open_incidents
            assert kept.stage is Stage.SIGTERM
            await second.passes(3)
            assert second.executor.permits == []
            second.age(300.0)
            await second.passes()
        return second

    assert asyncio.run(story()).executor.sent == {a_ref(): ["sigkill"]}


def test_a_late_release_is_recorded_once_and_never_again_after_a_restart(tmp_path: Path) -> None:
    """The store remembers that it was told."""
    gone = a_snapshot(exited=frozenset({a_ref()}))

    async def story() -> None:
        async with a_life(tmp_path, a_busy_snapshot()) as (first, _):
            first.executor.answer = lambda _permit: OutcomeKind.NOT_PERMITTED
            await first.passes()
        for _ in range(3):
            async with a_life(tmp_path, gone) as (later, stored):
                await later.passes(2)
        assert stored.handed_over == ()

    asyncio.run(story())
    assert kinds(tmp_path).count("late_release") == 1
    assert kinds(tmp_path).count("incident_ended") == 1


def test_what_was_written_over_two_lives_is_one_whole_chain(tmp_path: Path) -> None:
    """Nothing is lost or out of order at the seam."""

    async def story() -> None:
        for _ in range(2):
            async with a_life(tmp_path, a_busy_snapshot()) as (rig, _):
                await rig.passes(2)

    asyncio.run(story())
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())
    opened = open_records(places)
    anchor = opened.stored.anchor
    opened.store.close()
    opened.audit.close()
    assert verify(tmp_path / "log", anchor).ok


def test_the_recorder_s_head_is_the_last_durable_record(tmp_path: Path) -> None:
    """Before the first record there is none; after a restart it is the anchor."""

    async def story() -> None:
        async with a_life(tmp_path, a_busy_snapshot()) as (rig, _):
            recorder = rig.cycle.joints.recorder
            assert isinstance(recorder, Recorder)
            assert recorder.head() is None
            await rig.passes()
            head = recorder.head()
            assert head is not None
        async with a_life(tmp_path, a_snapshot()) as (rig, stored):
            recorder = rig.cycle.joints.recorder
            assert isinstance(recorder, Recorder)
            assert recorder.head() == head == stored.anchor

    asyncio.run(story())


def test_a_dry_run_s_spend_does_not_bind_the_real_life_after_it(tmp_path: Path) -> None:
    """Budgets of their own, in the store too."""

    async def story() -> Rig:
        async with a_life(tmp_path, a_busy_snapshot()) as (first, _):
            first.cycle.joints = replace(first.cycle.joints, dry_run=True)
            await first.passes()
            assert first.executor.sent == {}
        async with a_life(tmp_path, a_busy_snapshot()) as (second, _):
            await second.passes()
        return second

    assert asyncio.run(story()).executor.sent == {a_ref(): ["sigterm"]}
