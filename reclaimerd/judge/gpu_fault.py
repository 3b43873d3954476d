"""Say what ails a GPU: the gravest of the driver's recovery action, the standing Xids, and its presence.

A lost GPU still reads "reset me", so no source is believed alone. An action that was read while a task
is blocked inside the driver is unknown, and unknown never leads to an automatic reset.
"""

from typing import assert_never

from reclaimerd.judge.driver_blocks import driver_blocks
from reclaimerd.judge.standing_xids import address_of
from reclaimerd.model.fault import FaultClass, FaultSource, GpuFault
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import GpuReading, RecoveryAction, Snapshot

Source = tuple[FaultSource, FaultClass, str]

ACTIONS = {
    RecoveryAction.NONE: FaultClass.NONE,
    RecoveryAction.GPU_RESET: FaultClass.RESET,
    RecoveryAction.DRAIN_AND_RESET: FaultClass.DRAIN_AND_RESET,
    RecoveryAction.UNKNOWN: FaultClass.UNKNOWN,
    RecoveryAction.DRAIN_P2P: FaultClass.OTHER,
    RecoveryAction.RECOVER_IMEX_DOMAIN: FaultClass.OTHER,
    RecoveryAction.NODE_REBOOT: FaultClass.REBOOT,
    RecoveryAction.BUS_RESET: FaultClass.REBOOT,
    RecoveryAction.SYSTEM_REBOOT: FaultClass.REBOOT,
}
"""What each word of NVML field 230 asks for."""

_LOST_WORDS = ("gpu is lost", "fallen off the bus", "fell off the bus")
"""NVML error 15 (GPU_IS_LOST), and the kernel log's words for the same."""


def fault_of(uuid: GpuUuid, snapshot: Snapshot, ledger: Ledger) -> GpuFault:
    """Return what ails one GPU by every source, the gravest first; a GPU that was not seen is unknown."""
    sources = (
        *_by_device(uuid, snapshot),
        *_by_action(uuid, snapshot),
        *_by_xids(uuid, snapshot, ledger),
    )
    ordered = tuple(sorted(sources, key=lambda source: -source[1]))
    if not ordered:
        return GpuFault(uuid, FaultClass.NONE)
    return GpuFault(uuid, ordered[0][1], ordered[0][2], ordered)


def _by_device(uuid: GpuUuid, snapshot: Snapshot) -> tuple[Source, ...]:
    gpu = snapshot.gpu(uuid)
    if gpu is None:
        return ((FaultSource.DEVICE, FaultClass.UNKNOWN, "no GPU with this UUID was seen"),)
    texts = [f"the driver says: {why}" for why in _lost_texts(gpu)]
    facts = snapshot.reset_facts
    if facts is not None and isinstance(facts.kernel, Known):
        address = address_of(gpu.pci_address)
        if address in {address_of(missing) for missing in facts.kernel.value.missing}:
            texts.append(f"its PCI device {address} is gone")
        elif address not in {address_of(present) for present in facts.kernel.value.present}:
            text = f"the driver is not bound to its PCI device {address}"
            return (*_lost(texts), (FaultSource.DEVICE, FaultClass.UNKNOWN, text))
    return _lost(texts)


def _lost(texts: list[str]) -> tuple[Source, ...]:
    return tuple((FaultSource.DEVICE, FaultClass.LOST, text) for text in dict.fromkeys(texts))


def _lost_texts(gpu: GpuReading) -> tuple[str, ...]:
    readings: tuple[Reading[object], ...] = (
        gpu.memory,
        gpu.processes,
        gpu.utilisation,
        gpu.mig,
        gpu.persistence,
        gpu.recovery_action,
    )
    return tuple(
        reading.why
        for reading in readings
        if isinstance(reading, Unreadable) and any(word in reading.why.lower() for word in _LOST_WORDS)
    )


def _by_action(uuid: GpuUuid, snapshot: Snapshot) -> tuple[Source, ...]:
    gpu = snapshot.gpu(uuid)
    if gpu is None:
        return ()
    match gpu.recovery_action:
        case Absent():
            return ()
        case Unreadable(why=why):
            fault, text = FaultClass.UNKNOWN, f"the recovery action can't be read: {why}"
        case Known(value=action):
            fault, text = ACTIONS[action], f"the driver asks for {action}"
            blocks = driver_blocks(snapshot)
            if blocks:
                fault = FaultClass.UNKNOWN
                text = f"the recovery action was read while pid {blocks[0].ref.pid} is blocked in the driver"
        case _:
            assert_never(gpu.recovery_action)
    return ((FaultSource.RECOVERY_ACTION, fault, text),) if fault is not FaultClass.NONE else ()


def _by_xids(uuid: GpuUuid, snapshot: Snapshot, ledger: Ledger) -> tuple[Source, ...]:
    return tuple(
        (
            FaultSource.XID,
            xid.fault,
            f"Xid {xid.code} ({xid.fault.word}), {xid.count} in this boot, the last record {xid.seq}",
        )
        for xid in ledger.xids
        if xid.gpu == uuid and xid.boot_id == snapshot.boot_id
    )
