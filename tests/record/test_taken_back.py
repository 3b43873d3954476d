"""What a failed commit left in the store is taken back: a start goes on with none of it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.ledger import Ledger, Pause
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.ports import Batch
from reclaimerd.record.audit import Audit
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import Store, Stored
from tests.builders import BOOT, an_incident

OTHER = replace(an_incident(), id=IncidentId("inc-2"))
CHANGED = replace(an_incident(), reason="changed")
NOTE = AuditEntry(RecordKind.NOTE, reason="it goes on")
OF_OTHER = AuditEntry(RecordKind.INTENT, incident=OTHER.id, reason="of another")
PAUSED = Ledger(pause=Pause("alice", "why", 1.0, None))

Story = Callable[[Recorder, pytest.MonkeyPatch], Awaitable[None]]


def after(tmp_path: Path, story: Story) -> tuple[Stored, list[str]]:
    """Let the story happen over one incident; return what a start finds then, and what the log says."""
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())

    async def run() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        await recorder.commit(Batch((an_incident(),), Ledger(), (AuditEntry(RecordKind.STARTED),)))
        with pytest.MonkeyPatch.context() as patches:
            await story(recorder, patches)
        await recorder.close()
        again = Recorder(lambda: open_records(places))  # a start writes what the log lacks
        await again.load()
        await again.close()

    asyncio.run(run())
    store = Store.open(places.state / "store.sqlite", read_only=True)
    stored = store.load()
    store.close()
    assert verify(places.log, stored.anchor).faults == ()
    return stored, [str(one.get("reason") or one["kind"]) for one in read_records(places.log)]


def refuse(*_args: object, **_named: object) -> None:
    """Fail as a disk does."""
    raise RecordError("no")


async def failed(recorder: Recorder, batch: Batch) -> None:
    """Commit a batch that must fail."""
    with pytest.raises(RecordError):
        await recorder.commit(batch)


@pytest.mark.parametrize("where", ["append", "anchor"])
def test_a_failed_change_is_gone_after_the_next_commit(tmp_path: Path, where: str) -> None:
    """A new incident, a changed one and the ledger: all stand as before, whichever part of it failed."""

    async def story(recorder: Recorder, patches: pytest.MonkeyPatch) -> None:
        patches.setattr(Audit if where == "append" else Store, where, refuse)
        await failed(recorder, Batch((OTHER, CHANGED), PAUSED, (OF_OTHER,)))
        patches.undo()
        await recorder.commit(Batch(entries=(NOTE,)))

    stored, told = after(tmp_path, story)
    assert stored.open_incidents == (an_incident(),)
    assert (stored.ledger, stored.unsaid) == (Ledger(), ())
    # What the log had already it keeps, once; of what it never had nothing follows.
    assert told == ["started", *(["of another"] if where == "anchor" else []), "it goes on"]


def test_it_is_taken_back_while_the_log_can_not_be_written_yet(tmp_path: Path) -> None:
    """Each failed change goes before the next: however long it lasts, one at most is left."""

    async def story(recorder: Recorder, patches: pytest.MonkeyPatch) -> None:
        patches.setattr(Audit, "append", refuse)
        for number in range(5):
            fresh = replace(OTHER, id=IncidentId(f"inc-9{number}"))
            await failed(recorder, Batch((fresh,), None, (replace(OF_OTHER, incident=fresh.id),)))
        await failed(recorder, Batch(entries=(NOTE,)))

    stored, told = after(tmp_path, story)
    assert stored.open_incidents == (an_incident(),)
    assert told == ["started"]


def test_what_became_durable_is_never_taken_back(tmp_path: Path) -> None:
    """A commit that fails before its own save undoes nothing of the one before it."""

    async def story(recorder: Recorder, patches: pytest.MonkeyPatch) -> None:
        await recorder.commit(Batch((OTHER,), PAUSED, (OF_OTHER,)))
        patches.setattr(Store, "save", refuse)
        await failed(recorder, Batch((CHANGED,), Ledger(), (NOTE,)))
        patches.undo()
        await recorder.commit(Batch(entries=(NOTE,)))

    stored, told = after(tmp_path, story)
    assert {one.id for one in stored.open_incidents} == {an_incident().id, OTHER.id}
    assert stored.ledger == PAUSED
    assert told == ["started", "of another", "it goes on"]


def test_one_that_gave_up_waiting_is_taken_back_though_it_came_through(tmp_path: Path) -> None:
    """Whoever was told that it took too long did nothing: the store must not say otherwise."""

    async def story(recorder: Recorder, patches: pytest.MonkeyPatch) -> None:
        off_loop = recorder.off_loop

        async def late(_self: Recorder, work: Callable[[], object], what: str) -> None:
            await off_loop(work, what)
            raise RecordError("it took too long")

        patches.setattr(Recorder, "off_loop", late)
        await failed(recorder, Batch((OTHER,), PAUSED, (OF_OTHER,)))
        patches.undo()
        await recorder.commit(Batch(entries=(NOTE,)))

    stored, told = after(tmp_path, story)
    assert stored.open_incidents == (an_incident(),)
    assert (stored.ledger, stored.unsaid) == (Ledger(), ())
    assert told == ["started", "of another", "it goes on"]
