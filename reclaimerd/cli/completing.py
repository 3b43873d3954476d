"""What a shell is offered after an option: GPUs, incidents and rules, as the daemon knows them now.

It asks the daemon alone, and nobody for the program's own words, for 300 ms at most, and is silent when
that brings nothing: a person waits at a prompt, and no engine is ever started for that.
"""

import signal
from collections.abc import Callable, Iterable
from types import FrameType

import click

from reclaimerd.cli.http_socket import Json

MOST_SECONDS = 0.3
HTTP_OK = 200


class _TooLateError(Exception):
    """The time is up."""


def gpus(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the UUIDs of this host's GPUs that begin so."""
    return _offered(ctx, "/v1/status", incomplete, lambda body: (one["uuid"] for one in body["gpus"]))


def incidents(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the newest incidents whose names begin so."""
    return _offered(ctx, "/v1/incidents", incomplete, lambda body: (one["id"] for one in body["incidents"]))


def drains(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the incidents that this node's drain request is of."""

    def joined(body: Json) -> Iterable[str]:
        return (one["id"] for one in (body["drain"] or {"incidents": []})["incidents"])

    return _offered(ctx, "/v1/status", incomplete, joined)


def rules(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the rules in force whose names begin so."""
    return _offered(ctx, "/v1/rules", incomplete, lambda body: (one["name"] for one in body["rules"]))


def kinds(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the kinds of records whose names begin so: they are the program's own, nobody is asked."""
    from reclaimerd.model.audit_record import RecordKind  # noqa: PLC0415 - only a shell that asks pays

    return [kind.value for kind in RecordKind if kind.value.startswith(incomplete)]


def _offered(
    ctx: click.Context, path: str, incomplete: str, names: Callable[[Json], Iterable[object]]
) -> list[str]:
    """Return the names that begin so and are one plain word: nothing else may come to a shell."""
    try:
        found = [str(name) for name in names(_answer(ctx, path))]
    except (KeyError, TypeError):
        return []
    plain = (name for name in dict.fromkeys(found) if name.replace("-", "").replace("_", "").isalnum())
    return [name for name in plain if name.startswith(incomplete) and name.isascii()]


def _answer(ctx: click.Context, path: str) -> Json:
    """Return the daemon's answer, {} where none came in time."""
    from reclaimerd.cli.http_socket import Reply, Request, ask_daemon  # noqa: PLC0415 - only a shell asks
    from reclaimerd.cli.options import settings_of  # noqa: PLC0415 - it would be a circle
    from reclaimerd.errors import ReclaimerdError  # noqa: PLC0415 - only a shell asks

    before = signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        answer = ask_daemon(settings_of(ctx).socket, Request("GET", path), None)
    except (_TooLateError, ReclaimerdError):
        return {}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    return answer.body if isinstance(answer, Reply) and answer.status == HTTP_OK else {}


def _too_late(_signal: int, _frame: FrameType | None) -> None:
    raise _TooLateError
