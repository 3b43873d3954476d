"""A log line for each record, after it became durable and not before."""

import asyncio
import json
import os

import structlog

from reclaimerd.daemon import entries
from reclaimerd.daemon.recording import LoggedRecorder, fields_of
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Stage
from reclaimerd.model.ports import Batch
from reclaimerd.record import logs
from tests.builders import WALL, a_ref, an_incident
from tests.fakes import FakeRecorder, a_disk_error

INCIDENT = an_incident()
ATTEMPT = Attempt(AttemptId("inc-1.1"), Stage.SIGTERM, (a_ref(),), WALL)


def told(recorder: FakeRecorder, batch: Batch) -> list[dict[str, object]]:
    """Commit through the logging recorder and return the lines."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        queue = logs.configure(stream, journal=False)
        try:
            asyncio.run(LoggedRecorder(recorder).commit(batch))
        except RecordError:
            pass
        finally:
            queue.close()
            structlog.reset_defaults()
    with os.fdopen(reader) as text:
        return [json.loads(line) for line in text]


def test_each_durable_record_is_one_line_named_by_its_kind() -> None:
    """Incident, pid, action, outcome and reason are fields; what is empty is left out."""
    outcome = entries.outcome(INCIDENT, ATTEMPT, Outcome(OutcomeKind.SENT, "SIGTERM was sent"))
    (opened, sent) = told(FakeRecorder(), Batch(entries=(entries.opened(INCIDENT), outcome)))
    assert (opened["event"], opened["level"], opened["incident"], opened["pid"]) == (
        "incident_opened",
        "info",
        "inc-1",
        100,
    )
    assert "outcome" not in opened
    assert (sent["event"], sent["action"], sent["outcome"], sent["reason"]) == (
        "outcome",
        "sigterm",
        "sent",
        "SIGTERM was sent",
    )


def test_what_is_not_durable_is_not_logged() -> None:
    """A failed commit leaves no line that says something happened."""
    assert told(FakeRecorder(errors=[a_disk_error()]), Batch(entries=(entries.opened(INCIDENT),))) == []


def test_what_a_person_must_see_is_an_error() -> None:
    """Alarms and the breaker stand out."""
    batch = Batch(
        entries=tuple(
            entries.of_host(kind, "look")
            for kind in (RecordKind.ALARM, RecordKind.BREAKER_TRIPPED, RecordKind.NOTE)
        )
    )
    assert [line["level"] for line in told(FakeRecorder(), batch)] == ["error", "error", "info"]


def test_faults_are_the_recorder_s_own() -> None:
    """The wrapper changes neither fault."""
    recorder = FakeRecorder(last="full", last_full=True)
    logged = LoggedRecorder(recorder)
    assert (logged.fault(), logged.fault_for_operators()) == ("full", "")


def test_a_command_line_is_no_field_of_the_log() -> None:
    """The log may leave the host; the target's command stays in the audit."""
    assert INCIDENT.target.command not in fields_of(entries.opened(INCIDENT)).values()
    assert fields_of(AuditEntry(RecordKind.NOTE)) == {}
