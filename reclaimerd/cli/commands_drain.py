"""`reclaimctl drain` and `undrain`: ask for this node's drain by hand, and take its request back.

They only ask: the engine judges, puts the order on record and asks each target; nobody else's drain is
touched.
"""

import time
from collections.abc import Iterator

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings, exit_code_of, request
from reclaimerd.cli.confirming import confirm
from reclaimerd.cli.drain_text import drain_lines
from reclaimerd.cli.http_socket import BrokenAnswerError, Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.progress import event_line
from reclaimerd.cli.render import say, show, show_json, stop_printing
from reclaimerd.errors import ExitCode

PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_DONE = "done"
"""Of a request that everybody let go, and that a daemon has yet to tell its incidents of."""


class _Lines:
    """Prints what happens as it comes; when nobody reads it any more, the request goes on without."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, event: Json) -> None:
        if self._quiet or event.get("event") in ("accepted", "result"):
            return
        try:
            for line in _lines_of(event):
                say(line)
        except OSError:
            self._quiet = True
            stop_printing()


def _lines_of(event: Json) -> Iterator[str]:
    """Yield an event's line; a dry run shows the file that would be written, line by line.

    No other line end is taken for one: a reason or a name may hold it.
    """
    whole = event_line(event, "node")
    before, _, rest = whole.rpartition("\n{\n")
    written, closed, after = rest.partition("\n}")
    if not before or not closed:
        yield whole
        return
    said, _, head = before.rpartition("\n")
    yield said or head
    if said:
        yield f"    {head}"
    yield from (f"    {line}" for line in ("{", *written.split("\n"), "}"))
    if after.strip():
        yield f"    {after.strip()}"


@click.command()
@click.option("--reason", required=True, metavar="TEXT", help=texts.DRAIN_REASON)
@click.option("--yes", is_flag=True, help=texts.ROLLOUT_YES)
@click.option("--dry-run", is_flag=True, help=texts.DRAIN_DRY_RUN)
@click.option("--wait/--no-wait", default=True, help=texts.DRAIN_WAIT)
@common_options
@answers
def drain(settings: Settings, reason: str, *, yes: bool, dry_run: bool, wait: bool) -> int:
    """Ask by hand that this node be drained: the scheduler, or whom the policy names; as shipped, a file.

    Only `undrain` takes it back. One request a node: yours joins one that stands. Fleet limit, day budget,
    pause and HOLD bind it, and where the policy's mode is not enforce it is planned on record and nobody is
    asked.
    """
    if not dry_run:
        confirm(f"ask that this node be drained ({reason})", yes=yes)
    body: Json = {
        "reason": reason,
        "dry_run": dry_run,
        "timeout_seconds": PATIENCE_SECONDS if wait else 0,
    }
    call = Request("POST", "/v1/drain", body=body, acts=not dry_run, idle_seconds=2 * PATIENCE_SECONDS)
    reply = request(settings, call, _Lines(quiet=settings.as_json))
    result = {key: value for key, value in reply.body.items() if key != "event"}
    if "exit_code" not in result:
        raise BrokenAnswerError(
            "the answer ended before its result, and a request that was made goes on",
            "look at it with `reclaimctl status`",
        )
    code = exit_code_of(result["exit_code"], ExitCode.INTERNAL)
    goes_on = code is ExitCode.TIME_UP and bool(result.get("drain"))
    try:
        _report(settings, result, failed=code is not ExitCode.OK and not goes_on)
    except OSError:
        stop_printing()
    return int(ExitCode.OK if goes_on and not wait else code)


def _report(settings: Settings, result: Json, *, failed: bool) -> None:
    """Print this node's request as it stands; why there is none goes to stderr, each reason with its mend."""
    if settings.as_json:
        show_json(result)
    elif not failed:
        show(list(drain_lines(result.get("drain"))))
    for target in (result.get("targets") or ()) if failed else ():
        say(f"reclaimctl: {target.get('text')}", to_stderr=True)
        for reason in target.get("reasons") or ():
            mend = f"; {reason['mend']}" if reason.get("mend") else ""
            say(f"reclaimctl: {reason.get('kind')}: {reason.get('text')}{mend}", to_stderr=True)


@click.command()
@click.option(
    "--incident", required=True, metavar="ID", help=texts.UNDRAIN_INCIDENT, shell_complete=completing.drains
)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option("--give-up", multiple=True, metavar="TARGET", help=texts.UNDRAIN_GIVE_UP)
@click.option("--wait/--no-wait", default=True, help=texts.UNDRAIN_WAIT)
@common_options
@answers
def undrain(settings: Settings, incident: str, reason: str, give_up: tuple[str, ...], *, wait: bool) -> int:
    """Take this node's drain request back from everybody who has it; another's drain is never touched."""
    body: Json = {"incident": incident, "reason": reason}
    if give_up:
        body["give_up"] = list(give_up)
    answer = request(settings, Request("POST", "/v1/undrain", body=body, acts=True)).body
    drain: Json | None = answer.get("drain")
    until = time.monotonic() + PATIENCE_SECONDS
    while wait and drain is not None and time.monotonic() < until:
        drain = request(settings, Request("GET", "/v1/status")).body.get("drain")
        if drain is not None and (drain.get("id") != answer["drain"]["id"] or drain.get("phase") == _DONE):
            drain = None
        if drain is not None:
            time.sleep(_LOOK_SECONDS)
    if settings.as_json:
        show_json({"drain": drain})
    elif drain is None:
        say("the drain request is taken back")
    else:
        show(list(drain_lines(drain)))
    return int(ExitCode.OK if drain is None else ExitCode.TIME_UP if wait else ExitCode.OK)
