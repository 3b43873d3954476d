"""What the procfs worker reads of a caller on the control socket, and of a cgroup's members.

Runs in the worker: `ns` links and `loginuid` of another process are not for the main process.
"""

import os
from pathlib import Path

from reclaimerd.host.proc_text import printable
from reclaimerd.model.process import WorkloadKind
from reclaimerd.observe.workloads import workload_of

_CONTAINERS = frozenset({WorkloadKind.POD, WorkloadKind.CONTAINER, WorkloadKind.NOMAD, WorkloadKind.MACHINE})
_UNSET_LOGINUID = 2**32 - 1
MOST_MEMBERS = 4096


def read_peer_place(pid: int) -> dict[str, object]:
    """Return why this caller is a stranger to the host ("" for none), its loginuid (None: unset) and comm.

    Raises OSError when it can't be read.
    """
    strange = [
        f"another {what} namespace"
        for what, name in (("PID", "pid"), ("user", "user"))
        if Path(f"/proc/{pid}/ns/{name}").readlink() != Path(f"/proc/self/ns/{name}").readlink()
    ]
    cgroup = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="surrogateescape")
    kind = workload_of(cgroup, lambda _controller, _path: True).kind
    if kind in _CONTAINERS and cgroup != Path("/proc/self/cgroup").read_text(
        encoding="utf-8", errors="surrogateescape"
    ):
        strange.append(f"the cgroup of a {kind}")
    return {"stranger": ", ".join(strange), "loginuid": _read_loginuid(pid), "comm": _read_comm(pid)}


def read_members(controller: str, path: str) -> tuple[int, ...]:
    """Return the pids in one cgroup directory and below it, at most MOST_MEMBERS.

    `controller` is "" for cgroup v2. Raises OSError when the directory is not there, ValueError when
    there are too many or the path leads elsewhere.
    """
    root = cgroup_root(controller)
    if ".." in path.split("/") or not path.strip("/"):
        raise ValueError(f"{path!r} names no cgroup below the root")
    found: list[int] = []
    for folder, _, _ in os.walk(root / path.strip("/"), onerror=_raise):
        text = (Path(folder) / "cgroup.procs").read_text(encoding="ascii")
        found += [int(word) for word in text.split()]
        if len(found) > MOST_MEMBERS:
            raise ValueError(f"more than {MOST_MEMBERS} processes in {path}")
    return tuple(dict.fromkeys(found))


def cgroup_root(controller: str) -> Path:
    """Return where a hierarchy is mounted, by the kernel's own table ("" is cgroup v2)."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = (*right.split(" ", 2), "", "")[:3]
        v2 = controller == "" and kind == "cgroup2"
        names = options.rpartition(" ")[2].split(",")
        if v2 or (kind == "cgroup" and controller and set(controller.split(",")) <= set(names)):
            return Path(left.split()[4])
    raise FileNotFoundError(f"no cgroup hierarchy of {controller or 'version 2'} is mounted")


def _raise(error: OSError) -> None:
    raise error


def _read_comm(pid: int) -> str:
    """Return the program's name as the kernel has it, made printable: anybody may choose their own."""
    try:
        text = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return printable(text.removesuffix("\n"))


def _read_loginuid(pid: int) -> int | None:
    try:
        value = int(Path(f"/proc/{pid}/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return None if value == _UNSET_LOGINUID else value
