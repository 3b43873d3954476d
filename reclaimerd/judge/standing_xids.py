"""Which Xids stand against which GPU; pure.

An Xid stands from its line on until a verified reset of that GPU, or the next boot. What a line says
beyond its head is text, with one exception: Xid 154 says which recovery action the driver asks for.
The pid in a line is never looked at: it is often that of one who only asked.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from reclaimerd.model.fault import FaultClass, StandingXid, XidEntry, XidLine
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import Snapshot

Catalogue = Mapping[int, XidEntry]
Addresses = Mapping[str, GpuUuid]
"""Which GPU is, or was last, at which PCI address (`0000:3b:00.0`)."""

ACTION_CHANGED = 154
FOLLOWS_ACTION = frozenset(range(144, 151))
"""NVLink faults whose line would have to be decoded: the driver's own recovery action says it better."""
_DOUBLE_BIT = 48
_RETIREMENT = frozenset({63, 64})
_UNPLACED = "PCI-"
_ACTION = re.compile(
    r"GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^()]{0,64}\) "
    r"to 0x(?P<number>[0-9a-fA-F]{1,8}) \((?P<words>[^()]{0,64})\)",
)
_BY_NUMBER = {
    0: FaultClass.NONE,
    1: FaultClass.RESET,
    2: FaultClass.REBOOT,
    3: FaultClass.OTHER,
    4: FaultClass.DRAIN_AND_RESET,
    5: FaultClass.OTHER,
    6: FaultClass.REBOOT,
    7: FaultClass.REBOOT,
}
_BY_WORDS = {
    "none": FaultClass.NONE,
    "gpu reset required": FaultClass.RESET,
    "node reboot required": FaultClass.REBOOT,
    "drain p2p": FaultClass.OTHER,
    "drain and reset": FaultClass.DRAIN_AND_RESET,
    "recover imex domain": FaultClass.OTHER,
}


def address_of(pci_address: str) -> str:
    """Return a PCI address in the kernel's form, whatever the width of its domain and the letters' case."""
    domain, _, rest = pci_address.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def addresses_of(snapshot: Snapshot, before: Addresses) -> Addresses:
    """Return where each GPU is; one that is gone from the look keeps the place where it was seen last."""
    return {**before, **{address_of(gpu.pci_address): gpu.uuid for gpu in snapshot.gpus}}


def unplaced(pci: str) -> GpuUuid:
    """Return the name that an Xid's GPU has until its UUID is known: no GPU's name begins so."""
    return GpuUuid(f"{_UNPLACED}{pci}")


def action_class(text: str) -> FaultClass:
    """Return what Xid 154 asks for, by its text; number and words must be known, the more severe counts.

    The driver writes it last in the line, and it is longer than any name that a process can have.
    """
    told = list(_ACTION.finditer(text))
    if not told:
        return FaultClass.UNKNOWN
    found = told[-1]
    number = _BY_NUMBER.get(int(found["number"], 16), FaultClass.UNKNOWN)
    words = _BY_WORDS.get(found["words"].strip().lower())
    if words is None:  # the driver's words for the newest actions are not published
        return max(number, FaultClass.UNKNOWN)
    return max(number, words)


def with_xids(
    ledger: Ledger,
    snapshot: Snapshot,
    catalogue: Catalogue,
    addresses: Addresses,
) -> tuple[Ledger, tuple[StandingXid, ...]]:
    """Return the ledger after this look's kernel news, and the Xids that are new or graver than before.

    Only lines of this boot after the last one read count. A line whose GPU nobody has seen yet waits
    under its address until it has.
    """
    boot_id = snapshot.boot_id
    read_to = ledger.kernel_seq if ledger.kernel_boot == boot_id else None
    before = _by_key(xid for xid in ledger.xids if xid.boot_id == boot_id)
    standing = _placed(before, addresses)
    known = dict(standing)
    for line in snapshot.kernel_news.xids:
        if read_to is None or line.seq > read_to:
            _add(standing, _standing(line, snapshot, catalogue, addresses))
    after = tuple(_in_context(xid, standing, snapshot) for xid in standing.values())
    kept = tuple(xid for xid in after if xid.fault is not FaultClass.NONE)
    newest = snapshot.kernel_news.last_seq
    return replace(
        ledger,
        xids=kept,
        kernel_seq=read_to if newest is None else newest,
        kernel_boot=boot_id,
    ), tuple(xid for xid in kept if _is_news(xid, known))


def without_xids(ledger: Ledger, gpus: Collection[GpuUuid]) -> Ledger:
    """Return the ledger after a verified reset of these GPUs: nothing stands against them any more."""
    return replace(ledger, xids=tuple(xid for xid in ledger.xids if xid.gpu not in gpus))


_Key = tuple[GpuUuid, int]


def _by_key(xids: Iterable[StandingXid]) -> dict[_Key, StandingXid]:
    return {(xid.gpu, xid.code): xid for xid in xids}


def _placed(before: Mapping[_Key, StandingXid], addresses: Addresses) -> dict[_Key, StandingXid]:
    """Return what stands, each under its GPU's UUID where that is known by now."""
    names = {unplaced(pci): gpu for pci, gpu in addresses.items()}
    placed: dict[_Key, StandingXid] = {}
    for xid in sorted(before.values(), key=lambda one: one.seq):
        _add(placed, replace(xid, gpu=names.get(xid.gpu, xid.gpu)))
    return placed


def _add(standing: dict[_Key, StandingXid], xid: StandingXid) -> None:
    """Count one more; the newest line's text stays, and of two classes the graver (154: the newest)."""
    key = (xid.gpu, xid.code)
    old = standing.get(key)
    if old is None:
        standing[key] = xid
        return
    fault = xid.fault if xid.code == ACTION_CHANGED else max(old.fault, xid.fault)
    standing[key] = replace(xid, fault=fault, count=old.count + xid.count)


def _standing(
    line: XidLine,
    snapshot: Snapshot,
    catalogue: Catalogue,
    addresses: Addresses,
) -> StandingXid:
    entry = catalogue.get(line.code)
    fault = FaultClass.UNKNOWN if entry is None else entry.fault
    if line.code == ACTION_CHANGED:
        fault = action_class(line.text)
    return StandingXid(
        gpu=addresses.get(line.pci, unplaced(line.pci)),
        boot_id=snapshot.boot_id,
        code=line.code,
        fault=fault,
        seq=line.seq,
        at=snapshot.taken_at - max(0.0, snapshot.at - line.at),
        text=line.text,
    )


def _in_context(xid: StandingXid, standing: Mapping[_Key, StandingXid], snapshot: Snapshot) -> StandingXid:
    """Return an Xid with the class that it has beside the others of its GPU and the recovery action."""
    if xid.code == _DOUBLE_BIT and any((xid.gpu, code) in standing for code in _RETIREMENT):
        return replace(xid, fault=FaultClass.DRAIN_AND_RESET)
    if xid.code in FOLLOWS_ACTION:
        gpu = snapshot.gpu(xid.gpu)
        is_known = gpu is not None and isinstance(gpu.recovery_action, Known)
        return replace(xid, fault=FaultClass.IGNORE if is_known else FaultClass.UNKNOWN)
    return xid


def _is_news(xid: StandingXid, known: Mapping[_Key, StandingXid]) -> bool:
    old = known.get((xid.gpu, xid.code))
    # One that follows the recovery action changes with each reading of that, which is no news of the log.
    return old is None or (xid.fault > old.fault and xid.code not in FOLLOWS_ACTION)
