"""Say whether a GPU came back from its reset as it must; any doubt is a fault by name, never "done"."""

from typing import assert_never

from reclaimerd.judge.proof import tolerance_bytes
from reclaimerd.judge.reset_holders import is_gone
from reclaimerd.judge.standing_xids import address_of
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_run import GpuBefore, ResetRun
from reclaimerd.model.snapshot import GpuReading, RecoveryAction, Snapshot


def verified(run: ResetRun, snapshot: Snapshot, ledger: Ledger) -> tuple[str, ...]:
    """Return what is not as it must be after the reset; nothing at all means verified."""
    texts = [*_look_faults(snapshot), *_kernel_log_faults(run, snapshot)]
    if {before.uuid for before in run.before} != set(run.gpus) or not run.gpus:
        texts.append("what the GPUs were before is not known for each of them")
    for before in run.before:
        gpu = snapshot.gpu(before.uuid)
        if gpu is None:
            texts.append(f"{before.uuid} did not come back under its UUID")
            continue
        found = (
            *_presence(gpu, snapshot),
            *_memory(before, gpu),
            *_nobody(gpu, snapshot),
            *_action(gpu),
            *_xids(gpu, run, snapshot, ledger),
            *_counters(before, snapshot),
        )
        texts += [f"{before.uuid}: {text}" for text in found]
    return tuple(dict.fromkeys(texts))


def _look_faults(snapshot: Snapshot) -> tuple[str, ...]:
    texts = [] if snapshot.scan.full_now else ["this look has no full scan of all descriptors"]
    texts += [f"the scan skipped {what}" for what in snapshot.scan.skipped]
    texts += [f"pid {pid} can't be read: {why}" for pid, why in sorted(snapshot.unreadable.items())]
    return tuple(texts)


def _kernel_log_faults(run: ResetRun, snapshot: Snapshot) -> tuple[str, ...]:
    """Return why new Xids can't be told from old ones."""
    news = snapshot.kernel_news
    if news.gap:
        return (f"the kernel log has a gap, so Xids may have been missed: {news.gap}",)
    if news.more:
        return ("the kernel's log is not read to its end yet",)
    if run.kernel_seq is None and (news.last_seq is not None or news.xids):
        return ("where the kernel log stood before the reset is not known",)
    return ()


def _presence(gpu: GpuReading, snapshot: Snapshot) -> tuple[str, ...]:
    facts = snapshot.reset_facts
    if facts is None or not isinstance(facts.kernel, Known):
        return ("whether its PCI device is there was not read",)
    if address_of(gpu.pci_address) in {address_of(present) for present in facts.kernel.value.present}:
        return ()
    return (f"its PCI device {gpu.pci_address} is not there, or the driver is not bound to it",)


def _memory(before: GpuBefore, gpu: GpuReading) -> tuple[str, ...]:
    if not isinstance(gpu.memory, Known):
        return (f"its memory can't be measured: {gpu.memory.why}",)
    baseline = 0 if before.baseline_bytes is None else before.baseline_bytes
    most = baseline + tolerance_bytes(gpu.memory.value.total_bytes)
    used = gpu.memory.value.used_bytes
    return () if used <= most else (f"{used} bytes are in use with nobody on it, more than {most}",)


def _nobody(gpu: GpuReading, snapshot: Snapshot) -> tuple[str, ...]:
    if not isinstance(gpu.processes, Known):
        return (f"its process list can't be read: {gpu.processes.why}",)
    living = {holder.ref.pid for holder in snapshot.holders_of(gpu.uuid) if not is_gone(holder.ref, snapshot)}
    pids = sorted(living | {row.pid for row in gpu.processes.value})
    return (f"somebody holds it: pid {', '.join(map(str, pids))}",) if pids else ()


def _action(gpu: GpuReading) -> tuple[str, ...]:
    match gpu.recovery_action:
        case Known(value=RecoveryAction.NONE) | Absent():
            return ()
        case Known(value=action):
            return (f"the driver asks for {action}",)
        case Unreadable(why=why):
            return (f"its recovery action can't be read: {why}",)
        case _:
            assert_never(gpu.recovery_action)


def _xids(gpu: GpuReading, run: ResetRun, snapshot: Snapshot, ledger: Ledger) -> tuple[str, ...]:
    """Return the Xids since the tool ran; before the log was ever read their time decides."""
    since, began = run.kernel_seq, run.began_at if run.tool_at is None else run.tool_at
    standing = {
        xid.code
        for xid in ledger.xids
        if xid.gpu == gpu.uuid
        and xid.boot_id == snapshot.boot_id
        and (xid.at >= began if since is None else xid.seq > since)
    }
    fresh = {
        line.code
        for line in snapshot.kernel_news.xids
        if address_of(line.pci) == address_of(gpu.pci_address) and (since is None or line.seq > since)
    }
    return tuple(f"the kernel log has a new Xid {code}" for code in sorted(standing | fresh))


def _counters(before: GpuBefore, snapshot: Snapshot) -> tuple[str, ...]:
    facts = None if snapshot.reset_facts is None else snapshot.reset_facts.gpu(before.uuid)
    if facts is None:
        return ("its error counters were not read",)
    after = facts.counters
    found = (
        _worse("uncorrected ECC errors", before.uncorrected_ecc, after.uncorrected_ecc),
        _worse("remapped rows", before.remapped_rows, after.remapped_rows),
        _worse("failed row remaps", before.remap_failed, after.remap_failed),
    )
    return tuple(text for text in found if text)


def _worse(name: str, before: int | None, after: Reading[int] | Reading[bool]) -> str:
    match after:
        case Absent():
            return ""
        case Unreadable(why=why):
            return f"its {name} can't be compared: {why}"
        case Known(value=value):
            if before is None:
                return f"its {name} can't be compared: they were not read before the reset"
            return f"its {name} rose from {int(before)} to {int(value)}" if value > before else ""
        case _:
            assert_never(after)
