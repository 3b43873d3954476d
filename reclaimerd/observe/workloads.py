"""From /proc/PID/cgroup to the workload: pod, container, job, unit or session.

The outermost boundary wins, and a name is believed only as far as root made it: the first
directory that root does not own was still named by root in its parent, what lies below it was not
(a user can make `kubepods/pod...` in a delegated subtree). `workload_of` is pure and knows the
forms that runtimes and schedulers use; `DirectoryOwners` reads who owns a cgroup directory. What a
path does not say (a pod's name, a job's user) is not asked here: see `observe.places`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from reclaimerd.host.proc_text import CgroupLine, parse_cgroup, printable
from reclaimerd.model.process import (
    Workload,
    WorkloadKind,
    WorkloadNames,
)

OwnedByRoot = Callable[[str, str], bool]
"""Tells whether root owns one directory: controllers ("" is cgroup v2), path."""

NO_WORKLOAD = Workload(WorkloadKind.NONE, "no workload")
_UNPROVEN = Workload(WorkloadKind.NONE, "no proven workload", trusted=False)

_HEX = "[0-9a-f]"
_UID = rf"{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}}"
_ID = rf"{_HEX}{{64}}"
_RUNTIME = "cri-containerd|crio|docker|libpod-payload|libpod|nerdctl|containerd"
_POD = re.compile(rf"(?:[^:]*-)?pod(?P<uid>{_UID})(?:\.slice)?(?::(?P<runtime>{_RUNTIME}):(?P<cid>{_ID}))?")
_CONTAINER = re.compile(rf"(?:(?P<runtime>{_RUNTIME})[-:])?(?P<cid>{_ID})(?:\.scope)?")
_MONITOR = re.compile(rf"(?:crio|libpod)-conmon-{_ID}(?:\.scope)?|lxc\.monitor(?:\..+)?")
_SLURM_SCOPE = re.compile(r"(?:.+_)?slurmstepd\.scope")
_SLURM_JOB = re.compile(r"job_(?P<job>\d+)|(?P<sluid>s[0-9A-HJKMNP-TV-Z]{13})")
_SLURM_UID = re.compile(r"uid_\d+")
_NOMAD = re.compile(rf"(?P<alloc>{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})\.(?P<task>.+)\.scope")
_LXC = re.compile(r"lxc\.payload\.(?P<name>.+)")
_MACHINE = re.compile(r"machine-(?P<machine>.+)\.scope|systemd-nspawn@(?P<nspawn>.+)\.service")
_UNIT = re.compile(r".+\.(?:service|scope)")
_USER = re.compile(r"user-(?P<uid>\d+)\.slice")
_SESSION = re.compile(r"session-(?P<session>.+)\.scope")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_DELETED = " (deleted)"
_DOCKERS_OWN = "docker"
"""The directory below which Docker's cgroupfs driver names containers by their bare ids."""


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A boundary at component `depth` (counted from 1); kind UNIT is a runtime's own monitor.

    `inner_id` is the container that the next directory down is, `runtime` the word for what made the
    container, and `names` what the path itself says.
    """

    kind: WorkloadKind
    name: str
    depth: int
    container_id: str = ""
    inner_id: str = ""
    names: WorkloadNames | None = None
    runtime: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """One line's path in its parts; `relative` when it starts outside our cgroup namespace."""

    controllers: str
    parts: tuple[str, ...]
    relative: bool

    def path(self, depth: int) -> str:
        """Return the path of the directory at this depth."""
        up = "/.." if self.relative else ""
        return up + "/" + "/".join(self.parts[:depth])


def workload_of(cgroup_text: str, owned_by_root: OwnedByRoot) -> Workload:
    """Return the outermost boundary that the text shows and root's directories prove.

    `trusted` is false when the path claims a boundary (pod, container, job) that is not proven: the
    workload is then the unit or session around it, or none. Only where no directory can be looked
    at (another cgroup namespace, no cgroup file system) the bare claim is returned, untrusted.
    No text raises.
    """
    places = sorted(map(_place, parse_cgroup(cgroup_text)), key=lambda place: place.controllers != "")
    places = [place for place in places if place.parts]
    claims = [(place, claim) for place in places if (claim := _outermost(place)) is not None]
    for place, claim in claims:
        if not _is_below_user(place) and _is_proven(place, claim.depth, owned_by_root):
            return _as_workload(place, _with_inner(place, claim, owned_by_root), trusted=True)
    if claims:
        return _around(*claims[0], owned_by_root)
    for place in places:
        generic = _generic(place)
        if generic is not None:
            trusted = _is_proven(place, generic.depth, owned_by_root)
            return _as_workload(place, generic, trusted=trusted)
    return NO_WORKLOAD


