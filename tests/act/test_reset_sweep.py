"""Claims about what a start removes of old resets: nothing that anybody could still need."""

import os
import time
from pathlib import Path

import pytest

from reclaimerd.act.reset_files import Claim, Ended, Ready, Word, give_word, leave_ready, reserve, take_claim
from reclaimerd.act.reset_sweep import YOUNG_SECONDS
from reclaimerd.model.identity import AttemptId, ProcessRef
from tests.act.reset_tools import reset_tool, runs

OLD, NEW = AttemptId("20260101T000000-abcd.1"), AttemptId("20260101T000000-abcd.11")


def _names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def _leave(directory: Path, run: AttemptId, age_seconds: float) -> set[str]:
    """Leave what a whole reset leaves, and what one that was cut off leaves, all of one age."""
    before = _names(directory)
    leave_ready(directory, run, Ready(ProcessRef("boot", 1, 1), "/x"))
    give_word(directory, run, Word(1.0, 2.0))
    with reserve(directory, run, Claim(None, "")) as reserved:
        reserved.leave_end(Ended(0, ""))
    take_claim(directory, run, Claim(None, "no"))
    (directory / f".{run}.ended.{'ab' * 8}.new").touch()
    names = _names(directory) - before
    for name in names:
        os.utime(directory / name, (time.time() - age_seconds,) * 2)
    return names


def _sweep(directory: Path, *keep: AttemptId) -> str:
    return runs(lambda: reset_tool(directory, "/bin/true").sweep(keep))


def test_what_is_old_goes_and_what_is_young_or_kept_stays(tmp_path: Path) -> None:
    """A day, or this boot: past it all files of a run go, and no other's whose name begins alike."""
    old = _leave(tmp_path, OLD, YOUNG_SECONDS + 60)
    young = _leave(tmp_path, NEW, 60)
    assert len(old) == len(young) == 5
    assert _sweep(tmp_path, OLD) == ""
    assert _names(tmp_path) == old | young
    assert _sweep(tmp_path) == ""
    assert _names(tmp_path) == young


def test_one_young_file_keeps_all_files_of_its_run(tmp_path: Path) -> None:
    """A run is swept as a whole, so a claim never goes before what it stops."""
    names = _leave(tmp_path, OLD, YOUNG_SECONDS + 60)
    os.utime(tmp_path / f"{OLD}.ended")
    assert _sweep(tmp_path) == ""
    assert _names(tmp_path) == names


def test_what_stands_from_before_the_boot_is_old(tmp_path: Path) -> None:
    """Another boot's files are of no use, however young."""
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    if since_boot > YOUNG_SECONDS - 600:
        pytest.skip("this host was booted a day ago or earlier")
    _leave(tmp_path, OLD, since_boot + 60)
    young = _leave(tmp_path, NEW, max(0.0, since_boot - 60))
    assert _sweep(tmp_path) == ""
    assert _names(tmp_path) == young


def test_what_is_no_file_of_a_run_is_let_be(tmp_path: Path) -> None:
    """Other names, folders and what a link leads to: nothing of it is removed."""
    outside = tmp_path / "outside"
    outside.write_text("kept")
    directory = tmp_path / "resets"
    directory.mkdir()
    others = ("notes", f"{OLD}.claim.bak", ".claim", f"{OLD}.tool2")
    for name in others:
        (directory / name).touch()
    (directory / f"{OLD}.ended").symlink_to(outside)
    (directory / f"{NEW}.claim").mkdir()
    for path in directory.iterdir():
        os.utime(path, (1.0, 1.0), follow_symlinks=False)
    said = _sweep(directory)
    assert f"{NEW}.claim: " in said
    assert _names(directory) == {*others, f"{NEW}.claim"}
    assert outside.read_text() == "kept"


def test_without_a_directory_there_is_nothing_to_do(tmp_path: Path) -> None:
    """Before the first reset; and what is no directory is said, and raises nothing."""
    assert _sweep(tmp_path / "none") == ""
    (tmp_path / "file").touch()
    assert "can't be swept" in _sweep(tmp_path / "file")
