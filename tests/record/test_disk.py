"""Real disks that are full or read-only: one sentence with its mend, and nothing half written."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.ports import Batch
from reclaimerd.record.audit import Audit
from reclaimerd.record.audit_read import verify
from reclaimerd.record.faults import NoSpaceError
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.reserve import RESERVE_NAME
from reclaimerd.record.store import Store
from tests.builders import BOOT, MONO, OPERATOR, RULE_ACTOR, WALL, an_incident
from tests.record.log_rig import a_note

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting a tmpfs needs root"),
]
SETTINGS = AuditSettings(file_bytes=128 * 1024)


def mount(*words: str) -> None:
    """Run one mount or umount."""
    subprocess.run(words, check=True, timeout=10)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 1 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("/usr/bin/mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", str(place))
    yield place
    # Lazily: a test that failed may still have files open there, and no mount may be left.
    mount("/usr/bin/umount", "--lazy", str(place))


def fill(disk: Path) -> None:
    """Leave no free block."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        size = 65536
        while size:
            try:
                filler.write(b"\0" * size)
            except OSError:
                size //= 2


def test_a_full_disk_takes_nothing_half_and_the_reserve_serves_an_operator(disk: Path) -> None:
    """Without the reserve the append fails and leaves nothing; with it the record is durable."""
    audit = Audit.open(disk / "log", boot_id=BOOT, settings=SETTINGS, anchor=None)
    audit.append([a_note("before")], wall=WALL, mono=MONO)
    fill(disk)
    big = [a_note("x" * 3000)] * 3
    before = (disk / "log" / "audit.jsonl").read_bytes()
    with pytest.raises(NoSpaceError, match="no space left on the disk") as caught:
        audit.append(big, wall=WALL, mono=MONO)
    assert "free some" in caught.value.mend
    assert (disk / "log" / "audit.jsonl").read_bytes() == before
    head = audit.append(big, wall=WALL, mono=MONO, use_reserve=True)
    assert not (disk / "log" / RESERVE_NAME).exists()
    assert verify(disk / "log", head).ok
    fill(disk)
    with pytest.raises(NoSpaceError):
        audit.append(big * 3, wall=WALL, mono=MONO, use_reserve=True)
    (disk / "filler").unlink()
    head = audit.append(big, wall=WALL, mono=MONO + 61)
    assert (disk / "log" / RESERVE_NAME).exists()
    assert verify(disk / "log", head).ok
    audit.close()


def test_store_and_log_on_a_full_disk_keep_an_operators_act(disk: Path) -> None:
    """On a full disk an act by rule is refused a record, an operator's gets one; both stay readable."""

    async def scenario() -> None:
        places = Places(disk / "state", disk / "log", BOOT, SETTINGS)
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        await recorder.commit(Batch(entries=(a_note(),)))
        fill(disk)
        long = an_incident(end_text="x" * 30_000)
        with pytest.raises(NoSpaceError):
            await recorder.commit(Batch((long,), None, (AuditEntry(RecordKind.INTENT, actor=RULE_ACTOR),)))
        assert "no space left" in recorder.fault()
        assert recorder.fault_for_operators() == ""
        theirs = replace(long, actor=OPERATOR)
        await recorder.commit(Batch((theirs,), None, (AuditEntry(RecordKind.INTENT, actor=OPERATOR),)))
        assert recorder.fault() == ""
        reader = Store.open(disk / "state" / "store.sqlite", read_only=True)
        assert reader.incidents() == (theirs,)
        found = verify(disk / "log", reader.read_anchor())
        assert (found.ok, found.records) == (True, 2)
        reader.close()
        await recorder.close()

    asyncio.run(scenario())


def test_a_read_only_disk_refuses_writers_and_serves_readers(disk: Path) -> None:
    """EROFS is one sentence for store and log; verify and the store's reader work all the same."""
    opened = open_records(Places(disk / "state", disk / "log", BOOT, SETTINGS))
    opened.store.save([an_incident()])
    head = opened.audit.append([a_note()], wall=WALL, mono=MONO)
    opened.store.anchor(head)
    opened.audit.close()
    opened.store.close()
    mount("/usr/bin/mount", "-o", "remount,ro", str(disk))
    with pytest.raises(RecordError, match="read-only"):
        Audit.open(disk / "log", boot_id=BOOT, settings=SETTINGS, anchor=head)
    with pytest.raises(RecordError):
        Store.open(disk / "state" / "store.sqlite")
    with pytest.raises(RecordError, match="read-only"):
        open_records(Places(disk / "new", disk / "log", BOOT, SETTINGS))
    reader = Store.open(disk / "state" / "store.sqlite", read_only=True)
    assert reader.incidents() == (an_incident(),)
    assert verify(disk / "log", reader.read_anchor()).ok
    reader.close()
