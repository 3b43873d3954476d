"""The policy file changed in place: whole, root's, as it was in all else; a refusal leaves it untouched."""

import os
from pathlib import Path

import pytest

from reclaimerd.config import mode_file
from reclaimerd.config.mode_file import read_mode_line, write_mode
from reclaimerd.config.mode_line import NotPlainError
from reclaimerd.errors import ConfigError, NotAllowedError, ReclaimerdError
from reclaimerd.host.files import write_beside
from reclaimerd.model.policy import Mode

POLICY = b"""\
[daemon]
mode = "enforce"

[[rule]]
name = "cap"
above = "8GiB"
mode = "dry-run"  # since Monday
match = { uid = ["1000-2000"] }
"""
CHANGED = POLICY.replace(b'mode = "dry-run"', b'mode = "enforce"')
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the policy")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Return a policy file of ours in a folder of ours."""
    path = tmp_path / "reclaimerd.toml"
    path.write_bytes(POLICY)
    path.chmod(0o640)
    return path


def refused(path: Path, error: type[ReclaimerdError], text: str) -> None:
    """Ask for the change; it is refused with this text, and nothing is left beside the file."""
    before = sorted(path.parent.iterdir())
    content = path.read_bytes()
    with pytest.raises(error, match=text):
        write_mode(path, "cap", Mode.ENFORCE)
    assert path.read_bytes() == content
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.root
@ROOT
def test_one_line_is_changed_and_the_file_is_as_it_was_in_all_else(policy: Path) -> None:
    """Bytes, owner, group and permissions; nothing is left beside it."""
    os.chown(policy, 0, 4)
    line = write_mode(policy, "cap", Mode.ENFORCE)
    assert policy.read_bytes() == CHANGED
    assert (line.line, line.old) == (7, 'mode = "dry-run"  # since Monday')
    status = policy.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, 4, 0o640)
    assert list(policy.parent.iterdir()) == [policy]


def test_only_root_may(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the file is even read."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    refused(policy, NotAllowedError, "root's to change")


@pytest.mark.root
@ROOT
def test_a_file_that_others_can_write_is_refused(policy: Path) -> None:
    """Who else wrote in it is not known."""
    policy.chmod(0o666)
    refused(policy, NotPlainError, "can be written by its group or by others")


@pytest.mark.root
@ROOT
def test_a_link_is_refused(policy: Path) -> None:
    """The file behind it stays what it was, and so does the link."""
    behind = policy.rename(policy.with_name("real.toml"))
    policy.symlink_to(behind)
    refused(policy, NotPlainError, "is a link")
    assert policy.is_symlink()


@pytest.mark.root
@ROOT
def test_a_second_name_is_refused(policy: Path) -> None:
    """The other name would keep the old bytes."""
    policy.with_name("other.toml").hardlink_to(policy)
    refused(policy, NotPlainError, "has another name")


@pytest.mark.root
@ROOT
def test_what_a_new_file_would_lose_is_refused(policy: Path) -> None:
    """An extended attribute stands for access lists and labels."""
    try:
        os.setxattr(policy, "user.note", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    refused(policy, NotPlainError, "user.note, which a new file would lose")


@pytest.mark.root
@ROOT
def test_who_wrote_meanwhile_wins(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor saved between our reading and our writing: its bytes stay."""
    real = write_beside
    theirs = POLICY + b"# another hand\n"

    def slow(directory: int, name: str, content: bytes, mode: int) -> str:
        policy.write_bytes(theirs)
        return real(directory, name, content, mode)

    monkeypatch.setattr(mode_file, "write_beside", slow)
    with pytest.raises(NotPlainError, match="changed by somebody else"):
        write_mode(policy, "cap", Mode.ENFORCE)
    assert policy.read_bytes() == theirs
    assert list(policy.parent.iterdir()) == [policy]


@pytest.mark.root
@ROOT
def test_a_disk_that_refuses_leaves_the_file(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half file, and a sentence."""

    def full(*_args: object, **_more: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mode_file, "write_beside", full)
    refused(policy, ReclaimerdError, "No space left on device; edit it by hand")


@pytest.mark.root
@ROOT
def test_faults_are_refused_before_and_after(policy: Path) -> None:
    """A file with a fault, and one that would get one."""
    policy.write_bytes(POLICY + b"odd = 1\n")
    refused(policy, ConfigError, "odd")
    policy.write_bytes(POLICY.replace(b'match = { uid = ["1000-2000"] }\n', b""))
    refused(policy, ConfigError, "match")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the option that names another."""
    with pytest.raises(ReclaimerdError, match="--config"):
        read_mode_line(tmp_path / "none.toml", "cap", Mode.ENFORCE)
