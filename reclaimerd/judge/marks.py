"""Say whether an owner's own mark spares a process: only where the administrator listed its owner.

A mark binds rules and never an operator. One that does not count is no reason for anything. Pure.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import assert_never

from reclaimerd.model.policy import OwnerMarks
from reclaimerd.model.process import ProcessReading, WorkloadKind, WorkloadNames

OWNER = "owner's mark"
_MOST_TEXT = 80


def mark_of(reading: ProcessReading, marks: OwnerMarks, user_ids: Mapping[str, int]) -> str:
    """Return the mark that spares this process, in words; "" where none counts."""
    workload = reading.workload
    names = workload.names
    if names is None or not names.spare_mark or not workload.trusted:
        return ""
    match workload.kind:
        case WorkloadKind.POD:
            return _of_namespace(names, marks)
        case WorkloadKind.UNIT:
            return _of_user(names, reading.uids[0], marks, user_ids)
        case (
            WorkloadKind.CONTAINER
            | WorkloadKind.SLURM_JOB
            | WorkloadKind.NOMAD
            | WorkloadKind.MACHINE
            | WorkloadKind.SESSION
            | WorkloadKind.NONE
        ):
            return ""
        case _:
            assert_never(workload.kind)


def mark_doubt(reading: ProcessReading, marks: OwnerMarks, user_ids: Mapping[str, int]) -> str:
    """Return why its owner may have asked to be spared, where a mark would count; "" where that is known.

    After a restart of ours, with the cluster or systemd away, nobody has said yet that there is none.
    """
    workload = reading.workload
    names = workload.names or WorkloadNames()
    if names.mark_known or names.spare_mark or not workload.trusted:
        return ""
    if workload.kind is WorkloadKind.POD and marks.namespaces:
        if names.namespace is None or _is_listed(names.namespace, marks):
            return "its owner may have asked to be spared: its pod's annotations are not known"
    elif workload.kind is WorkloadKind.UNIT and _user_of(reading.uids[0], marks, user_ids) is not None:
        return "its owner may have asked to be spared: what systemd says of its unit is not known"
    return ""


def _is_listed(namespace: str, marks: OwnerMarks) -> bool:
    return any(fnmatchcase(namespace, glob) for glob in marks.namespaces)


def _user_of(uid: int, marks: OwnerMarks, user_ids: Mapping[str, int]) -> str | None:
    return next((user for user in marks.users if user_ids.get(user) == uid), None)


def _of_namespace(names: WorkloadNames, marks: OwnerMarks) -> str:
    namespace = names.namespace
    if namespace is None or not _is_listed(namespace, marks):
        return ""
    return f"{OWNER}: {_shown(names.spare_mark)} (pods of namespace {namespace} may set it)"


def _of_user(names: WorkloadNames, uid: int, marks: OwnerMarks, user_ids: Mapping[str, int]) -> str:
    user = _user_of(uid, marks, user_ids)
    if user is None:
        return ""
    return f"{OWNER}: {_shown(names.spare_mark)} (units of user {user} may set it)"


def _shown(mark: str) -> str:
    """Return what an owner wrote as one short line."""
    line = "".join(one if one.isprintable() else "?" for one in mark)
    return line if len(line) <= _MOST_TEXT else f"{line[:_MOST_TEXT]}…"
