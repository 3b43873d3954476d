"""Decide from one snapshot whether a target is gone and its GPU memory back.

RECLAIMED needs all of it: the last thread of every process gone, no heir left, NVML lists none of
its pids, and the memory figure adds up. A fall in used memory alone is never proof.
"""

from dataclasses import dataclass

from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Incident, Proof, ProofKind
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import (
    GpuProcess,
    GpuReading,
    Holder,
    Snapshot,
)

SECOND_LOOK_SECONDS = 0.2
"""A shared GPU's memory must add up twice, this far apart: its other users allocate meanwhile."""
TOLERANCE_BYTES = 64 * 1024 * 1024
TOLERANCE_SHARE = 0.005
BUSY_PERCENT = 100
"""What a death in mid-kernel may leave as the reading of an idle GPU, for days (seen on Blackwell)."""


@dataclass(frozen=True, slots=True)
class Proven:
    """Gone, and the memory is back; `shared` needs a second reading that agrees."""

    proof: Proof


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Gone, and the memory can't be measured: at the end UNVERIFIED, never RECLAIMED."""

    proof: Proof


@dataclass(frozen=True, slots=True)
class StillHeld:
    """Something of it is left, or the memory has not come back."""

    why: str


Finding = Proven | Unmeasured | StillHeld


def tolerance_bytes(total_bytes: int) -> int:
    """Return how far a residual may lie above zero: 64 MiB or 0.5 % of the GPU, whichever is more."""
    return max(TOLERANCE_BYTES, int(total_bytes * TOLERANCE_SHARE))


def finding_of(incident: Incident, snapshot: Snapshot) -> Finding:
    """Return what the snapshot proves of the incident's target and its memory."""
    alive = [ref for ref in incident.processes if ref not in snapshot.exited]
    if alive:
        return StillHeld(f"{len(alive)} of {len(incident.processes)} processes not gone")
    heirs = heirs_of(incident, snapshot)
    if heirs:
        named = ", ".join(str(heir.ref) for heir in heirs)
        return StillHeld(f"its context lives on in {named}")
    findings = [_gpu_finding(incident, uuid, snapshot) for uuid in incident.target.gpus]
    return _gravest(findings)


def memory_is_back(uuid: GpuUuid, snapshot: Snapshot) -> bool:
    """Tell whether a GPU can be read, and nothing is used of it that its processes don't account for."""
    gpu = snapshot.gpu(uuid)
    if gpu is None or not isinstance(gpu.processes, Known):
        return False
    return isinstance(_memory_finding(gpu, gpu.processes.value, snapshot), Proven)


def heirs_of(incident: Incident, snapshot: Snapshot) -> tuple[Holder, ...]:
    """Return living holders that inherited the context of a process of this incident."""
    ours = set(incident.processes)
    return tuple(holder for holder in snapshot.holders if holder.heir_of in ours and holder.ref not in ours)


def _gravest(findings: list[Finding]) -> Finding:
    held = [finding for finding in findings if isinstance(finding, StillHeld)]
    if held:
        return StillHeld("; ".join(finding.why for finding in held))
    proofs = [finding.proof for finding in findings if not isinstance(finding, StillHeld)]
    residuals = tuple(pair for proof in proofs for pair in proof.residual_bytes)
    text = "; ".join(proof.text for proof in proofs) or "it held no GPU that is known"
    kinds = {proof.kind for proof in proofs}
    if not proofs or ProofKind.RELEASED_UNMEASURED in kinds:
        return Unmeasured(Proof(ProofKind.RELEASED_UNMEASURED, text, residuals))
    kind = ProofKind.SHARED if ProofKind.SHARED in kinds else ProofKind.EXCLUSIVE
    return Proven(Proof(kind, text, residuals))


def _unmeasured(text: str) -> Unmeasured:
    return Unmeasured(Proof(ProofKind.RELEASED_UNMEASURED, text))


def _gpu_finding(incident: Incident, uuid: GpuUuid, snapshot: Snapshot) -> Finding:
    gpu = snapshot.gpu(uuid)
    if gpu is None:
        return _unmeasured(f"{uuid} is not there to be read")
    if not isinstance(gpu.processes, Known):
        return _unmeasured(f"{uuid}: its process list can't be read ({gpu.processes.why})")
    pids = {ref.pid for ref in incident.processes} - _strangers_pids(incident, uuid, snapshot)
    listed = sorted({row.pid for row in gpu.processes.value} & pids)
    if listed:
        return StillHeld(f"{uuid}: NVML still lists {', '.join(map(str, listed))}")
    return _memory_finding(gpu, gpu.processes.value, snapshot)


def _strangers_pids(incident: Incident, uuid: GpuUuid, snapshot: Snapshot) -> set[int]:
    """Return the pids that strangers have now who hold this GPU by its node: such a row is theirs.

    A stranger that got the pid and has no node proves nothing: NVML names the dead target for as long
    as its context lives on in somebody else.
    """
    return {
        holder.ref.pid
        for holder in snapshot.holders_of(uuid)
        if holder.node and holder.ref not in incident.processes
    }


def _memory_finding(gpu: GpuReading, rows: tuple[GpuProcess, ...], snapshot: Snapshot) -> Finding:
    if not isinstance(gpu.memory, Known):
        return _unmeasured(f"{gpu.uuid}: its memory can't be read ({gpu.memory.why})")
    memory = gpu.memory.value
    baseline = snapshot.baselines.get(gpu.uuid, 0)
    others = _others_bytes(rows)
    shared = bool(snapshot.holders_of(gpu.uuid)) or others != 0
    if others is None:
        return _unmeasured(f"{gpu.uuid}: another process's memory can't be read")
    if others - memory.used_bytes > max(tolerance_bytes(memory.total_bytes), memory.used_bytes // 20):
        # Memory that is counted twice would hide what the target left behind.
        return _unmeasured(f"{gpu.uuid}: its processes account for more than is used")
    residual = memory.used_bytes - others - baseline
    if residual <= tolerance_bytes(memory.total_bytes):
        kind = ProofKind.SHARED if shared else ProofKind.EXCLUSIVE
        text = f"{gpu.uuid}: {residual} bytes over what others hold{'' if shared else _latch(gpu)}"
        return Proven(Proof(kind, text, ((gpu.uuid, residual),)))
    # Who only has a node open (a monitor, say) has no context that could account for so much.
    if rows:
        return Unmeasured(
            Proof(
                ProofKind.RELEASED_UNMEASURED,
                f"{gpu.uuid}: {residual} bytes more than its other users account for",
                ((gpu.uuid, residual),),
            ),
        )
    return StillHeld(f"{gpu.uuid}: {residual} bytes are still used and no context accounts for them")


def _latch(gpu: GpuReading) -> str:
    """Return what a GPU that nobody holds and that reads fully busy means, "" for any other."""
    use = gpu.utilisation
    if not isinstance(use, Known) or use.value.gpu_percent < BUSY_PERCENT:
        return ""
    return (
        f", and it reads {use.value.gpu_percent} % busy with nobody on it: where that stays, its end left "
        "a counter latched, which the next context clears; no cause for a reset"
    )


def _others_bytes(rows: tuple[GpuProcess, ...]) -> int | None:
    total = 0
    for row in rows:
        if not isinstance(row.used_bytes, Known):
            return None
        total += row.used_bytes.value
    return total
