"""`reclaimctl reset`: ask the gate, print its answer as a checklist, and reset the GPU where it permits.

It only asks: the engine looks, judges, records and acts, and puts back what it stopped.
"""

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings, exit_code_of, request
from reclaimerd.cli.commands_read import resolve_gpu
from reclaimerd.cli.http_socket import BrokenAnswerError, Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.progress import event_line
from reclaimerd.cli.render import say, show, show_json, stop_printing
from reclaimerd.cli.report import explain_blocks
from reclaimerd.errors import ExitCode

PATIENCE_SECONDS = 1800.0
"""Clients are stopped, the tool has its deadline, the GPU is verified, clients come back."""


class _Lines:
    """Prints what happens as it comes; when nobody reads it any more, the reset goes on without."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def __call__(self, event: Json) -> None:
        if self._quiet:
            return
        try:
            self._print(event)
        except OSError:
            self._quiet = True
            stop_printing()

    def _print(self, event: Json) -> None:
        match event.get("event"):
            case "checked":
                show(explain_blocks(event))
            case "accepted" | "result" | None:
                return
            case _:
                say(event_line(event))


@click.command(epilog=texts.epilog())
@click.option("--gpu", required=True, metavar="GPU", help=texts.GPU, shell_complete=completing.gpus)
@click.option("--force", is_flag=True, help=texts.FORCE_RESET)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option("--dry-run", is_flag=True, help=texts.DRY_RUN_RESET)
@common_options
@answers
def reset(settings: Settings, gpu: str, reason: str, *, force: bool, dry_run: bool) -> int:
    """Reset one GPU with the vendor's tool, when nobody holds it and nothing speaks against it.

    What is stopped for it (listed units, persistence mode) is put back on every path. No process is
    told to go: `reclaimctl kill` does that.
    """
    uuid = resolve_gpu(settings, gpu)
    body: Json = {"gpu": uuid, "force": force, "reason": reason, "dry_run": dry_run}
    call = Request("POST", "/v1/resets", body=body, acts=not dry_run, idle_seconds=PATIENCE_SECONDS)
    reply = request(settings, call, _Lines(quiet=settings.as_json))
    result = {key: value for key, value in reply.body.items() if key != "event"}
    if "answer" not in result:
        raise BrokenAnswerError(
            "the answer ended before its result, and a reset that was begun goes on",
            "look at it with `reclaimctl incidents`",
        )
    code = exit_code_of(result.get("exit_code"), ExitCode.INTERNAL)
    try:
        if settings.as_json:
            show_json(result)
        else:
            say(str(result.get("text") or ""), to_stderr=code is not ExitCode.OK)
    except OSError:
        stop_printing()
    return int(code)
