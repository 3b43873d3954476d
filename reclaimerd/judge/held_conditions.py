"""Say whether a holder leaks, is too old or is idle; what is not known over the whole time is unknown.

Suspended, frozen and traced processes are nobody's to judge by these: what another holds still is
neither idle nor old by its own will.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from reclaimerd.judge.conditions import (
    Condition,
    DoesNotHold,
    Figure,
    Holds,
    Listed,
    UnknownCondition,
    figure_of,
    gib,
)
from reclaimerd.judge.scans import Scans, Use
from reclaimerd.judge.series import Key, Series
from reclaimerd.judge.trend import Climb
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import AttributionSettings, MinerSettings, Rule, RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known, text_of
from reclaimerd.model.snapshot import Holder, Snapshot

_MIB = 1024**2
_TICKS_PER_SECOND = 100
"""USER_HZ, the unit of utime and stime in /proc/PID/stat, on every architecture with an NVIDIA driver."""
WORKING_PERCENT = 10.0
"""Of a core over the window: a main thread that does more prepares something, or waits by polling."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What all answers of one look rest on."""

    snapshot: Snapshot
    listed: Listed
    series: Mapping[Key, Series]
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    miner: MinerSettings = field(default_factory=MinerSettings)
    scans: Scans = field(default_factory=Scans, init=False, repr=False, compare=False)


def held_condition(rule: Rule, reading: ProcessReading, rows: Sequence[Holder], basis: Basis) -> Condition:
    """Return whether a rule of kind `memory_growth`, `age` or `idle` holds for a process on these rows."""
    if not rows:
        return DoesNotHold("the rule does not concern it")
    still = basis.scans.held_still(reading, basis.snapshot)
    if still:
        return UnknownCondition(f"it is {still}")
    least_seconds = rule.older_than_seconds
    if least_seconds is not None and reading.age_seconds < least_seconds:
        return DoesNotHold(f"is {span(reading.age_seconds)} old, not {span(least_seconds)}")
    answer = _together([_on_row(rule, reading, row, basis) for row in rows])
    if rule.kind is RuleKind.IDLE and isinstance(answer, Holds):
        return _use_elsewhere(rule, reading.ref, answer, basis) or answer
    return answer


def _use_elsewhere(rule: Rule, ref: ProcessRef, idle: Holds, basis: Basis) -> Condition | None:
    """Return why a process that is idle on some GPUs is not idle, or may not be: by its other GPUs.

    Also those that the rule does not concern, or only one source shows: it is the process that would go.
    """
    window, unknown = span(rule.window_seconds), ""
    for row in basis.snapshot.holders:
        if row.ref != ref or row.gpu in idle.gpus:
            continue
        key = (ref, row.gpu, rule.window_seconds)
        series = basis.series.get(key)
        use = None if series is None else basis.scans.use(key, series)
        most = 0 if use is None else use.most_percent
        if rule.idle_percent is None or most > rule.idle_percent:
            return DoesNotHold(f"used {most} % of {row.gpu} within the last {window}")
        is_known = use is not None and use.knows_share and series is not None and series.is_full
        if not is_known and figure_of(row, basis.listed) is not None:
            unknown = unknown or f"what it used of {row.gpu} was not known all the last {window}"
    return UnknownCondition(unknown) if unknown else None


def _together(answers: Sequence[Condition]) -> Condition:
    """Return one answer for all GPUs: what holds on one holds; else what is unknown on one is unknown."""
    if len(answers) == 1:
        return answers[0]
    held = [answer for answer in answers if isinstance(answer, Holds)]
    if held:
        text = "; ".join(answer.text for answer in held)
        gpus = tuple(gpu for answer in held for gpu in answer.gpus)
        return Holds(text, gpus, sum(answer.excess_bytes for answer in held))
    unknown = [answer.text for answer in answers if isinstance(answer, UnknownCondition)]
    if unknown:
        return UnknownCondition("; ".join(unknown))
    return DoesNotHold("; ".join(dict.fromkeys(answer.text for answer in answers)))


def _on_row(rule: Rule, reading: ProcessReading, row: Holder, basis: Basis) -> Condition:
    figure = figure_of(row, basis.listed)
    if isinstance(figure, UnknownCondition):
        return figure
    if figure is None or figure.used_bytes == 0:
        return DoesNotHold(f"holds no memory of {row.gpu}")
    if rule.kind is RuleKind.AGE:
        text = f"is {span(reading.age_seconds)} old and holds {gib(figure.used_bytes)} of {row.gpu}"
        return Holds(text, (row.gpu,), figure.used_bytes)
    return _over_time(rule, row, figure, basis)


