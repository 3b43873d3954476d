"""Makes every check of `doctor`, each group in a child with a deadline, all at once; shows what was found.

May not touch the host itself: what can hang is in the children.
"""

import asyncio
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import click

from reclaimerd.cli.client import Settings
from reclaimerd.cli.doctor_child import heard, order_of
from reclaimerd.cli.doctor_host import Where
from reclaimerd.cli.doctor_table import CHECKS, as_markdown
from reclaimerd.cli.doctor_words import Check, Finding, State
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import printable, show_json
from reclaimerd.errors import ExitCode
from reclaimerd.host.child import Overran, run_bounded

BOUND_SECONDS = 20.0
"""For one group: some programs or servers that take 5 s each, and the child's own start on a busy host."""
SCHEMA = 1
_COLOURS = {State.FAIL: "red", State.WARN: "yellow", State.UNKNOWN: "cyan", State.OK: "green"}
_LEAST_COLUMNS = 60
Argv = Callable[[], Sequence[str]]


def child_argv() -> tuple[str, ...]:
    """Return what starts a child of ours, as isolated as we are."""
    isolation = "-I" if sys.flags.isolated else "-P"
    return (sys.executable, isolation, "-m", "reclaimerd.cli.doctor_child")


async def examine(
    where: Where,
    checks: Sequence[Check] = CHECKS,
    *,
    argv: Argv = child_argv,
    bound_seconds: float = BOUND_SECONDS,
) -> tuple[Finding, ...]:
    """Return a finding for each check within the bound, also when a child never answers; in table order."""

    async def of_group(group: str) -> list[Finding]:
        mine = [check for check in checks if check.group == group]
        try:
            ended = await run_bounded(
                argv(), deadline_seconds=bound_seconds, stdin_text=order_of(group, where)
            )
        except OSError as error:
            return heard("", mine, f"its child did not start: {error.strerror}")
        if isinstance(ended, Overran):
            left = "" if ended.gone else f"; pid {ended.pid} hangs and was left behind"
            return heard(ended.out, mine, f"no answer within {bound_seconds:g} s{left}")
        words = (ended.err.strip().splitlines() or [""])[-1][:200]
        return heard(ended.out, mine, f"its child ended with code {ended.code} {words}".rstrip())

    groups = dict.fromkeys(check.group for check in checks)
    found = {one.name: one for group in await asyncio.gather(*map(of_group, groups)) for one in group}
    return tuple(found[check.name] for check in checks)


def run_doctor(settings: Settings) -> int:
    """Make every check, print what was found, and return the exit code."""
    where = Where(settings.config, settings.state_dir, settings.log_dir, settings.socket, settings.simulate)
    found = asyncio.run(examine(where))
    if settings.as_json:
        show_json(as_json(found))
    else:
        width = max(_LEAST_COLUMNS, shutil.get_terminal_size((80, 24)).columns)
        coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        for line in lines_of(found, width, coloured=coloured):
            click.echo(line)
    return int(exit_code(found))


def manual_page() -> str:
    """Return docs/doctor.md."""
    return as_markdown(BOUND_SECONDS)


def exit_code(found: Sequence[Finding]) -> ExitCode:
    """Return 10 when something fails, or can't be told: unknown is never "ready"."""
    is_ready = all(one.state in (State.OK, State.WARN) for one in found)
    return ExitCode.OK if is_ready else ExitCode.ATTENTION


def as_json(found: Sequence[Finding]) -> Json:
    """Return what docs/doctor.schema.json describes."""
    counts = Counter(one.state for one in found)
    return {
        "schema": SCHEMA,
        "ready": exit_code(found) is ExitCode.OK,
        "counts": {state.value: counts[state] for state in State},
        "checks": [
            {"name": one.name, "state": one.state.value, "text": one.text, "mend": one.mend} for one in found
        ],
    }


def lines_of(found: Sequence[Finding], width: int, *, coloured: bool) -> Iterator[str]:
    """Yield the findings for people, what fails first, no line wider than `width`."""
    counts = Counter(one.state for one in found)
    yield ", ".join(f"{counts[state]} {state.value}" for state in State)
    order = list(State)
    widest = max((len(one.name) for one in found), default=0)
    indent = " " * (len(State.UNKNOWN.value) + 2 + widest + 2)
    for one in sorted(found, key=lambda one: order.index(one.state)):
        word = f"{one.state.value:<{len(State.UNKNOWN.value)}}"
        shown = click.style(word, fg=_COLOURS[one.state]) if coloured else word
        text = _wrapped(one.text, width, indent)
        yield f"{shown}  {one.name:<{widest}}  {text[0].lstrip()}".rstrip()
        yield from text[1:]
        if one.mend:
            yield from _wrapped(f"mend: {one.mend}", width, indent)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    plain = printable(" ".join(text.split()))
    lines = textwrap.wrap(
        plain, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return lines or [indent]
