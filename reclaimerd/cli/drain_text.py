"""This node's drain request for people."""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import moment_text

_PHASES = {
    "slot": "waits for its place in the fleet since",
    "ask": "is being made since",
    "withdraw": "is being taken back; made",
}
"""The phases that a word alone does not tell."""


def drain_lines(drain: Json | None) -> Iterator[str]:
    """Yield this node's drain request: what it is for, how far it is, and each target."""
    if not drain:
        return
    phase = _PHASES.get(str(drain.get("phase")), f"{drain.get('phase')} since")
    yield f"drain request {drain.get('id')}: {phase} {moment_text(drain.get('since'))}"
    yield f"  {drain.get('reason')}"
    if back := drain.get("withdrawal"):
        yield f"  taken back by {back.get('by')} {moment_text(back.get('at'))}: {back.get('reason') or '-'}"
    else:
        yield f"  {drain.get('mend')}"
    for one in drain.get("incidents") or ():
        if one.get("by_hand") and one.get("reason") != drain.get("reason"):
            yield f"  {one['reason']}"
    if drain.get("slot"):
        yield f"  place in the fleet: {drain['slot']}"
    for one in drain.get("targets") or ():
        again = f", again {moment_text(one['retry_at'])}" if one.get("retry_at") else ""
        yield f"  {one.get('name')}: {one.get('state')}{again}: {one.get('text') or 'not asked yet'}"
