"""record/recorder: durable or an error, never a stopped loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.ports import Batch, RecorderPort
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.chain import Head
from reclaimerd.record.faults import NoSpaceError
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder, RecorderLimits, is_operators
from reclaimerd.record.recorder_ports import Opened
from reclaimerd.record.store import Remembered, Store, Stored
from tests.builders import BOOT, OPERATOR, RULE_ACTOR, an_incident
from tests.record.log_rig import a_note

INTENT = AuditEntry(RecordKind.INTENT, actor=RULE_ACTOR)
OPERATORS_INTENT = AuditEntry(RecordKind.INTENT, actor=OPERATOR)


def places(tmp_path: Path) -> Places:
    """Return where this test's records lie."""
    return Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings(file_bytes=1024 * 1024))


class Journal:
    """A stub of store and audit that notes the order of calls, and does what the test says."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.on_save: Callable[[], None] = lambda: None
        self.on_append: Callable[[], None] = lambda: None
        self.reserve = False
        self.spent = False

    def load(self) -> Stored:
        """Return nothing stored."""
        return Stored()

    def save(
        self,
        incidents: Sequence[Incident],
        ledger: Ledger | None = None,
        entries: Sequence[AuditEntry] = (),
    ) -> int:
        """Note it."""
        self.calls.append(f"save {len(incidents)} {ledger is not None}")
        assert isinstance(entries, tuple)
        self.on_save()
        return 7

    def take_back(self) -> None:
        """Note it."""
        self.calls.append("take_back")

    def anchor(self, head: Head, batches: Sequence[int] = ()) -> None:
        """Note it."""
        self.calls.append(f"anchor {head.seq}")
        assert set(batches) <= {7}

    def remember(self, remembered: Remembered) -> None:
        """Note it."""
        self.calls.append(f"remember {remembered}")

    def append(
        self, entries: Sequence[AuditEntry], *, wall: float, mono: float, use_reserve: bool = False
    ) -> Head:
        """Note it."""
        assert wall > mono
        self.calls.append(f"append {len(entries)} {use_reserve}")
        self.on_append()
        return Head(len(entries), "0" * 64)

    def spend_reserve(self) -> bool:
        """Give the reserve up once."""
        self.calls.append("spend_reserve")
        had, self.reserve = self.reserve, False
        self.spent = self.spent or had
        return had

    def reserve_is_spent(self, mono: float) -> bool:
        """Tell whether it was given up."""
        assert mono >= 0
        return self.spent

    def anchor_fault(self) -> str:
        """Return none: no anchor is kept here."""
        return ""

    def close(self) -> None:
        """Note it."""
        self.calls.append("close")


def recorder_on(journal: Journal, limit_seconds: float = 5.0) -> Recorder:
    """Return a recorder over the stub."""
    limits = RecorderLimits(limit_seconds, wall=lambda: 2.0, mono=lambda: 1.0)
    return Recorder(lambda: Opened(journal, journal, Stored()), limits)


def test_a_commit_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    """Incident, record and anchor are all there for another reader as soon as `commit` has returned."""

    async def scenario() -> None:
        recorder = Recorder(lambda: open_records(places(tmp_path)))
        port: RecorderPort = recorder
        await recorder.load()
        await port.commit(Batch((an_incident(),), Ledger(), (INTENT, a_note())))
        reader = Store.open(tmp_path / "state" / "store.sqlite", read_only=True)
        assert reader.incidents() == (an_incident(),)
        found = verify(tmp_path / "log", reader.read_anchor())
        assert (found.ok, found.records, found.unanchored) == (True, 2, 0)
        reader.close()
        await recorder.close()

    asyncio.run(scenario())


def test_a_restart_loads_what_was_committed(tmp_path: Path) -> None:
    """What one recorder committed the next one loads, and the chain goes on."""

    async def scenario() -> None:
        first = Recorder(lambda: open_records(places(tmp_path)))
        await first.load()
        await first.commit(Batch((an_incident(),), None, (INTENT,)))
        await first.close()
        second = Recorder(lambda: open_records(places(tmp_path)))
        stored = await second.load()
        assert stored.open_incidents == (an_incident(),)
        await second.commit(Batch(entries=(a_note(),)))
        await second.close()
        assert [record["seq"] for record in read_records(tmp_path / "log")] == [1, 2]

    asyncio.run(scenario())


def test_the_order_is_store_audit_anchor() -> None:
    """The order is the promise: nothing in the audit that the store does not know of."""

    async def scenario() -> list[str]:
        journal = Journal()
        recorder = recorder_on(journal)
        await recorder.load()
        await recorder.commit(Batch((an_incident(),), Ledger(), (INTENT, INTENT)))
        await recorder.close()
        return journal.calls

    assert asyncio.run(scenario()) == ["save 1 True", "append 2 False", "anchor 2", "close", "close"]


def test_a_failed_store_writes_no_audit() -> None:
    """When the store fails nothing else is written, and the fault stands until a commit succeeds."""

    async def scenario() -> None:
        journal = Journal()
        recorder = recorder_on(journal)
        await recorder.load()

        def fail() -> None:
            raise RecordError("store: broken", "mend it")

        journal.on_save = fail
        with pytest.raises(RecordError, match="store: broken"):
            await recorder.commit(Batch((an_incident(),), None, (INTENT,)))
        assert journal.calls == ["save 1 False"]
        assert recorder.fault() == "store: broken; mend it"
        assert recorder.fault_for_operators() == recorder.fault()
        journal.on_save = lambda: None
        await recorder.commit(Batch((an_incident(),), None, (INTENT,)))
        assert recorder.fault() == ""
        await recorder.close()

    asyncio.run(scenario())


def test_past_the_limit_it_raises_and_the_loop_stays_live() -> None:
    """A store that hangs costs its limit once, later commits fail at once, and the loop ticks on."""
    release = threading.Event()

    async def scenario() -> None:
        journal = Journal()
        recorder = recorder_on(journal, limit_seconds=0.3)
        await recorder.load()
        journal.on_save = lambda: assert_(release.wait(30))
        ticks = 0
        done = asyncio.Event()

        async def tick() -> None:
            nonlocal ticks
            while not done.is_set():
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(RecordError, match=r"took longer than 0\.3 s"):
            await recorder.commit(Batch((an_incident(),), None, (INTENT,)))
        assert ticks > 5
        began = time.monotonic()
        with pytest.raises(RecordError, match="has not answered an earlier write"):
            await recorder.commit(Batch((an_incident(),), None, (INTENT,)))
        assert time.monotonic() - began < 0.2
        assert recorder.fault()
        release.set()
        while recorder.fault():
            await recorder.try_again()
            await asyncio.sleep(0.01)
        done.set()
        await ticking
        assert journal.calls.count("save 1 False") == 1
        await recorder.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))


def assert_(held: object) -> None:
    """Fail where a lambda must."""
    assert held


def test_closing_beside_a_hung_disk_is_bounded() -> None:
    """A thread that hangs does not keep the daemon from stopping."""
    release = threading.Event()

    async def scenario() -> float:
        journal = Journal()
        recorder = recorder_on(journal, limit_seconds=0.1)
        await recorder.load()
        journal.on_save = lambda: assert_(release.wait(30))
        with pytest.raises(RecordError):
            await recorder.commit(Batch((an_incident(),)))
        began = time.monotonic()
        await recorder.close()
        return time.monotonic() - began

    try:
        assert asyncio.run(scenario()) < 2.0
    finally:
        release.set()


def test_a_batch_that_waits_past_the_limit_is_never_written() -> None:
    """A commit that gave up before its turn is not written late behind its caller's back."""
    release = threading.Event()

    async def scenario() -> None:
        journal = Journal()
        recorder = recorder_on(journal, limit_seconds=0.2)
        await recorder.load()
        journal.on_save = lambda: assert_(release.wait(30))
        first = asyncio.create_task(recorder.commit(Batch((an_incident(),))))
        second = asyncio.create_task(recorder.commit(Batch((an_incident(), an_incident()))))
        for task in (first, second):
            with pytest.raises(RecordError):
                await task
        release.set()
        await recorder.close()
        assert "save 2 False" not in journal.calls

    asyncio.run(scenario())


