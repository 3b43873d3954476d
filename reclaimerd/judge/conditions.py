"""Say whether a rule's condition holds for a holder, and since when; an impossible figure is unknown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import assert_never

from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.policy import GpuSpan, Rule, Threshold
from reclaimerd.model.reading import Absent, Known, Unreadable, text_of
from reclaimerd.model.snapshot import (
    GpuProcess,
    GpuReading,
    Holder,
    Snapshot,
)
from reclaimerd.model.verdict import Sustained

_GIB = 1024**3
_SLACK = 1.05
"""The rows of a GPU may exceed its used memory by 5 %: they are read at another moment."""
MOST_GAP_INTERVALS = 3
"""A longer gap between two looks (a paused machine, a hung driver) starts every `for` anew."""


@dataclass(frozen=True, slots=True)
class Holds:
    """The condition holds on these GPUs, by so many bytes in all."""

    text: str
    gpus: tuple[GpuUuid, ...]
    excess_bytes: int


@dataclass(frozen=True, slots=True)
class DoesNotHold:
    """The condition does not hold."""

    text: str


@dataclass(frozen=True, slots=True)
class UnknownCondition:
    """It can't be known whether the condition holds: nobody acts on it."""

    text: str


Condition = Holds | DoesNotHold | UnknownCondition


@dataclass(frozen=True, slots=True)
class Figure:
    """What is used of one GPU."""

    gpu: GpuUuid
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """One GPU and what it lists: the known bytes of one pid at most, and of all; None where unknown."""

    gpu: GpuReading
    most_bytes: int | None
    sum_bytes: int


Listed = Mapping[GpuUuid, ListedGpu]
"""What each GPU of one look lists."""


def listed_of(snapshot: Snapshot) -> Listed:
    """Return what each GPU lists; made once for a look, however many rules ask."""
    return {gpu.uuid: _listed(gpu) for gpu in snapshot.gpus}


def _listed(gpu: GpuReading) -> ListedGpu:
    if not isinstance(gpu.processes, Known):
        return ListedGpu(gpu, None, 0)
    each = _by_pid(gpu.processes.value)
    return ListedGpu(gpu, max(each, default=0), sum(each))


def memory_condition(
    rule: Rule, holders: Sequence[Holder], snapshot: Snapshot, listed: Listed | None = None
) -> Condition:
    """Return whether the holdings of one process, or of several together, exceed the rule's cap.

    `holders` are their rows on the GPUs that the rule concerns. Unreadable memory, a figure over
    the device's total and rows that sum to more than is used make it unknown. `listed` is
    `listed_of(snapshot)`, for a caller that asks of many processes.
    """
    listed = listed_of(snapshot) if listed is None else listed
    figures: list[Figure] = []
    doubts: list[str] = []
    for holder in _each_context_once(holders):
        match figure_of(holder, listed):
            case Figure() as figure:
                figures.append(figure)
            case UnknownCondition(text=text):
                doubts.append(text)
            case None:
                pass
            case answer:
                assert_never(answer)
    match rule.span:
        case GpuSpan.ONE:
            return _on_one(rule.above, _by_gpu(figures), doubts)
        case GpuSpan.ALL:
            return _on_all(rule.above, _by_gpu(figures), doubts)
        case _:
            assert_never(rule.span)


def _each_context_once(holders: Sequence[Holder]) -> Iterator[Holder]:
    """Yield the rows, but of several heirs of one dead process the first alone: they share its listing."""
    passed: set[tuple[GpuUuid, ProcessRef]] = set()
    for holder in holders:
        if holder.heir_of is not None:
            if (holder.gpu, holder.heir_of) in passed:
                continue
            passed.add((holder.gpu, holder.heir_of))
        yield holder


def _by_gpu(figures: Sequence[Figure]) -> list[Figure]:
    """Return one figure for each GPU: the sum of all who use it."""
    if len(figures) <= 1:
        return list(figures)
    sums: dict[GpuUuid, Figure] = {}
    for figure in figures:
        before = sums.get(figure.gpu)
        used = figure.used_bytes + (0 if before is None else before.used_bytes)
        sums[figure.gpu] = Figure(figure.gpu, used, figure.total_bytes)
    return list(sums.values())


def _on_one(above: Threshold, figures: Sequence[Figure], doubts: Sequence[str]) -> Condition:
    over = [figure for figure in figures if figure.used_bytes > _cap_bytes(above, figure.total_bytes)]
    if over:
        excess = sum(figure.used_bytes - _cap_bytes(above, figure.total_bytes) for figure in over)
        text = "; ".join(f"{_sentence(figure.used_bytes, above)} on {figure.gpu}" for figure in over)
        return Holds(text, tuple(figure.gpu for figure in over), excess)
    if doubts:
        return UnknownCondition("; ".join(doubts))
    most = max((figure.used_bytes for figure in figures), default=0)
    return DoesNotHold(f"holds {gib(most)} at most, not more than {_cap_text(above)}")


