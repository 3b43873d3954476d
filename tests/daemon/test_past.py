"""What was, read from a real store and a real audit log."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from reclaimerd.daemon import entries, past
from reclaimerd.daemon.engine import Engine
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.past import Reader, read_incident, read_incidents
from reclaimerd.daemon.service import Service
from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Stage
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.ports import Batch
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import STORE_NAME
from tests.builders import BOOT, WALL, a_ref, an_incident


def recorded(folder: Path, *batches: Batch) -> None:
    """Write the batches as the daemon would."""
    places = Places(folder / "state", folder / "log", BOOT, AuditSettings())

    async def run() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        for batch in batches:
            await recorder.commit(batch)
        await recorder.close()

    asyncio.run(run())


def test_before_anything_was_recorded_there_is_nothing(tmp_path: Path) -> None:
    """No store is no fault, and reading makes none."""
    assert read_incidents(tmp_path / "state", 50) == []
    assert read_incident(tmp_path / "state", tmp_path / "log", "inc-1") is None
    assert list(tmp_path.iterdir()) == []


def test_an_incident_is_shown_with_its_story(tmp_path: Path) -> None:
    """Newest first; the story has each record's kind and words, and only its own."""
    one, two = an_incident(), an_incident(id=IncidentId("inc-2"), opened_at=WALL + 5)
    attempt = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
    sent = entries.outcome(one, attempt, Outcome(OutcomeKind.SENT, "SIGTERM was sent"))
    recorded(
        tmp_path,
        Batch(incidents=(one, two), entries=(entries.opened(one), entries.opened(two), sent)),
    )
    rows = read_incidents(tmp_path / "state", 50)
    assert [row["id"] for row in rows] == ["inc-2", "inc-1"]
    assert len(read_incidents(tmp_path / "state", 1)) == 1
    found = read_incident(tmp_path / "state", tmp_path / "log", "inc-1")
    assert found is not None
    story = found["timeline"]
    assert isinstance(story, list)
    assert [line["kind"] for line in story] == ["incident_opened", "outcome"]
    assert story[1]["text"] == "sigterm: sent: SIGTERM was sent"
    assert read_incident(tmp_path / "state", tmp_path / "log", "inc-9") is None


def test_a_name_is_data_and_never_a_query(tmp_path: Path) -> None:
    """Quotes and paths find nothing and harm nothing."""
    recorded(tmp_path, Batch(incidents=(an_incident(),)))
    for name in ("' OR 1=1 --", "../inc-1", "%"):
        assert read_incident(tmp_path / "state", tmp_path / "log", name) is None


def test_a_damaged_store_is_never_read_as_empty(tmp_path: Path) -> None:
    """CorruptStoreError, exit 11."""
    recorded(tmp_path, Batch(incidents=(an_incident(),)))
    (tmp_path / "state" / STORE_NAME).write_bytes(b"not a database" * 500)
    with pytest.raises(CorruptStoreError):
        read_incidents(tmp_path / "state", 50)


def test_a_reading_that_hangs_is_given_up_and_none_starts_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the loop, one at a time; when it comes back after all, the next is answered."""
    monkeypatch.setattr(past, "READING_SECONDS", 0.1)
    release, begun = threading.Event(), []

    def hang() -> None:
        begun.append(threading.current_thread())
        release.wait(20)

    async def scenario() -> None:
        reader = Reader()
        with pytest.raises(RecordError, match=r"reading incidents took longer than 0\.1 s"):
            await reader.read(hang, "reading incidents")
        with pytest.raises(RecordError, match="waits for an earlier reading"):
            await reader.read(hang, "reading rules")
        assert len(begun) == 1
        assert begun[0] is not threading.current_thread()
        release.set()
        await asyncio.to_thread(begun[0].join, 20)
        monkeypatch.setattr(past, "READING_SECONDS", 20.0)
        assert await reader.read(lambda: 7, "reading incidents") == 7
        with pytest.raises(CorruptStoreError):
            await reader.read(corrupt, "reading incidents")

    asyncio.run(scenario())


def corrupt() -> None:
    """Raise as a store does that can't be trusted."""
    raise CorruptStoreError("store: damaged")


def test_a_reading_that_hangs_makes_no_record_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer's question about a long log must not be a fault of the record: that stops every act."""
    monkeypatch.setattr(past, "READING_SECONDS", 0.1)
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())
    release = threading.Event()

    async def scenario() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        engine = cast("Engine", SimpleNamespace(recorder=recorder))
        service = Service(engine, Pacing(lambda: 0.0))
        with pytest.raises(RecordError, match="took longer"):
            await service.off_loop(lambda: release.wait(20), "reading the incident")
        await asyncio.wait_for(recorder.commit(Batch(incidents=(an_incident(),))), 4.0)
        assert recorder.fault() == ""
        release.set()
        await recorder.close()

    asyncio.run(scenario())
