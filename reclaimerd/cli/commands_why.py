"""`reclaimctl why`: who ended a job, from the record; asks the daemon only for who may not read the files.

It changes nothing but, as the log's owner, the index beside the log.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from reclaimerd.cli import texts
from reclaimerd.cli.audit_options import parse_instant
from reclaimerd.cli.client import NoDaemonError, Settings, ask_running
from reclaimerd.cli.commands_kill import parse_names
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.process_name import ProcessName, parse_process
from reclaimerd.cli.render import say, show, show_json
from reclaimerd.errors import ExitCode, NotAllowedError, NoTargetError

if TYPE_CHECKING:
    from reclaimerd.record.why_found import Asked

MOST_CHECKED_BYTES = 128 << 20
"""A longer log's chain is checked only when asked: that takes a second for each 128 MiB."""
MOST_TOLD = 200
_PATIENCE_SECONDS = 45.0
"""The daemon reads for 30 s at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """Who is asked about, since when, and how much of it is told and checked."""

    process: ProcessName | None
    job: str
    pod: str
    since: float | None
    limit: int
    checks: bool

    @property
    def subject(self) -> str:
        """Return whom it is about, in words."""
        if self.process is None:
            return f"job {self.job}" if self.job else f"pod {self.pod}"
        start = f"@{self.process.start}" if self.process.start is not None else ""
        return f"process {self.process.pid}{start}"

    def asked(self) -> "Asked":
        """Return it as the record is asked."""
        from reclaimerd.record.why_found import Asked  # noqa: PLC0415 - only `why` reads these

        pid, start = (self.process.pid, self.process.start) if self.process is not None else (None, None)
        return Asked(pid, start, self.job, self.pod, self.since, limit=self.limit)

    def as_json(self) -> Json:
        """Return it as the answer repeats it."""
        asked = self.asked()
        named = {"pid": asked.pid, "start_ticks": asked.start, "job": asked.job, "pod": asked.pod}
        return named | {"since": asked.since, "limit": asked.limit}

    def query(self) -> dict[str, str]:
        """Return it as the daemon is asked."""
        process = self.process
        pid = str(process.pid) if process is not None else ""
        start = str(process.start) if process is not None and process.start is not None else ""
        since = "" if self.since is None else f"{self.since:.3f}"
        named = {"pid": pid, "start": start, "job": self.job, "pod": self.pod, "since": since}
        return {"limit": str(self.limit)} | {key: value for key, value in named.items() if value}


def _parse_name(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return a job's or pod's name as `kill` takes it."""
    return "" if value is None else parse_names(ctx, param, (value,))[0]


def _parse_process(ctx: click.Context, param: click.Parameter, value: str | None) -> ProcessName | None:
    return None if value is None else parse_process(ctx, param, value)


_OPTIONS = (
    click.option("--job", metavar="JOB", callback=_parse_name, help=texts.WHY_JOB),
    click.option("--pod", metavar="NAMESPACE/NAME|UID", callback=_parse_name, help=texts.WHY_POD),
    click.option("--pid", "process", metavar="PID[@START]", callback=_parse_process, help=texts.WHY_PID),
    click.option("--since", metavar="WHEN", callback=parse_instant, help=texts.WHY_SINCE),
    click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, MOST_TOLD),
        default=20,
        show_default=True,
        help=texts.WHY_LIMIT,
    ),
    click.option("--verify", "checks", is_flag=True, help=texts.WHY_VERIFY),
)


def _question_options(function: Callable[[Question], int]) -> Callable[..., int]:
    """Give a command the options that make one question; it gets them as that."""

    @functools.wraps(function)
    def asking(**own: Any) -> int:  # noqa: ANN401 - a decorator's own arguments
        question = Question(**own)
        if sum(bool(one) for one in (question.job, question.pod, question.process)) != 1:
            raise click.UsageError("name one of --job, --pod, --pid", click.get_current_context())
        return function(question)

    command: Any = asking
    for option in reversed(_OPTIONS):
        command = option(command)
    return command  # type: ignore[no-any-return]