def _on_all(above: Threshold, figures: Sequence[Figure], doubts: Sequence[str]) -> Condition:
    if doubts:
        return UnknownCondition("; ".join(doubts))
    used = sum(figure.used_bytes for figure in figures)
    cap = _cap_bytes(above, sum(figure.total_bytes for figure in figures))
    if used > cap:
        text = f"{_sentence(used, above)} over {len(figures)} GPUs"
        return Holds(text, tuple(figure.gpu for figure in figures), used - cap)
    return DoesNotHold(f"holds {gib(used)} in all, not more than {_cap_text(above)}")


def figure_of(holder: Holder, listed: Listed) -> Figure | UnknownCondition | None:
    """Return what a holder uses of its GPU; None where it is known to hold none of its memory."""
    listing = listed.get(holder.gpu)
    if listing is None:
        return UnknownCondition(f"{holder.gpu} was not seen")
    gpu = listing.gpu
    match holder.used_bytes:
        case Absent() if not (holder.listed or holder.heir_of is not None):
            return None if isinstance(gpu.processes, Known) else _unknown_rows(gpu)
        case Known(value=used):
            return _sane(listing, used)
        case Absent() | Unreadable():
            return UnknownCondition(f"its memory on {gpu.uuid} is {text_of(holder.used_bytes)}")
        case _:
            assert_never(holder.used_bytes)


def _sane(listing: ListedGpu, used: int) -> Figure | UnknownCondition:
    gpu, total = listing.gpu, listing.sum_bytes
    if not isinstance(gpu.memory, Known):
        return UnknownCondition(f"the memory of {gpu.uuid} is {text_of(gpu.memory)}")
    if listing.most_bytes is None:
        return _unknown_rows(gpu)
    memory = gpu.memory.value
    most = max(used, listing.most_bytes)
    if most > memory.total_bytes:
        return UnknownCondition(f"{gpu.uuid} reports {gib(most)} of one process, more than the device has")
    if total > memory.used_bytes * _SLACK:
        return UnknownCondition(
            f"{gpu.uuid} lists {gib(total)} of processes, but only {gib(memory.used_bytes)} is used",
        )
    return Figure(gpu.uuid, used, memory.total_bytes)


def _unknown_rows(gpu: GpuReading) -> UnknownCondition:
    return UnknownCondition(f"the process list of {gpu.uuid} is not known")


def _by_pid(rows: Iterable[GpuProcess]) -> tuple[int, ...]:
    """Return the known bytes of each pid once: one process may stand in several lists."""
    most: dict[tuple[int, int | None, int | None], int] = {}
    for row in rows:
        if isinstance(row.used_bytes, Known):
            key = (row.pid, row.gpu_instance, row.compute_instance)
            most[key] = max(most.get(key, 0), row.used_bytes.value)
    return tuple(most.values())


def _cap_bytes(above: Threshold, total_bytes: int) -> int:
    if above.above_bytes is not None:
        return above.above_bytes
    return int(total_bytes * _percent(above) / 100)


def _percent(above: Threshold) -> float:
    # The loader sets exactly one of the two; with neither nothing is ever over the cap.
    return 100.0 if above.above_percent is None else above.above_percent


def _cap_text(above: Threshold) -> str:
    return f"{_percent(above):g} %" if above.above_bytes is None else gib(above.above_bytes)


def _sentence(used: int, above: Threshold) -> str:
    return f"holds {gib(used)}, more than {_cap_text(above)}"


def gib(size_bytes: int) -> str:
    """Return a size in GiB for people."""
    return f"{size_bytes / _GIB:.1f} GiB"


RuleAndRef = tuple[str, ProcessRef]


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look says of every rule and holder: where it holds, and where it can't be known."""

    holding: frozenset[RuleAndRef]
    unknown: frozenset[RuleAndRef] = frozenset()


def advance_sustained(
    previous: tuple[Sustained, ...],
    seen: Seen,
    now: float,
    interval_seconds: float,
) -> tuple[Sustained, ...]:
    """Return since when each rule holds for each holder, after this look (`now` is monotonic).

    A look that can't tell counts for nothing and keeps what was; a gap of more than three intervals,
    or a clock that went back, starts anew; a look where it does not hold ends it.
    """
    before = {(kept.rule, kept.ref): kept for kept in previous}
    after: list[Sustained] = []
    for key in sorted(seen.holding | seen.unknown):
        kept = before.get(key)
        fresh = kept is not None and 0 <= now - kept.last <= MOST_GAP_INTERVALS * interval_seconds
        if key in seen.holding:
            start = Sustained(key[0], key[1], since=now, last=now, readings=1)
            after.append(start if kept is None or not fresh else _one_more(kept, now))
        elif kept is not None and fresh:
            after.append(kept)
    return tuple(after)


def sustained_enough(kept: Sustained, rule: Rule, now: float) -> bool:
    """Tell whether the rule has held long enough, and over enough readings."""
    return now - kept.since >= rule.for_seconds and kept.readings >= rule.readings


def _one_more(kept: Sustained, now: float) -> Sustained:
    return changed(kept, last=now, readings=kept.readings + 1)
