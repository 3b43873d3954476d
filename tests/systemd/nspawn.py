"""A real systemd as PID 1 over a throw-away view of this machine's files, for one test.

An overlay of `/` in a mount namespace of its own; what is written there is in memory and gone with it. The
machine's own init, units and /tmp are never touched.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.rigs.simulated import wait_until

ROOT = Path(__file__).parents[2]
PROGRAMS = ("systemd-nspawn", "nsenter", "unshare", "mount")
_SPACES = ("-m", "-p", "-n", "-u", "-i", "-C")
BOOT_SECONDS = 60.0
CALL_SECONDS = 60.0
_TARGET = "[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n"
_SCRIPT = """
set -eu
mount -t tmpfs -o mode=0700 tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
rm -rf "$1"/root/etc/systemd/system/*.wants
cp "$2"/* "$1/root/etc/systemd/system/"
ln -sf /dev/null "$1/root/etc/systemd/system/systemd-tmpfiles-setup.service"
exec systemd-nspawn -q -D "$1/root" --register=no --keep-unit --private-network --settings=no \
    --capability=CAP_SYSLOG,CAP_CHECKPOINT_RESTORE --console=pipe -b -- --unit=ci.target
"""
"""The two capabilities are those of our unit that a container does not have by itself."""


def missing_programs() -> str:
    """Return why no systemd can be booted here, or ""."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (Debian: systemd-container, util-linux)" if lacking else ""


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted systemd; `init` is its PID 1 as we see it."""

    nspawn: "subprocess.Popen[bytes]"
    init: int
    cgroups: tuple[Path, ...]

    @property
    def root(self) -> Path:
        """Return its files as we see them."""
        return Path(f"/proc/{self.init}/root")

    def run(self, *argv: str) -> "subprocess.CompletedProcess[str]":
        """Run a program inside, with a clean environment."""
        inside = ["nsenter", "-t", str(self.init), *_SPACES, "--"]
        clean = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]
        return subprocess.run(
            [*inside, *clean, *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=CALL_SECONDS,
        )

    def systemctl(self, *words: str) -> str:
        """Call its systemctl and return what it says; a failure fails the test."""
        done = self.run("systemctl", *words)
        assert done.returncode == 0, f"systemctl {words}: {done.stderr}{done.stdout}"
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return one property of one unit."""
        return self.systemctl("show", "-p", name, "--value", unit)

    def stop(self) -> None:
        """End all of it at once, and take its cgroups away."""
        with suppress(ProcessLookupError):
            os.kill(self.init, signal.SIGKILL)
        self.nspawn.wait(20)
        _remove(self.cgroups)


def boot(folder: Path, units: Mapping[str, str]) -> Machine:
    """Boot a systemd with these unit files, its basic target reached; the caller stops it."""
    files = folder / "units"
    place = folder / "machine"
    files.mkdir()
    place.mkdir()
    for name, text in {"ci.target": _TARGET, **units}.items():
        (files / name).write_text(text, encoding="utf-8")
    cgroups = _own_cgroups(f"reclaimerd-test-{os.getpid()}-{folder.name}")
    enter = "".join(f"echo $$ >'{cgroup}/cgroup.procs'; " for cgroup in cgroups)
    words = ["/bin/sh", "-c", _SCRIPT, "sh", str(place), str(files)]
    said = folder / "said"
    with said.open("wb") as stderr:
        nspawn = subprocess.Popen(
            ["/bin/sh", "-c", f'{enter}exec unshare --mount --propagation private -- "$@"', "sh", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env={"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_TMPFS_TMP": "0"},
        )
    try:
        machine = Machine(nspawn, _init_of(nspawn, said), cgroups)
        wait_until(lambda: _is_up(machine), "systemd is up", BOOT_SECONDS)
    except BaseException:
        # Its PID 1 goes with it (PR_SET_PDEATHSIG, set by systemd-nspawn).
        nspawn.kill()
        nspawn.wait(20)
        _remove(cgroups)
        raise
    return machine


def python(*words: str) -> list[str]:
    """Return a command line of this very Python, whose package is the checkout's."""
    return [sys.executable, "-P", *words]


def lines_of(path: Path) -> list[dict[str, object]]:
    """Return the JSON lines of a file that a program inside writes; none while there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _init_of(nspawn: "subprocess.Popen[bytes]", said: Path) -> int:
    """Return the pid of the container's PID 1, once it is one."""
    found: list[int] = []

    def seen() -> bool:
        if nspawn.poll() is not None:
            raise AssertionError(f"systemd-nspawn ended with {nspawn.returncode}: {said.read_text()}")
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text(encoding="ascii").split()
        found[:] = [pid for pid in map(int, children) if _is_init(pid)]
        return bool(found)

    wait_until(seen, "systemd-nspawn has its PID 1", BOOT_SECONDS)
    return found[0]


def _is_init(pid: int) -> bool:
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        inside = status.partition("NSpid:")[2].splitlines()[0].split()
        return inside[-1] == "1" and Path(f"/proc/{pid}/comm").read_text().strip() == "systemd"
    return False


def _is_up(machine: Machine) -> bool:
    return machine.run("systemctl", "is-active", "ci.target").stdout.strip() == "active"


def _own_cgroups(name: str) -> tuple[Path, ...]:
    """Make a cgroup of this name in each hierarchy that systemd would use."""
    top = Path("/sys/fs/cgroup")
    places = [top] if (top / "cgroup.procs").exists() else [top / "systemd", top / "unified"]
    made = tuple(place / name for place in places if (place / "cgroup.procs").exists())
    for cgroup in made:
        cgroup.mkdir()
    return made


def _remove(cgroups: Sequence[Path]) -> None:
    """Remove cgroups with all below them, as soon as they are empty."""
    for cgroup in cgroups:
        wait_until(partial(_removed, cgroup), f"{cgroup} is empty")


def _removed(cgroup: Path) -> bool:
    with suppress(OSError):
        for below in sorted((path for path in cgroup.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        cgroup.rmdir()
    return not cgroup.exists()
