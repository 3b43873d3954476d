"""Ask for a drain by leaving one file per incident; whoever moves work away reads it there.

It may not drain, cordon, or call anything. No command line is written: none leaves the host.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Outcome, OutcomeKind
from reclaimerd.model.step import DrainRequest, Step

SCHEMA = 1
RUNBOOK = "docs/runbooks/handed_over.md"
_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DrainFile:
    """Drain requests as JSON files in one directory; `write` makes a file durable, off the loop."""

    directory: Path
    write: Callable[[Path, bytes], Awaitable[None]]

    async def request(self, request: DrainRequest) -> Outcome:
        """Leave the request once: ACCEPTED also when this incident's file stands already, else FAILED."""
        if not _FILE_NAME.fullmatch(request.incident):
            return Outcome(OutcomeKind.FAILED, f"incident {request.incident!r} can't name a file")
        path = self.directory / f"{request.incident}.json"
        try:
            standing = await asyncio.to_thread(_incident_in, self.directory, path.name)
            if standing is None:
                await self.write(path, request_bytes(request))
        except (OSError, ReclaimerdError) as error:
            return Outcome(OutcomeKind.FAILED, f"the drain request could not be written to {path}: {error}")
        if standing is None:
            return Outcome(OutcomeKind.ACCEPTED, f"drain request written to {path}")
        if standing == request.incident:
            return Outcome(OutcomeKind.ACCEPTED, f"drain request stands in {path} already")
        return Outcome(OutcomeKind.FAILED, f"{path} is not this incident's request; move it away")


def request_bytes(request: DrainRequest) -> bytes:
    """Return the request's file: JSON, schema 1, times RFC 3339 in UTC."""
    asked_at = datetime.fromtimestamp(request.asked_at, UTC).isoformat(timespec="milliseconds")
    content = {
        "schema": SCHEMA,
        "host": request.host,
        "incident": request.incident,
        "reason": request.reason,
        "gpus": list(request.gpus),
        "pids": list(request.pids),
        "evidence": list(request.evidence),
        "asked_at": asked_at.replace("+00:00", "Z"),
        "runbook": request.runbook,
    }
    return (json.dumps(content, indent=2, ensure_ascii=True) + "\n").encode()


def drain_request(
    step: Step,
    *,
    host: str,
    asked_at: float,
    evidence: tuple[str, ...] = (),
) -> DrainRequest:
    """Return what is asked for a step; `asked_at` is wall-clock seconds. The command is left out."""
    return DrainRequest(
        host=host,
        incident=IncidentId(step.incident),
        reason=step.reason,
        gpus=step.target.gpus,
        pids=tuple(ref.pid for ref in step.targets or step.target.members),
        evidence=evidence,
        asked_at=asked_at,
        runbook=RUNBOOK,
    )


def _incident_in(directory: Path, name: str) -> str | None:
    """Return the incident whose request stands in the file, "" for anything else, None for no file.

    Opened below the directory and never through a link. Raises OSError.
    """
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        file_fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd
        )
    except FileNotFoundError:
        return None
    finally:
        os.close(directory_fd)
    with os.fdopen(file_fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file_fd).st_mode):
            return ""
        return _incident_of(stream.read(_MAX_BYTES))


def _incident_of(content: bytes) -> str:
    """Return the incident that a request's bytes name, or ""."""
    try:
        request = json.loads(content)
    except ValueError:
        return ""
    found = request.get("incident") if isinstance(request, dict) else None
    return found if isinstance(found, str) else ""
