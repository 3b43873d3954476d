"""record/audit_follow: every new record once, in order, over rotations, packing and a cut."""

import json
from pathlib import Path

import pytest

from reclaimerd.record.audit_follow import Follower
from reclaimerd.record.audit_keeping import pack_full_files
from tests.builders import MONO, WALL
from tests.record.log_rig import Log, a_note


def numbers(follower: Follower) -> list[int]:
    """Return the numbers of what is new."""
    return [json.loads(line)["seq"] for line in follower.news()]


def test_only_what_is_new_comes_and_once(tmp_path: Path) -> None:
    """What was there before does not come; what comes after does, also a record with no newline yet."""
    log = Log(tmp_path / "log")
    head = log.write(3)
    follower = Follower(log.directory)
    assert numbers(follower) == []
    head = log.write(2, anchor=head)
    assert numbers(follower) == [4, 5]
    whole = log.path.read_bytes()
    log.write(1, anchor=head)
    longer = log.path.read_bytes()
    log.path.write_bytes(longer[:-10])
    assert numbers(follower) == []
    log.path.write_bytes(longer)
    assert numbers(follower) == [6]
    assert whole in longer
    follower.close()


def test_a_log_that_is_not_there_yet_is_followed_from_its_beginning(tmp_path: Path) -> None:
    """Nothing to follow is no fault; the first record comes when it is written."""
    log = Log(tmp_path / "log")
    follower = Follower(log.directory)
    assert numbers(follower) == []
    log.write(2)
    assert numbers(follower) == [1, 2]
    follower.close()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("step", [1, 3, 40])
def test_rotations_lose_and_double_nothing(tmp_path: Path, step: int, *, packed: bool) -> None:
    """However many files were filled (and packed) between two looks, each record comes once."""
    log = Log(tmp_path / "log", file_bytes=1500)
    head = log.write(3)
    follower = Follower(log.directory)
    seen = numbers(follower)
    audit = log.open(head)
    for number in range(40):
        head = audit.append([a_note(f"note {number}")], wall=WALL, mono=MONO)
        if number % step == 0:
            if packed:
                pack_full_files(log.directory)
            seen += numbers(follower)
    audit.close()
    seen += numbers(follower)
    assert len(list(log.directory.glob("audit-*"))) > 5
    assert seen == list(range(4, head.seq + 1))
    follower.close()


def test_a_follower_begins_after_the_last_record_of_a_full_file(tmp_path: Path) -> None:
    """Where the current file is still empty, what the last full one holds is not new."""
    log = Log(tmp_path / "log", file_bytes=1500)
    head = log.write(10)
    log.path.rename(log.directory / "audit-000000000900.jsonl")
    log.path.write_bytes(b"")
    follower = Follower(log.directory)
    assert numbers(follower) == []
    log.write(1, anchor=head)
    assert numbers(follower) == [head.seq + 1]
    follower.close()


def test_a_cut_does_not_silence_it(tmp_path: Path) -> None:
    """A log that somebody emptied goes on with higher numbers, and the word of it comes too."""
    log = Log(tmp_path / "log")
    head = log.write(5)
    follower = Follower(log.directory)
    assert numbers(follower) == []
    log.path.write_bytes(b"")
    log.write(1, anchor=head)
    assert numbers(follower) == [6, 7]
    log.path.write_bytes(b"rubbish\n" + log.path.read_bytes())
    assert numbers(follower) == []
    follower.close()
