"""Commands that ask for an act: kill, pause, resume, release-driver, demo.

They only ask: the engine judges, records and acts. What a reader of our output does (closes it,
presses Ctrl-C) must not disturb an act under way.
"""

import re
from dataclasses import replace

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings, exit_code_of, request
from reclaimerd.cli.commands_read import resolve_gpu
from reclaimerd.cli.http_socket import BrokenAnswerError, Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.process_name import PID_AT_START
from reclaimerd.cli.progress import event_line, failure_lines, result_blocks
from reclaimerd.cli.render import moment_text, say, show, show_json, stop_printing
from reclaimerd.errors import ExitCode

LARGEST_PID = 4_194_304
"""PID_MAX_LIMIT of a 64-bit kernel (include/linux/threads.h)."""
LARGEST_UID = 4_294_967_294
PATIENCE_SECONDS = 600.0
"""How long a kill may be silent between two lines, beyond the times that the caller named."""


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


def parse_duration_option(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return seconds, or None where the option was not given."""
    if value is None:
        return None
    from reclaimerd.config.units import parse_duration  # noqa: PLC0415 - only when a duration is named

    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


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
    "--pid",
    "targets",
    multiple=True,
    required=True,
    metavar="PID[@START]",
    callback=parse_targets,
    help=texts.PID,
)
@click.option("--force", is_flag=True, help=texts.FORCE)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option(
    "--grace", "grace_seconds", metavar=texts.DURATION, callback=parse_duration_option, help=texts.GRACE
)
@click.option(
    "--timeout", "timeout_seconds", metavar=texts.DURATION, callback=parse_duration_option, help=texts.TIMEOUT
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

    Neither form skips protection, identity, record or the proof at the end.
    """
    takeover = bool(asked.pop("takeover"))
    named = [asked[key] for key in ("timeout_seconds", "grace_seconds")]
    patience = PATIENCE_SECONDS + max(value for value in (*named, 0.0) if isinstance(value, float))
    body: Json = dict(asked)
    call = Request("POST", "/v1/reclaims", body=body, acts=True, idle_seconds=patience)
    reply = request(replace(settings, takeover=takeover), call, _Progress(quiet=settings.as_json))
    result = {key: value for key, value in reply.body.items() if key != "event"}
    if "exit_code" not in result:
        raise BrokenAnswerError(
            "the answer ended before its result, and an incident that was opened may go on",
            "look at it with `reclaimctl incidents`",
        )
    _report_result(settings, result)
    return int(exit_code_of(result["exit_code"], ExitCode.INTERNAL))


def _report_result(settings: Settings, result: Json) -> None:
    """Print what became of each target; the reasons of a failure go to stderr as well."""
    try:
        if settings.as_json:
            show_json(result)
        else:
            show(result_blocks(result))
    except OSError:
        stop_printing()
    for target in result.get("targets") or ():
        for line in failure_lines(target):
            say(f"reclaimctl: {line}", to_stderr=True)


@click.command()
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option(
    "--for", "for_seconds", metavar=texts.DURATION, callback=parse_duration_option, help=texts.PAUSE_FOR
)
@common_options
@answers
def pause(settings: Settings, reason: str, for_seconds: float | None) -> int:
    """Stop every act by rule until `resume`; looking and an operator's kill go on."""
    body: Json = {"reason": reason, "for_seconds": for_seconds}
    return _report_pause(settings, Request("POST", "/v1/pause", body=body, acts=True))


@click.command()
@click.option("--gpu", metavar="GPU", help=texts.RESUME_GPU)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@common_options
@answers
def resume(settings: Settings, gpu: str | None, reason: str) -> int:
    """Let acts by rule go on, and close a breaker that tripped, which only administrators may.

    With --gpu close that GPU's own breaker, and nothing else.
    """
    said: Json = {"reason": reason} if reason else {}
    if gpu is None:
        return _report_pause(settings, Request("POST", "/v1/resume", body=said, acts=True))
    uuid = resolve_gpu(settings, gpu)
    body = request(settings, Request("POST", "/v1/resume", body={"gpu": uuid, **said}, acts=True)).body
    if settings.as_json:
        show_json(body)
    else:
        say(f"the breaker of {uuid} is closed: it may be reset again")
    return int(ExitCode.OK)


def _report_pause(settings: Settings, call: Request) -> int:
    body = request(settings, call).body
    paused: Json | None = body.get("paused")
    if settings.as_json:
        show_json(body)
    elif not paused and body.get("breaker"):
        say("the pause is over; the breaker stays open, and it takes an administrator to close it")
    elif not paused:
        say("acts by rule go on")
    else:
        until = (
            f"until {moment_text(paused['until'])}" if paused.get("until") else "until `reclaimctl resume`"
        )
        say(f"acts by rule are paused {until}")
    return int(ExitCode.OK)


@click.command("release-driver")
@click.option(
    "--for",
    "for_seconds",
    metavar=texts.DURATION,
    callback=parse_duration_option,
    default="10m",
    show_default=True,
    help=texts.RELEASE_FOR,
)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option("--end", is_flag=True, help=texts.RELEASE_END)
@common_options
@answers
def release_driver(settings: Settings, reason: str, for_seconds: float | None, *, end: bool) -> int:
    """Close the daemon's own client of the driver, so that a person may reset, unload or upgrade it.

    Meanwhile the GPUs can't be read, no rule acts and no reset is permitted. Other clients are not touched.
    """
    asked: Json = {"end": True} if end else {"reason": reason, "for_seconds": for_seconds}
    body = request(settings, Request("POST", "/v1/release-driver", body=asked, acts=True)).body
    released: Json | None = body.get("released")
    if settings.as_json:
        show_json(body)
    elif not released:
        say("the driver is not released: the daemon reads the GPUs")
    else:
        until = moment_text(released.get("until"))
        say(f"the daemon's own client of the driver is closed until {until}; others may still hold it")
    return int(ExitCode.OK)


@click.command()
@click.option(
    "--seconds", metavar="N", type=click.IntRange(10, 600), default=60, show_default=True, help=texts.SECONDS
)
@common_options
@answers
def demo(settings: Settings, seconds: int) -> int:
    """Show the whole ladder on a simulated GPU host with real processes."""
    from reclaimerd.cli.demo import run  # noqa: PLC0415 - the demonstration brings the whole engine

    return int(run(as_json=settings.as_json, seconds=seconds))