@click.command("why")
@_question_options
@common_options
@answers
def why(settings: Settings, question: Question) -> int:
    """Tell who ended a job, pod or process, when, how and why; or that it was not reclaimerd.

    Reads the record as `audit` does. Exit 0 when it is named there, also where nothing was done to it; 6 when
    no record names it; 9 when the record is broken, so that no answer can be trusted.
    """
    try:
        found = _read(settings, question)
    except NotAllowedError as denied:
        found = _asked_daemon(settings, question, denied)
    return _told(settings, question, found)


def _read(settings: Settings, question: Question) -> Json:
    """Return what the files say, with the state of their chain."""
    from reclaimerd.cli.commands_review import indexed, reading  # noqa: PLC0415 - only `audit` and `why` read
    from reclaimerd.record.why_found import read_why  # noqa: PLC0415 - the same

    directory = settings.log_dir
    with reading(directory):
        with indexed(directory) as index:
            found = read_why(directory, question.asked(), index)
        return {**found, **_chain(settings, question, found["faults"])}


def _chain(settings: Settings, question: Question, faults: list[str]) -> Json:
    """Return whether the chain holds: `broken` by what was read already, else by a walk over all of it."""
    from reclaimerd.cli.commands_files import read_anchor  # noqa: PLC0415 - it would be a circle
    from reclaimerd.record.audit_read import verify  # noqa: PLC0415 - only `audit` and `why` read files
    from reclaimerd.record.audit_review import behind_bytes  # noqa: PLC0415 - the same

    if not question.checks and behind_bytes(settings.log_dir, None) > MOST_CHECKED_BYTES:
        return {"chain": "broken" if faults else "not_checked", "unanchored": ""}
    anchor, missing = read_anchor(settings.state_dir)
    walked = verify(settings.log_dir, anchor)
    together = list(dict.fromkeys([*walked.faults, *faults]))
    blind = missing.message if missing else "" if anchor else f"there is no anchor in {settings.state_dir}"
    return {"chain": "broken" if together else "intact", "faults": together, "unanchored": blind}


def _asked_daemon(settings: Settings, question: Question, denied: NotAllowedError) -> Json:
    """Return what the daemon tells who may not read the files; raises what it says, or `denied`.

    Without a daemon, or a way to it, what is missing is the right to read the files.
    """
    asked = Request("GET", "/v1/why", question.query(), idle_seconds=_PATIENCE_SECONDS)
    try:
        return ask_running(settings.socket, asked).body
    except (NoDaemonError, NotAllowedError):
        raise denied from None


def _told(settings: Settings, question: Question, found: Json) -> int:
    """Print the answer, and return the exit code."""
    from reclaimerd.cli.why_text import answer_lines  # noqa: PLC0415 - only `why` prints these

    covers = found["covers"]
    if covers["first_at"] is None and found["answer"] == "not_on_record" and not found["faults"]:
        what = f"there is no record in {settings.log_dir}: nobody can tell"
        raise NoTargetError(what, "reclaimerd never ran here, or name its directory with --log-dir")
    if settings.as_json:
        show_json({"asked": question.as_json(), **found})
    else:
        show(answer_lines(question.subject, found, _elsewhere(question)))
    if found["chain"] == "not_checked":
        by_daemon = "only_uid" in found
        mend = "that takes the right to read its files" if by_daemon else "--verify does, or `audit verify`"
        say(f"reclaimctl: whether the record is whole was not checked; {mend}", to_stderr=True)
    if found.get("unanchored"):
        what = f"reclaimctl: a cut at the end of the record would not be seen: {found['unanchored']}"
        say(what, to_stderr=True)
    if found["chain"] == "broken":
        return int(ExitCode.AUDIT_BROKEN)
    return int(ExitCode.NO_TARGET if found["answer"] == "not_on_record" else ExitCode.OK)


def _elsewhere(question: Question) -> str:
    """Return where else to look for who ended it."""
    limits = "the limits of its own scheduler"
    if question.job:
        limits = f"Slurm's own limits (sacct -j {question.job} -o State,ExitCode,Reason)"
    elif re.fullmatch(r"[^/]+/[^/]+", question.pod):
        space, _, pod = question.pod.partition("/")
        limits = f"the kubelet (kubectl describe pod {pod} -n {space})"
    elif question.pod:
        limits = "the kubelet (kubectl get events -A)"
    return f"the kernel's OOM killer (journalctl -k -g 'Out of memory|oom-kill'), {limits}, or another person"
