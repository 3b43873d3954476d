"""`reclaimctl breaker`: what stopped by itself because too much went wrong at once, and how it goes on.

It only asks: the engine decides who may close one, and puts it on record.
"""

import sys
from collections.abc import Iterator

import click

from reclaimerd.cli import completing, layouts, texts
from reclaimerd.cli.audit_options import parse_instant
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.commands_read import resolve_gpu
from reclaimerd.cli.confirming import confirm
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options, stands_alone
from reclaimerd.cli.render import Block, Table, moment_text, say, show, show_json
from reclaimerd.errors import ExitCode


@click.group(invoke_without_command=True)
@common_options
@answers
def breaker(settings: Settings) -> int:
    """Show the host's breaker and each GPU's: open or closed, since when, why, and what closes it.

    One that is open stops what it guards until a person closes it.
    """
    if not stands_alone():
        return int(ExitCode.OK)
    body = request(settings, Request("GET", "/v1/breakers")).body
    if settings.as_json:
        show_json(body)
    else:
        show(_blocks(body))
    return int(ExitCode.OK)


@breaker.command("close")
@click.option("--gpu", metavar="GPU", help=texts.BREAKER_GPU, shell_complete=completing.gpus)
@click.option("--reason", required=True, metavar="TEXT", help=texts.REASON)
@click.option("--since", "since", metavar="WHEN", callback=parse_instant, help=texts.BREAKER_SINCE)
@click.option("--yes", is_flag=True, help=texts.BREAKER_YES)
@common_options
@answers
def close(settings: Settings, gpu: str | None, reason: str, since: float | None, *, yes: bool) -> int:
    """Close the host's breaker, or with --gpu that GPU's; for administrators. A pause stays as it is.

    It closes the opening that is shown, and none that comes after it (exit 3). On a terminal a question comes
    first, unless --since names what you saw: `reclaimctl breaker` prints the whole command.
    """
    uuid = None if gpu is None else resolve_gpu(settings, gpu)
    said: Json = {"reason": reason} if uuid is None else {"reason": reason, "gpu": uuid}
    why = ""
    if since is None:
        found = _open_now(settings, uuid)
        since, why = found.get("since"), str(found.get("reason") or "")
        if found and not yes and sys.stdin.isatty() and sys.stderr.isatty():
            confirm(f"close the breaker of {_name(found)}, open since {moment_text(since)}: {why}", yes=False)
    said |= {} if since is None else {"since": since}
    body = request(settings, Request("POST", "/v1/breakers/close", body=said, acts=True)).body
    if settings.as_json:
        show_json(body)
    elif uuid is None:
        say(f"the host's breaker{_was(why)} is closed: acts by rule and drain requests go on")
    else:
        say(f"the breaker of {uuid}{_was(why)} is closed: it may be reset again")
    return int(ExitCode.OK)


def _open_now(settings: Settings, uuid: str | None) -> Json:
    """Return the breaker that is to be closed as it is open now; {} where it is not."""
    rows = request(settings, Request("GET", "/v1/breakers")).body.get("breakers") or ()
    return next((one for one in rows if one.get("open") and one.get("gpu") == uuid), {})


def _was(why: str) -> str:
    return f" ({why})" if why else ""


def _blocks(body: Json) -> Iterator[Block]:
    found = body.get("breakers") or ()
    yield Table(("BREAKER", "STATE", "SINCE", "WHY"), tuple(_row(one) for one in found), layouts.BREAKERS)
    for one in found:
        if one.get("open"):
            yield f"{_name(one)} is closed by {one.get('closes')}"


def _name(one: Json) -> str:
    return str(one.get("gpu") or one.get("scope"))


def _row(one: Json) -> tuple[str, ...]:
    is_open = bool(one.get("open"))
    since = moment_text(one.get("since")) if is_open else "-"
    return (_name(one), "OPEN" if is_open else "closed", since, str(one.get("reason") or "-"))
