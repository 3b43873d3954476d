"""One incident folded from its records into what somebody asks who lost a job: who, why, each step, the end.

Pure and bounded. It tells what is on record of our own attempts and guesses nothing: a signal that no outcome
says was sent was not ours, and an attempt without an outcome is unknown, never "not sent".
"""

from collections.abc import Callable
from typing import Final

from reclaimerd.record.audit_filter import Json, instant_of, table_of, tables_of, word_of, workload_words

MOST_STEPS: Final = 100
MOST_WORDS: Final = 20
TICKS_PER_SECOND: Final = 100
"""USER_HZ of proc(5), field starttime: 100 on every architecture that has NVIDIA's driver."""
SIGNALS: Final = frozenset({"sigterm", "sigkill", "suspended"})
_DID: Final = frozenset(
    {"sent", "accepted", "delivered", "reset_done", "reset_abandoned", "reset_not_verified"}
)
_GRAVEST: Final = ("yes", "unknown", "no")

IsMeant = Callable[[Json], bool]
"""Tells whether a process reference of a record is the one that was asked about."""


class Story:
    """What the records of one incident say, taken oldest first; `meant` is None where all members are."""

    __slots__ = (
        "_actors",
        "_first",
        "_is_meant",
        "_left_out",
        "_steps",
        "_words",
        "end",
        "incident",
        "opened",
        "target",
    )

    def __init__(self, incident: str, is_meant: IsMeant | None) -> None:
        self.incident = incident
        self._is_meant = is_meant
        self._first: Json = {}
        self._actors: list[Json] = []
        self._steps: dict[str, Json] = {}
        self._words: dict[tuple[str, str], Json] = {}
        self._left_out = 0
        self.target: Json = {}
        self.opened: Json = {}
        self.end: Json = {}

    def take(self, record: Json) -> None:
        """Take one record of this incident."""
        self._first = self._first or record
        actor = table_of(record, "actor")
        if actor and len(self._actors) < MOST_WORDS and _who(actor) not in self._actors:
            self._actors.append(_who(actor))
        self.target = self.target or table_of(record, "target")
        match record.get("kind"):
            case "incident_opened":
                self.opened = self.opened or record
            case "intent" | "outcome" | "planned" | "passed_over":
                self._step(record)
            case "refused" | "note" | "alarm" | "late_release" | "reset_step" | "drain_step":
                self._word(record)
            case "incident_ended":
                self.end = record

    def _step(self, record: Json) -> None:
        """Keep one attempt, by its id, or a stage that was not attempted; its outcome replaces its intent."""
        action, kind = word_of(record, "action"), word_of(record, "kind")
        key = word_of(record, "attempt") or f"{kind} {action}"
        if key not in self._steps and len(self._steps) >= MOST_STEPS:
            self._left_out += 1
            return
        step = {"action": action, "by": word_of(table_of(record, "actor"), "name"), **self._when(record)}
        match kind:
            case "intent":
                self._steps[key] = step | {"outcome": "", "did": "unknown", "detail": ""}
            case "outcome":
                self._steps[key] = step | self._outcome(table_of(record, "outcome"))
            case _:
                said = {"outcome": kind, "did": "no", "detail": word_of(record, "reason")}
                self._steps[key] = step | said

    def _outcome(self, outcome: Json) -> Json:
        """Return what came of an attempt for the process that is meant; the gravest where several are."""
        own = [one for one in tables_of(outcome, "targets") if self._concerns(table_of(one, "ref"))]
        listed = any(True for _ in tables_of(outcome, "targets"))
        if listed and not own:
            return {"outcome": "not_sent_to_it", "did": "no", "detail": ""}
        told = min(own, key=lambda one: _GRAVEST.index(_did(word_of(one, "kind"))), default=outcome)
        kind, detail = word_of(told, "kind"), word_of(told, "detail") or word_of(outcome, "detail")
        return {"outcome": kind, "did": _did(kind), "detail": detail}

    def _concerns(self, ref: Json) -> bool:
        return self._is_meant is None or self._is_meant(ref)

    def _word(self, record: Json) -> None:
        """Keep why something was not done, or a note; the same one again only counts on."""
        kind = word_of(record, "kind")
        reasons = [
            {key: word_of(one, key) for key in ("kind", "text", "mend")}
            for one in tables_of(record, "refusals")
        ]
        key = (f"{kind} {word_of(record, 'action')}", word_of(record, "reason"))
        if key not in self._words and len(self._words) >= MOST_WORDS:
            self._left_out += 1
            return
        told = {"kind": kind, "action": word_of(record, "action"), "text": word_of(record, "reason")}
        self._words.setdefault(key, told | self._when(record) | {"reasons": reasons[:MOST_WORDS]})

    def _when(self, record: Json) -> Json:
        """Return when a record was written, and so many seconds after the incident's first one."""
        return {"at": record.get("at"), "after_seconds": seconds_between(self._first, record)}

    def members(self) -> list[Json]:
        """Return the references of the target's processes that are meant, each once."""
        refs = [table_of(self.target, "root"), *tables_of(self.target, "members")]
        return [
            ref for number, ref in enumerate(refs) if ref and ref not in refs[:number] and self._concerns(ref)
        ]

    def answer(self) -> str:
        """Return what we did: signalled, unknown, acted (a warning, drain or reset alone), nothing_done."""
        did = {(step["action"] in SIGNALS, step["did"]) for step in self._steps.values()}
        if (True, "yes") in did:
            return "signalled"
        if (True, "unknown") in did:
            return "unknown"
        return "acted" if (False, "yes") in did else "nothing_done"

    def as_json(self) -> Json:
        """Return all of it."""
        root = table_of(self.target, "root")
        gpus = self.target.get("gpus")
        return {
            "incident": self.incident,
            "answer": self.answer(),
            "actors": list(self._actors),
            "why": word_of(self.opened, "reason"),
            "opened_at": self._first.get("at"),
            "process": name_of(root),
            "boot": word_of(root, "boot_id"),
            "processes": len(list(tables_of(self.target, "members"))),
            "scope": word_of(self.target, "scope"),
            "uid": self.target.get("uid"),
            "command": word_of(self.target, "command"),
            "workload": list(workload_words(self.target)),
            "gpus": [gpu for gpu in gpus if isinstance(gpu, str)] if isinstance(gpus, list) else [],
            "steps": list(self._steps.values()),
            "words": list(self._words.values()),
            "left_out": self._left_out,
            "end": word_of(self.end, "end"),
            "end_reason": word_of(self.end, "reason"),
            "proof": word_of(table_of(self.end, "proof"), "kind"),
            "ended_at": self.end.get("at"),
            "end_after_seconds": seconds_between(self._first, self.end) if self.end else None,
        }

    def started_at(self, ref: Json) -> float | None:
        """Return about when a process started (wall seconds): known from records of its own boot alone."""
        at, mono, ticks = instant_of(self._first), self._first.get("mono"), ref.get("start_ticks")
        known = isinstance(mono, int | float) and isinstance(ticks, int) and at is not None
        if not known or self._first.get("boot") != ref.get("boot_id"):
            return None
        return float(at or 0.0) - float(mono or 0.0) + int(ticks or 0) / TICKS_PER_SECOND


def _did(kind: str) -> str:
    """Return whether an outcome of this kind changed anything; one that is not known is never a no."""
    return "yes" if kind in _DID else "unknown" if kind in {"unknown", ""} else "no"


def _who(actor: Json) -> Json:
    """Return who asked, by what tells them apart."""
    return {key: actor.get(key) for key in ("kind", "name", "uid", "login", "loginuid", "role")}


def name_of(ref: Json) -> str:
    """Return a process as `ps` writes it, "" where the record has none."""
    pid, ticks = ref.get("pid"), ref.get("start_ticks")
    return f"{pid}@{ticks}" if isinstance(pid, int) and isinstance(ticks, int) else ""


def seconds_between(first: Json, record: Json) -> float | None:
    """Return the time between two records: by the clock of their boot, for the wall clock may jump."""
    begin, end = first.get("mono"), record.get("mono")
    if (
        first.get("boot") == record.get("boot")
        and isinstance(begin, int | float)
        and isinstance(end, int | float)
    ):
        return round(max(0.0, float(end) - float(begin)), 6)
    started, ended = instant_of(first), instant_of(record)
    return None if started is None or ended is None else round(max(0.0, ended - started), 6)