def _over_time(rule: Rule, row: Holder, figure: Figure, basis: Basis) -> Condition:
    key = (row.ref, row.gpu, rule.window_seconds)
    series = basis.series.get(key)
    if series is None or series.points[-1].at != basis.snapshot.at:
        return UnknownCondition(f"nothing is known of its last {span(rule.window_seconds)}")
    if not series.is_full:
        seen = series.points[-1].at - series.since
        return UnknownCondition(f"watched for {span(seen)} of {span(rule.window_seconds)}")
    if rule.kind is RuleKind.MEMORY_GROWTH:
        return _growth(rule, basis.scans.climb(key, series), figure)
    use = basis.scans.use(key, series)
    return _gap(rule, use, figure, (row, basis.snapshot)) or _idle(rule, series, use, figure)


def _growth(rule: Rule, climb: Climb | None, figure: Figure) -> Condition:
    if rule.growth_bytes_per_second is None:
        return DoesNotHold("the rule has no rate")
    window = span(rule.window_seconds)
    if climb is None:
        return UnknownCondition(f"its memory on {figure.gpu} was not known all the last {window}")
    rate = f"{climb.bytes_per_second / _MIB:.1f} MiB/s over {window} on {figure.gpu}"
    if climb.bytes_per_second < rule.growth_bytes_per_second:
        return DoesNotHold(f"grows by {rate}, less than {rule.growth_bytes_per_second / _MIB:g} MiB/s")
    trend = climb.trend(rule.growth_bytes_per_second)
    if not trend.is_steady():
        return DoesNotHold(f"grew by {rate}, but not steadily: it rose in {trend.rises} of 9 steps")
    excess = (trend.bytes_per_second - rule.growth_bytes_per_second) * rule.window_seconds
    limit = f"{rule.growth_bytes_per_second / _MIB:g} MiB/s"
    return Holds(f"grows by {rate}, {limit} or more, to {gib(figure.used_bytes)}", (figure.gpu,), int(excess))


def _idle(rule: Rule, series: Series, use: Use, figure: Figure) -> Condition:
    window, most = span(rule.window_seconds), use.most_percent
    if rule.idle_percent is None or most > rule.idle_percent:
        return DoesNotHold(f"used {most} % of {figure.gpu} within the last {window}")
    core_percent = _core_percent(series)
    if core_percent is None:
        return UnknownCondition(f"its processor time was not known all the last {window}")
    if core_percent >= WORKING_PERCENT:
        return DoesNotHold(f"its main thread used {core_percent:.0f} % of a core over the last {window}")
    text = f"used at most {most} % of {figure.gpu} for {window} and holds {gib(figure.used_bytes)} of it"
    return Holds(text, (figure.gpu,), figure.used_bytes)


def _gap(rule: Rule, use: Use, figure: Figure, where: tuple[Holder, Snapshot]) -> Condition | None:
    """Return why nothing can be said of the whole window; None when all of it is known."""
    if not use.was_empty and use.knows_memory and use.knows_share:
        return None
    window = span(rule.window_seconds)
    if use.was_empty:
        return DoesNotHold(f"has not held memory of {figure.gpu} for {window}")
    if not use.knows_memory:
        return UnknownCondition(f"its memory on {figure.gpu} was not known all the last {window}")
    unknown = f"what it used of {figure.gpu} was not known all the last {window}"
    return UnknownCondition(f"{unknown}{_why(where)}")


def _why(where: tuple[Holder, Snapshot]) -> str:
    """Return what this look says of the share, where that is why it is unknown."""
    row, snapshot = where
    gpu = snapshot.gpu(row.gpu)
    rows = gpu.processes.value if gpu is not None and isinstance(gpu.processes, Known) else ()
    unknown = [
        one.sm_percent for one in rows if one.pid == row.ref.pid and not isinstance(one.sm_percent, Known)
    ]
    return f" (now: {text_of(unknown[0])})" if unknown else ""


def _core_percent(series: Series) -> float | None:
    """Return how much of a core the main thread used over the window."""
    first, last = series.points[0], series.points[-1]
    if first.cpu_ticks is None or last.cpu_ticks is None or last.at <= first.at:
        return None
    return 100.0 * (last.cpu_ticks - first.cpu_ticks) / _TICKS_PER_SECOND / (last.at - first.at)


@lru_cache(maxsize=1024)  # of the same few windows and limits in every look
def span(seconds: float) -> str:
    """Return a length of time in its largest unit."""
    for unit, worth in (("h", 3600.0), ("min", 60.0)):
        if seconds >= worth:
            return f"{seconds / worth:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
