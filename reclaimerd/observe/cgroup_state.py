"""What a process's cgroups say of it: whether they are frozen, and how much memory they are charged.

For the procfs worker. The files are root's; a path that leads out of our view of the hierarchy is
unreadable, never "not frozen". Facts: Documentation/admin-guide/cgroup-v1/freezer-subsystem.rst and
cgroup-v2.rst.
"""

from pathlib import Path

from reclaimerd.host.proc_text import CgroupLine, parse_cgroup, printable
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe.peers import cgroup_root
from reclaimerd.observe.proc_files import words_of

_DELETED = " (deleted)"
_KIB = 1024


def read_freezer(cgroup: Reading[str], *, refrigerated: bool) -> tuple[str, Reading[bool]]:
    """Return which freezer holds the process (`v1 PATH` or `v2 PATH`, else ""), and whether one does.

    `refrigerated` says that one of its tasks was seen in the v1 freezer: while its state is still
    FREEZING (another member can't be frozen) only that tells.
    """
    if not isinstance(cgroup, Known):
        return "", _as_bool(cgroup)
    unknown: list[str] = []
    offered = False
    for version, line in _freezers(cgroup.value):
        try:
            state = _read_v1(line) if version == "v1" else _read_v2(line)
        except OSError as error:
            unknown.append(f"the {version} freezer of {printable(line.path)}: {words_of(error)}")
            continue
        offered = offered or state is not None
        if state == "frozen" or (state == "freezing" and refrigerated):
            return f"{version} {printable(line.path)}", Known(value=True)
    if unknown:
        return "", Unreadable("; ".join(unknown))
    return "", Known(value=False) if offered else Absent("no cgroup freezer is mounted here")


def _as_bool(unread: Unreadable | Absent) -> Reading[bool]:
    return unread


def _freezers(text: str) -> list[tuple[str, CgroupLine]]:
    """Return the lines that have a freezer: the v1 controller, and cgroup v2."""
    lines = parse_cgroup(text)
    v1 = [("v1", line) for line in lines if "freezer" in line.controllers.split(",")]
    return v1 + [("v2", line) for line in lines if line.controllers == ""]


def _read_v1(line: CgroupLine) -> str | None:
    """Return `frozen`, `freezing` or `thawed`; the root can't be frozen. Raises OSError."""
    folder = _folder(line)
    if folder is None:
        return None
    if line.path == "/" or line.path.endswith(_DELETED):
        return "thawed"
    return (folder / "freezer.state").read_text(encoding="ascii").strip().lower()


def _read_v2(line: CgroupLine) -> str | None:
    """Return `frozen` or `thawed`; SIGKILL ends a member of a frozen v2 cgroup all the same."""
    folder = _folder(line)
    if folder is None:
        return None
    if line.path == "/" or line.path.endswith(_DELETED):
        return "thawed"
    words = (folder / "cgroup.events").read_text(encoding="ascii").split()
    return "frozen" if dict(zip(words[::2], words[1::2], strict=False)).get("frozen") == "1" else "thawed"


def _folder(line: CgroupLine) -> Path | None:
    """Return the directory of a cgroup; None where its hierarchy is not mounted. Raises OSError."""
    try:
        root = cgroup_root(line.controllers)
    except FileNotFoundError:
        return None
    parts = line.path.removesuffix(_DELETED).strip("/")
    if ".." in parts.split("/"):
        raise PermissionError("it lies outside our view of the hierarchy")
    return root / parts


def read_cgroup_bytes(cgroup: Reading[str], proc_root: Path) -> Reading[int]:
    """Return what the process's memory cgroup is charged, or the next one above that counts.

    Where none does (or it is the root, which has no figure of its own in v2), all memory in use on
    the host: an exit that frees gigabytes shows there too.
    """
    if not isinstance(cgroup, Known):
        return cgroup
    for line in _memory_lines(cgroup.value):
        name = "memory.current" if line.controllers == "" else "memory.usage_in_bytes"
        try:
            folder = _folder(line)
        except OSError:
            continue
        found = None if folder is None else _charged(folder, name)
        if found is not None:
            return Known(found)
    return _host_bytes(proc_root)


def _memory_lines(text: str) -> list[CgroupLine]:
    lines = parse_cgroup(text)
    v1 = [line for line in lines if "memory" in line.controllers.split(",")]
    return v1 or [line for line in lines if line.controllers == ""]


def _charged(folder: Path, name: str) -> int | None:
    """Return the figure of a directory or of the nearest one above it that has one."""
    for place in (folder, *folder.parents):
        try:
            return int((place / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            if not (place / "cgroup.procs").exists():
                return None
    return None


def _host_bytes(proc_root: Path) -> Reading[int]:
    try:
        text = (proc_root / "meminfo").read_text(encoding="ascii")
    except OSError as error:
        return Unreadable(words_of(error))
    figures = {
        name: int(rest.split()[0]) * _KIB
        for name, colon, rest in (line.partition(":") for line in text.splitlines())
        if colon and rest.split()
    }
    if "MemTotal" not in figures or "MemFree" not in figures:
        return Absent("the kernel tells no memory figures")
    return Known(figures["MemTotal"] - figures["MemFree"])
