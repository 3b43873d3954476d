"""Join what NVML lists with what /proc shows into holders, and remember them while they are healthy.

No reading of the world here: looks and lists come in, holders and a new memory go out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from reclaimerd.model.identity import DeviceNumber, GpuUuid, ProcessRef
from reclaimerd.model.memory import RememberedHolder
from reclaimerd.model.process import (
    ProcessLook,
    ProcessReading,
)
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    DeadListing,
    GpuReading,
    Holder,
)

MOST_REMEMBERED = 4096
"""A flood of holders costs a bounded memory: newcomers past it are not remembered, nobody is pushed out."""

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


@dataclass(frozen=True, slots=True)
class _Sources:
    """The two sources of one pass, to be asked by device and by pid."""

    gpu_of_device: Mapping[DeviceNumber, GpuUuid]
    listed: Mapping[GpuUuid, Mapping[int, Reading[int]]]


def joined(seen: Seen, memory: Memory) -> Joined:
    """Return who holds what, from this pass's sightings and the memory of the passes before."""
    dead = _dead_listings(seen, memory)
    sources = _Sources(
        {gpu.device: gpu.uuid for gpu in seen.gpus}, {gpu.uuid: _figures(gpu) for gpu in seen.gpus}
    )
    holders: dict[tuple[ProcessRef, GpuUuid], Holder] = {}
    for look in seen.looks.values():
        if not look.reading.is_released:
            for holder in _holders(look, seen, sources, memory):
                holders[holder.ref, holder.gpu] = holder
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
    found: Iterable[Holder] = holders.values()
    if dead:
        found = [_with_heritage(holder, dead, fresh) for holder in found]
    return Joined(tuple(sorted(found, key=_order)), dead, _bounded(fresh, memory))


def listed_bytes(gpu: GpuReading, pid: int) -> Reading[int] | None:
    """Return what NVML's lists say one pid uses on one GPU, None when they don't name it."""
    return _figures(gpu).get(pid)


def _figures(gpu: GpuReading) -> Mapping[int, Reading[int]]:
    """Return what NVML's lists say each pid uses on one GPU; one row without a figure makes it unknown."""
    figures: dict[int, Reading[int]] = {}
    for row in gpu.processes.value if isinstance(gpu.processes, Known) else ():
        before = figures.get(row.pid, Known(0))
        if isinstance(before, Known) and isinstance(row.used_bytes, Known):
            figures[row.pid] = Known(before.value + row.used_bytes.value)
        else:
            figures[row.pid] = Unreadable("NVML gives no figure for this process")
    return figures


def _order(holder: Holder) -> tuple[str, int]:
    return (holder.gpu, holder.ref.pid)


def _holders(look: ProcessLook, seen: Seen, sources: _Sources, memory: Memory) -> Iterator[Holder]:
    """Yield a holder for each GPU that this process holds."""
    ref = look.reading.ref
    devices = [holding.device for holding in look.nodes.value] if isinstance(look.nodes, Known) else []
    nodes = {sources.gpu_of_device[device] for device in devices if device in sources.gpu_of_device}
    only_shared = not nodes and not seen.shared_devices.isdisjoint(devices)
    for gpu in seen.gpus:
        node = gpu.uuid in nodes
        used = sources.listed[gpu.uuid].get(ref.pid)
        if used is not None and _row_is_of_the_dead(look, gpu, memory):
            used = None
        if used is None and not node and not only_shared:
            continue
        yield Holder(
            ref,
            gpu.uuid,
            listed=used is not None,
            node=node,
            used_bytes=Absent("NVML does not list it") if used is None else used,
            shared_node_only=only_shared and used is None,
        )


def _row_is_of_the_dead(look: ProcessLook, gpu: GpuReading, memory: Memory) -> bool:
    """Tell whether NVML's row of this pid is that of a dead holder whose pid a stranger has now.

    The driver names the owner of a context for as long as an heir keeps it; the stranger has no node.
    """
    ref = look.reading.ref
    if (ref, gpu.uuid) in memory or look.reading.is_leaving or not isinstance(look.nodes, Known):
        return False
    if gpu.device in {holding.device for holding in look.nodes.value}:
        return False
    return any(other.pid == ref.pid and other != ref for other, uuid in memory if uuid == gpu.uuid)


def _may_still_hold(kept: RememberedHolder, seen: Seen) -> bool:
    if kept.ref.pid in seen.unreadable:
        return True
    look = seen.looks.get(kept.ref.pid)
    if look is None or look.reading.ref != kept.ref or look.reading.is_released:
        return False
    return look.reading.is_leaving or not isinstance(look.nodes, Known) or kept.gpu in _blind_gpus(seen)


def _blind_gpus(seen: Seen) -> frozenset[GpuUuid]:
    """Return the GPUs whose process list can't be read: nobody is known to be off them."""
    return frozenset(gpu.uuid for gpu in seen.gpus if not isinstance(gpu.processes, Known))


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
            stranger = look is not None and _row_is_of_the_dead(look, gpu, memory)
            if pid in seen.unreadable or (look is not None and not look.reading.is_released and not stranger):
                continue
            used = listed_bytes(gpu, pid)
            refs = [ref for ref, uuid in memory if ref.pid == pid and uuid == gpu.uuid]
            ref = max(refs, default=None) if look is None or stranger else look.reading.ref
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
            fresh[key] = before if used in {None, before.used_bytes} else replace(before, used_bytes=used)
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
    blind = _blind_gpus(seen)
    for key, kept in memory.items() if lost or blind else ():
        # One that died while the driver was silent may be listed, and have heirs, once it answers.
        if key not in fresh and (kept.ref in lost or kept.gpu in blind):
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


def _bounded(fresh: dict[tuple[ProcessRef, GpuUuid], RememberedHolder], before: Memory) -> Memory:
    if len(fresh) <= MOST_REMEMBERED:
        return fresh
    kept_first = sorted(fresh, key=lambda key: key not in before)
    return {key: fresh[key] for key in kept_first[:MOST_REMEMBERED]}
