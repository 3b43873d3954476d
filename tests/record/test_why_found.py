"""record/why_found and why_fold: what the log has of a process, job or pod, and nothing that it has not."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId, IncidentId, ProcessRef
from reclaimerd.model.incident import (
    Actor,
    ActorKind,
    Outcome,
    OutcomeKind,
    Target,
    TargetOutcome,
)
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.step import Reason, ReasonKind
from reclaimerd.record.audit_filter import Json
from reclaimerd.record.audit_index import AuditIndex
from reclaimerd.record.audit_keeping import pack_full_files
from reclaimerd.record.why_found import Asked, read_why
from tests.builders import BOOT, MONO, WALL
from tests.record.log_rig import Log
from tests.record.review_rig import GPU_A, stories, target_of

POD_UID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
NAMES = WorkloadNames(namespace="team", pod="train-0", pod_uid=POD_UID, job_id="4711")
RULE = Actor(ActorKind.RULE, "leak")
ANA = Actor(ActorKind.OPERATOR, "ana", uid=1001)
SENT, DRY, GONE = OutcomeKind.SENT, OutcomeKind.DRY_RUN, OutcomeKind.ALREADY_GONE


def of_job(pid: int, start: int = 7, *more: int, names: WorkloadNames = NAMES) -> Target:
    """Return a target that is part of a job and a pod, with more members."""
    refs = tuple(ProcessRef(BOOT, one, start) for one in (pid, *more))
    workload = Workload(WorkloadKind.SLURM_JOB, "job", names=names)
    return replace(target_of(pid, 1001, GPU_A), root=refs[0], members=refs, workload=workload)


def entry(kind: RecordKind, incident: str, target: Target, **more: object) -> AuditEntry:
    """Return one record of an incident of the rule."""
    given = {"actor": RULE, **more}
    return AuditEntry(kind, IncidentId(incident), target=target, **given)  # type: ignore[arg-type]


def outcome(kind: OutcomeKind, *refs: ProcessRef) -> Outcome:
    """Return what came of an attempt for these processes."""
    return Outcome(kind, "", tuple(TargetOutcome(ref, kind, "SIGTERM") for ref in refs))


def acted(incident: str, target: Target, result: Outcome | None, **more: object) -> list[AuditEntry]:
    """Return an incident of one SIGTERM, its outcome left out where there is none."""
    attempt = AttemptId(f"{incident}.1")
    step = {"action": "sigterm", "attempt": attempt, **more}
    records = [entry(RecordKind.INCIDENT_OPENED, incident, target, reason="holds too much", **more)]
    records.append(entry(RecordKind.INTENT, incident, target, **step))
    if result is not None:
        records.append(entry(RecordKind.OUTCOME, incident, target, outcome=result, **step))
    return records


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of other people's incidents, over several files."""
    return stories(tmp_path / "log", 4)


def write(log: Log, *records: AuditEntry) -> None:
    """Append records, a second apart."""
    audit = log.open()
    for number, one in enumerate(records):
        audit.append([one], wall=WALL + 100_000 + number, mono=MONO + number)
    audit.close()


@pytest.fixture(params=["scan", "index", "packed"])
def index(request: pytest.FixtureRequest, log: Log) -> Iterator[list[AuditIndex | None]]:
    """Give what opens the index after the records are written: none, one, and one over packed files."""
    made: list[AuditIndex | None] = []

    class Opened(list[AuditIndex | None]):
        def pop(self, _at: object = None) -> AuditIndex | None:
            if request.param == "packed":
                pack_full_files(log.directory)
            found = None if request.param == "scan" else AuditIndex.open(log.directory, write=True)
            if found is not None:
                found.update(log.directory)
            made.append(found)
            return found

    yield Opened()
    for one in made:
        if one is not None:
            one.close()


