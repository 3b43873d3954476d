"""How the rows of a table fit a screen: columns that may be shortened, left out or folded. Pure.

Identities (a pid, an incident) are whole or not there at all: a shortened pid would name another process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

_GAP = 2
_INDENT = 4
_FOLD_LEAST = 24
"""Where less room than this is left for a text that folds, it gets lines of its own."""

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """What may give way in a table that is wider than the screen; no other column does.

    `cut` are headings with the fewest letters that their cells keep, `drop` headings that are left out after
    that, the first one first. With `folds` the last column is shown whole, on as many lines as it needs.
    """

    cut: tuple[tuple[str, int], ...] = ()
    drop: tuple[str, ...] = ()
    folds: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """Where lines go: `width` is None where there is no limit."""

    width: int | None = None
    ellipsis: str = "…"


@dataclass(slots=True)
class _Columns:
    """The columns that are shown, with their widths; `left_out` are headings."""

    shown: list[int]
    widths: list[int]
    left_out: list[str] = field(default_factory=list)

    def total(self) -> int:
        return sum(self.widths[column] for column in self.shown) + _GAP * (len(self.shown) - 1)


def columns_of(text: str) -> int:
    """Return how many columns of a terminal a text takes; it has no control characters."""
    if text.isascii():
        return len(text)
    import unicodedata  # noqa: PLC0415 - not before a kill's request, and only for who needs it

    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def shortened(text: str, width: int, ellipsis: str = "…") -> str:
    """Return the text in at most so many columns; one that was cut ends in the ellipsis."""
    if columns_of(text) <= width:
        return text
    kept = text[: max(width - len(ellipsis), 0)]
    while kept and columns_of(kept) + len(ellipsis) > width:
        kept = kept[:-1]
    return kept.rstrip(" (") + ellipsis[:width]


def fitted_lines(rows: Sequence[Row], layout: Layout, screen: Screen) -> list[str]:
    """Return the lines of a table, its headings (the first row) first."""
    columns = _fitted(rows, layout, screen.width)
    folds = layout.folds and screen.width is not None and columns.total() > screen.width
    lines = [line for row in rows for line in _lines_of(row, columns, screen, folds=folds)]
    if columns.left_out:
        lines.append(f"(no room for {', '.join(columns.left_out)}: a wider screen or --json has it)")
    return lines


def _fitted(rows: Sequence[Row], layout: Layout, width: int | None) -> _Columns:
    """Return which columns are shown how wide; the widest that may give way does so first."""
    headings = list(rows[0])
    natural = [max(columns_of(row[number]) for row in rows) for number in range(len(headings))]
    columns = _Columns(list(range(len(headings))), natural)
    if width is None:
        return columns
    last = len(headings) - 1
    excused = max(natural[last] - _FOLD_LEAST, 0) if layout.folds else 0
    floors = {headings.index(name): least for name, least in layout.cut if name in headings}
    drops = [headings.index(name) for name in layout.drop if name in headings]
    while columns.total() - excused > width:
        soft = [one for one in columns.shown if natural[one] > max(floors.get(one, natural[one]), 1)]
        if soft:
            natural[max(soft, key=natural.__getitem__)] -= 1
        elif drops:
            columns.shown.remove(drops[0])
            columns.left_out.append(headings[drops.pop(0)])
        else:
            break
    return columns


def _lines_of(row: Row, columns: _Columns, screen: Screen, *, folds: bool) -> list[str]:
    shown = columns.shown[:-1] if folds else columns.shown
    cells = [shortened(row[one], columns.widths[one], screen.ellipsis) for one in shown]
    padded = [
        cell + " " * (columns.widths[one] - columns_of(cell)) for one, cell in zip(shown, cells, strict=True)
    ]
    front = (" " * _GAP).join(padded)
    if not folds:
        return [front.rstrip()]
    return _folded(front, row[columns.shown[-1]], screen.width or 0)


def _folded(front: str, text: str, width: int) -> list[str]:
    """Return a row whose last cell goes on below itself, or where that is too narrow, below the row."""
    room = width - columns_of(front) - _GAP
    below = room < _FOLD_LEAST
    indent = _INDENT if below else columns_of(front) + _GAP
    parts = _wrapped(text, max(width - indent, 2))
    if below:
        return [front.rstrip(), *(" " * indent + part for part in parts)]
    first, *others = parts or [""]
    return [f"{front}{' ' * _GAP}{first}".rstrip(), *(" " * indent + part for part in others)]


def _wrapped(text: str, room: int) -> list[str]:
    """Return the text in parts of so many columns."""
    import textwrap  # noqa: PLC0415 - as above

    if columns_of(text) > len(text):
        # What counts letters is told of the second column of a wide one by a NUL, which no text here has.
        text = "".join(f"{letter}\0" if columns_of(letter) > 1 else letter for letter in text)
        room -= 1  # a break may come between the two
    return [part.replace("\0", "") for part in textwrap.wrap(text, room, break_on_hyphens=False)]
