"""What each GPU uses while nobody holds it: the proof of a release takes it off the figure.

Too high a baseline would prove a release that never was, so the first one of a GPU is learnt only
before anybody was seen on it; afterwards it can only fall. No reading of the world here.
"""

from collections.abc import Collection, Iterable, Mapping

from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.memory import Baseline
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import (
    GpuReading,
    HostGpus,
)


class Baselines:
    """The least used bytes of each GPU, kept while boot, driver, MIG and persistence mode stay the same."""

    __slots__ = ("_ever_held", "_kept")

    def __init__(self) -> None:
        self._kept: dict[GpuUuid, Baseline] = {}
        self._ever_held: set[GpuUuid] = set()

    def recall(self, kept: Iterable[Baseline], held: Iterable[GpuUuid]) -> None:
        """Take what was stored of this boot, and which GPUs somebody held before our start."""
        self._kept = {baseline.gpu: baseline for baseline in kept}
        self._ever_held |= set(held)

    def all(self) -> tuple[Baseline, ...]:
        """Return all of them, for the store."""
        return tuple(self._kept.values())

    def used_bytes(self) -> Mapping[GpuUuid, int]:
        """Return the baseline of each GPU that has one, in bytes."""
        return {uuid: kept.used_bytes for uuid, kept in self._kept.items()}

    def learn(self, boot_id: str, host: HostGpus, held: Collection[GpuUuid], *, may_begin: bool) -> None:
        """Take one look: `held` are GPUs with a holder, `may_begin` whether a first baseline may be set.

        Memory that a dead holder left behind looks idle too: on a GPU that was ever held only a lower
        figure counts.
        """
        self._ever_held |= set(held) | {gpu.uuid for gpu in host.gpus if not _nobody_is_listed(gpu)}
        for gpu in host.gpus:
            key = f"{boot_id}/{host.driver_version}/{gpu.mig}/{gpu.persistence}"
            kept = self._kept.get(gpu.uuid)
            if kept is not None and kept.key != key:
                kept = None
                del self._kept[gpu.uuid]
            if gpu.uuid in held or not _nobody_is_listed(gpu) or not isinstance(gpu.memory, Known):
                continue
            used = gpu.memory.value.used_bytes
            first = kept is None and may_begin and gpu.uuid not in self._ever_held
            if first or (kept is not None and used < kept.used_bytes):
                self._kept[gpu.uuid] = Baseline(gpu.uuid, key, used)


def _nobody_is_listed(gpu: GpuReading) -> bool:
    return isinstance(gpu.processes, Known) and not gpu.processes.value
