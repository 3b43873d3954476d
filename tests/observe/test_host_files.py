"""Which files count as the host's own."""

import os
from pathlib import Path

import pytest

from reclaimerd.model.identity import FileIdentity
from reclaimerd.observe.processes import read_host_files


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="root makes the files and gives them away")
def test_only_roots_own_files_are_host_files(tmp_path: Path) -> None:
    """A foreign file, one that others may write, a folder, and one under such a parent are left out."""
    root = Path("/run") / f"host-files-{os.getpid()}"
    root.mkdir(mode=0o755)
    try:
        names = ("good", "foreign", "writable")
        for name in names:
            (root / name).write_bytes(b"")
            (root / name).chmod(0o755)
        os.chown(root / "foreign", 1234, 1234)
        (root / "writable").chmod(0o775)
        (root / "folder").mkdir()
        (root / "link").symlink_to("good")
        (root / "out").symlink_to(tmp_path / "x")
        (tmp_path / "x").write_bytes(b"")
        tmp_path.chmod(0o777)
        found = read_host_files([f"{root}/*", f"{tmp_path}/*"])
        good = (root / "good").stat()
        assert found == {
            f"{root}/{name}": FileIdentity(good.st_dev, good.st_ino) for name in ("good", "link")
        }
        root.chmod(0o777)
        assert read_host_files([f"{root}/*"]) == {}
    finally:
        for path in root.iterdir():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        root.rmdir()


def test_a_pattern_that_matches_nothing_gives_nothing() -> None:
    """A missing program is left out and is no error."""
    assert read_host_files(["/usr/bin/no-such-program-*", "/nowhere/x"]) == {}
