"""This node's drain request as `status` and the calls about it show it."""

from reclaimerd.daemon.rows import Json
from reclaimerd.model.drain import NodeDrain


def drain_row(drain: NodeDrain | None) -> Json | None:
    """Return this node's request as people and programs read it; None where there is none."""
    if drain is None:
        return None
    request = drain.request
    return {
        "id": drain.id,
        "phase": drain.phase.value,
        "since": drain.began_at,
        "code": request.code.value,
        "reason": request.reason,
        "mend": request.mend,
        "gpus": list(request.gpus),
        "slot": drain.slot,
        "has_slot": drain.has_slot,
        "incidents": [
            {
                "id": one.incident,
                "at": one.at,
                "reason": one.reason,
                "well_at": one.well_at,
                "by_hand": one.by_hand,
            }
            for one in drain.joined
        ],
        "targets": [
            {
                "name": ask.target,
                "state": ask.state.value,
                "text": ask.text,
                "tries": ask.tries,
                "at": ask.at,
                "retry_at": ask.retry_at,
            }
            for ask in drain.asks
        ],
        "withdrawal": None
        if drain.withdrawal is None
        else {"by": drain.withdrawal.by, "reason": drain.withdrawal.why, "at": drain.withdrawal.at},
    }
