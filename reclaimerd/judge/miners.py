"""Say whether a holder looks like a miner: a score from independent signs. A sign is no proof.

Nothing is ever taken because of it: rules of this kind warn at most. What is not known adds nothing and
is named, and below the score the rule does not hold. docs/miners.md says what each sign is and can't see.
"""

from collections.abc import Iterable, Sequence

from reclaimerd.judge.conditions import Condition, DoesNotHold, Figure, Holds, UnknownCondition, figure_of
from reclaimerd.judge.held_conditions import Basis, span
from reclaimerd.judge.miner_program import program_signs
from reclaimerd.judge.miner_signs import MinerSign, Signs, shown, together
from reclaimerd.judge.series import Point, Series
from reclaimerd.model.policy import Rule
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Holder

FULL_PERCENT = 90
"""Of a GPU's multiprocessors: what a miner holds without a pause, and so does any well-fed computation."""
_DIPS_OF = 20
"""One stretch in so many may lie lower, or be unknown: a miner takes new work now and then."""
_QUIET_BYTES_PER_SECOND = 64 * 1024
"""A miner sends and receives some hundred bytes a second, and writes a line now and then."""
_READ_EACH_SECONDS = 30.0
"""How old what was last read of its input and output may be."""
_COVERED = 0.8
"""How much of the window its input and output must be known over."""
_SMALL_PART = 10
"""One part in so many of the device's memory."""


def miner_condition(rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis) -> Condition:
    """Return whether a process on these rows shows enough signs of a miner for the rule."""
    if not rows:
        return DoesNotHold("the rule does not concern it")
    signs = miner_signs(rule, reading, rows, basis)
    if signs.found and signs.points >= round(100 * rule.score):
        text = f"scores {signs.points / 100:.2f} as a miner, {rule.score:g} or more: {signs.text()}"
        return Holds(text, tuple(dict.fromkeys(row.gpu for row in rows)), 0)
    text = f"scores {signs.points / 100:.2f} as a miner, less than {rule.score:g}: {signs.text()}"
    return DoesNotHold(text)


def miner_signs(rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis) -> Signs:
    """Return every sign that it shows; of several GPUs the one on which it shows most."""
    program = program_signs(reading, basis.snapshot.signs.get(reading.ref), basis.miner)
    return together((_behaviour([_on_row(rule, row, basis) for row in rows]), program))


def _behaviour(each: Sequence[Signs]) -> Signs:
    most = each[0] if len(each) == 1 else max(each, key=lambda signs: signs.points)
    return most if most.found else together(each)


def _on_row(rule: Rule, row: Holder, basis: Basis) -> Signs:
    series = basis.series.get((row.ref, row.gpu, rule.window_seconds))
    window = span(rule.window_seconds)
    if series is None or series.points[-1].at != basis.snapshot.at:
        return Signs(unknown=(f"its load on {row.gpu} over the last {window}",))
    if not series.is_full:
        seen = span(series.points[-1].at - series.since)
        return Signs(unknown=(f"its load on {row.gpu}: watched for {seen} of {window}",))
    load = _load(series, row)
    if not load.found:
        return load  # little input and little memory are ordinary: they count beside a full load only
    return together((load, _io(series), _memory(figure_of(row, basis.listed))))


def _load(series: Series, row: Holder) -> Signs:
    window, allowed = span(series.window_seconds), len(series.points) // _DIPS_OF
    least = [point.sm_least_percent for point in series.points]
    low = [percent for percent in least if percent is None or percent < FULL_PERCENT]
    unknown = low.count(None)
    if len(low) - unknown > allowed:
        return Signs()
    if len(low) > allowed:
        return Signs(unknown=(f"its load on {row.gpu} all the last {window}",))
    return shown(MinerSign.FULL_LOAD, f"used {FULL_PERCENT} % of {row.gpu} or more for {window}")


def _io(series: Series) -> Signs:
    """Return whether it read and wrote next to nothing through calls, which no mapped file shows in.

    What was read may be old: the least time that it may stand for makes the highest rate.
    """
    unknown = Signs(unknown=("what it read and wrote",))
    begin, end = _first_known(series.points), _first_known(reversed(series.points))
    if begin is None or end is None:
        return unknown
    (first_at, first), (last_at, last) = begin, end
    seconds = last_at - first_at - _READ_EACH_SECONDS
    if last_at - first_at < _COVERED * series.window_seconds or seconds <= 0 or last < first:
        return unknown
    rate = (last - first) / seconds
    if rate > _QUIET_BYTES_PER_SECOND:
        return Signs()
    return shown(MinerSign.NO_IO, f"read and wrote {rate / 1024:.0f} KiB/s")


def _first_known(points: Iterable[Point]) -> tuple[float, int] | None:
    return next(((point.at, point.io_bytes) for point in points if point.io_bytes is not None), None)


def _memory(figure: Figure | UnknownCondition | None) -> Signs:
    if isinstance(figure, UnknownCondition):
        return Signs(unknown=(figure.text,))
    if figure is None or not 0 < figure.used_bytes <= figure.total_bytes / _SMALL_PART:
        return Signs()
    percent = 100 * figure.used_bytes / figure.total_bytes
    return shown(MinerSign.SMALL_MEMORY, f"holds {percent:.0f} % of its memory")
