"""The text of a drain request, for whoever is paged: what is stuck where, what was tried, what to do.

No command line and no name of a person's program is in it.
"""

from reclaimerd.daemon.opening import Moment
from reclaimerd.judge.exit_path import state_word
from reclaimerd.model.drain import DrainCode, DrainReason, DrainRequest
from reclaimerd.model.incident import Attempt, Incident
from reclaimerd.model.process import WorkloadKind
from reclaimerd.model.snapshot import Snapshot

RUNBOOK = "docs/runbooks/drain_requested.md"
_REBOOT = "move the work away, then reboot the node: nothing on the host can take the GPU back"
MENDS = {
    DrainCode.STUCK_EXIT: _REBOOT,
    DrainCode.DRIVER_UNRESPONSIVE: _REBOOT,
    DrainCode.GPU_LOST: "move the work away, then power-cycle the node; replace a GPU that stays lost",
    DrainCode.RECOVERY_ACTION: "move the work away, then reboot the node, as the driver asks",
    DrainCode.BY_HAND: "move the work away; who asked for it says in the reason what follows",
    DrainCode.RESET_FAILED: "move the work away, then reboot the node: the GPU's reset did not bring it back",
}
"""What the person who is paged should do."""
_MOST_EVIDENCE = 16
_MOST_TEXT = 400


def request_of(
    incident: Incident, reason: DrainReason, snapshot: Snapshot, host: str, now: Moment
) -> DrainRequest:
    """Return what is asked for an incident whose reason stands."""
    return DrainRequest(
        host=host,
        incident=incident.id,
        code=reason.code,
        reason=reason.text,
        gpus=incident.target.gpus,
        pids=tuple(ref.pid for ref in incident.processes),
        evidence=_evidence(incident, snapshot),
        asked_at=now.wall,
        runbook=RUNBOOK,
        since_at=incident.opened_at,
        tried=tuple(
            _tried(attempt, incident) for attempt in incident.attempts if attempt.outcome is not None
        ),
        mend=MENDS[reason.code],
        pod=_pod(incident),
    )


def _evidence(incident: Incident, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what was seen of its processes, a line each: where in the kernel, or in which state."""
    lines: list[str] = []
    for ref in incident.processes:
        plight = snapshot.plights.get(ref)
        reading = snapshot.process(ref)
        if plight is not None:
            lines.append(f"pid {ref.pid}: {plight.text}"[:_MOST_TEXT])
        elif reading is not None:
            lines.append(f"pid {ref.pid}: {state_word(reading)}")
    return tuple(lines[:_MOST_EVIDENCE])


def _tried(attempt: Attempt, incident: Incident) -> str:
    after = attempt.intent_at - incident.opened_at
    outcome = attempt.outcome
    word = "" if outcome is None else outcome.kind.value.replace("_", " ")
    return f"{attempt.stage} after {after:.0f} s: {word}"


def _pod(incident: Incident) -> tuple[str, str, str] | None:
    workload = incident.target.workload
    names = workload.names
    if workload.kind is not WorkloadKind.POD or not workload.trusted or names is None:
        return None
    if not (names.namespace and names.pod and names.pod_uid):
        return None
    return (names.namespace, names.pod, names.pod_uid)
