"""Who may write: one at a time, a dead writer is taken over, a living one only by a word."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.daemon import entries
from reclaimerd.daemon.this_host import read_boot_id, read_own_ref
from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.writing import MadeNothing, claim_writer, has_living_writer
from reclaimerd.errors import RecordError, WriterBusyError
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.host.wire import to_json
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Batch
from reclaimerd.observe.probe import Probe
from reclaimerd.record.writer_claim import Claimed, WriterState, claim, current_writer
from tests.builders import OPERATOR, an_incident

pytestmark = pytest.mark.process


def claimed(state_dir: Path, *, takeover: bool = False) -> ProcessRef:
    """Claim with a real procfs worker; return who we are."""
    me = read_own_ref(read_boot_id())

    async def run() -> None:
        procfs = Probe("procfs", command_for("procfs", None), WorkerSettings(answer_within_seconds=20))
        try:
            await claim_writer(state_dir, me, procfs, takeover=takeover)
        finally:
            await procfs.close()

    asyncio.run(run())
    return me


@contextmanager
def rival(state_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child that claims the directory for itself (we write its claim)."""
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        stat = parse_stat(Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8"))
        ref = ProcessRef(read_boot_id(), child.pid, stat.start_ticks)
        assert isinstance(claim(state_dir, ref, lambda _ref: WriterState.DEAD), Claimed)
        yield child
    finally:
        child.kill()
        child.wait(10)


def test_a_free_directory_is_made_and_taken(tmp_path: Path) -> None:
    """0700, and the claim names us."""
    state = tmp_path / "state"
    me = claimed(state)
    assert current_writer(state) == me
    assert state.stat().st_mode & 0o777 == 0o700


def test_a_living_writer_is_named_and_left_alone(tmp_path: Path) -> None:
    """Exit 3 with the mend; the rival lives and keeps the claim."""
    with rival(tmp_path) as other:
        with pytest.raises(WriterBusyError) as found:
            claimed(tmp_path)
        assert str(other.pid) in found.value.message
        assert "--takeover" in found.value.mend
        assert other.poll() is None
        held = current_writer(tmp_path)
        assert held is not None
        assert held.pid == other.pid


def test_a_stopped_writer_is_alive(tmp_path: Path) -> None:
    """SIGSTOP makes it silent, not dead."""
    with rival(tmp_path) as other:
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(WriterBusyError):
            claimed(tmp_path)
        assert other.poll() is None


def test_takeover_ends_a_silent_writer_and_then_claims(tmp_path: Path) -> None:
    """By SIGKILL through its pidfd, also when it is stopped."""
    with rival(tmp_path) as other:
        other.send_signal(signal.SIGSTOP)
        me = claimed(tmp_path, takeover=True)
        assert other.wait(10) == -signal.SIGKILL
        assert current_writer(tmp_path) == me


def test_a_dead_writer_is_taken_over_without_a_word(tmp_path: Path) -> None:
    """Its claim is worth what its process is worth; a zombie is dead."""
    with rival(tmp_path) as other:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert current_writer(tmp_path) is not None
        assert claimed(tmp_path) == current_writer(tmp_path)


def test_a_dead_writer_is_taken_over_also_while_no_worker_answers(tmp_path: Path) -> None:
    """C20: a host that is slow after our crash must not take us for alive; nor what a dead start left."""
    with rival(tmp_path) as other:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        left = current_writer(tmp_path)
        assert left is not None
        (tmp_path / ".writer.json.left").write_text(to_json(ProcessRef(left.boot_id, left.pid, 7)))
        me = read_own_ref(read_boot_id())

        async def run() -> None:
            silent = Probe("procfs", lambda _fd: ["/nonexistent"], WorkerSettings(answer_within_seconds=0.1))
            await claim_writer(tmp_path, me, silent, takeover=False)

        asyncio.run(run())
        assert current_writer(tmp_path) == me


def test_takeover_never_signals_a_stranger_with_the_writer_s_old_pid(tmp_path: Path) -> None:
    """The claim's pid was reused: another start, so the claim is dead and the stranger lives."""
    with rival(tmp_path) as stranger:
        (tmp_path / "writer.json").unlink()
        old = ProcessRef(read_boot_id(), stranger.pid, 1)
        assert isinstance(claim(tmp_path, old, lambda _ref: WriterState.DEAD), Claimed)
        claimed(tmp_path, takeover=True)
        assert stranger.poll() is None


def test_a_reader_knows_whether_a_writer_lives(tmp_path: Path) -> None:
    """The workers of a living writer are its own; those of a dead one may be hung for good."""

    async def lives() -> bool:
        procfs = Probe("procfs", command_for("procfs", None), WorkerSettings(answer_within_seconds=20))
        try:
            return await has_living_writer(tmp_path, procfs)
        finally:
            await procfs.close()

    assert not asyncio.run(lives())
    with rival(tmp_path):
        assert asyncio.run(lives())
    assert not asyncio.run(lives())


def test_a_place_where_nothing_can_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """A file stands where the directory should be."""
    (tmp_path / "state").touch()
    with pytest.raises(RecordError) as found:
        claimed(tmp_path / "state")
    assert "state" in found.value.message


def test_an_engine_that_reads_takes_no_act_on_record() -> None:
    """An alarm may be seen; an incident, a person's word and a ledger are refused."""
    reader = MadeNothing()
    asyncio.run(reader.commit(Batch(entries=(entries.of_host(RecordKind.ALARM, "seen"),))))
    asyncio.run(reader.commit(Batch(ledger=Ledger(kernel_seq=7), entries=())))
    for batch in (
        Batch(incidents=(an_incident(),)),
        Batch(entries=(entries.opened(an_incident()),)),
        Batch(entries=(entries.of_host(RecordKind.PLANNED, "asked", OPERATOR),)),
    ):
        with pytest.raises(RecordError):
            asyncio.run(reader.commit(batch))
    assert reader.fault() == ""
    assert reader.fault_for_operators()
