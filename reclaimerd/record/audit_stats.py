"""Counts what the records say: acts, refusals, failures and times to reclaim, in groups. Pure."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import OutcomeKind
from reclaimerd.record.audit_filter import Json, instant_of, table_of, word_of

GROUPINGS = ("rule", "user", "gpu", "day")
OTHERS = "(others)"
MOST_GROUPS = 1000
MOST_TIMES = 100_000
MOST_OPEN = 100_000
_DONE = frozenset(
    {OutcomeKind.SENT, OutcomeKind.ACCEPTED, OutcomeKind.DELIVERED, OutcomeKind.RESET_DONE},
)
_FAILED = frozenset(
    {
        OutcomeKind.NOT_PERMITTED,
        OutcomeKind.FAILED,
        OutcomeKind.UNKNOWN,
        OutcomeKind.NOT_DELIVERED,
        OutcomeKind.RESET_REFUSED,
        OutcomeKind.RESET_ABANDONED,
        OutcomeKind.RESET_NOT_VERIFIED,
    },
)
COUNTED: frozenset[str] = frozenset(
    {RecordKind.INCIDENT_OPENED, RecordKind.OUTCOME, RecordKind.REFUSED, RecordKind.INCIDENT_ENDED},
)


@dataclass(slots=True)
class Tally:
    """The figures of one group; `seconds` are from opening to the end reclaimed."""

    incidents: int = 0
    acts: int = 0
    dry_runs: int = 0
    refusals: int = 0
    failures: int = 0
    reclaimed: int = 0
    handed_over: int = 0
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def percentile(self, percent: int) -> float | None:
        """Return the time to reclaim that so many percent stay within (nearest rank), None without any."""
        if not self.seconds:
            return None
        ordered = sorted(self.seconds)
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


class Statistics:
    """Takes records in the order of the log; its memory is bounded, whatever the log holds."""

    __slots__ = ("_opened", "groups", "total")

    def __init__(self) -> None:
        self.total = Tally()
        self.groups: dict[str, dict[str, Tally]] = {grouping: {} for grouping in GROUPINGS}
        self._opened: dict[str, float] = {}

    def take(self, record: Json) -> None:
        """Count one record."""
        kind = word_of(record, "kind")
        if kind not in COUNTED:
            return
        took = self._seconds_to_end(kind, record)
        for tally in (self.total, *self._tallies(record)):
            _count(tally, kind, record)
            if took is not None and len(tally.seconds) < MOST_TIMES:
                tally.seconds.append(took)

    def _seconds_to_end(self, kind: str, record: Json) -> float | None:
        """Return how long a target that was reclaimed took, None for every other record."""
        incident, at = word_of(record, "incident"), instant_of(record)
        if kind == RecordKind.INCIDENT_OPENED and at is not None:
            if len(self._opened) >= MOST_OPEN:  # The oldest has no end on record, or a very late one.
                self._opened.pop(next(iter(self._opened)))
            self._opened[incident] = at
        if kind != RecordKind.INCIDENT_ENDED:
            return None
        opened = self._opened.pop(incident, None)
        if opened is None or at is None or word_of(record, "end") != "reclaimed":
            return None
        return max(0.0, at - opened)

    def _tallies(self, record: Json) -> Iterator[Tally]:
        actor, target = table_of(record, "actor"), table_of(record, "target")
        is_rule = actor.get("kind") == "rule"
        yield self._tally("rule", word_of(actor, "name") if is_rule else f"({actor.get('kind', 'nobody')})")
        if "uid" in target:
            yield self._tally("user", str(target["uid"]))
        named = target.get("gpus")
        for gpu in dict.fromkeys(map(str, named)) if isinstance(named, list) else ():
            yield self._tally("gpu", gpu)
        yield self._tally("day", word_of(record, "at")[:10])

    def _tally(self, grouping: str, name: str) -> Tally:
        group = self.groups[grouping]
        if name not in group and len(group) >= MOST_GROUPS:
            name = OTHERS
        return group.setdefault(name, Tally())


def _count(tally: Tally, kind: str, record: Json) -> None:
    outcome = word_of(table_of(record, "outcome"), "kind")
    match kind:
        case RecordKind.INCIDENT_OPENED:
            tally.incidents += 1
        case RecordKind.REFUSED:
            tally.refusals += 1
        case RecordKind.OUTCOME:
            tally.acts += outcome in _DONE
            tally.dry_runs += outcome == OutcomeKind.DRY_RUN
            tally.failures += outcome in _FAILED
        case _:
            end = word_of(record, "end")
            tally.reclaimed += end == "reclaimed"
            tally.handed_over += end.startswith("handed_over")
