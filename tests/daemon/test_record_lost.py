"""A log that can't be written: no act follows, `status` says why, and it recovers by itself."""

import asyncio
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.views import status_view
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident, Outcome, OutcomeKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.step import Permit
from reclaimerd.record import audit as audit_module
from reclaimerd.record.audit_read import read_records, verify
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from tests.builders import BOOT, a_busy_snapshot, a_process
from tests.daemon.test_cycle import EASY
from tests.fakes import a_rig

CHATTR = shutil.which("chattr")


@contextmanager
def immutable(log: Path) -> Iterator[None]:
    """Take the permission to write from everybody, root too (chattr +i): a real EPERM."""
    path = str(log / "audit.jsonl")
    if CHATTR is None or subprocess.run([CHATTR, "+i", path], check=False, capture_output=True).returncode:
        pytest.skip("this file system or user has no chattr +i")
    try:
        yield
    finally:
        subprocess.run([CHATTR, "-i", path], check=True, timeout=10)


@contextmanager
def replaced(log: Path) -> Iterator[None]:
    """Put a link to another file in the log's place: it is not followed."""
    current, aside, other = log / "audit.jsonl", log.with_name("aside"), log.with_name("other")
    other.write_bytes(b"precious")
    current.rename(aside)
    current.symlink_to(other)
    try:
        yield
    finally:
        current.unlink()
        aside.rename(current)
        assert other.read_bytes() == b"precious"


@contextmanager
def failing(number: int) -> Iterator[None]:
    """Let every append fail as the kernel would: an open file on a real disk can't be made read-only here."""

    def fails(_descriptor: int, _content: bytes) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_module, "append_durably", fails)
        yield


LOSSES: dict[str, tuple[Callable[[Path], AbstractContextManager[None]], str]] = {
    "permission": (immutable, "may not be written"),
    "place": (replaced, "symbolic link"),
    "read-only": (lambda _log: failing(errno.EROFS), "read-only"),
    "full": (lambda _log: failing(errno.ENOSPC), "no space left"),
    "broken": (lambda _log: failing(errno.EIO), os.strerror(errno.EIO)),
}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="chattr needs root")
@pytest.mark.parametrize("loss", LOSSES)
def test_no_record_no_act_and_status_says_why_and_it_recovers(tmp_path: Path, loss: str) -> None:
    """While nothing can be recorded nothing is sent; `status` names the cause; then the act follows."""
    lose, word = LOSSES[loss]
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings(file_bytes=256 * 1024))

    async def story() -> None:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        rig = a_rig(a_busy_snapshot(a_process(100)), EASY, recorder=recorder)
        try:
            with lose(places.log):
                await rig.passes(3)
                assert rig.executor.permits == []
                assert word in rig.cycle.state.record_fault
                attention = " | ".join(map(str, status_view(rig.cycle, {})["attention"]))  # type: ignore[call-overload]
                assert "nothing can be put on record, so nothing is done" in attention
                assert word in attention
            await rig.passes(3)
            assert rig.cycle.state.record_fault == ""
            assert rig.executor.sent
            assert "on record" not in " ".join(map(str, status_view(rig.cycle, {})["attention"]))  # type: ignore[call-overload]
        finally:
            with suppress(OSError):
                await recorder.close()

    asyncio.run(story())
    found = verify(places.log, None)
    assert found.records >= 3
    assert found.faults == ()


def test_what_could_not_be_recorded_leaves_nothing_for_the_next_start(tmp_path: Path) -> None:
    """Each pass opens the incident anew while nothing can be recorded: a start finds the last one alone."""
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())

    async def story() -> tuple[set[IncidentId], set[IncidentId]]:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        rig = a_rig(a_busy_snapshot(a_process(100)), EASY, recorder=recorder)
        with failing(errno.EIO):
            await rig.passes(3)
        await rig.passes(1)
        known = set(rig.cycle.state.incidents)
        await recorder.close()
        again = Recorder(lambda: open_records(places))
        stored = await again.load()
        await again.close()
        return known, {one.id for one in stored.open_incidents}

    known, found = asyncio.run(story())
    assert len(known) == 1
    assert found == known


def test_an_outcome_that_is_owed_outlives_a_stop(tmp_path: Path) -> None:
    """The signal was sent and the log broke: the end takes along what is owed, and the next start says it."""
    places = Places(tmp_path / "state", tmp_path / "log", BOOT, AuditSettings())

    async def story() -> Incident:
        recorder = Recorder(lambda: open_records(places))
        await recorder.load()
        rig = a_rig(a_busy_snapshot(a_process(100)), EASY, recorder=recorder)
        execute_all = rig.executor.execute_all
        with pytest.MonkeyPatch.context() as patches:

            async def break_after(_self: object, permits: Sequence[Permit]) -> list[Outcome]:
                outcomes = await execute_all(permits)
                patches.setattr(audit_module, "append_durably", _fails)
                return list(outcomes)

            patches.setattr(type(rig.executor), "execute_all", break_after)
            await rig.passes(1)
            assert rig.executor.sent
            with suppress(RecordError):
                await rig.cycle.write(None, (of_host(RecordKind.STOPPED, "asked to stop"),))
        await recorder.close()
        again = Recorder(lambda: open_records(places))
        stored = await again.load()
        await again.close()
        (incident,) = stored.open_incidents
        return incident

    incident = asyncio.run(story())
    (attempt,) = incident.attempts
    assert attempt.outcome is not None
    assert attempt.outcome.kind is OutcomeKind.SENT
    outcomes = [one for one in read_records(places.log) if one["kind"] == "outcome"]
    assert [one["attempt"] for one in outcomes] == [attempt.id]


def _fails(_descriptor: int, _content: bytes) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))
