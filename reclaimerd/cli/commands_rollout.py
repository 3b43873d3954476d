"""The way from looking to acting: what enforcing would have done, and the one line that lets a rule do it."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings
from reclaimerd.cli.confirming import confirm
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.options import answers, common_options, needs_command
from reclaimerd.cli.render import instant, say, show, show_json
from reclaimerd.cli.rules_group import rules
from reclaimerd.errors import ExitCode, NoTargetError

if TYPE_CHECKING:
    from reclaimerd.config.mode_line import ModeLine

WEEK = "7d"
WEEK_SECONDS = 7 * 86400.0
MODES = ("observe", "dry-run", "enforce")
RELOAD = "reclaimctl reload"


@click.group(invoke_without_command=True)
@common_options
def rollout() -> int:
    """Say what enforcing would have done."""
    return needs_command()


def _parse_since(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return an instant from an age (7d) or a time (RFC 3339)."""
    at = instant(value)
    if at is not None:
        return at
    from reclaimerd.config.units import BadValueError, parse_duration  # noqa: PLC0415 - only here

    try:
        return time.time() - parse_duration(value)
    except BadValueError as error:
        raise click.BadParameter(f"{error}, or a time such as 2026-11-30T08:00:00Z") from None


@rollout.command("report")
@click.option(
    "--since",
    default=WEEK,
    show_default=True,
    metavar="AGE|TIME",
    callback=_parse_since,
    help=texts.ROLLOUT_SINCE,
)
@click.option("--rule", default="", metavar="NAME", help=texts.ROLLOUT_RULE, shell_complete=completing.rules)
@common_options
@answers
def report(settings: Settings, since: float, rule: str) -> int:
    """Say for each rule what enforcing would have done, and whether it is ready.

    From the audit log and the policy in force: targets by rule, user and workload, what budgets, gates and
    protections would have stopped, and who ended by themselves. Rules in any mode are in it.
    """
    from reclaimerd.cli.rollout_records import rollout as read_rollout  # noqa: PLC0415 - only `rollout` reads all
    from reclaimerd.cli.rollout_text import report_blocks  # noqa: PLC0415 - the same

    found = read_rollout(settings, since, rule)
    if rule and not found.rules:
        raise NoTargetError(
            f"neither the policy nor the record has a rule {rule!r}", "reclaimctl rollout report"
        )
    if settings.as_json:
        show_json(found.body)
    else:
        show(report_blocks(found.body, found.rules, whole=bool(rule)))
    return int(ExitCode.OK)


@rules.command("mode")
@click.argument("name", metavar="NAME", shell_complete=completing.rules)
@click.argument("mode", metavar="|".join(MODES), type=click.Choice(MODES))
@click.option("--yes", is_flag=True, help=texts.ROLLOUT_YES)
@click.option("--write", is_flag=True, help=texts.ROLLOUT_WRITE)
@common_options
@answers
def set_mode(settings: Settings, name: str, mode: str, *, yes: bool, write: bool) -> int:
    """Say which line of the policy lets a rule go further, or less far; with --write change that line.

    The rule's line of the rollout report comes first, and a question. Nothing comes into force before the
    daemon reloads the file.
    """
    from reclaimerd.cli.rollout_records import advice_line  # noqa: PLC0415 - only `rollout` reads all
    from reclaimerd.config.load import DEFAULT_PATH  # noqa: PLC0415 - the same
    from reclaimerd.config.mode_file import read_mode_line, write_mode  # noqa: PLC0415 - the same
    from reclaimerd.model.policy import Mode  # noqa: PLC0415 - the same

    path: Path = settings.config or DEFAULT_PATH
    line = read_mode_line(path, name, Mode(mode))
    advice = advice_line(settings, name, time.time() - WEEK_SECONDS)
    say(advice, to_stderr=settings.as_json)
    writes = write and line.old != line.new
    if writes:
        confirm(f"change {line.where} to {line.new.strip()}", yes=yes)
        write_mode(path, name, Mode(mode))
    if settings.as_json:
        show_json(_as_json(line, advice, written=writes))
    else:
        for sentence in _sentences(line, name, written=writes):
            say(sentence)
    return int(ExitCode.OK)


def _sentences(line: "ModeLine", name: str, *, written: bool) -> Iterator[str]:
    """Yield what is to be done, or was done, and what follows."""
    if line.old == line.new:
        yield f"{line.where} says so already: {line.old.strip()}"
    elif not line.old:
        yield f"rule {name} has no line that says its mode, which is observe: below {line.where} add"
        yield f"    {line.new}"
    elif written:
        yield f"{line.where} was: {line.old.strip()}"
        yield f"{line.where} is now: {line.new.strip()}"
    else:
        yield f"in {line.where} change"
        yield f"    {line.old.strip()}"
        yield "to"
        yield f"    {line.new.strip()}"
    if line.capped_by is not None:
        yield f'[daemon] mode is "{line.capped_by}" and caps every rule: it goes no further than that'
    if line.old != line.new:
        yield f"then: {RELOAD}"


def _as_json(line: "ModeLine", advice: str, *, written: bool) -> Json:
    return {
        "path": str(line.path),
        "line": line.line,
        "old": line.old,
        "new": line.new,
        "capped_by": None if line.capped_by is None else line.capped_by.value,
        "written": written,
        "reload": RELOAD,
        "advice": advice,
    }