def found(log: Log, opener: "list[AuditIndex | None] | None" = None, **asked: object) -> Json:
    """Return the answer to a question."""
    index = opener.pop() if opener is not None else None
    return read_why(log.directory, Asked(**asked), index)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [{"pid": 500}, {"pid": 500, "start": 7}, {"job": "4711"}, {"pod": "team/train-0"}, {"pod": POD_UID}],
)
def test_who_signalled_it_is_found_by_every_name(
    log: Log, index: list[AuditIndex | None], asked: dict[str, object]
) -> None:
    """With an index, without one, and over packed files: the same one incident, its actor and its step."""
    target = of_job(500)
    write(log, *acted("inc-mine", target, outcome(SENT, target.root), actor=ANA))
    answer = found(log, index, **asked)
    assert answer["answer"] == "signalled"
    (one,) = answer["incidents"]
    assert (one["incident"], one["actors"][0]["name"], one["why"]) == ("inc-mine", "ana", "holds too much")
    (step,) = one["steps"]
    assert (step["action"], step["did"], step["after_seconds"]) == ("sigterm", "yes", 2.0)
    assert answer["faults"] == []


@pytest.mark.parametrize(
    "asked",
    [
        {"pid": 501},
        {"pid": 500, "start": 8},
        {"job": "471"},
        {"job": "47111"},
        {"pod": "team/train"},
        {"pod": "tea/train-0"},
        {"pod": "other/train-0"},
        {"pid": 500, "uid": 1002},
        {"pid": 500, "since": WALL + 200_000},
    ],
)
def test_another_one_s_name_finds_nothing(
    log: Log, index: list[AuditIndex | None], asked: dict[str, object]
) -> None:
    """A number that begins alike, a pod of another namespace, another start, another user, a later time."""
    target = of_job(500)
    write(log, *acted("inc-mine", target, outcome(SENT, target.root)))
    answer = found(log, index, **asked)
    assert (answer["answer"], answer["incidents"]) == ("not_on_record", [])


@pytest.mark.parametrize(
    ("result", "word", "did"),
    [
        (SENT, "signalled", "yes"),
        (DRY, "nothing_done", "no"),
        (GONE, "nothing_done", "no"),
        (OutcomeKind.FAILED, "nothing_done", "no"),
        (OutcomeKind.WITHHELD, "nothing_done", "no"),
        (OutcomeKind.UNKNOWN, "unknown", "unknown"),
        (None, "unknown", "unknown"),
    ],
)
def test_only_our_own_attempt_says_that_we_sent_it(
    log: Log, result: OutcomeKind | None, word: str, did: str
) -> None:
    """An intent without an outcome is unknown, never a no; what was not sent is never a yes."""
    target = of_job(500)
    write(log, *acted("inc-1x", target, None if result is None else outcome(result, target.root)))
    answer = found(log, pid=500)
    assert answer["answer"] == word
    assert answer["incidents"][0]["steps"][0]["did"] == did


def test_a_number_that_was_given_again_is_several_processes(log: Log) -> None:
    """Each by its start, with its own incidents and its own answer, the newest first."""
    old, new = of_job(500, 7), of_job(500, 900)
    write(
        log,
        *acted("inc-old", old, outcome(SENT, old.root)),
        *acted("inc-new", new, outcome(DRY, new.root)),
    )
    processes = found(log, pid=500)["processes"]
    told = [(one["process"], one["answer"], one["incidents"]) for one in processes]
    assert told == [("500@900", "nothing_done", ["inc-new"]), ("500@7", "signalled", ["inc-old"])]
    assert processes[0]["started_at"] == pytest.approx(WALL + 100_003 - (MONO + 3) + 9)


def test_a_member_that_got_no_signal_is_not_taken_for_one_that_did(log: Log) -> None:
    """SIGTERM went to the root of a job; who asks about another member is told so."""
    target = of_job(500, 7, 501)
    write(log, *acted("inc-job", target, outcome(SENT, target.root)))
    assert found(log, pid=500)["answer"] == "signalled"
    answer = found(log, pid=501)
    assert answer["answer"] == "nothing_done"
    assert answer["incidents"][0]["steps"][0]["outcome"] == "not_sent_to_it"
    assert [one["process"] for one in answer["processes"]] == ["501@7"]


