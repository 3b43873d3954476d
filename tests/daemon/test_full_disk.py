"""A disk that is really full: rules stop, an operator's kill goes on record and is sent."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.errors import ExitCode
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from tests.builders import BOOT, a_busy_snapshot, a_process
from tests.daemon.test_cycle import EASY
from tests.fakes import a_rig

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting a tmpfs needs root"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a disk of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["-t", "tmpfs", "-o", "size=2m,mode=0755", "tmpfs", str(place)]
    subprocess.run(["/usr/bin/mount", *options], check=True, timeout=10)
    yield place
    # Lazily: a test that failed may still have files open there, and no mount may be left.
    subprocess.run(["/usr/bin/umount", "--lazy", str(place)], check=True, timeout=10)


def fill(disk: Path) -> None:
    """Leave no free block."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        size = 65536
        while size:
            try:
                filler.write(b"\0" * size)
            except OSError:
                size //= 2


def test_a_full_disk_stops_rules_and_not_an_operator(disk: Path) -> None:
    """The hog by rule gets nothing; the ordered one gets its SIGTERM with intent and outcome on record."""
    hog, asked = a_process(100), a_process(200, start=2)
    places = Places(disk / "state", disk / "log", BOOT, AuditSettings(file_bytes=256 * 1024))

    async def story() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        rig = a_rig(a_busy_snapshot(hog, asked), EASY, recorder=recorder)
        fill(disk)
        try:
            ticket = rig.order(200, timeout_seconds=50.0)
            await rig.passes()
            assert rig.executor.sent == {asked.ref: ["sigterm"]}
            assert ticket.exit_code is None
            assert "no space" in rig.cycle.state.record_fault
            (incident,) = rig.cycle.state.incidents.values()
            assert incident.stage is Stage.SIGTERM
        finally:
            await recorder.close()

    asyncio.run(story())
    records = list(read_records(disk / "log", where=lambda _record: True))
    assert [record["kind"] for record in records] == ["incident_opened", "intent", "outcome"]


def test_a_full_disk_without_a_reserve_refuses_the_operator_too(disk: Path) -> None:
    """Exit 3 with the cause, nothing sent, and nothing half written."""
    places = Places(disk / "state", disk / "log", BOOT, AuditSettings(file_bytes=256 * 1024))

    async def story() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        rig = a_rig(a_busy_snapshot(), EASY, recorder=recorder)
        (disk / "log" / "audit.reserve").unlink()
        fill(disk)
        try:
            ticket = rig.order()
            await rig.passes()
            assert ticket.exit_code is ExitCode.REFUSED
            assert "no space" in ticket.text
            assert rig.executor.permits == []
            (disk / "filler").unlink()
            await rig.passes(2)
            assert rig.executor.sent
        finally:
            await recorder.close()

    asyncio.run(story())
