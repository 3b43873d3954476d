"""Labelled histories of holders, made by hand from facts and public incidents: what is right to do with each.

Memory is a line through points (minute, GiB), use of the GPU a staircase of steps (from minute, percent);
None is what the driver does not tell. `keep` is right for whatever is no leak, not idle or not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.model.policy import RuleKind

Unknown = None
Line = Sequence[tuple[float, float | None]]
Steps = Sequence[tuple[float, int | None]]
LEAK, OLD, IDLE = RuleKind.MEMORY_GROWTH, RuleKind.AGE, RuleKind.IDLE
HOURS = 240.0
"""Minutes that a case lasts unless it says otherwise."""
AT_REST: Steps = ((0, 0),)
TEN: Line = ((0, 10),)


@dataclass(frozen=True, slots=True)
class Program:
    """What the holder is: by itself a training that reads its set from disk."""

    comm: str = "python3"
    exe: str = "/usr/bin/python3.11"
    argv: tuple[str, ...] = ("python3", "train.py")
    connections: tuple[tuple[str, int], ...] = ()
    ancestors: tuple[str, ...] = ("bash", "sshd")
    quiet: bool = False
    """It reads and writes next to nothing; else 40 MiB a second."""
    listed: bool = False
    """The policy lists the digest of its file."""
    told: bool = True
    """Its signs can be read."""


UNTOLD = Program(told=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One holder's history, and whether the rule of this kind is right to take it."""

    name: str
    kind: RuleKind
    reclaim: bool
    memory: Line = TEN
    use: Steps = AT_REST
    minutes: float = HOURS
    still: str = ""
    """`suspended`, `traced` or `frozen` all the while."""
    core_percent: float = 0.0
    gaps: Sequence[tuple[float, float]] = ()
    """From and to which minute nobody looked."""
    program: Program = Program()
    total_gib: int = 141

    def gib_at(self, minute: float) -> float | None:
        """Return what it holds, in GiB."""
        before = [point for point in self.memory if point[0] <= minute][-1]
        after = next((point for point in self.memory if point[0] > minute), before)
        if before[1] is None or after[1] is None or after is before:
            return before[1]
        return before[1] + (after[1] - before[1]) * (minute - before[0]) / (after[0] - before[0])

    def percent_at(self, minute: float) -> int | None:
        """Return what it uses of the GPU."""
        return [step for step in self.use if step[0] <= minute][-1][1]


def every(minutes: float, length: float, percent: int | None, until: float = HOURS) -> Steps:
    """Return rest, with a stretch of this use once in so many minutes."""
    starts = [minutes * count for count in range(1, int(until / minutes) + 1)]
    return ((0, 0), *(step for start in starts for step in ((start, percent), (start + length, 0))))


def teeth(minutes: float, low: float, high: float) -> Line:
    """Return a saw-tooth: up over nine tenths of its period, back in the last."""
    starts = [minutes * count for count in range(int(HOURS / minutes))]
    return tuple(p for start in starts for p in ((start, low), (start + 0.9 * minutes, high)))


def pauses(minutes: float, gib: float) -> Line:
    """Return memory that is given back for a minute once in so many minutes."""
    starts = [minutes * count for count in range(1, int(HOURS / minutes) + 1)]
    return ((0, gib), *(p for m in starts for p in ((m - 0.1, gib), (m, 0), (m + 1, 0), (m + 1.1, gib))))


def stairs(minutes: float, gib: float, start: float, end: float) -> Line:
    """Return memory that rises by one allocation once in so many minutes."""
    times = [start + minutes * count for count in range(int((end - start) / minutes))]
    rising = [(time, 4 + gib * (count + 1)) for count, time in enumerate(times)]
    return ((0, 4), *(p for time, high in rising for p in ((time - 0.01, high - gib), (time, high))))


def wavy(line: Line, gib: float) -> Line:
    """Return the line with a small wave on it."""
    ends = [(minute, size) for minute, size in line if size is not None]
    (first, low), (last, high) = ends[0], ends[-1]
    steps = int(last - first)
    rate = (high - low) / steps
    return tuple((first + step, low + rate * step + gib * math.sin(step)) for step in range(steps + 1))


