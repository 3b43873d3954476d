"""Who goes along with the targets of a kill: asked of the daemon, shown before the question, and counted.

It only asks and words: the daemon decides who goes along, and binds the order by what was shown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from reclaimerd.cli import layouts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.render import Block, Table, user_text
from reclaimerd.errors import ExitCode, ReclaimerdError

MOST_SHOWN = 20
_HEADINGS = ("GOES ALONG", "USER", "PROGRAM", "WITH", "NOTE")


class TooManyAlongError(ReclaimerdError):
    """With what goes along it is more than the caller agreed to; nothing was asked for."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class Along:
    """Everybody whom the order would signal: `processes` counts the targets too, `foreign` those of others.

    `rows` are those who are no targets, `more` how many the daemon told no row of. `told` is false where it
    said nothing of it.
    """

    processes: int = 0
    uids: tuple[int, ...] = ()
    foreign: int = 0
    rows: tuple[Json, ...] = ()
    more: int = 0
    told: bool = True

    @property
    def count(self) -> int:
        """Return how many go along besides the targets."""
        return len(self.rows) + self.more + self.foreign

    def as_shown(self) -> Json:
        """Return what the order is bound by, in the API's form."""
        return {"processes": self.processes, "uids": list(self.uids)}


def ask_along(settings: Settings, scope: str, targets: list[Json]) -> Along | None:
    """Return who goes along with the targets that may be signalled; None where a target goes alone."""
    pids = [str(one["pid"]) for one in targets if not one.get("dry_run")]
    if scope == "process" or not pids:
        return None
    call = Request("GET", "/v1/reclaims/candidates", {"pids": ",".join(pids), "scope": scope})
    told = request(replace(settings, takeover=False), call).body.get("along")
    if not isinstance(told, dict):
        return Along(told=False)
    return Along(
        processes=int(told.get("processes") or 0),
        uids=tuple(told.get("uids") or ()),
        foreign=int(told.get("foreign") or 0),
        rows=tuple(told.get("rows") or ()),
        more=int(told.get("more") or 0),
    )


def along_blocks(along: Along | None) -> Iterator[Block]:
    """Yield who goes along, at most MOST_SHOWN of them, and how many more."""
    if along is None:
        return
    if not along.told:
        yield "who goes along was not told: it takes the right to order, and a daemon of this version"
        return
    if along.rows:
        yield Table(_HEADINGS, tuple(_row(one) for one in along.rows[:MOST_SHOWN]), layouts.ALONG)
    elif not along.foreign:
        yield "nobody goes along"
    more = max(0, len(along.rows) - MOST_SHOWN) + along.more
    if more:
        yield f"and {more} more go along"
    if along.foreign:
        yield f"{along.foreign} of others go along, so the order would be refused"


def refuse_too_many(along: Along | None, most: int) -> None:
    """Raise TooManyAlongError where more would be signalled than `most`."""
    if along is not None and along.processes > most:
        text = f"{along.processes} processes would be signalled, more than {most}; nothing was done"
        raise TooManyAlongError(
            text, f"with what goes along; if you mean it, --max-targets {along.processes}"
        )


def _row(one: Json) -> tuple[str, ...]:
    refused = one.get("refused") or {}
    uid = one.get("uid")
    return (
        str(one.get("ref")),
        user_text(uid if isinstance(uid, int) else None),
        str(one.get("comm") or "-"),
        str(one.get("of")),
        str(refused.get("text") or "-"),
    )
