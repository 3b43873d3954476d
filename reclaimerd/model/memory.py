"""What is remembered of holders while they are healthy, because a dying task shows none of it."""

from dataclasses import dataclass

from reclaimerd.model.identity import GpuUuid, ProcessRef


@dataclass(frozen=True, slots=True)
class RememberedHolder:
    """One process that was seen to hold one GPU; `used_bytes` is None when it never could be read.

    `ancestors` are its parents as seen while they lived, nearest first.
    """

    ref: ProcessRef
    gpu: GpuUuid
    uid: int
    workload_path: str
    ancestors: tuple[ProcessRef, ...] = ()
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """Least used bytes of a GPU since boot while nobody held it; void when `key` changes.

    `key` names boot, driver, MIG and persistence mode, which all move the driver's own use.
    """

    gpu: GpuUuid
    key: str
    used_bytes: int
