"""Names that can't come to mean another thing."""

from dataclasses import dataclass
from typing import NewType

GpuUuid = NewType("GpuUuid", str)
"""The only identity of a GPU; an index is for people."""

IncidentId = NewType("IncidentId", str)
AttemptId = NewType("AttemptId", str)


@dataclass(frozen=True, slots=True, order=True)
class ProcessRef:
    """One process of one boot: pid plus start time in clock ticks since boot (proc(5) stat, field 22)."""

    boot_id: str
    pid: int
    start_ticks: int

    def __str__(self) -> str:
        """Return `PID@START`, the form that `ps` prints and `kill` takes."""
        return f"{self.pid}@{self.start_ticks}"


@dataclass(frozen=True, slots=True, order=True)
class DeviceNumber:
    """A character device's number; the same device may have nodes under many paths."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True, order=True)
class FileIdentity:
    """A file by device and inode, as stat(2) gives them: a path can be bought, this can't."""

    device: int
    inode: int