def _with_inner(place: _Place, claim: _Boundary, owned_by_root: OwnedByRoot) -> _Boundary:
    """Return a proven pod with the container below it, if root named that one too."""
    if not claim.inner_id or not owned_by_root(place.controllers, place.path(claim.depth)):
        return claim
    return replace(claim, container_id=claim.inner_id)


def _around(place: _Place, claim: _Boundary, owned_by_root: OwnedByRoot) -> Workload:
    """Return what stands around a claim that is not proven; never trusted."""
    generic = _generic(place)
    if generic is not None and generic.depth < claim.depth:
        return _as_workload(place, generic, trusted=False)
    if place.relative or not owned_by_root(place.controllers, "/"):
        return _as_workload(place, claim, trusted=False)
    return _UNPROVEN


def _is_below_user(place: _Place) -> bool:
    """Tell whether every name on the path may be a user's word."""
    return place.parts[0] == "user.slice"


def _place(line: CgroupLine) -> _Place:
    """Return one line's path in parts: without the ` (deleted)` mark and the way up out of a namespace."""
    parts = [part for part in line.path.removesuffix(_DELETED).split("/") if part]
    relative = bool(parts) and parts[0] == ".."
    while parts and parts[0] == "..":
        parts.pop(0)
    return _Place(line.controllers, tuple(parts), relative)


def _is_proven(place: _Place, depth: int, owned_by_root: OwnedByRoot) -> bool:
    """Tell whether root named the directory at `depth`: every directory above it is root's."""
    if place.relative:
        return False
    return all(owned_by_root(place.controllers, place.path(above)) for above in range(depth))


def _as_workload(place: _Place, boundary: _Boundary, *, trusted: bool) -> Workload:
    """Return the boundary in the words of the model."""
    units = (part for part in place.parts[: boundary.depth] if _UNIT.fullmatch(part))
    return Workload(
        kind=boundary.kind,
        name=printable(boundary.name),
        path=place.path(boundary.depth),
        controller=place.controllers,
        unit=printable(next(units, "")),
        container_id=boundary.container_id if trusted else "",
        trusted=trusted,
        names=boundary.names if trusted else None,
        runtime=boundary.runtime.removesuffix("-payload") if trusted and boundary.container_id else "",
    )


def _outermost(place: _Place) -> _Boundary | None:
    """Return the first pod, container, job, allocation, machine or monitor in path order."""
    for depth in range(1, len(place.parts) + 1):
        boundary = _boundary_at(place.parts, depth)
        if boundary is not None:
            return boundary
    return None


def _boundary_at(parts: tuple[str, ...], depth: int) -> _Boundary | None:
    """Return the boundary that the directory at `depth` is, or None."""
    part = parts[depth - 1]
    above = parts[depth - 2] if depth > 1 else ""
    if _MONITOR.fullmatch(part):
        return _Boundary(WorkloadKind.UNIT, f"monitor {part}", depth)
    pod = _POD.fullmatch(part)
    if pod is not None:
        if depth < len(parts) and _MONITOR.fullmatch(parts[depth]):
            return _Boundary(WorkloadKind.UNIT, f"monitor {parts[depth]}", depth + 1)
        inner, runtime = _container_in(parts[depth:])
        return _Boundary(
            WorkloadKind.POD,
            f"pod {pod['uid'][:8]}…",
            depth,
            pod["cid"] or "",
            inner_id=inner,
            names=WorkloadNames(pod_uid=pod["uid"].replace("_", "-")),
            runtime=pod["runtime"] or runtime,
        )
    container = _CONTAINER.fullmatch(part)
    if container is not None:
        cid, runtime = container["cid"], container["runtime"] or (above if above == _DOCKERS_OWN else "")
        return _Boundary(WorkloadKind.CONTAINER, f"container {cid[:12]}…", depth, cid, runtime=runtime)
    return _job_at(part, above, depth) or _machine_at(parts, part, above, depth)


