"""What a daemon and its children take of the machine, sampled beside it, and whether it rises."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median

MIB = 1 << 20
_MOST_POINTS = 240
"""A slope is the median of that of every pair; so many points make 28,680 of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look: the daemon and its children together, but for the descriptors and threads."""

    at: float
    pss_bytes: int
    anonymous_bytes: int
    daemon_bytes: int
    descriptors: int
    worker_descriptors: int
    threads: int
    children: int
    disk_bytes: int


def children_of(pid: int) -> tuple[int, ...]:
    """Return the children of all of a process's threads, zombies too."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread is gone since
            found += map(int, (task / "children").read_text().split())
    return tuple(found)


def sample(pid: int, folders: Sequence[Path]) -> Sample:
    """Return what the daemon takes now; a child that ends meanwhile counts as far as it was read."""
    children = children_of(pid)
    own = _memory(pid)
    memory = [own, *map(_memory, children)]
    return Sample(
        time.monotonic(),
        sum(pss for pss, _ in memory),
        sum(anonymous for _, anonymous in memory),
        own[1],
        _entries(pid, "fd"),
        sum(_entries(child, "fd") for child in children),
        _entries(pid, "task"),
        len(children),
        sum(map(_size, folders)),
    )


def _memory(pid: int) -> tuple[int, int]:
    """Return Pss and Pss_Anon in bytes (proc(5), smaps_rollup); zero of what is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return kib["Pss"] * 1024, kib["Pss_Anon"] * 1024


def _entries(pid: int, folder: str) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())
    except OSError:
        return 0


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the rise per second that half of all pairs of points exceed (Theil and Sen)."""
    step = max(1, len(points) // _MOST_POINTS)
    rises = [(b - a) / (then - at) for (at, a), (then, b) in combinations(points[::step], 2) if then > at]
    return median(rises)


@dataclass(slots=True)
class Meters:
    """The samples so far."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def second_half(self) -> list[Sample]:
        """Return the samples once everything was filled and warm."""
        return self.samples[len(self.samples) // 2 :]

    def growth(self, what: Callable[[Sample], int]) -> float:
        """Return how much something rises over the second half, as its robust slope has it."""
        half = self.second_half
        return slope([(one.at, what(one)) for one in half]) * (half[-1].at - half[0].at)

    def rise(self, what: Callable[[Sample], int]) -> float:
        """Return by how much the middle of the last quarter is above that of the quarter before."""
        half = [what(one) for one in self.second_half]
        middle = len(half) // 2
        return median(half[middle:]) - median(half[:middle])

    def middle(self, what: Callable[[Sample], int]) -> float:
        """Return the middle of the second half."""
        return median(map(what, self.second_half))


@contextmanager
def measured(pid: int, folders: Sequence[Path], every: float) -> Iterator[Meters]:
    """Sample beside the block, every so many seconds, in a thread of its own."""
    meters, stop = Meters(), threading.Event()

    def work() -> None:
        while not stop.wait(every):
            with suppress(FileNotFoundError, ProcessLookupError):  # the daemon is gone: others say so
                meters.samples.append(sample(pid, folders))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield meters
    finally:
        stop.set()
        thread.join()
