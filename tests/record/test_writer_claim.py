"""record/writer_claim: at most one writer, and a dead one keeps nobody out."""

import threading
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from reclaimerd.model.identity import ProcessRef
from reclaimerd.record import writer_claim
from reclaimerd.record.writer_claim import Busy, Claimed, WriterState, claim, current_writer, release
from tests.builders import a_ref

ME, OTHER, THIRD = a_ref(1), a_ref(2), a_ref(3)


def alive(_ref: ProcessRef) -> WriterState:
    """Say that everybody lives."""
    return WriterState.ALIVE


def dead(_ref: ProcessRef) -> WriterState:
    """Say that nobody lives."""
    return WriterState.DEAD


def test_a_free_claim_is_taken_and_leaves_one_file(tmp_path: Path) -> None:
    """The first one is the writer; nothing but the claim is left, closed to others."""
    assert claim(tmp_path, ME, alive) == Claimed()
    assert current_writer(tmp_path) == ME
    assert [one.name for one in tmp_path.iterdir()] == ["writer.json"]
    assert (tmp_path / "writer.json").stat().st_mode & 0o777 == 0o600


def test_a_living_writer_keeps_others_out(tmp_path: Path) -> None:
    """The second one learns who the writer is, and changes nothing."""
    claim(tmp_path, OTHER, alive)
    assert claim(tmp_path, ME, alive) == Busy(OTHER)
    assert current_writer(tmp_path) == OTHER
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("state", [WriterState.DEAD, WriterState.EXITING])
def test_a_dead_or_exiting_writer_is_taken_over_from(tmp_path: Path, state: WriterState) -> None:
    """A writer that can't write any more keeps nobody out, though the kernel still has it."""
    claim(tmp_path, OTHER, alive)
    assert claim(tmp_path, ME, lambda _ref: state) == Claimed(after=OTHER)
    assert current_writer(tmp_path) == ME


def test_a_writer_of_another_boot_is_dead_without_asking(tmp_path: Path) -> None:
    """After a reboot the pid may be anybody's: the boot id decides."""
    claim(tmp_path, a_ref(2, boot_id="before"), alive)
    assert isinstance(claim(tmp_path, ME, alive), Claimed)


def test_claiming_twice_is_no_conflict(tmp_path: Path) -> None:
    """A process that has the claim gets it again."""
    claim(tmp_path, ME, alive)
    assert claim(tmp_path, ME, alive) == Claimed()


def test_release_removes_only_our_own(tmp_path: Path) -> None:
    """What somebody took over meanwhile is not removed."""
    claim(tmp_path, ME, alive)
    release(tmp_path, OTHER)
    assert current_writer(tmp_path) == ME
    release(tmp_path, ME)
    assert current_writer(tmp_path) is None
    release(tmp_path, ME)


def test_what_can_not_be_read_is_a_refusal_with_the_mend(tmp_path: Path) -> None:
    """Rubbish in the claim is nobody's death: it is refused and stays for the person."""
    (tmp_path / "writer.json").write_text("{")
    with pytest.raises(RecordError, match="can't be read") as caught:
        claim(tmp_path, ME, dead)
    assert "remove it" in caught.value.mend
    assert (tmp_path / "writer.json").read_text() == "{"


def test_a_link_is_refused(tmp_path: Path) -> None:
    """A link in the claim's place is not followed."""
    (tmp_path / "outside").write_text("precious")
    (tmp_path / "writer.json").symlink_to(tmp_path / "outside")
    with pytest.raises(RecordError, match="symbolic link"):
        claim(tmp_path, ME, dead)


def test_no_state_directory_means_no_writer(tmp_path: Path) -> None:
    """Where nothing is there is no writer, and asking makes nothing."""
    assert current_writer(tmp_path / "none") is None
    with pytest.raises(RecordError):
        claim(tmp_path / "none", ME, alive)
    assert not (tmp_path / "none").exists()


def test_a_dead_rivals_leftover_is_removed(tmp_path: Path) -> None:
    """A candidate that a crash left keeps nobody out for long."""
    claim(tmp_path, OTHER, alive)
    leftover = tmp_path / ".writer.json.00.new"
    leftover.write_text((tmp_path / "writer.json").read_text().replace('"pid":2', '"pid":3'))
    assert claim(tmp_path, ME, dead) == Claimed(after=OTHER)
    assert [one.name for one in tmp_path.iterdir()] == ["writer.json"]


def test_one_steps_back_for_a_rival_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival stopped just before its rename could still take over: nobody else does meanwhile."""
    monkeypatch.setattr(writer_claim, "_STEP_BACK_SECONDS", 0.0)
    claim(tmp_path, OTHER, alive)
    rival = tmp_path / ".writer.json.00.new"
    rival.write_text((tmp_path / "writer.json").read_text().replace('"pid":2', '"pid":3'))
    states = {OTHER: WriterState.DEAD, THIRD: WriterState.ALIVE}
    assert claim(tmp_path, ME, states.__getitem__) == Busy(THIRD)
    assert current_writer(tmp_path) == OTHER


@pytest.mark.parametrize("round_number", range(10))
def test_of_many_at_once_at_most_one_wins(tmp_path: Path, round_number: int) -> None:
    """Eight at once take over from a dead writer, or a free claim: never two, and the file names the one."""
    if round_number % 2:
        claim(tmp_path, a_ref(99), alive)
    answers: dict[ProcessRef, Claimed | Busy] = {}
    gate = threading.Barrier(8)

    def state_of(ref: ProcessRef) -> WriterState:
        return WriterState.DEAD if ref.pid == 99 else WriterState.ALIVE

    def contend(ref: ProcessRef) -> None:
        gate.wait()
        answers[ref] = claim(tmp_path, ref, state_of)

    threads = [threading.Thread(target=contend, args=(a_ref(pid),)) for pid in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [ref for ref, answer in answers.items() if isinstance(answer, Claimed)]
    assert len(winners) <= 1
    assert len(answers) == 8
    if winners:
        assert current_writer(tmp_path) == winners[0]
    else:
        assert round_number % 2
    assert [one.name for one in tmp_path.iterdir()] == ["writer.json"]