LEAKS = (
    Case("leak from the start", LEAK, True, ((0, 2), (180, 130))),
    Case("leak after two quiet hours", LEAK, True, ((0, 4), (120, 4), (200, 84))),
    Case("leak in allocations of 1.5 GiB", LEAK, True, stairs(2, 1.5, 90, 170)),
    Case("leak under a small wave", LEAK, True, wavy(((0, 2), (180, 130)), 0.15)),
    Case("slow leak, below the rate", LEAK, False, ((0, 4), (240, 18))),
    Case("warm-up of five minutes", LEAK, False, ((0, 0.5), (5, 40))),
    Case("model that loads for forty minutes", LEAK, False, ((0, 0.5), (40, 120))),
    Case("model that loads at the first request", LEAK, False, ((0, 1), (100, 1), (110, 41))),
    Case("one allocation", LEAK, False, ((0, 4), (120, 4), (120.1, 24))),
    Case("two allocations", LEAK, False, ((0, 4), (120, 4), (120.1, 24), (130, 24), (130.1, 44))),
    Case("three models, twenty minutes apart", LEAK, False, stairs(20, 15, 80, 140)),
    Case("a larger batch each 45 minutes", LEAK, False, stairs(45, 20, 45, 225)),
    Case("allocator with a cycle of 6 minutes", LEAK, False, teeth(6, 10, 30)),
    Case("allocator with a cycle of 12 minutes", LEAK, False, teeth(12, 10, 40)),
    Case("allocator with a cycle of 20 minutes", LEAK, False, teeth(20, 10, 40)),
    Case("allocator with a cycle of 30 minutes", LEAK, False, teeth(30, 10, 60)),
    Case("fragmentation", LEAK, False, tuple((m, 20 + 6 * math.log(1 + m / 5)) for m in range(240))),
    Case("cache of an inference server fills", LEAK, False, ((0, 30), (120, 70))),
    Case("shrinks", LEAK, False, ((0, 80), (240, 2))),
    Case("steady training", LEAK, False, wavy(((0, 60), (240, 60)), 0.4)),
    Case(
        "leak with a figure missing each ten minutes",
        LEAK,
        False,
        tuple(
            p
            for m in range(0, 180, 10)
            for p in ((m, 2 + 0.7 * m), (m + 9, 2 + 0.7 * (m + 9)), (m + 9.1, Unknown), (m + 9.6, Unknown))
        ),
    ),
    Case(
        "leak that is looked at with pauses",
        LEAK,
        False,
        ((0, 2), (180, 130)),
        gaps=tuple((m, m + 5) for m in range(15, 240, 20)),
    ),
    Case("leak that was suspended", LEAK, False, ((0, 2), (180, 130)), still="suspended"),
    Case("leak under a debugger", LEAK, False, ((0, 2), (180, 130)), still="traced"),
    Case("leak up to a ceiling, then rest", LEAK, True, ((0, 4), (60, 4), (120, 64), (240, 64))),
    Case("young leak", LEAK, False, ((0, 2), (50, 100)), minutes=50),
)
IDLERS = (
    Case("idle notebook", IDLE, True),
    Case("C60 sleep job", IDLE, True, ((0, 40),)),
    Case("at rest, but for noise", IDLE, True, use=tuple((m, m % 2) for m in range(240))),
    Case("notebook forgotten after work", IDLE, True, use=((0, 90), (90, 0))),
    Case("C61 idle between bursts, half an hour apart", IDLE, False, use=every(30, 1, 95)),
    Case("C61 idle between bursts, 55 minutes apart", IDLE, False, use=every(55, 1, 95)),
    Case("C61 one burst of a single look in 50 minutes", IDLE, False, use=every(50, 0.4, 95)),
    Case("C60 faked load", IDLE, False, use=every(1, 0.5, 40)),
    Case("inference, a request each 20 minutes", IDLE, False, use=every(20, 0.5, 30)),
    Case("inference, a request of a tenth of a second each 40 minutes", IDLE, False, use=every(40, 0.4, 4)),
    Case("inference, a request each 50 minutes", IDLE, False, use=every(50, 0.5, 8)),
    Case("C63 MIG tells no shares", IDLE, False, use=((0, Unknown),)),
    Case("C34 shares that make no sense", IDLE, False, use=every(30, 1, Unknown)),
    Case("C75 a busy GPU without samples", IDLE, False, use=((0, Unknown), (59, 0), (100, Unknown))),
    Case("data loading for 40 minutes, then work", IDLE, False, use=((0, 0), (40, 80))),
    Case("data loading between epochs", IDLE, False, use=every(55, 30, 95)),
    Case("C61 preparation on the processor", IDLE, False, core_percent=85.0),
    Case("checkpoint written for 20 minutes", IDLE, False, use=((0, 90), (100, 0), (120, 90))),
    Case("waits for its peers, which keeps the GPU busy", IDLE, False, use=((0, 100),)),
    Case("a little more than allowed", IDLE, False, use=((0, 2),)),
    Case("holds no memory", IDLE, False, ((0, 0),)),
    Case("holds memory now and then", IDLE, False, pauses(45, 10)),
    Case("memory that is not told", IDLE, False, ((0, Unknown),)),
    Case("suspended by its scheduler", IDLE, False, still="suspended"),
    Case("frozen container", IDLE, False, still="frozen"),
    Case("under a debugger", IDLE, False, still="traced"),
    Case("young", IDLE, False, minutes=58),
    Case("idle, and holds little", IDLE, True, ((0, 0.4),)),
    Case("idle as soon as its memory was full", IDLE, True, ((0, 1), (20, 120)), ((0, 60), (20, 0))),
    Case("machine paused in between", IDLE, False, gaps=((50, 60), (110, 120), (170, 180), (230, 240))),
)
AGES = (
    Case("residency of three hours", OLD, True, minutes=180),
    Case("residency of 55 minutes", OLD, False, minutes=55),
    Case("old, and holds nothing", OLD, False, ((0, 0),)),
    Case("old, and suspended", OLD, False, still="suspended"),
    Case("old, and under a debugger", OLD, False, still="traced"),
    Case("old, and frozen", OLD, False, still="frozen"),
    Case("residency of 70 minutes", OLD, True, minutes=70),
    Case("old, and its memory is not told", OLD, False, ((0, Unknown),)),
)
SERIES = (*LEAKS, *IDLERS, *AGES)
