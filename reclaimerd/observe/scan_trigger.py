"""When the search through all descriptors of the host is due: it costs more than a pass."""

from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import GpuReading

CHANGE_BYTES = 64 * 1024 * 1024
"""A smaller change of what nobody accounts for is the driver's own noise."""


def unexplained_bytes(gpus: tuple[GpuReading, ...]) -> int:
    """Return, over all GPUs, the used bytes (memory v2) that NVML's process lists don't account for."""
    total = 0
    for gpu in gpus:
        if isinstance(gpu.memory, Known) and isinstance(gpu.processes, Known):
            known = [row.used_bytes.value for row in gpu.processes.value if isinstance(row.used_bytes, Known)]
            total += max(0, gpu.memory.value.used_bytes - sum(known))
    return total


class ScanTrigger:
    """Remembers what the last full scan answered, so that one oddity asks for one scan, not for ever."""

    __slots__ = ("_dead", "_every", "_explained", "full_at")

    def __init__(self, every_seconds: float) -> None:
        self._every = every_seconds
        self._dead: frozenset[int] = frozenset()
        self._explained = 0
        self.full_at: float | None = None

    def take_interval(self, every_seconds: float) -> None:
        """Search this often from now on (seconds)."""
        self._every = every_seconds

    def due(self, now: float, dead: set[int], unexplained: int, *, asked: bool) -> str:
        """Return why a full scan is due now, "" when none is.

        `dead`: pids that NVML lists and that have no live task; `unexplained`: bytes nobody accounts for.
        """
        if asked:
            return "asked for"
        if self.full_at is None:
            return "first look"
        if now >= self.full_at + self._every:
            return "interval"
        if dead - self._dead:
            return "NVML lists a pid that is dead"
        if unexplained > self._explained + CHANGE_BYTES:
            return "memory is used that no listed process accounts for"
        return ""

    def done(self, now: float, dead: set[int], unexplained: int) -> None:
        """Note a full scan, and what was odd when it was made."""
        self.full_at = now
        self._dead = frozenset(dead)
        self._explained = unexplained
