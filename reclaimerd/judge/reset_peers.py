"""Say which GPUs must be reset together: peers by NVLink, by the vendor's own rules for each generation.

Before Ampere all GPUs that NVLink connects go in one command. Ampere with NVSwitch goes alone only while
the Fabric Manager runs. Later ones go alone. What can't be read is unknown, and never alone.
(Source: nvidia-smi's page, --gpu-reset.)
"""

from dataclasses import dataclass
from typing import assert_never

from reclaimerd.judge.standing_xids import address_of
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import Generation, GpuFacts, NvLinks, ResetFacts

_NO_LINKS = NvLinks(0)


@dataclass(frozen=True, slots=True)
class Alone:
    """This GPU can be reset by itself."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Only all of these together, in one command; the GPU that was asked about is one of them."""

    gpus: tuple[GpuUuid, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It can't be told, so nothing is reset."""

    why: str


Group = Alone | Joint | Unknown


def group_of(gpu: GpuUuid, facts: ResetFacts) -> Group:
    """Return what must be reset together with this GPU."""
    own = facts.gpu(gpu)
    if own is None:
        return Unknown("what NVML knows of its links was not read")
    links = _links(own)
    if isinstance(links, Unreadable):
        return Unknown(f"its NVLinks can't be read: {links.why}")
    match own.generation:
        case Unreadable(why=why):
            return Unknown(f"its generation can't be read: {why}")
        case Absent(why=why):
            return Unknown(f"its generation is not told: {why}") if links.active else Alone()
        case Known(value=generation):
            return _linked(own, generation, facts) if links.active else Alone()
        case _:
            assert_never(own.generation)


def _linked(own: GpuFacts, generation: Generation, facts: ResetFacts) -> Group:
    switched = own.uuid in _switched(facts)
    match generation:
        case Generation.BEFORE_AMPERE:
            return _connected(own, facts)
        case Generation.AMPERE:
            return _switched_ampere(facts) if switched else Alone()
        case Generation.LATER:
            if switched and isinstance(own.fabric, Unreadable):
                return Unknown(f"the state of its fabric can't be read: {own.fabric.why}")
            return Alone()
        case _:
            assert_never(generation)


def _links(gpu: GpuFacts) -> NvLinks | Unreadable:
    match gpu.links:
        case Known(value=links):
            return links
        case Unreadable():
            return gpu.links
        case Absent():
            return _NO_LINKS
        case _:
            assert_never(gpu.links)


def _all_gpus(facts: ResetFacts) -> tuple[GpuFacts, ...]:
    readings: Reading[tuple[GpuFacts, ...]] = facts.gpus
    return readings.value if isinstance(readings, Known) else ()


def _blind(facts: ResetFacts) -> Unknown | None:
    """Return which GPU's links can't be read: it may be the one that joins two groups."""
    for gpu in _all_gpus(facts):
        links = _links(gpu)
        if isinstance(links, Unreadable):
            return Unknown(f"the NVLinks of {gpu.uuid} can't be read: {links.why}")
    return None


def _switched(facts: ResetFacts) -> tuple[GpuUuid, ...]:
    found = ((gpu.uuid, _links(gpu)) for gpu in _all_gpus(facts))
    return tuple(uuid for uuid, links in found if isinstance(links, NvLinks) and links.switched)


def _switched_ampere(facts: ResetFacts) -> Group:
    match facts.units:
        case Known(value=units) if units.fabric_manager:
            return Alone()
        case Known():
            why = "on NVSwitch, and the Fabric Manager does not run: without it all go together"
            blind = _blind(facts)
            return Joint(_switched(facts), why) if blind is None else blind
        case Unreadable(why=why) | Absent(why=why):
            return Unknown(f"whether the Fabric Manager runs is not known: {why}")
        case _:
            assert_never(facts.units)


def _connected(own: GpuFacts, facts: ResetFacts) -> Group:
    """Return all that NVLink connects with this GPU, over any number of others."""
    blind = _blind(facts)
    if blind is not None:
        return blind
    by_address = {address_of(gpu.pci_address): gpu for gpu in _all_gpus(facts)}
    switched = [gpu for gpu in by_address.values() if gpu.uuid in _switched(facts)]
    joined: dict[GpuUuid, None] = {}
    ahead = [own]
    while ahead:
        gpu = ahead.pop()
        if gpu.uuid in joined:
            continue
        joined[gpu.uuid] = None
        links = _links(gpu)
        peers = [address_of(peer) for peer in links.peers] if isinstance(links, NvLinks) else []
        strangers = [peer for peer in peers if peer not in by_address]
        if strangers:
            return Unknown(f"NVLink joins {gpu.uuid} with {strangers[0]}, which is no GPU that was seen")
        ahead += [by_address[peer] for peer in peers]
        ahead += [one for one in by_address.values() if _names(gpu, one)]
        ahead += switched if gpu in switched else []
    if len(joined) == 1:
        return Alone()
    return Joint(tuple(sorted(joined)), "joined by NVLink, and older than Ampere: they go together")


def _names(gpu: GpuFacts, other: GpuFacts) -> bool:
    """Tell whether the other one names this GPU as its peer: a link counts from either end."""
    links = _links(other)
    return isinstance(links, NvLinks) and address_of(gpu.pci_address) in {
        address_of(peer) for peer in links.peers
    }
