"""What a person sees of `top` and what each key makes of it. Pure: a key and a view in, a view out.

No key acts on the host: all that they change is what is shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from reclaimerd.cli.render import UNKNOWN
from reclaimerd.cli.top_rows import Held

PAGE_LINES = 10
MOST_FILTER = 64
FARTHEST = 1 << 30


class Page(Enum):
    """What stands on the screen."""

    TABLE = "table"
    FILTER = "filter"
    INSPECT = "inspect"
    HELP = "help"
    LEFT = "left"


class Sort(Enum):
    """What the rows are ordered by."""

    MEMORY = "memory"
    AGE = "age"
    GPU = "gpu"
    USER = "user"
    SM = "sm"


SORT_KEYS: Mapping[str, Sort] = {
    "m": Sort.MEMORY,
    "a": Sort.AGE,
    "g": Sort.GPU,
    "u": Sort.USER,
    "s": Sort.SM,
}
_FALLING = {Sort.MEMORY, Sort.AGE, Sort.SM}
"""Of these the greatest stands first."""
MOVES: Mapping[str, int] = {
    "up": -1,
    "k": -1,
    "down": 1,
    "j": 1,
    "page-up": -PAGE_LINES,
    "page-down": PAGE_LINES,
    " ": PAGE_LINES,
    "home": -FARTHEST,
    "end": FARTHEST,
}


@dataclass(frozen=True, slots=True)
class View:
    """What is shown and how; `chosen` is a row's key, and `place` where it stood when last chosen."""

    page: Page = Page.TABLE
    sort: Sort = Sort.MEMORY
    reverse: bool = False
    text: str = ""
    chosen: str = ""
    place: int = 0
    inspected: str = ""
    scroll: int = 0


def shown_rows(view: View, rows: Sequence[Held]) -> list[Held]:
    """Return the rows that have the filter's text, in the order that is asked for."""
    wanted = view.text.casefold()
    found = [row for row in rows if not wanted or wanted in " ".join((row.ref, *row.cells())).casefold()]
    found.sort(key=lambda row: (FARTHEST if row.gpu is None else row.gpu, row.pid or 0, row.key))
    place_of = _PLACES[view.sort]
    placed = [(place, row) for row in found if (place := place_of(row)) is not None]
    placed.sort(key=lambda pair: pair[0], reverse=(view.sort in _FALLING) != view.reverse)
    # What is not known is neither great nor small: last, whichever way the rest goes.
    return [row for _, row in placed] + [row for row in found if place_of(row) is None]


def chosen_place(view: View, rows: Sequence[Held]) -> int:
    """Return which of the shown rows is chosen; a row that went leaves its place to the next."""
    for place, row in enumerate(rows):
        if row.key == view.chosen:
            return place
    return max(0, min(view.place, len(rows) - 1))


def pressed(view: View, key: str, rows: Sequence[Held]) -> View:
    """Return the view after a key; `rows` are all that are known. A key without a meaning changes nothing."""
    match view.page:
        case Page.FILTER:
            return _filter_key(view, key)
        case Page.INSPECT:
            return _scroll_key(view, key) if key in MOVES else _back_key(view, key)
        case Page.HELP:
            return _back_key(view, key)
        case Page.TABLE:
            return _table_key(view, key, shown_rows(view, rows))
        case Page.LEFT:
            return view


def _table_key(view: View, key: str, shown: Sequence[Held]) -> View:
    if key in SORT_KEYS:
        return replace(view, sort=SORT_KEYS[key], reverse=False)
    if key in MOVES:
        place = max(0, min(chosen_place(view, shown) + MOVES[key], len(shown) - 1))
        return replace(view, place=place, chosen=shown[place].key if shown else "")
    if key == "enter" and shown:
        row = shown[chosen_place(view, shown)]
        return replace(view, page=Page.INSPECT, inspected=row.ref, chosen=row.key, scroll=0)
    change = _TABLE_KEYS.get(key)
    return view if change is None else change(view)


_TABLE_KEYS: Mapping[str, Callable[[View], View]] = {
    "r": lambda view: replace(view, reverse=not view.reverse),
    "/": lambda view: replace(view, page=Page.FILTER),
    "?": lambda view: replace(view, page=Page.HELP),
    "q": lambda view: replace(view, page=Page.LEFT),
    "escape": lambda view: replace(view, text=""),
}


def _filter_key(view: View, key: str) -> View:
    match key:
        case "enter":
            return replace(view, page=Page.TABLE)
        case "escape":
            return replace(view, page=Page.TABLE, text="")
        case "backspace":
            return replace(view, text=view.text[:-1])
        case _ if len(key) == 1 and key.isprintable():
            return replace(view, text=(view.text + key)[:MOST_FILTER])
        case _:
            return view


def _scroll_key(view: View, key: str) -> View:
    return replace(view, scroll=max(0, min(view.scroll + MOVES[key], FARTHEST)))


def _back_key(view: View, key: str) -> View:
    """Return the table on a key that leaves a page."""
    leaves = key in {"enter", "escape", "q", "?", "left"}
    return replace(view, page=Page.TABLE, inspected="", scroll=0) if leaves else view


def _user_place(row: Held) -> tuple[float, str] | None:
    return None if row.user == UNKNOWN else (0.0, row.user)


def _figure(value: float | None) -> tuple[float, str] | None:
    return None if value is None else (value, "")


_PLACES: Mapping[Sort, Callable[[Held], tuple[float, str] | None]] = {
    Sort.MEMORY: lambda row: _figure(row.used_bytes),
    Sort.AGE: lambda row: _figure(row.age_seconds),
    Sort.GPU: lambda row: _figure(row.gpu),
    Sort.USER: _user_place,
    Sort.SM: lambda row: _figure(row.sm_percent),
}
