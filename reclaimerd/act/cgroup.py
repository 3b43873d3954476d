"""One workload's cgroup directory, held open from first sight: list it, freeze it, kill in it.

It may not judge members, and it opens nothing that is no workload of its own: never the root, a
slice, a login session, our own cgroup, or a path whose names root did not give.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.process import (
    Workload,
    WorkloadKind,
)

MAX_DIRECTORIES = 1024
MAX_MEMBERS = 8192
_NOT_ROOTS = "a directory above {} is not root's: its name proves nothing"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Cgroup:
    """An open cgroup directory; `file` tells it from one made again under the same path."""

    directory_fd: int
    file: FileIdentity
    path: str


@dataclass(frozen=True, slots=True)
class Forbidden:
    """This boundary may never be acted on as a whole."""

    why: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The cgroup can't be acted on as a whole; its known members still can, one by one."""

    why: str


def forbidden_reason(workload: Workload, own_path: str) -> str:
    """Return why this boundary may not be acted on as a whole, or "".

    `own_path` is our own cgroup in the same hierarchy.
    """
    path = PurePosixPath(workload.path)
    parts = path.parts[1:]
    last = parts[-1] if parts else ""
    # A pod under the systemd driver is a slice by name: the one kind of slice that is a workload.
    pod_slice = workload.kind is WorkloadKind.POD and "-pod" in last
    is_slice = last == "init.scope" or (last.endswith(".slice") and not pod_slice)
    is_session = workload.kind is WorkloadKind.SESSION or "user.slice" in parts
    no_workload = workload.kind is WorkloadKind.NONE or not workload.path
    reasons = (
        (no_workload, "it belongs to no workload; use scope process or tree"),
        (not path.is_absolute() or ".." in parts, f"{path} is no path below our cgroup namespace"),
        (not parts, "the root cgroup holds the whole host"),
        (is_session, f"{path} is a login session; use scope process or tree"),
        (is_slice, f"{path} is a slice of the system, not one workload"),
        (PurePosixPath(own_path or "/").is_relative_to(path), f"we run in {path} ourselves"),
        (not workload.trusted, _NOT_ROOTS.format(path)),
    )
    return next((why for holds, why in reasons if holds), "")


def open_cgroup(workload: Workload, *, proc_self: Path = Path("/proc/self")) -> Cgroup | Forbidden | Unusable:
    """Return the workload's cgroup, opened without following a link; the caller closes it.

    Every directory above it must be root's. Mount points come from mountinfo, our own cgroup from
    `cgroup` (proc(5)).
    """
    why = forbidden_reason(workload, _own_path(proc_self, workload.controller))
    if why:
        return Forbidden(why)
    if workload.kind is WorkloadKind.SLURM_JOB:
        # slurmstepd lives inside the job's cgroup and must outlive its tasks to report them.
        return Unusable("a Slurm job's cgroup also holds slurmstepd")
    mount = _mount_of(proc_self, workload.controller)
    if mount is None:
        return Unusable(f"no mounted cgroup hierarchy {workload.controller or 'v2'} that starts at its root")
    try:
        return _walk_down(mount, workload.path)
    except OSError as error:
        return Unusable(f"{workload.path} can't be opened ({error.strerror})")


