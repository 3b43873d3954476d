"""From a device id of the kubelet's list to a GPU, or a part of one.

Each device plugin has ids of its own: NVIDIA's are UUIDs (`GPU-...`, `MIG-...`, `GPU-...::3` for a
replica of time-slicing or MPS), GKE's are made of minors (`nvidia0`, `nvidia0/gi3`, `nvidia0/vgpu1`),
others put a number behind the UUID. An id of no known form is a sentence, never a guess. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.model.allocation import AllocatedDevice
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import GpuReading

_UUID = re.compile(
    r"(?P<uuid>GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?P<replica>(?:::|-)\d+)?", re.ASCII
)
_OLD_MIG = re.compile(r"MIG-(?P<uuid>GPU-[0-9a-f-]{36})/(?P<gi>\d+)/(?P<ci>\d+)(?P<replica>::\d+)?", re.ASCII)
"""Drivers before R470 named a MIG device by its parent and instances."""
_MIG = re.compile(r"(?P<uuid>MIG-[0-9a-f-]{36})(?P<replica>(?:::|-)\d+)?", re.ASCII)
_GKE = re.compile(r"nvidia(?P<minor>\d+)(?:/gi(?P<gi>\d+))?(?P<replica>/vgpu\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """What a device id stands for: a GPU of this host (None: one that it does not show), or a part of it.

    `gpu_instance` and `compute_instance` are None for a whole GPU; `replica` is a share in turns.
    """

    gpu: GpuUuid | None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    replica: bool = False


def place_of(device: AllocatedDevice, gpus: Sequence[GpuReading]) -> Place | str:
    """Return where the device is, or in words why that can't be told."""
    if (found := _UUID.fullmatch(device.id)) is not None:
        return Place(_here(found["uuid"], gpus), replica=found["replica"] is not None)
    if (found := _OLD_MIG.fullmatch(device.id)) is not None:
        replica = found["replica"] is not None
        return Place(_here(found["uuid"], gpus), int(found["gi"]), int(found["ci"]), replica)
    if (found := _MIG.fullmatch(device.id)) is not None:
        return _mig(found, gpus)
    if (found := _GKE.fullmatch(device.id)) is not None:
        instance = None if found["gi"] is None else int(found["gi"])
        of_minor = next((gpu.uuid for gpu in gpus if gpu.minor == int(found["minor"])), None)
        return Place(of_minor, instance, replica=found["replica"] is not None)
    return f"which GPU {device.resource} {device.id} is can't be told"


def _here(uuid: str, gpus: Sequence[GpuReading]) -> GpuUuid | None:
    return next((gpu.uuid for gpu in gpus if gpu.uuid == uuid), None)


def _mig(found: re.Match[str], gpus: Sequence[GpuReading]) -> Place | str:
    for gpu in gpus:
        for one in gpu.mig_devices.value if isinstance(gpu.mig_devices, Known) else ():
            if one.uuid == found["uuid"]:
                replica = found["replica"] is not None
                return Place(gpu.uuid, one.gpu_instance, one.compute_instance, replica)
    return f"which GPU has the MIG device {found['uuid']} can't be told"
