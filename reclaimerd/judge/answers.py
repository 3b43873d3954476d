"""Ask one rule about one holding process: it holds, it does not, or it can't be known.

A rule of any kind needs a match that is known, an exemption that is known not to apply, and two
sources that agree; `sharing` asks the rules that sum over several processes.
"""

from dataclasses import dataclass

from reclaimerd.judge.concern import Concern
from reclaimerd.judge.conditions import DoesNotHold, Holds, UnknownCondition
from reclaimerd.judge.held_conditions import Basis
from reclaimerd.judge.kinds import condition_of
from reclaimerd.model.policy import GpuSpan, Rule
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Holder

Answer = Holds | DoesNotHold | UnknownCondition


@dataclass(frozen=True, slots=True)
class Concerned:
    """On which of its GPUs a rule concerns a process, and why that is unknown for one of them."""

    rows: tuple[Holder, ...]
    unknown: str = ""


def concerned_of(concern: Concern, whole: Concerned) -> Concerned:
    """Return the rows of a process that a rule concerns, out of all that it holds."""
    if len(concern.rows) == len(whole.rows):
        return whole
    return Concerned(tuple(whole.rows[place] for place in concern.rows), concern.unknown)


def answer_of(rule: Rule, reading: ProcessReading, concerned: Concerned, basis: Basis) -> Answer:
    """Return the answer of a rule that is about single processes, and concerns this one or may."""
    rows = concerned.rows
    if not rows:
        return UnknownCondition(concerned.unknown)
    condition = condition_of(rule, reading, rows, basis)
    if isinstance(condition, Holds) and not all(map(has_two_sources, rows)):
        backed = condition_of(rule, reading, tuple(filter(has_two_sources, rows)), basis)
        if not isinstance(backed, Holds):
            return DoesNotHold(f"{condition.text}, but only one source shows it")
        condition = backed
    # On one GPU a known excess stands by itself; over all GPUs one unknown part makes the sum unknown.
    if concerned.unknown and (not isinstance(condition, Holds) or rule.span is GpuSpan.ALL):
        return UnknownCondition(concerned.unknown)
    return condition


def has_two_sources(row: Holder) -> bool:
    """Tell whether NVML and /proc both show that it holds this GPU."""
    return row.node and (row.listed or row.heir_of is not None)
