"""The filters of `audit list`, `audit export` and `audit stats`, and how their values are read.

May not open a file: it turns words into a filter.
"""

import functools
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from reclaimerd.cli import completing

Decorated = TypeVar("Decorated", bound=Callable[..., object])
_MOST_UID = 2**32 - 1


def parse_instant(_ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return wall seconds from RFC 3339 (local time without a zone) or an age, such as 2h."""
    if value is None:
        return None
    # Cheap, but only who gives a time pays.
    from reclaimerd.config.units import BadValueError, parse_duration  # noqa: PLC0415

    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        pass
    try:
        return time.time() - parse_duration(value)
    except BadValueError:
        what = f"{value!r} is neither an instant (2026-11-30T14:00:00Z) nor an age (2h, 7d)"
        raise click.BadParameter(what, param=param) from None


def parse_user(_ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a uid from a number or a name; the log holds numbers alone."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and int(value) <= _MOST_UID:
        return int(value)
    import pwd  # noqa: PLC0415 - the name service may be slow: only who names a user pays

    try:
        return pwd.getpwnam(value).pw_uid
    except (KeyError, ValueError):
        raise click.BadParameter(f"no user {value!r} is known here; give the uid", param=param) from None


def parse_kind(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a kind of record; one that is none would only find nothing, and look like an answer."""
    if value is None:
        return None
    from reclaimerd.model.audit_record import RecordKind  # noqa: PLC0415 - only who names a kind pays

    kinds = [kind.value for kind in RecordKind]
    if value not in kinds:
        raise click.BadParameter(f"no record is of kind {value!r}; one of {', '.join(kinds)}", param=param)
    return value


_TIMES = (
    ("--since", "Only what was recorded since then: RFC 3339, or an age such as 2h."),
    ("--until", "Only what was recorded before then."),
)
_WORDS = (
    ("--gpu", "UUID", "Only what concerns this GPU, by its UUID or the beginning of it."),
    (
        "--actor",
        "NAME",
        "Only what this person (also by their login) or rule asked for; or a kind: rule, operator, watch.",
    ),
    ("--rule", "NAME", "Only what this rule asked for."),
    ("--action", "STAGE", "Only this step, such as sigkill."),
    ("--outcome", "WORD", "Only this outcome or end, such as sent, failed or reclaimed."),
    ("--incident", "ID", "Only what belongs to this incident."),
    ("--kind", "KIND", "Only this kind of record, such as intent, refused or alarm."),
    ("--text", "TEXT", "Only what holds this text somewhere, in whatever case."),
)
_OFFERED = {
    "--gpu": completing.gpus,
    "--incident": completing.incidents,
    "--kind": completing.kinds,
    "--rule": completing.rules,
}
_READ = {"--kind": parse_kind}
_OWN = ("since", "until", "pid", "uid", *(flag.removeprefix("--") for flag, _, _ in _WORDS))


def filter_options(function: Decorated) -> Decorated:
    """Give a command the filters; it gets them as one `wanted`."""

    @functools.wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401 - a decorator's own arguments
        from reclaimerd.record.audit_filter import Filter  # noqa: PLC0415 - only `audit` reads files

        own = {name: kwargs.pop(name) for name in _OWN}
        wanted = Filter(**{name: value for name, value in own.items() if value is not None})
        return function(*args, wanted=wanted, **kwargs)

    command: Any = filtered
    for flag, metavar, help_text in reversed(_WORDS):
        reads: Any = {"callback": _READ.get(flag), "shell_complete": _OFFERED.get(flag)}
        command = click.option(flag, metavar=metavar, help=help_text, **reads)(command)
    who = "Only what was done about this user's processes (name or uid)."
    command = click.option("--user", "uid", metavar="USER", callback=parse_user, help=who)(command)
    process = "Only what concerns this process."
    command = click.option("--pid", metavar="PID", type=click.IntRange(1), help=process)(command)
    for flag, help_text in reversed(_TIMES):
        command = click.option(flag, metavar="WHEN", callback=parse_instant, help=help_text)(command)
    return command  # type: ignore[no-any-return]
