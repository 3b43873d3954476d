"""What the mind thinks of a holder, and by which rules."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.policy import Mode


class Ruling(StrEnum):
    """RECLAIM acts if the gates permit; UNDETERMINED never acts."""

    RECLAIM = "reclaim"
    WATCH = "watch"
    SPARE = "spare"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class RuleReason:
    """One rule's answer on one holder, in words with its figures."""

    rule: str
    ruling: Ruling
    text: str
    gpus: tuple[GpuUuid, ...] = ()
    mode: Mode = Mode.OBSERVE
    sustained_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one holder; `rule` is the one that decided ("" when none holds)."""

    ref: ProcessRef
    ruling: Ruling
    reasons: tuple[RuleReason, ...]
    rule: str = ""
    gpus: tuple[GpuUuid, ...] = ()


@dataclass(frozen=True, slots=True)
class Protection:
    """Why a process may not be touched; `by` is `built-in` or the name in the policy."""

    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Sustained:
    """Since when, and over how many readings, one rule has held for one holder."""

    rule: str
    ref: ProcessRef
    since: float
    last: float
    readings: int
