"""Whom a kill means: the holders that `--gpu`, `--container`, `--job`, `--pod` name, each by pid AND start.

Pure: it reads what the daemon told of its last look. May not ask, print, or decide whether an act is right;
the daemon judges each order anew.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from reclaimerd.cli.http_socket import Json
from reclaimerd.errors import ExitCode, NoTargetError, ReclaimerdError

SHORTEST_ID = 6
"""Of a container's id: fewer characters could mean one that holds no GPU, which nobody here knows of."""
ID = re.compile(r"[0-9a-f]{6,64}", re.ASCII)
POD_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_REF = re.compile(r"([0-9]{1,10})@([0-9]{1,19})", re.ASCII)


class AmbiguousError(ReclaimerdError):
    """More than one GPU, container or pod goes by the name."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line named."""

    pids: tuple[Json, ...] = ()
    gpus: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    expect_uid: int | None = None

    @property
    def by_name(self) -> bool:
        """Tell whether anything is named by more than pids."""
        return bool(self.gpus or self.containers or self.jobs or self.pods)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process that is meant, with all that it holds; `start` is None where nobody saw it.

    `used_bytes` is None where any part of it is unknown. `refused_by` is the kind of what speaks against it.
    """

    pid: int
    start: int | None
    uid: int | None = None
    workload: str = ""
    gpus: tuple[str, ...] = ()
    used_bytes: int | None = None
    refused_by: str = ""
    refused: str = ""

    @property
    def name(self) -> str:
        """Return it as `ps` writes it."""
        return str(self.pid) if self.start is None else f"{self.pid}@{self.start}"

    @property
    def is_open(self) -> bool:
        """Tell whether nothing is known that speaks against it."""
        return not self.refused_by

    def as_target(self) -> Json:
        """Return the target in the API's form; to one that is shown as refused nothing may be sent."""
        target: Json = {"pid": self.pid, "start_ticks": self.start}
        return target if self.is_open else target | {"dry_run": True}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Who is meant, and what a person should know of how the names were read."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()

    def targets(self) -> tuple[list[Json], tuple[Candidate, ...]]:
        """Return the targets to ask for, and who is left out: they would have the whole order denied.

        When nobody else is left they are asked for as well, so that the denial is on record.
        """
        foreign = tuple(one for one in self.candidates if one.refused_by == "role")
        asked = [one for one in self.candidates if one not in foreign]
        if not any(one.is_open for one in asked) and foreign:
            return [one.as_target() for one in self.candidates], ()
        return [one.as_target() for one in asked], foreign


def chosen(wanted: Wanted, told: Json) -> Chosen:
    """Return who is meant, each once. Raises NoTargetError and AmbiguousError; then nobody is."""
    rows = [
        row for row in told.get("rows") or () if isinstance(row, dict) and _REF.fullmatch(str(row.get("ref")))
    ]
    refs: dict[str, None] = {}
    notes: list[str] = []
    for name in wanted.gpus:
        uuid = _gpu_uuid(name, told)
        if uuid != name:
            notes.append(f"GPU {name} is {uuid}")
        refs |= _found(rows, _on_gpu(uuid), f"nobody is seen to hold {uuid}", told)
    holders = [row for row in rows if row.get("gpu")]
    for name in wanted.containers:
        refs |= _found(
            holders, _in_container(name, holders), f"no container {name!r} is seen to hold a GPU", told
        )
    for name in wanted.jobs:
        refs |= _found(holders, _in_job(name), f"no Slurm job {name} is seen to hold a GPU", told)
    for name in wanted.pods:
        refs |= _found(holders, _in_pod(name, holders), f"no pod {name!r} is seen to hold a GPU", told)
    found = {one.name: one for one in _folded(rows)}
    is_owner = told.get("only_uid") is not None
    named = [_named(target, found, is_owner=is_owner) for target in wanted.pids]
    all_named = _each_once([*named, *(found[ref] for ref in refs)])
    return Chosen(tuple(_of_user(one, wanted.expect_uid) for one in all_named), tuple(notes))


def _of_user(one: Candidate, uid: int | None) -> Candidate:
    """Return it as refused where it belongs to another user than the expected one."""
    if uid is None or one.uid in (None, uid) or not one.is_open:
        return one
    return replace(one, refused_by="user", refused=f"it belongs to uid {one.uid}, not to the expected {uid}")


def _found(rows: list[Json], fits: Callable[[Json], bool], nothing: str, told: Json) -> dict[str, None]:
    """Return the refs of the rows that fit. Raises NoTargetError, which says what could not be seen."""
    refs = {str(row["ref"]): None for row in rows if fits(row)}
    if not refs:
        raise NoTargetError(
            f"{nothing}; nothing was done", "; ".join(("`reclaimctl ps` shows who does", *_blind(told)))
        )
    return refs


def _blind(told: Json) -> Iterator[str]:
    """Yield what the last look could not see, so that "nobody" is not taken for certain."""
    driver = told.get("driver") or {}
    if driver.get("state") != "responsive":
        yield f"the driver: {driver.get('text')}"
    for gpu in told.get("gpus") or ():
        if gpu.get("note"):
            yield f"{gpu.get('uuid')}: {gpu['note']}"
    if told.get("only_uid") is not None:
        yield "of others' processes nothing is told to you"
    skipped = told.get("skipped") or ()
    if skipped:
        yield f"not looked at: {skipped[0]}" + (f" and {len(skipped) - 1} more" if len(skipped) > 1 else "")


