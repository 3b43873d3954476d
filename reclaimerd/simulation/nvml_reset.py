"""What a reset must know of each simulated GPU: `model.reset_facts.GpuFacts` from host.toml alone.

It may not look at processes, and it changes nothing.
"""

from typing import TypeVar

from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import (
    ErrorCounters,
    Generation,
    GpuFacts,
    GpuSetting,
    NvLinks,
    SettingKind,
    Virtualisation,
)
from reclaimerd.simulation.failures import FACT_CALLS
from reclaimerd.simulation.host import SETTING_DEFAULTS, SimulatedGpu, SimulatedHost

T = TypeVar("T")

NOT_SUPPORTED = "not supported"


def call_reading(host: SimulatedHost, uuid: str, call: str, value: T) -> Reading[T]:
    """Return the value, or why this call fails on this GPU; "not supported" is absent."""
    why = host.failure(uuid, call)
    if call in FACT_CALLS:
        why = host.failure(uuid, "handle") or why
    if why == NOT_SUPPORTED:
        return Absent(why)
    return Unreadable(why) if why else Known(value)


def reset_facts_of(host: SimulatedHost) -> tuple[GpuFacts, ...]:
    """Return the facts of every GPU that is there and whose identity can be read."""
    return tuple(
        _facts_of(gpu, host) for gpu in host.gpus if not gpu.lost and not host.failure(gpu.uuid, "identity")
    )


def _facts_of(gpu: SimulatedGpu, host: SimulatedHost) -> GpuFacts:
    def reading(call: str, value: T) -> Reading[T]:
        return call_reading(host, gpu.uuid, call, value)

    return GpuFacts(
        uuid=GpuUuid(gpu.uuid),
        pci_address=gpu.pci.lower(),
        generation=reading("generation", Generation(gpu.generation)),
        links=reading("links", _links_of(gpu, host)),
        fabric=reading("fabric", gpu.fabric) if gpu.fabric else Absent("no fabric"),
        virtualisation=reading("virtualisation", Virtualisation(gpu.virtualisation)),
        display_active=reading("display_active", gpu.display_active),
        drain_state=reading("drain_state", gpu.drain_state),
        mig_pending=reading("mig_pending", gpu.mig_pending),
        counters=ErrorCounters(
            uncorrected_ecc=reading("ecc", gpu.uncorrected_ecc),
            remapped_rows=reading("remapped_rows", gpu.remapped_rows),
            remap_failed=reading("remapped_rows", gpu.remap_failed),
        ),
        settings=tuple(
            GpuSetting(
                kind,
                reading("settings", str(getattr(gpu, kind.value))),
                is_default=getattr(gpu, kind.value) == SETTING_DEFAULTS[kind],
            )
            for kind in SettingKind
        ),
    )


def _links_of(gpu: SimulatedGpu, host: SimulatedHost) -> NvLinks:
    """Return its links: one to each peer, and one to the switch where there is one."""
    peers = tuple(peer.pci.lower() for peer in host.gpus if peer.uuid in gpu.peers)
    return NvLinks(len(peers) + int(gpu.switched), peers, gpu.switched)
