"""What a rollout report says of each rule: what enforcing would have done, and whether to."""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.audit_record import RuleTally
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.policy import Mode


class Fate(StrEnum):
    """What enforcing would have meant for one target, or what it did mean."""

    ACTED = "acted"
    """It was acted on: the rule enforces already."""
    AT_ONCE = "at_once"
    LATER = "later"
    """Budget or cool-down would have let it wait."""
    STOPPED = "stopped"
    ENDED_FIRST = "ended_first"
    """It was over before anything was due, within the warning's time."""


class AdviceWord(StrEnum):
    """What to do with a rule, in one word."""

    ENFORCES = "enforces"
    READY = "ready"
    NEEDS_EXEMPTION = "needs_exemption"
    TOO_NOISY = "too_noisy"
    GAINS_NOTHING = "gains_nothing"
    CAN_NOT_TELL = "can_not_tell"
    STOPPED = "stopped"
    NEVER_FIRED = "never_fired"
    TOO_SHORT = "too_short"
    NOT_IN_POLICY = "not_in_policy"


@dataclass(frozen=True, slots=True)
class Advice:
    """One word, and its reason in figures."""

    word: AdviceWord
    text: str


@dataclass(frozen=True, slots=True)
class Story:
    """One target: who, when (wall-clock seconds), its fate, and by which incidents to read on.

    `workload` is "" where no boundary proves one. `stopped_by` are the gates that stood against it to the
    end, `held_up_by` all that ever did. `in_grace`: it ended by itself, or its rule let go of it, before the
    step after the first would have been due.
    """

    name: str
    pid: int
    uid: int
    workload: str
    command: str
    first_at: float
    reason: str
    fate: Fate
    text: str
    incidents: tuple[IncidentId, ...]
    incident_count: int
    stopped_by: tuple[str, ...] = ()
    held_up_by: tuple[str, ...] = ()
    waits_seconds: float = 0.0
    in_grace: bool = False


@dataclass(frozen=True, slots=True)
class LaterStage:
    """A later stage of the plans: how many gates would have let it through, and what refused the others."""

    stage: str
    permitted: int
    refused: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RuleReport:
    """One rule over the time of the report. Pairs are names with counts, the greatest first."""

    rule: str
    kind: str
    mode: Mode
    targets: int
    incidents: int
    per_day: float
    fates: tuple[tuple[Fate, int], ...]
    stopped_by: tuple[tuple[str, int], ...]
    held_up_by: tuple[tuple[str, int], ...]
    in_grace: int
    longest_wait_seconds: float
    breaker_trips: int
    stages: tuple[LaterStage, ...]
    users: tuple[tuple[str, int], ...]
    workloads: tuple[tuple[str, int], ...]
    tally: RuleTally | None
    stories: tuple[Story, ...]
    advice: Advice

    def count(self, fate: Fate) -> int:
        """Return how many targets had this fate."""
        return dict(self.fates).get(fate, 0)
