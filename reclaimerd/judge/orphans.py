"""Say of a process whether it outlived the login session that it stems from: a sign, and no proof. Pure."""

import re
from collections.abc import Sequence

from reclaimerd.judge.conditions import Condition, DoesNotHold, Holds
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Holder, Snapshot

FIRST_UID = 1000
"""Lower ones are the system's (login.defs(5), UID_MIN)."""
NOBODY_UID = 65534
_SESSION = re.compile(r"/user\.slice/user-\d+\.slice/session-[^/]+\.scope", re.ASCII)
_INIT = 1


def is_ordinary(reading: ProcessReading) -> bool:
    """Tell whether all its uids are of ordinary users: neither root's nor a system account's among them."""
    return all(uid >= FIRST_UID and uid != NOBODY_UID for uid in reading.uids)


def orphan_condition(reading: ProcessReading, rows: Sequence[Holder], snapshot: Snapshot) -> Condition:
    """Return whether a process in a login session has lost all of its parents there.

    Whoever started it with setsid or nohup wanted that: the condition proves nothing against it.
    """
    if not rows:
        return DoesNotHold("the rule does not concern it")
    workload = reading.workload
    session = workload.kind is WorkloadKind.SESSION and workload.trusted and _SESSION.fullmatch(workload.path)
    if not session or not is_ordinary(reading):
        return DoesNotHold("it is in no login session of an ordinary user")
    if reading.ppid != _INIT and not _is_reaper(snapshot.processes.get(reading.ppid), reading):
        return DoesNotHold(f"its parent, pid {reading.ppid}, is there")
    text = f"is in {workload.name}, and its parent is gone (a sign that it was left behind, and no proof)"
    used = sum(row.used_bytes.value for row in rows if isinstance(row.used_bytes, Known))
    return Holds(text, tuple(row.gpu for row in rows), used)


def _is_reaper(parent: ProcessReading | None, reading: ProcessReading) -> bool:
    """Tell whether a parent that was seen is the user's own service manager: it adopts orphans."""
    return (
        parent is not None
        and parent.comm == "systemd"
        and parent.ppid == _INIT
        and parent.uids[0] == reading.uids[0]
    )
