"""The calls about one process: the last look's view of it, else a fresh look's, else why there is none.

"There is no process" is said only where a fresh look went for it and did not find it.
"""

import re
from collections.abc import Callable

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.views import driver_view
from reclaimerd.errors import ExitCode
from reclaimerd.model.snapshot import DriverState

LOOK_SECONDS = 12.0
"""A fresh look: `answer_within` once for each worker, and a margin."""
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


async def process_call(service: Service, call: Call, view_of: Callable[[Cycle, int], Json | None]) -> Answer:
    """Return what `view_of` makes of the process that the path names."""
    text = call.path.rpartition("/")[2]
    if not _NUMBER.fullmatch(text):
        return refusal(400, f"{text[:64]!r} is no pid", "give a number", ExitCode.USAGE)
    pid, cycle = int(text), service.cycle
    view = view_of(cycle, pid)
    if view is not None:
        return Answer(200, view)
    came = await service.look(pids=(pid,), seconds=LOOK_SECONDS)
    view = view_of(cycle, pid)
    return Answer(200, view) if view is not None else _nothing_of(cycle, pid, came=came)


def _nothing_of(cycle: Cycle, pid: int, *, came: bool) -> Answer:
    """Return why nothing can be told of a process; `came` says that a fresh look went for it."""
    snapshot = cycle.state.snapshot
    if snapshot is None or not came:
        text = f"no fresh look came within {LOOK_SECONDS:g} s: whether there is a process {pid} is not known"
        return refusal(409, text, _mend(cycle, pid, "status"), ExitCode.REFUSED)
    if pid in snapshot.unreadable:
        text = f"pid {pid} can't be read: {snapshot.unreadable[pid]}"
        return refusal(409, text, _mend(cycle, pid), ExitCode.REFUSED)
    text = f"there is no process {pid}"
    if pid in snapshot.processes:
        text = f"pid {pid} holds no GPU that can be seen"
        if snapshot.driver.state is not DriverState.RESPONSIVE:
            text += f"; {driver_view(snapshot.driver, snapshot.at)['text']}"
    return refusal(404, text, _mend(cycle, pid), ExitCode.NO_TARGET)


def _mend(cycle: Cycle, pid: int, command: str = "ps") -> str:
    incidents = cycle.state.incidents.values()
    about = next((one for one in incidents if any(ref.pid == pid for ref in one.processes)), None)
    return f"see reclaimctl {command if about is None else f'incidents show {about.id}'}"
