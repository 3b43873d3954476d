"""`reclaimctl kill`: find who is meant, show it, ask where somebody is there to be asked, and order it.

It only asks: the engine judges, records and acts. What a reader of our output does (closes it,
presses Ctrl-C) must not disturb an act under way.
"""

import re
import sys
from dataclasses import replace

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings, exit_code_of, request
from reclaimerd.cli.commands_act import parse_duration_option, parse_some_time
from reclaimerd.cli.http_socket import BrokenAnswerError, Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.process_name import PID_AT_START
from reclaimerd.cli.progress import event_line, failure_lines, result_blocks
from reclaimerd.cli.render import Block, plain_lines, say, show, show_json, stop_printing
from reclaimerd.errors import ExitCode, ReclaimerdError

LARGEST_PID = 4_194_304
"""PID_MAX_LIMIT of a 64-bit kernel (include/linux/threads.h)."""
LARGEST_UID = 4_294_967_294
PATIENCE_SECONDS = 600.0
"""How long a kill may be silent between two lines, beyond the times that the caller named."""
_POD = re.compile(r"[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_JOB = re.compile(r"[0-9]{1,10}", re.ASCII)


class NotOrderedError(ReclaimerdError):
    """The words make no order that may go out as it is; nothing was asked for."""

    exit_code = ExitCode.USAGE


class NotConfirmedError(ReclaimerdError):
    """The person at the terminal did not say yes; nothing was sent."""

    exit_code = ExitCode.REFUSED


def parse_targets(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> list[Json]:
    """Return the targets in the API's form from `123` and `123@4567`; the same one twice is one."""
    starts: dict[int, int | None] = {}
    for value in values:
        found = PID_AT_START.fullmatch(value)
        if found is None or int(found[1]) > LARGEST_PID:
            raise click.BadParameter(
                f"{value!r} is no process; write PID or PID@START as `reclaimctl ps` does"
            )
        pid, start = int(found[1]), int(found[2]) if found[2] else None
        known = starts.setdefault(pid, start)
        if None not in (known, start) and known != start:
            raise click.BadParameter(f"pid {pid} is named with two start times, {known} and {start}")
        starts[pid] = known if start is None else start
    return [{"pid": pid, "start_ticks": start} for pid, start in starts.items()]


def parse_names(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names, each once, where each can be the name of what the option takes."""
    for value in values:
        if param.name in {"job", "jobs"} and not _JOB.fullmatch(value):
            raise click.BadParameter(f"{value!r} is no job's number; write it as `squeue -o %A` does")
        if param.name in {"pod", "pods"} and not _POD.fullmatch(value):
            raise click.BadParameter(f"{value!r} is no pod; write NAMESPACE/NAME or its uid")
        if not value:
            raise click.BadParameter("an empty name names nothing")
    return tuple(dict.fromkeys(values))


def parse_user(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return the uid of a user named by name or number."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,10}", value, re.ASCII) and int(value) <= LARGEST_UID:
        return int(value)
    import pwd  # noqa: PLC0415 - the name service may be slow: only who names a user pays

    try:
        return pwd.getpwnam(value).pw_uid
    except (KeyError, ValueError):
        raise click.BadParameter(f"no user is called {value!r}; name a user or a uid") from None


class _Progress:
    """Prints lines as they come; when nobody reads them any more, the act goes on without."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, event: Json) -> None:
        if self._quiet or event.get("event") == "result":
            return
        try:
            say(event_line(event))
        except OSError:
            self._quiet = True
            stop_printing()


@click.command(epilog=texts.epilog())
@click.option(
    "--pid", "targets", multiple=True, metavar="PID[@START]", callback=parse_targets, help=texts.PID
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="GPU",
    callback=parse_names,
    help=texts.KILL_GPU,
    shell_complete=completing.gpus,
)
@click.option(
    "--container",
    "containers",
    multiple=True,
    metavar="ID|NAME",
    callback=parse_names,
    help=texts.KILL_CONTAINER,
)
@click.option("--job", "jobs", multiple=True, metavar="JOB", callback=parse_names, help=texts.KILL_JOB)
@click.option(
    "--pod", "pods", multiple=True, metavar="NAMESPACE/NAME", callback=parse_names, help=texts.KILL_POD
)
@click.option("--yes", is_flag=True, help=texts.KILL_YES)
@click.option("--wait/--no-wait", default=True, show_default=True, help=texts.KILL_WAIT)
@click.option("--force", is_flag=True, help=texts.FORCE)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option(
    "--grace", "grace_seconds", metavar=texts.DURATION, callback=parse_duration_option, help=texts.GRACE
)
@click.option(
    "--timeout", "timeout_seconds", metavar=texts.DURATION, callback=parse_some_time, help=texts.TIMEOUT
)
@click.option(
    "--scope",
    type=click.Choice(["process", "tree", "workload"]),
    default="process",
    show_default=True,
    help=texts.SCOPE,
)
@click.option("--dry-run", is_flag=True, help=texts.DRY_RUN)
@click.option("--expect-user", metavar="USER", callback=parse_user, help=texts.EXPECT_USER)
@click.option(
    "--max-targets",
    metavar="N",
    type=click.IntRange(1, 4096),
    default=8,
    show_default=True,
    help=texts.MAX_TARGETS,
)
@click.option("--takeover", is_flag=True, help=texts.TAKEOVER)
@common_options
@answers
def kill(settings: Settings, /, **asked: object) -> int:
    """Take the GPUs back from processes: SIGTERM, wait, and say what was proven.

    With --force a SIGKILL follows for what is still there. Neither form skips protection, identity, record or
    the proof at the end.

    Name whom: --pid, --gpu, --container, --job and --pod add up, and each must find a holder that `ps` shows.
    On a terminal the list of who is meant comes first, with who goes along by --scope, and a question; --yes
    answers it, and so does --force where one --pid alone is named. A job may fork: refused is a user
    who was not shown, more than twice as many as were shown, and more in all than --max-targets. Without a
    terminal several processes, or any but --pid, need --yes or --dry-run.

    With --json one object: `exit_code` and `targets`, each with `pid`, `exit_code`, `end`, `text`,
    `incident`, `stages`, `tasks` and `reasons`. With --no-wait it comes as soon as each has its incident:
    then `end` is empty and `exit_code` 0, and `reclaimctl incidents show INCIDENT` tells how it goes on.
    """
    settings = replace(settings, takeover=bool(asked.pop("takeover")))
    named = {key: asked.pop(key) for key in ("gpus", "containers", "jobs", "pods")}
    yes, waits = bool(asked.pop("yes")), bool(asked.pop("wait"))
    body: Json = dict(asked) | ({} if waits else {"wait": False})
    left_out: list[Json] = []
    if _wants_list(body, named, yes=yes):
        left_out = _choose(settings, body, named, yes=yes)
    times = [body["timeout_seconds"] or 0.0, body["grace_seconds"] or 0.0]
    patience = PATIENCE_SECONDS + max(times)
    call = Request("POST", "/v1/reclaims", body=body, acts=True, idle_seconds=patience)
    reply = request(settings, call, _Progress(quiet=settings.as_json))
    result = {key: value for key, value in reply.body.items() if key != "event"}
    if "exit_code" not in result:
        raise BrokenAnswerError(
            "the answer ended before its result, and an incident that was opened may go on",
            "look at it with `reclaimctl incidents`",
        )
    if left_out:
        result["targets"] = [*(result.get("targets") or ()), *left_out]
        if result["exit_code"] != ExitCode.INTERNAL:
            result["exit_code"] = int(ExitCode.NOT_ALLOWED)
    _report_result(settings, result, waits=waits)
    return int(exit_code_of(result["exit_code"], ExitCode.INTERNAL))


def _is_answered(body: Json, named: Json, *, yes: bool) -> bool:
    """Tell whether the command line itself answers the question."""
    one_alone = len(body["targets"]) == 1 and not any(named.values())
    return yes or bool(body["dry_run"]) or (bool(body["force"]) and one_alone)


def _is_somebody_there() -> bool:
    """Tell whether a person can read the question and answer it."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _wants_list(body: Json, named: Json, *, yes: bool) -> bool:
    """Tell whether it must be found out who is meant before anything is ordered. Raises NotOrderedError."""
    if not body["targets"] and not any(named.values()):
        raise NotOrderedError("nobody is named", "give --pid, --gpu, --container, --job or --pod")
    if any(named.values()) or len(body["targets"]) > 1:
        if not _is_answered(body, named, yes=yes) and not _is_somebody_there():
            who = "everybody of that name" if any(named.values()) else "more than one process"
            raise NotOrderedError(
                f"{who} is meant, and nobody is at a terminal to be asked; nothing was done",
                "--yes answers beforehand, and --dry-run only shows what would be done",
            )
        return any(named.values()) or not _is_answered(body, named, yes=yes)
    return not _is_answered(body, named, yes=yes) and _is_somebody_there()


def _choose(settings: Settings, body: Json, named: Json, *, yes: bool) -> list[Json]:
    """Put the targets into the order, show them, and ask; return the results of who is left out."""
    from reclaimerd.cli.kill_along import along_blocks, ask_along, refuse_too_many  # noqa: PLC0415 - as below
    from reclaimerd.cli.kill_targets import Wanted, chosen  # noqa: PLC0415 - a plain kill must not pay for it
    from reclaimerd.cli.kill_text import Plan, left_out_row, listing_blocks, question  # noqa: PLC0415 - the same

    wanted = Wanted(pids=tuple(body["targets"]), expect_uid=body["expect_user"], **named)
    pids = ",".join(str(one["pid"]) for one in wanted.pids)
    call = Request("GET", "/v1/reclaims/candidates", {"pids": pids} if pids else {})
    told = request(replace(settings, takeover=False), call).body
    found = chosen(wanted, told)
    targets, foreign = found.targets()
    grace = body["grace_seconds"] if body["grace_seconds"] is not None else told.get("grace_seconds") or 0.0
    asks = not _is_answered(body, named, yes=yes)
    plan = Plan(
        float(grace), body["timeout_seconds"], body["scope"], bool(body["force"]), bool(body["dry_run"])
    )
    too_many = len(targets) > body["max_targets"]
    along = None if too_many else ask_along(settings, body["scope"], targets)
    _show_listing(settings, [*listing_blocks(found, plan), *along_blocks(along)], asks=asks)
    if too_many:
        what = f"{len(targets)} processes are more than {body['max_targets']}; nothing was done"
        raise NotOrderedError(what, "if you mean it, raise --max-targets")
    refuse_too_many(along, body["max_targets"])
    if told.get("require_reason") and not body["reason"].strip() and not body["dry_run"]:
        raise NotOrderedError(
            "the policy wants a reason for each act (require_reason)", "say why: --reason TEXT"
        )
    is_open = any(one.is_open for one in found.candidates)
    if asks and is_open and not click.confirm(f"{question(found, along)}?", default=False, err=True):
        raise NotConfirmedError("nothing was done")
    body["targets"] = targets
    body |= {"shown": along.as_shown()} if asks and along is not None and along.told else {}
    return [left_out_row(one) for one in foreign]


def _show_listing(settings: Settings, blocks: list[Block], *, asks: bool) -> None:
    """Print who is meant where the person who is asked reads it; in JSON only for them."""
    if settings.as_json and not asks:
        return
    if not settings.as_json and (sys.stdout.isatty() or not asks):
        show(blocks)
        return
    for block in blocks:
        for line in (block,) if isinstance(block, str) else plain_lines(block):
            say(line, to_stderr=True)


def _report_result(settings: Settings, result: Json, *, waits: bool) -> None:
    """Print what became of each target; the reasons of a failure go to stderr as well."""
    try:
        if settings.as_json:
            show_json(result)
        else:
            show(result_blocks(result))
            if not waits:
                from reclaimerd.cli.kill_text import follow_lines  # noqa: PLC0415 - after the request

                show(follow_lines(result))
    except OSError:
        stop_printing()
    for target in result.get("targets") or ():
        for line in failure_lines(target):
            say(f"reclaimctl: {line}", to_stderr=True)
