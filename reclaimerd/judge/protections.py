"""Say whether a process may not be touched, and why; a name alone protects nobody and frames nobody.

Issued from facts that can't be bought: the host's own program file by device and inode, kernel uids,
and a unit whose cgroup directories root owns. An exe can be preloaded by a user, a comm is free text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import assert_never

from reclaimerd.judge.builtin_programs import PROGRAMS, Program, Station
from reclaimerd.judge.exit_path import is_kernel_thread
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import Policy, UserProtection
from reclaimerd.model.process import (
    ProcessReading,
    WorkloadKind,
)
from reclaimerd.model.reading import Known, known_or_none
from reclaimerd.model.verdict import Protection

_BUILT_IN = "built-in"
_SYSTEM_UID_BELOW = 1000
"""Debian and systemd give users uids from 1000 on (SYS_UID_MAX 999)."""
_COMM_BYTES = 15
"""The kernel keeps 15 bytes of a comm (TASK_COMM_LEN 16)."""
_HOST_KINDS = frozenset({WorkloadKind.UNIT, WorkloadKind.SESSION, WorkloadKind.NONE})


@dataclass(frozen=True, slots=True)
class Ours:
    """Our own process, everyone above it, and the workers it started."""

    pid: int
    ancestors: frozenset[int] = frozenset()
    workers: frozenset[int] = frozenset()


def program_globs(protections: tuple[UserProtection, ...] = ()) -> tuple[str, ...]:
    """Return the paths and globs whose files the host must be asked for, the policy's own with them."""
    built_in = [path for program in PROGRAMS for path in program.paths]
    added = [protection.exe for protection in protections if protection.exe]
    return tuple(dict.fromkeys(built_in + added))


def protection_of(
    reading: ProcessReading,
    *,
    host_files: Mapping[FileIdentity, str],
    policy: Policy,
    ours: Ours,
) -> Protection | None:
    """Return why nobody may touch this process, or None.

    Where its exe can't be read, uid, unit and flags decide, and the text says so: a caller that acts
    by rule asks `exe_doubt` besides.
    """
    return (
        _by_place(reading, ours)
        or _by_program(reading, host_files)
        or _by_administrator(reading, host_files, policy.protections)
    )


def exe_doubt(reading: ProcessReading) -> str | None:
    """Return why the program of this process is unknown, or None: by rule that is hands off."""
    if not isinstance(reading.exe, Known):
        return f"exe unreadable ({reading.exe.why})"
    if not isinstance(reading.exe_file, Known):
        return f"exe unreadable ({reading.exe_file.why})"
    return None


def looks_protected(
    reading: ProcessReading,
    *,
    host_files: Mapping[FileIdentity, str],
    policy: Policy,
    ours: Ours,
) -> str | None:
    """Return in words that a process bears a protected program's name without being it, else None."""
    exe = known_or_none(reading.exe)
    file_name = "" if exe is None else exe.removesuffix(" (deleted)").rpartition("/")[2]
    label = _borne_label(reading.comm, file_name)
    if label is None or protection_of(reading, host_files=host_files, policy=policy, ours=ours) is not None:
        return None
    return f"looks like {label}, but is not the host's own program in its own place"


# Kept: a hundred globs for each holder in each pass would cost more than all the rest of judging.
@lru_cache(maxsize=1024)
def _borne_label(comm: str, file_name: str) -> str | None:
    """Return the label of the protected program whose name this comm or file name bears, else None."""
    for program in PROGRAMS:
        if any(_bears(comm, file_name, name) for name in program.names):
            return program.label
    return None


def _by_place(reading: ProcessReading, ours: Ours) -> Protection | None:
    pid = reading.ref.pid
    if pid == 1:
        return Protection(_BUILT_IN, "pid 1 is the host's init")
    if is_kernel_thread(reading):
        return Protection(_BUILT_IN, "a kernel thread")
    if pid == ours.pid:
        return Protection(_BUILT_IN, "this is reclaimerd itself")
    if pid in ours.ancestors:
        return Protection(_BUILT_IN, "an ancestor of reclaimerd")
    if pid in ours.workers:
        return Protection(_BUILT_IN, "a worker of reclaimerd")
    return None


def _by_program(reading: ProcessReading, host_files: Mapping[FileIdentity, str]) -> Protection | None:
    doubt = exe_doubt(reading)
    if doubt is not None:
        return _by_unit_alone(reading, doubt)
    path = _host_path(reading, host_files)
    if path is None:
        return None
    for program in PROGRAMS:
        stands = any(_stands_in(reading, station) for station in program.stations)
        if stands and any(fnmatchcase(path, glob) for glob in program.paths):
            return Protection(_BUILT_IN, f"{program.label}: the host's {path} in its own place")
    return None


def _by_unit_alone(reading: ProcessReading, doubt: str) -> Protection | None:
    if not _stands_in(reading, Station.SYSTEM_UNIT):
        return None
    for program in PROGRAMS:
        if _has_unit(reading, program):
            return Protection(_BUILT_IN, f"{program.label} by its unit {reading.workload.unit}; {doubt}")
    return None


def _has_unit(reading: ProcessReading, program: Program) -> bool:
    return any(fnmatchcase(reading.workload.unit, unit) for unit in program.units)


def _stands_in(reading: ProcessReading, station: Station) -> bool:
    workload = reading.workload
    root = all(uid == 0 for uid in reading.uids)
    match station:
        case Station.SYSTEM_UNIT:
            system = all(uid < _SYSTEM_UID_BELOW for uid in reading.uids)
            return system and workload.kind is WorkloadKind.UNIT and workload.trusted
        case Station.ROOT:
            return root and workload.kind in _HOST_KINDS
        case Station.JOB_ROOT:
            return root and workload.kind in _HOST_KINDS | {WorkloadKind.SLURM_JOB}
        case _:
            assert_never(station)


def _host_path(reading: ProcessReading, host_files: Mapping[FileIdentity, str]) -> str | None:
    identity = known_or_none(reading.exe_file)
    return None if identity is None else host_files.get(identity)


def _by_administrator(
    reading: ProcessReading,
    host_files: Mapping[FileIdentity, str],
    protections: tuple[UserProtection, ...],
) -> Protection | None:
    for protection in protections:
        held = _held_fields(reading, host_files, protection)
        if held and all(held.values()):
            doubt = exe_doubt(reading)
            note = f"; {doubt}" if doubt is not None else ""
            return Protection(protection.name, f"the policy protects it by {' and '.join(held)}{note}")
    return None


def _held_fields(
    reading: ProcessReading,
    host_files: Mapping[FileIdentity, str],
    protection: UserProtection,
) -> dict[str, bool]:
    held: dict[str, bool] = {}
    if protection.exe:
        path = _host_path(reading, host_files)
        names = (path, known_or_none(reading.exe)) if path is not None else ()
        held["exe"] = any(name is not None and fnmatchcase(name, protection.exe) for name in names)
    if protection.unit:
        workload = reading.workload
        held["unit"] = workload.trusted and fnmatchcase(workload.unit, protection.unit)
    if protection.uids:
        held["uid"] = all(any(low <= uid <= high for low, high in protection.uids) for uid in reading.uids)
    return held


def _bears(comm: str, file_name: str, name: str) -> bool:
    return fnmatchcase(comm, name) or comm == name[:_COMM_BYTES] or fnmatchcase(file_name, name)