def _gpu_uuid(name: str, told: Json) -> str:
    """Return the UUID of the one GPU that has this UUID or index, or whose UUID begins so."""
    gpus = [(str(gpu.get("uuid")), gpu.get("index")) for gpu in told.get("gpus") or ()]
    if any(uuid == name for uuid, _ in gpus):
        return name
    if re.fullmatch(r"[0-9]{1,4}", name, re.ASCII):
        found = [uuid for uuid, index in gpus if index == int(name)]
    else:
        found = [
            uuid for uuid, _ in gpus if len(name) > len("GPU-") and uuid.lower().startswith(name.lower())
        ]
    known = ", ".join(f"{index}: {uuid}" for uuid, index in gpus)
    if not found:
        mend = "; ".join((f"name one of {known}" if known else "no GPU was seen", *_blind(told)))
        raise NoTargetError(f"there is no GPU {name!r}; nothing was done", mend)
    if len(found) > 1:
        raise AmbiguousError(f"{len(found)} GPUs go by {name!r}; nothing was done", f"name one of {known}")
    return found[0]


def _on_gpu(uuid: str) -> Callable[[Json], bool]:
    return lambda row: row.get("gpu") == uuid


def _in_container(name: str, rows: list[Json]) -> Callable[[Json], bool]:
    """Return what tells a row of the one container of this name or id, or whose id begins so."""
    ids = {str(row.get("container_id") or "") for row in rows} - {""}
    begins = {one for one in ids if ID.fullmatch(name) and one.startswith(name)}
    named = {_container_key(row) for row in rows if _names(row).get("container") == name}
    found = {name} if name in ids else begins | named
    if len(found) > 1:
        told = ", ".join(sorted(one[:16] for one in found))
        raise AmbiguousError(
            f"{len(found)} containers go by {name!r}: {told}; nothing was done", "name one by more of its id"
        )
    return lambda row: _container_key(row) in found


def _container_key(row: Json) -> str:
    return str(row.get("container_id") or "") or f"named {_names(row).get('container')} {row.get('workload')}"


def _in_job(name: str) -> Callable[[Json], bool]:
    return lambda row: row.get("kind") == "slurm_job" and _names(row).get("job_id") == name


def _in_pod(name: str, rows: list[Json]) -> Callable[[Json], bool]:
    """Return what tells a row of the one pod of this NAMESPACE/NAME or uid."""
    if POD_UID.fullmatch(name):
        return lambda row: _names(row).get("pod_uid") == name
    space, _, pod = name.partition("/")

    def fits(row: Json) -> bool:
        names = _names(row)
        return (names.get("namespace"), names.get("pod")) == (space, pod)

    uids = {str(_names(row).get("pod_uid") or "") for row in rows if fits(row)}
    if len(uids) > 1:
        told = ", ".join(sorted(uid or "unknown" for uid in uids))
        raise AmbiguousError(
            f"{len(uids)} pods go by {name!r}: {told}; nothing was done", "name one by its uid"
        )
    return fits


def _names(row: Json) -> Json:
    names = row.get("names")
    return names if isinstance(names, dict) else {}


def _folded(rows: Iterable[Json]) -> Iterator[Candidate]:
    """Yield each process once, with all GPUs that it holds."""
    by_ref: dict[str, list[Json]] = {}
    for row in rows:
        by_ref.setdefault(str(row["ref"]), []).append(row)
    for ref, own in by_ref.items():
        pid, start = ref.split("@")
        first = own[0]
        sizes = [row.get("used_bytes") for row in own if row.get("gpu")]
        known = [size for size in sizes if isinstance(size, int)]
        refused = first.get("refused") or {}
        yield Candidate(
            pid=int(pid),
            start=int(start),
            uid=first.get("uid") if isinstance(first.get("uid"), int) else None,
            workload=str(first.get("workload") or ""),
            gpus=tuple(_gpu_text(row) for row in own if row.get("gpu")),
            used_bytes=sum(known) if sizes and len(known) == len(sizes) else None,
            refused_by=str(refused.get("kind") or ""),
            refused=str(refused.get("text") or ""),
        )


def _gpu_text(row: Json) -> str:
    index = row.get("gpu_index")
    return str(row.get("gpu") if index is None else index)


def _named(target: Json, found: dict[str, Candidate], *, is_owner: bool) -> Candidate:
    """Return the process that `--pid` names, with the start that was seen.

    One that was not seen is asked for in a dry run alone: who has its number by the time that a person
    has answered is somebody else. An owner is not told of others', so one that was not seen is left out.
    """
    pid, start = int(target["pid"]), target["start_ticks"]
    seen = [one for one in found.values() if one.pid == pid and start in (None, one.start)]
    gone = Candidate(pid, start, refused_by="gone", refused="no such process is seen")
    if is_owner:
        gone = replace(gone, refused_by="role", refused="no process of yours by all four uids is seen")
    return min(seen, key=_least_open) if seen else gone


def _each_once(candidates: list[Candidate]) -> Iterator[Candidate]:
    """Yield one candidate for each pid: the one that lives, where a dead one had its number."""
    by_pid: dict[int, list[Candidate]] = {}
    for one in candidates:
        by_pid.setdefault(one.pid, []).append(one)
    for same in by_pid.values():
        yield min(same, key=_least_open)


def _least_open(one: Candidate) -> tuple[bool, bool]:
    return not one.is_open, one.refused_by in {"unreadable", "gone"}
