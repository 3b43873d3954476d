"""What the review's tests share: a log with the records of several incidents, hostile names among them."""

from dataclasses import replace
from pathlib import Path

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import (
    Actor,
    ActorKind,
    Outcome,
    OutcomeKind,
    Proof,
    ProofKind,
    Target,
    TargetOutcome,
)
from reclaimerd.model.step import GateAnswer, Reason, ReasonKind
from reclaimerd.record.audit import Audit
from tests.builders import BOOT, MONO, WALL, a_target
from tests.record.log_rig import Log

GPU_A = GpuUuid("GPU-aaaaaaaa-0000-4000-8000-000000000000")
GPU_B = GpuUuid("GPU-bbbbbbbb-0000-4000-8000-000000000000")
HOSTILE = 'python\x1b[2J\n4243, forged,"x"\u202eexe\u200b\udcff =cmd|calc'
"""C83: escapes, a line end, commas and quotes, bidirectional and invisible marks, a byte that is no UTF-8."""


def target_of(pid: int, uid: int, gpu: GpuUuid) -> Target:
    """Return a target with one hostile command line."""
    ref = ProcessRef(BOOT, pid, pid * 10)
    return replace(a_target(), root=ref, members=(ref,), gpus=(gpu,), uid=uid, command=HOSTILE)


def story_of(number: int, *, rule: str = "leak", end: str = "reclaimed") -> list[tuple[float, AuditEntry]]:
    """Return the records of one incident with seconds from its beginning: opened, refused, killed, ended."""
    incident, gpu = IncidentId(f"inc-{number}"), GPU_A if number % 2 else GPU_B
    target = target_of(100 + number, 1000 + number % 3, gpu)
    entry = AuditEntry(
        RecordKind.NOTE, incident=incident, actor=Actor(ActorKind.RULE, rule, "d" * 64), target=target
    )
    refusal = Reason(ReasonKind.PAUSED, "acts are paused", "reclaimctl resume", (target.root,), gpu)
    sent = Outcome(OutcomeKind.SENT, "", (TargetOutcome(target.root, OutcomeKind.SENT, "signal 9"),))
    attempt = AttemptId(f"try-{number}")
    proof = Proof(ProofKind.EXCLUSIVE, "gone, and its memory is back", ((gpu, 0),))
    opened = replace(entry, kind=RecordKind.INCIDENT_OPENED, evidence=("seen twice",))
    return [
        (0, replace(opened, reason="it leaks 3 MiB/s")),
        (1, replace(entry, kind=RecordKind.REFUSED, action="sigterm", refusals=(refusal,))),
        (2, replace(entry, kind=RecordKind.INTENT, attempt=attempt, action="sigkill",
                    gates=(GateAnswer("mode", "enforce"),), reason="it leaks 3 MiB/s")),
        (3, replace(entry, kind=RecordKind.OUTCOME, attempt=attempt, action="sigkill", outcome=sent)),
        (4 + number, replace(entry, kind=RecordKind.INCIDENT_ENDED, end=end, proof=proof, reason="proven")),
    ]  # fmt: skip


def write_stories(log: Log, count: int) -> None:
    """Write so many incidents, an hour apart, and a record of no incident at the end."""
    audit = log.open()
    for number in range(1, count + 1):
        for seconds, entry in story_of(number):
            audit.append([entry], wall=WALL + 3600 * number + seconds, mono=MONO)
    operator = Actor(ActorKind.OPERATOR, "ana", uid=0, loginuid=1001, pid=77)
    text = f"{GPU_A}: Xid 79 (gpu_lost): GPU has fallen off the bus."
    audit.append([AuditEntry(RecordKind.XID, reason=text)], wall=WALL + 3600 * count + 60, mono=MONO)
    entry = AuditEntry(RecordKind.PAUSED, actor=operator, reason="Wartung: Übergabe")
    audit.append([entry], wall=WALL + 3600 * count + 61, mono=MONO)
    audit.close()


def stories(directory: Path, count: int = 12) -> Log:
    """Return a log of so many incidents over several files."""
    log = Log(directory, file_bytes=20_000)
    write_stories(log, count)
    return log


def append(log: Log, *entries: AuditEntry, wall: float = WALL) -> None:
    """Append more records."""
    audit: Audit = log.open()
    audit.append(list(entries), wall=wall, mono=MONO)
    audit.close()
