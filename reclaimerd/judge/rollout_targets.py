"""Read the record of a time for whom each rule wanted, and what became of them; pure.

A dry run takes up the same process again and again, since nothing ended it: what counts is each process
once, by the first time that it was due. Memory is bounded: past the bounds it counts on, and says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import ActorKind, Outcome, OutcomeKind, Stage, Target
from reclaimerd.model.step import GateAnswer, ReasonKind

MOST_TARGETS = 20_000
MOST_INCIDENTS = 20
"""As many incidents are named for one target; all of them are counted."""
KINDS = frozenset(
    {
        RecordKind.INCIDENT_OPENED,
        RecordKind.REFUSED,
        RecordKind.OUTCOME,
        RecordKind.PLANNED,
        RecordKind.INCIDENT_ENDED,
        RecordKind.TALLY,
    },
)
"""The records that are read; all others say nothing of this."""
PERMITTED = "all"
"""The gate's name in a plan's record where every gate would let the stage through."""
_ACTED = frozenset(
    {
        OutcomeKind.SENT,
        OutcomeKind.ACCEPTED,
        OutcomeKind.UNKNOWN,
        OutcomeKind.RESET_DONE,
        OutcomeKind.RESET_ABANDONED,
        OutcomeKind.RESET_NOT_VERIFIED,
    },
)


@dataclass(slots=True)
class TargetStory:
    """One target of one rule, from the first record of it on. Instants are wall-clock seconds.

    `refused` is what stood against its first act when that was last refused, `held_up` all that ever did.
    `dry_at`: its first act in a dry run; `acted_at`: its first real one; `warned_at`: its owner was, or in
    a dry run would have been, warned. `planned` are the stages after that, each with the gates that would
    have refused it then. `gone_at`: it was seen to be gone without an act of ours; `let_go_at`: its rule let
    go of it.
    """

    rule: str
    target: Target
    first_at: float
    last_at: float
    reason: str = ""
    incidents: list[IncidentId] = field(default_factory=list)
    incident_count: int = 0
    refused: dict[ReasonKind, str] = field(default_factory=dict)
    held_up: set[ReasonKind] = field(default_factory=set)
    dry_at: float | None = None
    dry_stage: str = ""
    dry_acts: int = 0
    acted_at: float | None = None
    warned_at: float | None = None
    planned: dict[str, frozenset[str]] = field(default_factory=dict)
    gone_at: float | None = None
    let_go_at: float | None = None

    @property
    def had_act(self) -> bool:
        """Tell whether any act followed, or in a dry run would have."""
        return self.dry_at is not None or self.acted_at is not None


@dataclass(slots=True)
class Told:
    """What the records said so far; take them in their order.

    `left_out`: records about targets beyond the bound.
    """

    only_rule: str = ""
    stories: dict[tuple[str, str], TargetStory] = field(default_factory=dict)
    tallies: dict[str, RuleTally] = field(default_factory=dict)
    counted_from: float | None = None
    passes: int = 0
    left_out: int = 0
    _open_dry: set[IncidentId] = field(default_factory=set)

    def take(self, at: float, entry: AuditEntry) -> None:
        """Take one record that was written at this instant."""
        if entry.tally is not None:
            self._take_tally(entry.tally)
        by_rule = entry.actor is not None and entry.actor.kind is ActorKind.RULE
        if not by_rule or entry.actor is None or entry.target is None or entry.incident is None:
            return
        if entry.kind not in KINDS or self.only_rule not in ("", entry.actor.name):
            return
        story = self._story(entry.actor.name, entry.target, at)
        if story is None:
            self.left_out += 1
            return
        story.last_at = at
        self._take_event(story, at, entry, entry.incident)

    def _story(self, rule: str, target: Target, at: float) -> TargetStory | None:
        key = (rule, name_of(target))
        story = self.stories.get(key)
        if story is None and len(self.stories) < MOST_TARGETS:
            story = self.stories[key] = TargetStory(rule, target, at, at)
        return story

    def _take_event(self, story: TargetStory, at: float, entry: AuditEntry, incident: IncidentId) -> None:
        if incident not in story.incidents[-1:]:
            story.incident_count += 1
            if len(story.incidents) < MOST_INCIDENTS:
                story.incidents.append(incident)
        match entry.kind:
            case RecordKind.INCIDENT_OPENED:
                story.reason = story.reason or entry.reason
            case RecordKind.REFUSED if not story.had_act:
                story.refused = {reason.kind: reason.text for reason in entry.refusals}
                story.held_up |= story.refused.keys()
            case RecordKind.OUTCOME if entry.outcome is not None:
                self._take_outcome(story, at, (entry.action, entry.outcome), incident)
            case RecordKind.PLANNED:
                story.planned.setdefault(entry.action, _refusing(entry.gates))
            case RecordKind.INCIDENT_ENDED:
                self._take_end(story, at, entry, incident)
            case _:
                pass

    def _take_outcome(
        self, story: TargetStory, at: float, did: tuple[str, Outcome], incident: IncidentId
    ) -> None:
        action, outcome = did
        is_dry = outcome.kind is OutcomeKind.DRY_RUN
        if action == Stage.WARNED:
            if is_dry or outcome.kind is OutcomeKind.DELIVERED:
                story.warned_at = at if story.warned_at is None else story.warned_at
        elif is_dry:
            self._open_dry.add(incident)
            story.dry_acts += 1
            if story.dry_at is None:
                story.dry_at, story.dry_stage = at, action
        elif outcome.kind in _ACTED and story.acted_at is None:
            story.acted_at = at

    def _take_end(self, story: TargetStory, at: float, entry: AuditEntry, incident: IncidentId) -> None:
        if incident in self._open_dry:  # nothing ended but the dry run
            self._open_dry.discard(incident)
        elif story.acted_at is not None:
            pass
        elif entry.proof is not None:
            story.gone_at = at if story.gone_at is None else story.gone_at
        elif entry.end == Stage.STOOD_DOWN:
            story.let_go_at = at if story.let_go_at is None else story.let_go_at

    def _take_tally(self, tally: Tally) -> None:
        if self.counted_from is None:
            self.counted_from = tally.since
        self.passes += tally.passes
        for one in tally.rules:
            if self.only_rule in ("", one.rule):
                kept = self.tallies.get(one.rule)
                self.tallies[one.rule] = one if kept is None else _sum(kept, one)


def name_of(target: Target) -> str:
    """Return what tells a target from others: its root process, or where nobody is told to go the GPU."""
    return str(target.root) if target.root.pid else " ".join(target.gpus)


def _refusing(gates: tuple[GateAnswer, ...]) -> frozenset[str]:
    names = {answer.gate for answer in gates}
    return frozenset() if PERMITTED in names else frozenset(names)


_FIGURES = tuple(key.name for key in fields(RuleTally) if key.name != "rule")


def _sum(one: RuleTally, other: RuleTally) -> RuleTally:
    """Return both counts as one; a process that both counted counts twice."""
    added: Mapping[str, int] = {name: getattr(one, name) + getattr(other, name) for name in _FIGURES}
    return replace(one, **added)  # type: ignore[arg-type]  # every figure is a whole number
