"""The command `top`; what it needs is imported when it runs."""

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import say, show_json
from reclaimerd.errors import ExitCode, ReclaimerdError


class NoCursesError(ReclaimerdError):
    """This Python was built without curses."""

    exit_code = ExitCode.USAGE


@click.command()
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(0.2, 3600),
    default=1.0,
    show_default=True,
    help=texts.TOP_INTERVAL,
)
@click.option("--once", is_flag=True, help=texts.TOP_ONCE)
@common_options
@answers
def top(settings: Settings, interval: float, *, once: bool) -> int:
    """Watch GPUs and who holds them, live; keys sort, filter and inspect, and none of them acts."""
    try:
        from reclaimerd.cli import top as live  # noqa: PLC0415 - only this command pays for it
    except ImportError as error:
        mend = "`reclaimctl ps` prints the same once"
        raise NoCursesError(f"top can't draw, this Python lacks a module: {error}", mend) from None
    if settings.as_json:
        show_json(live.both_answers(settings))
    elif once:
        for line in live.printed_lines(live.both_answers(settings)):
            say(line)
    else:
        return live.watch(settings, interval)
    return int(ExitCode.OK)
