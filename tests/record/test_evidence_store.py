"""Evidence on disk: private, named by digest, bounded, and never through a link."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from reclaimerd.record.evidence_store import Retention, forget_oldest, keep_evidence

PAGES = ('{"pid": 1}', "text\n")


def names(folder: Path) -> list[str]:
    """Return what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_two_files_are_written_private_and_the_digest_is_the_jsons(tmp_path: Path) -> None:
    """Both forms are there, only for their owner; the digest proves the JSON."""
    kept = keep_evidence(tmp_path, "inc-1", PAGES, wall=1700000000.25)
    assert kept.json_path.name == "inc-1-20231114T221320.250Z.json"
    assert kept.text_path.read_text() == "text\n"
    assert kept.digest == hashlib.sha256(kept.json_path.read_bytes()).hexdigest()
    for path, mode in ((kept.json_path, 0o600), (kept.text_path, 0o600), (tmp_path / "evidence", 0o700)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_subject_can_not_lead_elsewhere(tmp_path: Path) -> None:
    """Whatever an incident is called, its file lies in the folder."""
    for subject in ("../../etc/x", "/etc/x", "a\nb", "...", "x" * 500):
        kept = keep_evidence(tmp_path, subject, PAGES, wall=1.0)
        assert kept.json_path.resolve().parent == (tmp_path / "evidence").resolve()


def test_a_link_in_the_folders_place_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    """State must not lead out of its directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "evidence").symlink_to(elsewhere)
    with pytest.raises(OSError, match=r".+"):
        keep_evidence(tmp_path, "inc-1", PAGES, wall=1.0)
    assert names(elsewhere) == []


def test_a_link_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """What the link pointed at keeps its content."""
    precious = tmp_path / "precious"
    precious.write_text("keep")
    first = keep_evidence(tmp_path, "inc-1", PAGES, wall=1.0)
    first.json_path.unlink()
    first.json_path.symlink_to(precious)
    again = keep_evidence(tmp_path, "inc-1", PAGES, wall=1.0)
    assert not again.json_path.is_symlink()
    assert precious.read_text() == "keep"


def test_the_oldest_go_first_and_the_new_ones_stay(tmp_path: Path) -> None:
    """Past the number of files the oldest are removed, never what was just written."""
    few = Retention(most_files=4)
    for number in range(5):
        kept = keep_evidence(tmp_path, f"inc-{number}", PAGES, wall=number, retention=few)
        for path in (kept.json_path, kept.text_path):
            os.utime(path, ns=(number * 10**9, number * 10**9))
    left = names(tmp_path / "evidence")
    assert len(left) == 4
    assert all(name.startswith(("inc-3", "inc-4")) for name in left)
    one = keep_evidence(tmp_path, "inc-9", PAGES, wall=9.0, retention=Retention(most_bytes=1))
    assert names(tmp_path / "evidence") == sorted([one.json_path.name, one.text_path.name])


def test_other_files_and_links_are_left_alone(tmp_path: Path) -> None:
    """Only what we named ourselves is counted and removed."""
    folder = tmp_path / "evidence"
    folder.mkdir(mode=0o700)
    (folder / "notes.txt").write_text("mine")
    (folder / "inc-1-20231114T221320.250Z.txt").symlink_to(tmp_path)
    (folder / "inc-2-20231114T221320.250Z.json").mkdir()
    assert forget_oldest(folder, Retention(most_files=0)) == ()
    assert len(names(folder)) == 3
