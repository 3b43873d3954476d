"""host/files: no link is followed, what is written is whole, and who could change a file is told."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.host import files

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="chown and ownership by root need root")


@pytest.fixture
def folder_fd(tmp_path: Path) -> Iterator[int]:
    """Return a descriptor of the test's own folder."""
    with files.opened_directory(tmp_path) as descriptor:
        yield descriptor


def test_open_below_refuses_a_link_in_the_last_place(tmp_path: Path, folder_fd: int) -> None:
    """A link below the state directory is refused, and what it points to is untouched."""
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "store").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        files.open_below(folder_fd, "store", os.O_WRONLY | os.O_TRUNC)
    assert outside.read_text() == "precious"


def test_open_below_refuses_a_link_on_the_way(tmp_path: Path, folder_fd: int) -> None:
    """A directory that is a link is refused too: nothing is made behind it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        files.open_below(folder_fd, "way/file", os.O_WRONLY | os.O_CREAT)
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../up", "a/../../up"])
def test_open_below_refuses_names_that_leave(folder_fd: int, name: str) -> None:
    """A name that leaves its directory is refused before anything is opened."""
    with pytest.raises(OSError, match="leaves its directory"):
        files.open_below(folder_fd, name, os.O_WRONLY | os.O_CREAT)


def test_open_below_does_not_hang_on_a_fifo(tmp_path: Path, folder_fd: int) -> None:
    """A FIFO in a file's place is refused at once instead of hanging the opener."""
    os.mkfifo(tmp_path / "trap")
    with pytest.raises(OSError, match="not a regular file"):
        files.open_below(folder_fd, "trap", os.O_RDONLY)


def test_open_below_opens_a_plain_file(tmp_path: Path, folder_fd: int) -> None:
    """An ordinary file in an ordinary folder opens, with the mode that was asked for."""
    (tmp_path / "inner").mkdir()
    os.close(files.open_below(folder_fd, "inner/new", os.O_WRONLY | os.O_CREAT, 0o600))
    assert (tmp_path / "inner" / "new").stat().st_mode & 0o777 == 0o600


def test_ensure_directory_makes_with_the_exact_mode(tmp_path: Path) -> None:
    """What is made has exactly the mode asked for, whatever the umask."""
    before = os.umask(0o077)
    try:
        files.ensure_directory(tmp_path / "up" / "log", 0o750)
    finally:
        os.umask(before)
    assert (tmp_path / "up" / "log").stat().st_mode & 0o7777 == 0o750


def test_ensure_directory_leaves_an_existing_one_as_it_is(tmp_path: Path) -> None:
    """An existing directory keeps its mode: it may be somebody else's."""
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    files.ensure_directory(there, 0o700)
    assert there.stat().st_mode & 0o777 == 0o755


def test_ensure_directory_refuses_what_others_may_write(tmp_path: Path) -> None:
    """A directory that others may write is refused, and not mended behind the administrator's back."""
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o777)
    with pytest.raises(PermissionError, match="written by its group or by others"):
        files.ensure_directory(there, 0o700)
    assert there.stat().st_mode & 0o777 == 0o777


def test_ensure_directory_refuses_a_link(tmp_path: Path) -> None:
    """A link in the directory's place is refused."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        files.ensure_directory(tmp_path / "link", 0o700)


@needs_root
@pytest.mark.root
def test_ensure_directory_refuses_a_strangers(tmp_path: Path) -> None:
    """A directory that belongs to another user is refused."""
    there = tmp_path / "there"
    there.mkdir()
    os.chown(there, 1234, 0)
    if os.geteuid() == 0:
        with pytest.raises(PermissionError, match="belongs to uid 1234"):
            files.ensure_directory(there, 0o700)


def test_write_durably_replaces_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    """The new bytes stand there with the mode asked for, and no temporary file is left."""
    path = tmp_path / "file"
    files.write_durably(path, b"old", 0o600)
    files.write_durably(path, b"new", 0o640)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_write_durably_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    """A link at the path is replaced; what it pointed to keeps its bytes."""
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "file").symlink_to(tmp_path / "outside")
    files.write_durably(tmp_path / "file", b"new")
    assert (tmp_path / "outside").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_write_all_carries_on_after_short_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short writes are carried on until every byte is written."""
    written = bytearray()

    def write_three(_descriptor: int, content: memoryview) -> int:
        written.extend(content[:3])
        return len(content[:3])

    monkeypatch.setattr(os, "write", write_three)
    files.write_all(-1, b"0123456789")
    assert bytes(written) == b"0123456789"


def test_read_bounded_refuses_past_its_limit(tmp_path: Path, folder_fd: int) -> None:
    """A file of exactly the limit is read, one more byte is refused."""
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert files.read_bounded(folder_fd, "file", 10) == b"x" * 10
    with pytest.raises(OSError, match="larger than 9 bytes") as caught:
        files.read_bounded(folder_fd, "file", 9)
    assert caught.value.errno == errno.EFBIG


@needs_root
@pytest.mark.root
class TestRefuseUnsafe:
    """Who could change a file; pytest's folders are root's and closed to others."""

    def test_takes_roots_own(self, tmp_path: Path) -> None:
        """A file of root's in root's folders is taken."""
        (tmp_path / "file").write_text("x")
        assert files.refuse_unsafe(tmp_path / "file") is None

    def test_names_a_stranger(self, tmp_path: Path) -> None:
        """A file of another user is refused by uid."""
        (tmp_path / "file").write_text("x")
        os.chown(tmp_path / "file", 1234, 0)
        assert "belongs to uid 1234" in (files.refuse_unsafe(tmp_path / "file") or "")

    def test_refuses_what_the_group_may_write(self, tmp_path: Path) -> None:
        """A group that may write is refused."""
        (tmp_path / "file").write_text("x")
        (tmp_path / "file").chmod(0o664)
        assert "written by its group" in (files.refuse_unsafe(tmp_path / "file") or "")

    def test_refuses_an_open_parent_but_not_a_sticky_one(self, tmp_path: Path) -> None:
        """A parent that others may write lets them swap the file; the sticky bit forbids that."""
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / "file").write_text("x")
        inner.chmod(0o777)
        assert str(inner) in (files.refuse_unsafe(inner / "file") or "")
        inner.chmod(0o1777)
        assert files.refuse_unsafe(inner / "file") is None

    def test_looks_at_the_way_behind_a_link(self, tmp_path: Path) -> None:
        """A link into a folder of another user is refused, though file and link are root's."""
        (tmp_path / "theirs").mkdir()
        (tmp_path / "theirs" / "file").write_text("x")
        os.chown(tmp_path / "theirs", 1234, 0)
        (tmp_path / "link").symlink_to(tmp_path / "theirs" / "file")
        assert "belongs to uid 1234" in (files.refuse_unsafe(tmp_path / "link") or "")

    def test_says_what_is_wrong_with_no_file(self, tmp_path: Path) -> None:
        """A missing file, a folder and a circle of links each give a sentence."""
        (tmp_path / "a").symlink_to(tmp_path / "b")
        (tmp_path / "b").symlink_to(tmp_path / "a")
        assert "No such file" in (files.refuse_unsafe(tmp_path / "none") or "")
        assert "not a regular file" in (files.refuse_unsafe(tmp_path) or "")
        assert "symbolic links" in (files.refuse_unsafe(tmp_path / "a") or "")
