"""What a drain request says outside this host: one JSON body, and one line. No command line is in it."""

import json
from datetime import UTC, datetime
from enum import StrEnum

from reclaimerd.model.drain import DrainRequest

SCHEMA = 2
"""2: `id`, `code`, `since`, `tried`, `mend` and `pod` came to be; nothing of 1 changed its meaning."""
MOST_LINE = 200
"""Characters of the one line: longer reasons are cut by the schedulers that show them."""


class Action(StrEnum):
    """What a target is told to do with a request."""

    REQUEST = "request"
    WITHDRAW = "withdraw"
    STATUS = "status"


def request_body(request: DrainRequest) -> dict[str, object]:
    """Return the request as plain JSON; times RFC 3339 in UTC."""
    pod = None
    if request.pod is not None:
        namespace, name, uid = request.pod
        pod = {"namespace": namespace, "name": name, "uid": uid}
    return {
        "schema": SCHEMA,
        "id": request.id,
        "host": request.host,
        "incident": request.incident,
        "code": request.code.value,
        "reason": request.reason,
        "gpus": list(request.gpus),
        "pids": list(request.pids),
        "evidence": list(request.evidence),
        "since": None if request.since_at is None else _rfc3339(request.since_at),
        "tried": list(request.tried),
        "mend": request.mend,
        "pod": pod,
        "asked_at": _rfc3339(request.asked_at),
        "runbook": request.runbook,
    }


def request_bytes(request: DrainRequest) -> bytes:
    """Return the body as it is written to a file, which says itself what it is."""
    return _bytes_of(request_body(request))


def action_bytes(action: Action, request: DrainRequest) -> bytes:
    """Return the body as it is sent: the same, with the key `action` before it."""
    return _bytes_of({"action": action.value, **request_body(request)})


def request_line(request: DrainRequest) -> str:
    """Return the request in one line of printable ASCII, for schedulers that have room for no more.

    It begins with `reclaimerd: ` and carries the id, by which it is known again as ours.
    """
    pids = ",".join(map(str, request.pids[:4])) or "-"
    gpus = ",".join(uuid[:12] for uuid in request.gpus[:4]) or "-"
    line = f"reclaimerd: {request.code} id={request.id} gpu={gpus} pids={pids}"
    return line.encode("ascii", "replace").decode()[:MOST_LINE]


def _bytes_of(body: dict[str, object]) -> bytes:
    return (json.dumps(body, indent=2, ensure_ascii=True) + "\n").encode()


def _rfc3339(wall: float) -> str:
    text = datetime.fromtimestamp(wall, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