@pytest.mark.parametrize(("entry", "spent"), [(OPERATORS_INTENT, True), (INTENT, False)])
def test_only_an_operator_may_spend_the_reserve(entry: AuditEntry, *, spent: bool) -> None:
    """On a full disk the reserve is given up for an operator's act and for no rule's."""

    async def scenario() -> None:
        journal = Journal()
        journal.reserve = True
        recorder = recorder_on(journal)
        await recorder.load()

        def full() -> None:
            if journal.reserve:
                raise NoSpaceError("store: no space left on the disk", "free some")

        journal.on_save = full
        actor = entry.actor
        assert actor is not None
        incident = replace(an_incident(), actor=actor)
        if spent:
            await recorder.commit(Batch((incident,), None, (entry,)))
            assert recorder.fault() == ""
        else:
            with pytest.raises(NoSpaceError):
                await recorder.commit(Batch((incident,), None, (entry,)))
            assert recorder.fault()
            assert recorder.fault_for_operators() == ""
        assert journal.reserve is not spent
        await recorder.close()

    asyncio.run(scenario())


def test_a_full_disk_at_the_anchor_writes_no_record_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """When only the anchor finds no room it alone is tried again: the record stands once."""

    async def scenario() -> list[str]:
        journal = Journal()
        journal.reserve = True
        real = journal.anchor

        def full(head: Head, batches: Sequence[int] = ()) -> None:
            if journal.reserve:
                raise NoSpaceError("store: no space left on the disk", "free some")
            real(head, batches)

        monkeypatch.setattr(journal, "anchor", full)
        recorder = recorder_on(journal)
        await recorder.load()
        await recorder.commit(Batch(entries=(OPERATORS_INTENT,)))
        await recorder.close()
        return journal.calls

    assert asyncio.run(scenario()) == ["append 1 True", "spend_reserve", "anchor 1", "close", "close"]


