"""What a probe answers: every failure is a value, and silence says since when and why."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reclaimerd.model.process import ProcessLook


class SilentCause(StrEnum):
    """Why a worker does not answer, as far as it shows; only the first may count against the driver."""

    UNRESPONSIVE = "unresponsive"
    OVERLOADED = "overloaded"
    STOPPED = "stopped"
    BUSY = "busy"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Answered:
    """A whole answer. What it says was true at some instant between the two times (monotonic)."""

    parts: tuple[Any, ...]
    sent_at: float
    answered_at: float
    late: bool = False


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer (yet); `since` is when the first question without an answer was sent (monotonic).

    `evidence` is the worker's own kernel stack where it could be read.
    """

    why: str
    since: float
    evidence: str = ""
    cause: SilentCause = SilentCause.UNRESPONSIVE


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker answered with an error, or it died: our own fault, never the driver's silence.

    `kind` is driver_absent, unsuitable, failed or stuck (one process made the reader hang).
    """

    kind: str
    message: str
    mend: str = ""


Answer = Answered | Silent | Failed


@dataclass(frozen=True, slots=True)
class Gone:
    """There is no such process."""


@dataclass(frozen=True, slots=True)
class UnreadableProcess:
    """The process exists, as far as is known, and could not be looked at: hands off."""

    why: str


LookAnswer = ProcessLook | Gone | UnreadableProcess


class ProbeKind(StrEnum):
    """How a worker does."""

    IDLE = "idle"
    OK = "ok"
    SLOW = "slow"
    SILENT = "silent"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class ProbeState:
    """How a worker does, since when (monotonic seconds) and why."""

    kind: ProbeKind
    since: float
    pid: int | None
    why: str = ""
