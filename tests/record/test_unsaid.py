"""What a death takes between store and log is written at the next start: once, in order, and told as late."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.ports import Batch
from reclaimerd.record.audit import Audit
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.chain import Head
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import Store
from tests.builders import BOOT, an_incident

ONE, TWO = IncidentId("inc-1"), IncidentId("inc-2")
INTENT = AuditEntry(RecordKind.INTENT, incident=ONE, reason="first", evidence=("é \udc80 x",))
SECOND = AuditEntry(RecordKind.INTENT, incident=ONE, reason="second")
OF_LEDGER = AuditEntry(RecordKind.NOTE, reason="paused")


def places(tmp_path: Path) -> Places:
    """Return where this test's records lie."""
    return Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())


def die_between(tmp_path: Path, *entries: AuditEntry, said: int = 0) -> None:
    """Leave what a death leaves: the store has the change, the log so many of its records."""
    opened = open_records(places(tmp_path))
    head = opened.audit.append((AuditEntry(RecordKind.STARTED),), wall=2.0, mono=1.0)
    opened.store.anchor(head)
    opened.store.save([an_incident()], Ledger(), entries)
    if said:
        opened.audit.append(entries[:said], wall=2.0, mono=1.0)
    opened.audit.close()
    opened.store.close()


def start(tmp_path: Path, *, then: Batch | None = None) -> str:
    """Start once, commit what is given, and return the fault that stood after the start."""

    async def run() -> str:
        recorder = Recorder(lambda: open_records(places(tmp_path)))
        try:
            await recorder.load()
            fault = recorder.fault()
            if then is not None:
                await recorder.commit(then)
                assert recorder.fault() == ""
        finally:
            await recorder.close()
        return fault

    return asyncio.run(run())


def told(tmp_path: Path) -> list[str]:
    """Return the log's records by what they say, and check the whole chain against the store's anchor."""
    store = Store.open(tmp_path / "state" / "store.sqlite")
    found = verify(tmp_path / "log", store.read_anchor())
    unsaid = store.load().unsaid
    store.close()
    assert (found.faults, unsaid) == ((), ())
    return [str(record.get("reason") or record["kind"]) for record in read_records(tmp_path / "log")]


@pytest.mark.parametrize(
    ("said", "late"), [(0, ["first", "second", "paused"]), (1, ["second", "paused"]), (3, [])]
)
def test_what_the_log_lacks_follows_once(tmp_path: Path, said: int, late: list[str]) -> None:
    """All of it, what is left of it, or nothing; a second start adds nothing."""
    entries = (INTENT, SECOND, OF_LEDGER)
    die_between(tmp_path, *entries, said=said)
    assert start(tmp_path) == ""
    story = told(tmp_path)
    before = [one.reason for one in entries[:said]]
    note = f"of 3 records of what the store has, {3 - said} were not in the log"
    assert story[: 1 + said] == ["started", *before]
    assert note in story[1 + said]
    assert story[2 + said :] == late
    start(tmp_path)
    assert told(tmp_path) == story


def test_a_commit_leaves_nothing_to_be_said(tmp_path: Path) -> None:
    """After a whole commit a start finds the log complete."""
    start(tmp_path, then=Batch((an_incident(),), Ledger(), (INTENT,)))
    story = told(tmp_path)
    start(tmp_path)
    assert told(tmp_path) == story == ["first"]


def test_a_log_that_can_not_be_written_at_the_start_gets_it_before_anything_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon starts and says why nothing is recorded; what is late stands before the next record."""
    die_between(tmp_path, INTENT)
    append, refusals = Audit.append, ["audit: no"]

    def once_refused(
        audit: Audit, entries: Sequence[AuditEntry], *, wall: float, mono: float, use_reserve: bool = False
    ) -> Head:
        if refusals:
            raise RecordError(refusals.pop())
        return append(audit, entries, wall=wall, mono=mono, use_reserve=use_reserve)

    monkeypatch.setattr(Audit, "append", once_refused)
    assert start(tmp_path, then=Batch(entries=(OF_LEDGER,))) == "audit: no"
    assert told(tmp_path)[-2:] == ["first", "paused"]


def test_a_change_that_is_replaced_takes_its_records_with_it(tmp_path: Path) -> None:
    """What the store no longer has needs no record: the newer change has its own."""
    store = open_records(places(tmp_path)).store
    assert isinstance(store, Store)
    other = replace(an_incident(), id=TWO)
    store.save([an_incident(), other], Ledger(), (INTENT, OF_LEDGER, replace(INTENT, incident=TWO)))
    store.save([an_incident()], None, (SECOND,))
    left = [(one.entry.incident, one.entry.reason) for one in store.load().unsaid]
    assert left == [(None, "paused"), (TWO, "first"), (ONE, "second")]
    store.save([], Ledger())
    assert [one.entry.incident for one in store.load().unsaid] == [TWO, ONE]
    store.close()