def test_rules_do_not_live_on_the_operators_reserve() -> None:
    """Once the reserve was spent on an operator, a rule's batch is refused, though there would be room."""

    async def scenario() -> list[str]:
        journal = Journal()
        journal.spent = True
        recorder = recorder_on(journal)
        await recorder.load()
        with pytest.raises(NoSpaceError, match="reserve is spent"):
            await recorder.commit(Batch((an_incident(),)))
        assert recorder.fault_for_operators() == ""
        await recorder.commit(Batch(entries=(OPERATORS_INTENT,)))
        await recorder.close()
        return journal.calls

    assert asyncio.run(scenario()) == ["append 1 True", "anchor 1", "close", "close"]


def test_a_cancelled_commit_that_has_not_begun_is_never_written() -> None:
    """A pass that is cancelled while its commit waits leaves no record of an act that never came."""
    release = threading.Event()

    async def scenario() -> list[str]:
        journal = Journal()
        recorder = recorder_on(journal)
        await recorder.load()
        journal.on_save = lambda: assert_(release.wait(30))
        first = asyncio.create_task(recorder.commit(Batch((an_incident(),))))
        second = asyncio.create_task(recorder.commit(Batch((an_incident(), an_incident()))))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        release.set()
        await first
        await recorder.close()
        return journal.calls

    assert asyncio.run(scenario()) == ["save 1 False", "close", "close"]


def test_whose_a_batch_is() -> None:
    """A batch is an operator's only when nobody else has a part in it."""
    assert is_operators(Batch(entries=(OPERATORS_INTENT, a_note())))
    assert not is_operators(Batch(entries=(OPERATORS_INTENT, INTENT)))
    assert not is_operators(Batch((an_incident(),), None, (OPERATORS_INTENT,)))
    assert not is_operators(Batch(entries=(a_note(),)))
    assert not is_operators(Batch())


def test_a_corrupt_store_stops_the_start_with_its_own_error(tmp_path: Path) -> None:
    """A damaged store gives CorruptStoreError at load, and no audit file is made."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "store.sqlite").write_bytes(b"")

    async def scenario() -> None:
        recorder = Recorder(lambda: open_records(places(tmp_path)))
        with pytest.raises(CorruptStoreError):
            await recorder.load()
        with pytest.raises(RecordError, match="not open"):
            await recorder.commit(Batch((an_incident(),)))
        await recorder.close()

    asyncio.run(scenario())
    assert not (tmp_path / "log").exists()


def test_files_and_memory_go_through_the_same_thread(tmp_path: Path) -> None:
    """Other durable writes are off the loop too, and their failures are RecordErrors."""

    async def scenario() -> None:
        journal = Journal()
        recorder = recorder_on(journal)
        await recorder.load()
        await recorder.write_file(tmp_path / "drain.json", b"{}")
        await recorder.remember(Remembered(holders=()))
        with pytest.raises(RecordError, match="No such file"):
            await recorder.write_file(tmp_path / "none" / "drain.json", b"{}")
        assert await recorder.off_loop(threading.current_thread, "a look") is not threading.current_thread()
        await recorder.close()
        assert journal.calls[0].startswith("remember")

    asyncio.run(scenario())
    assert (tmp_path / "drain.json").read_bytes() == b"{}"