def test_who_was_only_in_the_way_is_named_and_nothing_more(log: Log) -> None:
    """A refusal of somebody else's reset names the process: it was no target."""
    refusal = Reason(ReasonKind.HOLDERS, "pid 600 holds it", "", (ProcessRef(BOOT, 600, 7),), GPU_A)
    write(log, entry(RecordKind.REFUSED, "inc-way", of_job(500), action="reset", refusals=(refusal,)))
    answer = found(log, pid=600)
    assert (answer["answer"], answer["named_by"], answer["incidents"]) == ("named", ["inc-way"], [])
    told = found(log, pid=500)["incidents"][0]
    assert told["words"][0]["reasons"] == [{"kind": "holders", "text": "pid 600 holds it", "mend": ""}]


def test_a_drain_and_a_warning_are_no_signal(log: Log) -> None:
    """They are told as acts; a step of a reset has no target, and is found by its incident."""
    target = of_job(500)
    write(
        log,
        entry(RecordKind.INCIDENT_OPENED, "inc-w", target, reason="stuck"),
        entry(RecordKind.OUTCOME, "inc-w", target, action="warned", attempt=AttemptId("w1"),
              outcome=outcome(OutcomeKind.DELIVERED, target.root)),
        AuditEntry(RecordKind.DRAIN_STEP, IncidentId("inc-w"), action="ask", reason="asked: slurm"),
    )  # fmt: skip
    answer = found(log, job="4711")
    assert answer["answer"] == "acted"
    assert [word["text"] for word in answer["incidents"][0]["words"]] == ["asked: slurm"]


def test_the_newest_incidents_are_told_and_that_there_are_more(log: Log) -> None:
    """Memory is bounded by the limit."""
    target = of_job(500)
    records = [acted(f"inc-n{number}", target, outcome(DRY, target.root)) for number in range(5)]
    write(log, *(one for several in records for one in several))
    answer = found(log, pid=500, limit=2)
    assert [one["incident"] for one in answer["incidents"]] == ["inc-n4", "inc-n3"]
    assert answer["more"] is True
    assert found(log, pid=500, limit=5)["more"] is False


def test_an_incident_is_bounded_and_says_what_it_left_out(log: Log) -> None:
    """The same refusal again is one; different ones count past a bound."""
    target = of_job(500)
    again = [entry(RecordKind.REFUSED, "inc-r", target, action="sigterm", reason="paused")] * 30
    other = [entry(RecordKind.NOTE, "inc-r", target, reason=f"note {number}") for number in range(25)]
    write(log, *again, *other)
    (one,) = found(log, pid=500)["incidents"]
    assert (len(one["words"]), one["left_out"]) == (20, 6)


def test_the_span_says_that_older_records_are_gone(log: Log) -> None:
    """The first number that is kept is not 1."""
    assert found(log, job="1")["covers"] | {"first_at": 0, "looked_from_at": 0} == {
        "first_at": 0, "first_seq": 1, "older_removed": False, "looked_from_at": 0,
    }  # fmt: skip
    oldest = min(log.directory.glob("audit-0*"))
    oldest.unlink()
    covers = found(log, job="1", since=WALL + 90_000)["covers"]
    assert covers["older_removed"] is True
    assert covers["first_seq"] > 1
    assert covers["first_at"] < covers["looked_from_at"] == WALL + 90_000


def test_an_edited_record_is_a_fault_and_a_missing_log_is_empty(log: Log, tmp_path: Path) -> None:
    """Whoever changed `sent` to another word is not believed in silence."""
    target = of_job(500)
    write(log, *acted("inc-e", target, outcome(SENT, target.root)))
    path = log.directory / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"sent"', b'"dry_run"'))
    answer = found(log, pid=500)
    assert answer["answer"] == "nothing_done"
    assert len(answer["faults"]) == 1
    assert "edited" in answer["faults"][0]
    nothing = read_why(tmp_path / "none", Asked(pid=1), None)
    assert (nothing["answer"], nothing["covers"]["first_at"]) == ("not_on_record", None)


def test_an_index_of_the_form_before_is_not_used(log: Log) -> None:
    """It knows nothing of jobs and pods: a question by it would find nobody."""
    index = AuditIndex.open(log.directory, write=True)
    assert index is not None
    index.close()
    path = next(log.directory.glob("*.sqlite"))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert AuditIndex.open(log.directory, write=False) is None
