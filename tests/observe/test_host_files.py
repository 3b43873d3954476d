"""Which files count as the host's own."""

import json
import os
import shutil
import subprocess
import sys
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


UNSHARE = shutil.which("unshare")
IN_A_SANDBOX = """
import json, sys
from reclaimerd.observe.host_files import read_host_files
found = read_host_files(sys.argv[1:])
print(json.dumps({path: [file.device, file.inode] for path, file in found.items()}))
"""


@pytest.mark.root
@pytest.mark.process
@pytest.mark.skipif(
    os.geteuid() != 0 or UNSHARE is None, reason="root makes a mount namespace, by unshare of util-linux"
)
def test_a_sandbox_of_the_service_manager_sees_the_hosts_files() -> None:
    """From another mount namespace the same files are found, by links too, and no others."""
    root = Path("/run") / f"host-files-{os.getpid()}"
    root.mkdir(mode=0o755)
    try:
        (root / "bin").mkdir(mode=0o755)
        (root / "theirs").mkdir(mode=0o755)
        for folder in ("bin", "theirs"):
            (root / folder / "program").write_bytes(b"")
            (root / folder / "program").chmod(0o755)
        os.chown(root / "theirs", 1234, 1234)
        (root / "relative").symlink_to("bin/../bin/./program")
        (root / "absolute").symlink_to(root / "bin")
        (root / "circle").symlink_to("circle")
        (root / "by-theirs").symlink_to("theirs/program")
        globs = [f"{root}/*/program", f"{root}/*"]
        here = read_host_files(globs)
        words = [sys.executable, "-P", "-c", IN_A_SANDBOX, *globs]
        done = subprocess.run([str(UNSHARE), "-m", *words], capture_output=True, check=True, timeout=60)
        inside = {path: FileIdentity(*file) for path, file in json.loads(done.stdout).items()}
        names = ("bin/program", "absolute/program", "relative")
        good = (root / "bin" / "program").stat()
        assert inside == {f"{root}/{name}": FileIdentity(good.st_dev, good.st_ino) for name in names}
        assert inside == here
    finally:
        shutil.rmtree(root)


def test_a_pattern_that_matches_nothing_gives_nothing() -> None:
    """A missing program is left out and is no error."""
    assert read_host_files(["/usr/bin/no-such-program-*", "/nowhere/x"]) == {}
