"""What a kill says before it asks and after it was accepted, in words; pure but for users' names."""

from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.cli import layouts
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.kill_along import Along
from reclaimerd.cli.kill_targets import Candidate, Chosen
from reclaimerd.cli.render import MINUTE, Block, Table, age_text, size_text, user_text
from reclaimerd.errors import ExitCode

HEADINGS = ("PID@START", "USER", "WORKLOAD", "GPU", "MEMORY", "WHAT WILL BE DONE")
ALONG = {"tree": ", with its descendants", "workload": ", with its whole container, job or unit"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the order says of every target; the times are in seconds."""

    grace_seconds: float
    timeout_seconds: float | None
    scope: str
    force: bool
    dry_run: bool

    @property
    def words(self) -> str:
        """Return what will be done to one target."""
        stages = f"SIGTERM, after {_span(self.grace_seconds)} SIGKILL" if self.force else "SIGTERM"
        limit = f", at most {_span(self.timeout_seconds)}" if self.timeout_seconds is not None else ""
        return ("dry run of " if self.dry_run else "") + stages + limit + ALONG.get(self.scope, "")


def listing_blocks(chosen: Chosen, plan: Plan) -> Iterator[Block]:
    """Yield how the names were read, and each process with what will be done to it."""
    yield from chosen.notes
    yield Table(HEADINGS, tuple(_row(one, plan) for one in chosen.candidates), layouts.KILL)


def _row(one: Candidate, plan: Plan) -> tuple[str, ...]:
    return (
        one.name,
        user_text(one.uid),
        one.workload or "-",
        ",".join(one.gpus) or "-",
        size_text(one.used_bytes) if one.gpus else "-",
        plan.words if one.is_open else f"nothing: {one.refused}",
    )


def question(chosen: Chosen, along: Along | None = None) -> str:
    """Return what is asked before anything is done."""
    meant = [one for one in chosen.candidates if one.is_open]
    users = {one.uid for one in meant} | set(() if along is None else along.uids)
    count = 0 if along is None else along.count
    others = f" and {count} that {'goes' if count == 1 else 'go'} along," if count else ""
    of_users = f" of {len(users)} users" if len(users) > 1 else ""
    targets = f"{len(meant)} {'process' if len(meant) == 1 else 'processes'}"
    return f"do this to {targets}{others}{of_users}".removesuffix(",")


def left_out_row(one: Candidate) -> Json:
    """Return the result of a process that was not asked for, in the form of the daemon's own."""
    return {
        "pid": one.pid,
        "exit_code": int(ExitCode.NOT_ALLOWED),
        "end": "",
        "text": one.refused,
        "incident": None,
        "stages": [],
        "tasks": [],
        "reasons": [],
    }


def follow_lines(result: Json) -> Iterator[str]:
    """Yield how to follow each incident that goes on."""
    for target in result.get("targets") or ():
        incident = target.get("incident")
        if incident and not target.get("end") and target.get("exit_code") == ExitCode.OK:
            pid = target.get("pid")
            yield f"pid {pid}: accepted; follow it with `reclaimctl incidents show {incident}`"


def _span(seconds: float) -> str:
    return age_text(seconds) if seconds >= MINUTE else f"{seconds:g}s"
