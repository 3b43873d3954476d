"""What a viewer reads of other users' processes: the program's name and "…" in place of the command line.

Command lines may hold secrets. Whatever has no uid beside it is hidden too: a new answer that forgets to
say whose it is shows too little, never too much.
"""

from collections.abc import Mapping

from reclaimerd.daemon.rows import Json

HIDDEN = "…"


def redacted(body: Mapping[str, object], uid: int | None) -> Json:
    """Return an answer as the viewer with this uid may read it."""
    return _redacted_object(body, uid)


def _redacted(value: object, uid: int | None) -> object:
    match value:
        case Mapping():
            return _redacted_object(value, uid)
        case list() | tuple():
            return [_redacted(one, uid) for one in value]
        case _:
            return value


def _redacted_object(row: Mapping[str, object], uid: int | None) -> Json:
    told = {key: _redacted(value, uid) for key, value in row.items()}
    if _is_own(row, uid):
        return told
    if isinstance(row.get("command"), str):
        told["command"] = _program_of(row)
    if isinstance(row.get("target"), str) and row.get("subject", "process") == "process":
        told["target"] = HIDDEN
    return told


def _is_own(row: Mapping[str, object], uid: int | None) -> bool:
    uids = row.get("uids", [row.get("uid")])
    return uid is not None and isinstance(uids, list | tuple) and set(uids) == {uid}


def _program_of(row: Mapping[str, object]) -> str:
    """Return the program's name as the kernel has it, or the last part of its path."""
    name = row.get("comm") or str(row.get("exe") or "").rpartition("/")[2]
    return f"{name} {HIDDEN}" if name else HIDDEN