def _container_in(parts: tuple[str, ...]) -> tuple[str, str]:
    """Return the container that a pod's next directory is, and its runtime; deeper names are its own."""
    found = _CONTAINER.fullmatch(parts[0]) if parts else None
    return ("", "") if found is None else (found["cid"], found["runtime"] or "")


def _job_at(part: str, above: str, depth: int) -> _Boundary | None:
    """Return the Slurm job that this directory is: v2 below slurmstepd's scope, v1 below uid_N."""
    job = _SLURM_JOB.fullmatch(part)
    if job is not None and (_SLURM_SCOPE.fullmatch(above) or _SLURM_UID.fullmatch(above)):
        names = None if job["job"] is None else WorkloadNames(job_id=job["job"])
        return _Boundary(
            WorkloadKind.SLURM_JOB, f"slurm job {job['job'] or job['sluid']}", depth, names=names
        )
    return None


def _machine_at(parts: tuple[str, ...], part: str, above: str, depth: int) -> _Boundary | None:
    """Return the Nomad allocation, LXC container or machine that this directory is."""
    nomad = _NOMAD.fullmatch(part)
    if nomad is not None and parts[0] == "nomad.slice":
        name = f"nomad task {nomad['task']} of {nomad['alloc'][:8]}…"
        return _Boundary(WorkloadKind.NOMAD, name, depth)
    lxc = _LXC.fullmatch(part)
    if lxc is not None:
        return _Boundary(WorkloadKind.MACHINE, f"lxc container {lxc['name']}", depth)
    if above in {"lxc", "lxc.payload"}:
        return _Boundary(WorkloadKind.MACHINE, f"lxc container {part}", depth)
    machine = _MACHINE.fullmatch(part)
    if machine is not None and above == "machine.slice":
        name = _unescaped(machine["machine"] or machine["nspawn"])
        return _Boundary(WorkloadKind.MACHINE, f"machine {name}", depth)
    return None


def _unescaped(name: str) -> str:
    """Return a systemd name with its hexadecimal escapes undone (systemd-escape(1))."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def _generic(place: _Place) -> _Boundary | None:
    """Return the login session or systemd unit that the path shows, or None."""
    if _is_below_user(place):
        return _session(place.parts)
    for depth, part in enumerate(place.parts, start=1):
        if _UNIT.fullmatch(part):
            return _Boundary(WorkloadKind.UNIT, f"unit {part}", depth)
    return None


def _session(parts: tuple[str, ...]) -> _Boundary:
    """Return the login session, the user's own units, or as much of the user's slice as the path shows."""
    user = _USER.fullmatch(parts[1]) if len(parts) > 1 else None
    if user is None:
        return _Boundary(WorkloadKind.SESSION, "user slice", 1)
    of_uid = f"of uid {user['uid']}"
    third = parts[2] if len(parts) > 2 else ""  # noqa: PLR2004  # user.slice, user-N.slice, then this
    session = _SESSION.fullmatch(third)
    if session is not None:
        return _Boundary(WorkloadKind.SESSION, f"session {session['session']} {of_uid}", 3)
    if third.startswith("user@") and third.endswith(".service"):
        return _Boundary(WorkloadKind.SESSION, f"user units {of_uid}", 3)
    return _Boundary(WorkloadKind.SESSION, f"user slice {of_uid}", 2)


class DirectoryOwners:
    """Reads which cgroup directories root owns; one that is gone or can't be read is not root's."""

    def __init__(self, mount: str = "/sys/fs/cgroup") -> None:
        self._mount = mount
        whole = os.path.lexists(f"{mount}/cgroup.controllers")
        self._unified = mount if whole else f"{mount}/unified"

    def owned_by_root(self, controllers: str, path: str) -> bool:
        """Tell whether root owns this directory of this hierarchy ("" is cgroup v2).

        A v1 hierarchy is mounted under its controllers' names, a named one under its own.
        """
        if ".." in path.split("/"):
            return False
        base = self._unified if controllers == "" else f"{self._mount}/{controllers.removeprefix('name=')}"
        try:
            found = os.lstat(base + path)
        except (OSError, ValueError):
            return False
        return found.st_uid == 0
