"""Reads the audit log and the policy for a rollout report; it asks nobody and changes nothing."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reclaimerd.cli.client import Settings
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.rollout_text import rule_json
from reclaimerd.config.load import load
from reclaimerd.daemon.this_host import on_this_host
from reclaimerd.errors import NotAllowedError, ReclaimerdError
from reclaimerd.host.wire import Decoder
from reclaimerd.judge.rollout import Period, rollout_of
from reclaimerd.judge.rollout_targets import KINDS, Told
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.record.audit_filter import instant_of
from reclaimerd.record.audit_read import read_records

if TYPE_CHECKING:
    from reclaimerd.model.policy import Policy
    from reclaimerd.model.rollout import RuleReport

_WANTED = frozenset(kind.value for kind in KINDS)


@dataclass(slots=True)
class _Reading:
    """What was read so far."""

    told: Told
    first_at: float | None = None
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """A report as JSON, and its rules as values."""

    body: Json
    rules: "tuple[RuleReport, ...]"


def rollout(settings: Settings, since: float, only_rule: str = "") -> Rollout:
    """Return the report from `since` (wall-clock seconds) until now. Raises ReclaimerdError."""
    policy = on_this_host(load(settings.config, enforce_ownership=False)).policy
    reading = _read(settings.log_dir, since, only_rule)
    until = time.time()
    first = until if reading.first_at is None else reading.first_at
    period = Period(max(since, first), until)
    reports = rollout_of(reading.told, policy, period)
    body: Json = {
        "since": period.since,
        "until": until,
        "days": period.days,
        "policy": policy.source or policy.digest,
        "mode": policy.mode.value,
        "counted_since": reading.told.counted_from,
        "looks_at_the_host": reading.told.passes,
        "notes": list(_notes(reading, policy, since, period)),
        "rules": [rule_json(report) for report in reports],
    }
    return Rollout(body, reports)


def advice_line(settings: Settings, rule: str, since: float) -> str:
    """Return what the report advises on one rule; a record that can't be read stops nobody, and is said."""
    try:
        found = rollout(settings, since, rule)
    except ReclaimerdError as error:
        return f"{rule}: no advice: {error}"
    return "; ".join(
        f"{report.rule}: {report.advice.word.replace('_', ' ')}: {report.advice.text}"
        for report in found.rules
    )


def _read(directory: Path, since: float, only_rule: str) -> _Reading:
    """Read what was recorded since then, one record at a time."""
    reading = _Reading(Told(only_rule))
    decoder = Decoder(AuditEntry)
    try:
        for record in read_records(directory):
            at = instant_of(record)
            if at is None or at < since:
                continue
            reading.first_at = at if reading.first_at is None else min(reading.first_at, at)
            if record.get("kind") not in _WANTED:
                continue
            try:
                reading.told.take(at, decoder.from_object(record))
            except ValueError:
                reading.unreadable += 1
    except PermissionError as error:
        mend = "join the group reclaimerd, or run this as root"
        raise NotAllowedError(
            f"you may not read the audit log ({error.filename or directory})", mend
        ) from None
    except OSError as error:
        what = f"the audit log in {directory} can't be read: {error.strerror or error}"
        raise ReclaimerdError(what, "name its directory with --log-dir") from None
    return reading


def _notes(reading: _Reading, policy: "Policy", since: float, period: Period) -> list[str]:
    """Return what a reader must know of this report besides its figures."""
    told = reading.told
    found = []
    if reading.first_at is None:
        found.append("nothing is on record in this time")
    elif period.since - since > _DAY_SECONDS:
        found.append("the record does not reach back as far as was asked")
    if not told.passes:
        found.append(
            "what could not be judged is not counted yet: that is put on record once a day, and at the end"
        )
    if reading.unreadable:
        found.append(f"{reading.unreadable} records could not be read: see reclaimctl audit verify")
    if told.left_out:
        found.append(f"{told.left_out} records about more targets than are kept apart were left out")
    if len(policy.rules) + len(policy.fault_rules) > 1 and not told.only_rule:
        found.append("each rule is counted as if it alone enforced: together they share one budget")
    return found


_DAY_SECONDS = 86400.0
