"""The options that every command takes, and the frame around a command's body.

May not ask the daemon or print a result: it says where things are, and turns our own errors into
one sentence and an exit code.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings
from reclaimerd.cli.http_socket import Interrupted
from reclaimerd.cli.render import complain, say
from reclaimerd.errors import ExitCode, ReclaimerdError

P = ParamSpec("P")
Decorated = TypeVar("Decorated", bound=Callable[..., object])

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
_KEY = "reclaimerd."
STATE_DIRECTORY = Path("/var/lib/reclaimerd")
LOG_DIRECTORY = Path("/var/log/reclaimerd")
SOCKET = Path("/run/reclaimerd/reclaimerd.sock")


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    """Keep an option that was given; after the command it wins over before it."""
    if value is not None and value is not False:
        ctx.meta[f"{_KEY}{param.name}"] = value


def common_options(function: Decorated) -> Decorated:
    """Give a command or a group the options that all of them take."""
    path = click.Path(path_type=Path, readable=False)
    for name, help_text in reversed(texts.PATH_OPTIONS):
        metavar = "FILE" if name in {"--config", "--socket"} else "DIR"
        function = click.option(
            name, type=path, metavar=metavar, help=help_text, expose_value=False, callback=_remember
        )(function)
    return click.option(
        "--json", is_flag=True, help=texts.JSON_OPTION, expose_value=False, callback=_remember
    )(function)


def settings_of(ctx: click.Context) -> Settings:
    """Return where things are: with --simulate below that directory, so that no real host is meant."""

    def given(name: str, default: Path) -> Path:
        value = ctx.meta.get(_KEY + name)
        return value if isinstance(value, Path) else default

    simulate = ctx.meta.get(f"{_KEY}simulate")
    config = ctx.meta.get(f"{_KEY}config")
    simulated = simulate if isinstance(simulate, Path) else None
    return Settings(
        config=config if isinstance(config, Path) else None,
        state_dir=given("state_dir", simulated / "state" if simulated else STATE_DIRECTORY),
        log_dir=given("log_dir", simulated / "log" if simulated else LOG_DIRECTORY),
        socket=given("socket", simulated / "reclaimerd.sock" if simulated else SOCKET),
        simulate=simulated,
        as_json=bool(ctx.meta.get(f"{_KEY}json")),
    )


def answers(function: Callable[Concatenate[Settings, P], int]) -> Callable[P, int]:
    """Run a command's body with the settings; our errors become one sentence and an exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        settings = settings_of(click.get_current_context())
        try:
            return function(settings, *args, **kwargs)
        except ReclaimerdError as error:
            complain(error, as_json=settings.as_json)
            return int(error.exit_code)
        except Interrupted as stop:
            say(f"reclaimctl: {stop}", to_stderr=True)
            return INTERRUPTED

    return run


def needs_command() -> int:
    """Print a group's help when no command was named."""
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        return int(ExitCode.OK)
    click.echo(ctx.get_help(), err=True)
    return int(ExitCode.USAGE)


def stands_alone() -> bool:
    """Tell whether a group was called without a command."""
    return click.get_current_context().invoked_subcommand is None