def _walk_down(mount: Path, path: str) -> Cgroup | Forbidden:
    """Open one directory after another, none through a link, each but the last owned by root."""
    current = os.open(mount, _DIRECTORY)
    for name in PurePosixPath(path).parts[1:]:
        try:
            if os.fstat(current).st_uid != 0:
                return Forbidden(_NOT_ROOTS.format(path))
            below = os.open(name, _DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = below
    found = os.fstat(current)
    return Cgroup(current, FileIdentity(found.st_dev, found.st_ino), path)


def members_now(directory_fd: int) -> tuple[int, ...]:
    """Return the pids in this cgroup and in every one below it, as cgroup.procs lists them now.

    cgroup.kill and cgroup.freeze reach the whole subtree, so the whole subtree is listed. A pid of 0
    stands for a process outside our PID namespace. Raises OSError, E2BIG past the bounds.
    """
    found: dict[int, None] = {}
    seen = ["."]
    for place in seen:
        pids, below = _list_one(directory_fd, place)
        found |= dict.fromkeys(pids)
        seen += [f"{place}/{name}" for name in below]
        if len(seen) > MAX_DIRECTORIES or len(found) > MAX_MEMBERS:
            raise OSError(errno.E2BIG, "too many directories or processes to judge each")
    return tuple(found)


def _list_one(top_fd: int, place: str) -> tuple[tuple[int, ...], list[str]]:
    """Return the pids and the directories right below one place; one removed meanwhile has neither."""
    try:
        directory = os.open(place, _DIRECTORY, dir_fd=top_fd)
        try:
            with os.scandir(directory) as entries:
                below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            return _pids(directory, place), below
        finally:
            os.close(directory)
    except OSError as error:
        if place != "." and error.errno in {errno.ENODEV, errno.ENOENT}:
            return (), []
        raise


def _pids(directory_fd: int, place: str) -> tuple[int, ...]:
    """Return the pids of one directory.

    The processes of a threaded cgroup stand in the list of its domain above (cgroup-v2.rst).
    """
    try:
        return tuple(int(line) for line in _read(directory_fd, "cgroup.procs").split())
    except OSError as error:
        if place != "." and error.errno == errno.EOPNOTSUPP:
            return ()
        raise


def can_kill(cgroup: Cgroup) -> bool:
    """Tell whether this cgroup has cgroup.kill (cgroup v2 since Linux 5.14)."""
    return _has(cgroup, "cgroup.kill")


def kill(cgroup: Cgroup) -> None:
    """SIGKILL every process in the subtree at once, forks in flight too. Raises OSError."""
    _write(cgroup, "cgroup.kill", b"1")


def may_freeze(cgroup: Cgroup) -> bool:
    """Tell whether the subtree can be held still, and nobody else holds it so. Raises OSError.

    One that somebody else froze stays theirs. Without cgroup.freeze (before Linux 5.2) nothing is
    held: whoever kills must list again just before.
    """
    return _has(cgroup, "cgroup.freeze") and _read(cgroup.directory_fd, "cgroup.freeze").strip() == "0"


def freeze(cgroup: Cgroup) -> None:
    """Hold the subtree still. Raises OSError."""
    _write(cgroup, "cgroup.freeze", b"1")


def thaw(cgroup: Cgroup) -> str:
    """Let the subtree go again; return what went wrong, or ""."""
    try:
        _write(cgroup, "cgroup.freeze", b"0")
    except OSError as error:
        if error.errno in {errno.ENODEV, errno.ENOENT}:
            return ""
        return f"{cgroup.path} could not be thawed ({error.strerror}): write 0 to its cgroup.freeze"
    return ""


def close(cgroup: Cgroup) -> None:
    """Let go of the directory."""
    os.close(cgroup.directory_fd)


def _has(cgroup: Cgroup, name: str) -> bool:
    """Tell whether the directory has a file of this name."""
    try:
        os.stat(name, dir_fd=cgroup.directory_fd, follow_symlinks=False)
    except OSError:
        return False
    return True


def _read(directory_fd: int, name: str) -> str:
    """Return the text of one small file of the directory. Raises OSError."""
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)) as stream:
        return stream.read()


def _write(cgroup: Cgroup, name: str, value: bytes) -> None:
    """Write one value to a file of the directory. Raises OSError."""
    opened = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=cgroup.directory_fd)
    try:
        os.write(opened, value)
    finally:
        os.close(opened)


def _own_path(proc_self: Path, controller: str) -> str:
    """Return our own cgroup in the given hierarchy ("" is v2), "/" when it has no line."""
    for line in (proc_self / "cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controllers == controller and (controller or number == "0"):
            return path
    return "/"


def _mount_of(proc_self: Path, controller: str) -> Path | None:
    """Return where the hierarchy is mounted from its root, by mountinfo (proc_pid_mountinfo(5))."""
    for line in (proc_self / "mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        root, point = mount.split()[3:5]
        kind, *_, options = source.split()
        v2 = not controller and kind == "cgroup2"
        v1 = bool(controller) and kind == "cgroup" and set(controller.split(",")) <= set(options.split(","))
        if root == "/" and (v1 or v2):
            return Path(point)
    return None
