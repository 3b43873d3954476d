"""Commands that ask for an act: pause, resume, release-driver, demo.

They only ask: the engine judges, records and acts.
"""

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.commands_read import resolve_gpu
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import moment_text, say, show_json
from reclaimerd.errors import ExitCode


def parse_duration_option(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return seconds, or None where the option was not given."""
    if value is None:
        return None
    from reclaimerd.config.units import parse_duration  # noqa: PLC0415 - only when a duration is named

    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_some_time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return seconds as `parse_duration_option`, and refuse zero: what would be over at once is no order."""
    seconds = parse_duration_option(ctx, param, value)
    if seconds == 0:
        raise click.BadParameter(f'"{value}" is no time at all; write one over zero, such as "2m"')
    return seconds


@click.command()
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option("--for", "for_seconds", metavar=texts.DURATION, callback=parse_some_time, help=texts.PAUSE_FOR)
@common_options
@answers
def pause(settings: Settings, reason: str, for_seconds: float | None) -> int:
    """Stop every act by rule until `resume`; looking and an operator's kill go on."""
    body: Json = {"reason": reason, "for_seconds": for_seconds}
    return _report_pause(settings, Request("POST", "/v1/pause", body=body, acts=True))


@click.command()
@click.option("--gpu", metavar="GPU", help=texts.RESUME_GPU, shell_complete=completing.gpus)
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
    callback=parse_some_time,
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
