"""Join what NVML lists with what /proc shows into holders, and remember them while they are healthy.

No reading of the world here: looks and lists come in, holders and a new memory go out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reclaimerd.model.identity import DeviceNumber, GpuUuid, ProcessRef
from reclaimerd.model.memory import RememberedHolder
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    DeadListing,
    GpuReading,
    Holder,
    ProcessLook,
    ProcessReading,
)

MOST_REMEMBERED = 4096
"""A flood of short-lived holders costs a bounded memory; the oldest are forgotten first."""

Memory = Mapping[tuple[ProcessRef, GpuUuid], RememberedHolder]


@dataclass(frozen=True, slots=True)
class Seen:
    """One pass's raw sightings."""

    gpus: tuple[GpuReading, ...]
    shared_devices: frozenset[DeviceNumber]
    looks: Mapping[int, ProcessLook]
    unreadable: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Joined:
    """Holders, dead listings, and the memory for the next pass."""

    holders: tuple[Holder, ...]
    dead_listings: tuple[DeadListing, ...]
    memory: Memory


def joined(seen: Seen, memory: Memory) -> Joined:
    """Return who holds what, from this pass's sightings and the memory of the passes before."""
    dead = _dead_listings(seen, memory)
    holders: dict[tuple[ProcessRef, GpuUuid], Holder] = {}
    for look in seen.looks.values():
        if look.reading.is_released:
            continue
        for gpu in seen.gpus:
            holder = _holder(look, gpu, seen)
            if holder is not None:
                holders[holder.ref, gpu.uuid] = holder
    for key, kept in memory.items():
        if key not in holders and _may_still_hold(kept, seen):
            holders[key] = Holder(
                kept.ref,
                kept.gpu,
                listed=False,
                node=False,
                used_bytes=_remembered_bytes(kept),
                remembered=True,
            )
    fresh = _remember(holders, seen, memory, dead)
    heirs = tuple(_with_heritage(holder, dead, fresh) for holder in holders.values())
    return Joined(tuple(sorted(heirs, key=_order)), dead, _bounded(fresh))


def listed_bytes(gpu: GpuReading, pid: int) -> Reading[int] | None:
    """Return what NVML's lists say one pid uses on one GPU, None when they don't name it."""
    if not isinstance(gpu.processes, Known):
        return None
    rows = [row for row in gpu.processes.value if row.pid == pid]
    if not rows:
        return None
    known = [row.used_bytes.value for row in rows if isinstance(row.used_bytes, Known)]
    if len(known) < len(rows):
        return Unreadable("NVML gives no figure for this process")
    return Known(sum(known))


def _order(holder: Holder) -> tuple[str, int]:
    return (holder.gpu, holder.ref.pid)


def _holder(look: ProcessLook, gpu: GpuReading, seen: Seen) -> Holder | None:
    ref = look.reading.ref
    used = listed_bytes(gpu, ref.pid)
    devices: frozenset[DeviceNumber] = frozenset()
    if isinstance(look.nodes, Known):
        devices = frozenset(holding.device for holding in look.nodes.value)
    node = gpu.device in devices
    own = {other.device for other in seen.gpus}
    shared_only = not node and used is None and bool(devices & seen.shared_devices) and not devices & own
    if used is None and not node and not shared_only:
        return None
    return Holder(
        ref,
        gpu.uuid,
        listed=used is not None,
        node=node,
        used_bytes=Absent("NVML does not list it") if used is None else used,
        shared_node_only=shared_only,
    )


def _may_still_hold(kept: RememberedHolder, seen: Seen) -> bool:
    if kept.ref.pid in seen.unreadable:
        return True
    look = seen.looks.get(kept.ref.pid)
    if look is None or look.reading.ref != kept.ref or look.reading.is_released:
        return False
    return look.reading.is_leaving or not isinstance(look.nodes, Known)


def _remembered_bytes(kept: RememberedHolder) -> Reading[int]:
    if kept.used_bytes is None:
        return Unreadable("never read while it was healthy")
    return Unreadable(f"it held {kept.used_bytes} bytes when last seen healthy")


def _dead_listings(seen: Seen, memory: Memory) -> tuple[DeadListing, ...]:
    found = []
    for gpu in seen.gpus:
        if not isinstance(gpu.processes, Known):
            continue
        for pid in sorted({row.pid for row in gpu.processes.value}):
            look = seen.looks.get(pid)
            if pid in seen.unreadable or (look is not None and not look.reading.is_released):
                continue
            used = listed_bytes(gpu, pid)
            refs = [ref for ref, uuid in memory if ref.pid == pid and uuid == gpu.uuid]
            ref = look.reading.ref if look is not None else max(refs, default=None)
            found.append(DeadListing(gpu.uuid, pid, Unreadable("no figure") if used is None else used, ref))
    return tuple(found)


def _remember(
    holders: Mapping[tuple[ProcessRef, GpuUuid], Holder],
    seen: Seen,
    memory: Memory,
    dead: tuple[DeadListing, ...],
) -> dict[tuple[ProcessRef, GpuUuid], RememberedHolder]:
    fresh: dict[tuple[ProcessRef, GpuUuid], RememberedHolder] = {}
    for key, holder in holders.items():
        before = memory.get(key)
        look = seen.looks.get(holder.ref.pid)
        used = holder.used_bytes.value if isinstance(holder.used_bytes, Known) else None
        if before is not None:
            fresh[key] = before if used is None else replace(before, used_bytes=used)
        elif look is not None and not look.reading.is_leaving:
            fresh[key] = RememberedHolder(
                holder.ref,
                holder.gpu,
                uid=look.reading.uids[0],
                workload_path=look.reading.workload.path,
                ancestors=_ancestors(look.reading, seen, memory),
                used_bytes=used,
            )
    lost = {listing.ref for listing in dead}
    for key, kept in memory.items():
        if key not in fresh and kept.ref in lost:
            fresh[key] = kept
    return fresh


def _ancestors(reading: ProcessReading, seen: Seen, memory: Memory) -> tuple[ProcessRef, ...]:
    parent = seen.looks.get(reading.ppid)
    if parent is None or parent.reading.ref.start_ticks > reading.ref.start_ticks:
        return ()
    ref = parent.reading.ref
    further = next((kept.ancestors for (kept_ref, _), kept in memory.items() if kept_ref == ref), ())
    return (ref, *further)


def _with_heritage(
    holder: Holder,
    dead: tuple[DeadListing, ...],
    memory: Mapping[tuple[ProcessRef, GpuUuid], RememberedHolder],
) -> Holder:
    kept = memory.get((holder.ref, holder.gpu))
    if kept is None or holder.listed or not (holder.node or holder.remembered):
        return holder
    for listing in dead:
        if listing.gpu != holder.gpu or listing.ref is None or listing.ref not in kept.ancestors:
            continue
        parent = memory.get((listing.ref, listing.gpu))
        if parent is not None and (parent.uid, parent.workload_path) == (kept.uid, kept.workload_path):
            return replace(holder, heir_of=listing.ref, used_bytes=listing.used_bytes)
    return holder


def _bounded(memory: dict[tuple[ProcessRef, GpuUuid], RememberedHolder]) -> Memory:
    excess = len(memory) - MOST_REMEMBERED
    return memory if excess <= 0 else dict(list(memory.items())[excess:])
