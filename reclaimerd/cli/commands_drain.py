"""`reclaimctl undrain`: take this node's drain request back, where it is ours.

It only asks: the engine puts the order on record and asks each target; nobody else's drain is touched.
"""

import time

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.drain_text import drain_lines
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import say, show, show_json
from reclaimerd.errors import ExitCode

PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_DONE = "done"
"""Of a request that everybody let go, and that a daemon has yet to tell its incidents of."""


@click.command()
@click.option("--incident", required=True, metavar="ID", help=texts.UNDRAIN_INCIDENT)
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
