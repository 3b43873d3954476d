"""Text that fits a screen: cells, aligned columns, lines folded. Pure.

Every word that `top` shows comes through `fit` or `fold`, so nothing else can steer the terminal and
nothing is wider than it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich.cells import cell_len, chop_cells, set_cell_size

from reclaimerd.cli.render import printable

CUT = "~"
"""Stands where a text was cut; plain ASCII, as every terminal has it."""
_MOST_LETTERS_A_CELL = 4
"""Marks that stand over a letter take no cell: more of them than this are left out."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What is written on: cells in a line, lines (None: as many as there are), and its charset."""

    columns: int
    lines: int | None = None
    ascii_only: bool = False


class Style(Enum):
    """What a line is, for its colours."""

    PLAIN = "plain"
    HEAD = "head"
    ALERT = "alert"
    CHOSEN = "chosen"
    MARKED = "marked"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True, slots=True)
class Column:
    """One column: never narrower than `least`, not wider than its widest cell or `most`.

    Of columns that have no room the one with the highest `rank` is left out first.
    """

    heading: str
    least: int
    most: int
    rank: int = 0
    right: bool = False


def spelt(text: str, paper: Paper) -> str:
    """Return the text without anything that could steer the terminal, in letters that it has."""
    plain = printable(text)
    return plain.encode("ascii", "backslashreplace").decode("ascii") if paper.ascii_only else plain


def fit(text: str, paper: Paper, width: int | None = None) -> str:
    """Return the text in at most so many cells (default: the line's); `~` ends what was cut."""
    room = paper.columns if width is None else width
    whole = spelt(text, paper)
    some = whole[: max(0, room) * _MOST_LETTERS_A_CELL]
    if len(some) == len(whole) and cell_len(some) <= room:
        return some
    return (set_cell_size(some, room - 1).rstrip() + CUT) if room > 0 else ""


def fold(text: str, paper: Paper) -> list[str]:
    """Return the text in as many lines as it needs."""
    whole = spelt(text, paper)
    pieces = chop_cells(whole, paper.columns) if paper.columns > 1 else []
    return [fit(piece, paper) for piece in pieces] or [""]


def grid(columns: Sequence[Column], rows: Sequence[Sequence[str]], paper: Paper) -> list[str]:
    """Return headings and rows as aligned lines, with as many columns as there is room for.

    A column in which no row has a word is left out.
    """
    told = [n for n in range(len(columns)) if not rows or any(row[n] for row in rows)]
    chosen = _with_room(columns, told, paper.columns)
    table = [
        [column.heading for column in columns],
        *([spelt(cell, paper) for cell in row] for row in rows),
    ]
    widest = [max(cell_len(row[number]) for row in table) for number in range(len(columns))]
    widths = _shares(columns, chosen, widest, paper.columns)
    return [
        fit("  ".join(_cell(row[n], columns[n], widths[n], paper) for n in chosen).rstrip(), paper)
        for row in table
    ]


def _with_room(columns: Sequence[Column], told: Sequence[int], room: int) -> list[int]:
    """Return the numbers of the columns whose least widths have room together."""
    chosen = list(told)
    while len(chosen) > 1 and sum(columns[n].least + 2 for n in chosen) - 2 > room:
        chosen.remove(max(chosen, key=lambda n: (columns[n].rank, n)))
    return chosen


def _shares(
    columns: Sequence[Column], chosen: Sequence[int], widest: Sequence[int], room: int
) -> dict[int, int]:
    """Return the width of each column: what its cells need, as far as there is room, the first first."""
    widths = {n: columns[n].least for n in chosen}
    left = room - sum(widths.values()) - 2 * (len(chosen) - 1)
    for n in sorted(chosen, key=lambda n: (columns[n].rank, n)):
        more = max(0, min(left, min(widest[n], columns[n].most) - widths[n]))
        widths[n] += more
        left -= more
    return widths


def _cell(text: str, column: Column, width: int, paper: Paper) -> str:
    cut = fit(text, paper, width)
    space = " " * (width - cell_len(cut))
    return space + cut if column.right else cut + space
