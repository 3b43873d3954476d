"""What stands on `top`'s screen: it fits, nothing steers the terminal, and keys change the view alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reclaimerd.cli.render import Table
from reclaimerd.cli.top_grid import Column, Paper, Style, fit, fold, grid
from reclaimerd.cli.top_keys import Page, Sort, View, chosen_place, pressed, shown_rows
from reclaimerd.cli.top_rows import Figures, Held, Inspected, News, figures_of
from reclaimerd.cli.top_screen import LEAST_COLUMNS, LEAST_LINES, screen_lines
from tests.cli.test_commands import HOSTILE, STATUS

GIB = 2**30
CALM = {**STATUS, "attention": [], "incidents": [], "paused": None, "hold": ""}
WIDE = Paper(200, 40)


def held(pid: int = 4242, **changes: Any) -> Held:
    """Return one holder."""
    row = Held(
        f"{pid}@{pid}7",
        pid,
        "ann",
        0,
        "GPU-a",
        8.0 * GIB,
        50.0,
        60.0,
        "sleeping",
        "watch",
        "job 1",
        "python",
        "",
    )
    return replace(row, **changes)


SOME = (
    held(10, used_bytes=1.0 * GIB, age_seconds=300.0, gpu=1, user="cleo", sm_percent=None),
    held(20, used_bytes=3.0 * GIB, age_seconds=100.0, gpu=0, user="ann", sm_percent=10.0),
    held(30, used_bytes=None, age_seconds=None, gpu=None, user="unknown", sm_percent=90.0),
    held(40, used_bytes=2.0 * GIB, age_seconds=200.0, gpu=0, user="bob", sm_percent=20.0),
)


def news_of(rows: tuple[Held, ...] = SOME, status: dict[str, Any] | None = None, **changes: Any) -> News:
    """Return what was answered a second before now, which is 100."""
    figures = Figures(CALM if status is None else status, {}, rows)
    return replace(News(figures, answered_at=99.0), **changes)


def texts(view: View, news: News, paper: Paper = WIDE) -> list[str]:
    """Return the screen's lines at 100."""
    return [line.text for line in screen_lines(view, news, 100.0, paper)]


def typed(keys: list[str], rows: tuple[Held, ...] = SOME, view: View | None = None) -> View:
    """Return the view after these keys."""
    found = View() if view is None else view
    for key in keys:
        found = pressed(found, key, rows)
    return found


def pids(view: View, rows: tuple[Held, ...] = SOME) -> list[int | None]:
    """Return the shown pids in their order."""
    return [row.pid for row in shown_rows(view, rows)]


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ([], [20, 40, 10, 30]),
        (["r"], [10, 40, 20, 30]),
        (["a"], [10, 40, 20, 30]),
        (["g"], [20, 40, 10, 30]),
        (["g", "r"], [10, 20, 40, 30]),
        (["u"], [20, 40, 10, 30]),
        (["u", "r"], [10, 40, 20, 30]),
        (["s"], [30, 40, 20, 10]),
        (["s", "r"], [20, 40, 30, 10]),
        (["s", "r", "m"], [20, 40, 10, 30]),
    ],
)
def test_order(keys: list[str], wanted: list[int]) -> None:
    """Each key orders by its column; what is not known stands last, also in reverse."""
    assert pids(typed(keys)) == wanted


def test_filter_keys() -> None:
    """The text narrows while it is typed, Enter keeps it, Esc drops it, and its letters are no commands."""
    typing = typed(["/", "B", "o"])
    assert typing.page is Page.FILTER
    assert pids(typing) == [40]
    assert pids(typed(["backspace", "backspace"], view=typing)) == [20, 40, 10, 30]
    kept = typed(["enter"], view=typing)
    assert (kept.page, pids(kept)) == (Page.TABLE, [40])
    assert pids(typed(["escape"], view=kept)) == [20, 40, 10, 30]
    assert typed(["/", "q", "r"]).text == "qr"
    assert typed(["/", "up", "\x07"]).text == ""
    assert "1 of 4 rows by memory, with 'Bo'" in texts(kept, news_of())
    assert len(typed(["/", *"x" * 500]).text) == 64


def test_the_choice_stays_with_its_process() -> None:
    """Whatever the order becomes; a row that went leaves its place to the next, and ends are ends."""
    second = typed(["down"])
    assert second.chosen == SOME[3].key
    turned = typed(["r"], view=second)
    assert shown_rows(turned, SOME)[chosen_place(turned, shown_rows(turned, SOME))].pid == 40
    without = tuple(row for row in SOME if row.pid != 40)
    assert shown_rows(second, without)[chosen_place(second, shown_rows(second, without))].pid == 10
    assert typed(["up"]).place == 0
    assert typed(["end"]).chosen == SOME[2].key
    assert typed(["end", "home"]).chosen == SOME[1].key
    assert typed(["down", "enter"], ()).page is Page.TABLE


def test_pages() -> None:
    """Enter inspects the chosen one, `?` helps, and the same keys lead back; q on the table leaves."""
    inspecting = typed(["down", "enter"])
    assert (inspecting.page, inspecting.inspected) == (Page.INSPECT, "40@407")
    assert typed(["q"], view=inspecting) == replace(inspecting, page=Page.TABLE, inspected="")
    assert typed(["down", "down", "up"], view=inspecting).scroll == 1
    assert typed(["m"], view=inspecting) == inspecting
    assert typed(["?"]).page is Page.HELP
    assert typed(["?", "escape"]).page is Page.TABLE
    assert typed(["q"]).page is Page.LEFT
    assert typed(["q", "m"]).page is Page.LEFT
    assert typed(["x"]) == View()
    helped = "\n".join(texts(typed(["?"]), news_of()))
    assert all(sort.value in helped.lower() for sort in Sort)


def test_inspected_text() -> None:
    """The text of `inspect` folded and scrolled, and why there is none."""
    view = typed(["enter"])
    assert "asking for process 20@207" in texts(view, news_of())
    table = Table(("FIELD", "VALUE"), (("command", "x" * 300),))
    found = Inspected("20@207", ("process 20@207", table))
    shown = texts(view, news_of(inspected=found), Paper(100, 30))
    assert "process 20@207" in shown
    assert sum(line.count("x") for line in shown) == 300
    scrolled = texts(replace(view, scroll=1), news_of(inspected=found), Paper(100, 30))
    assert "process 20@207" not in scrolled
    gone = texts(view, news_of(inspected=replace(found, trouble="it left")))
    assert gone.index("it left") < gone.index("process 20@207")
    assert "process 20@207" not in texts(view, news_of(inspected=replace(found, ref="20@999")))


def test_how_the_daemon_answers_stands_first() -> None:
    """Away, slow, not asked yet, or well: and how old the figures are where they are old."""
    away = news_of(answered_at=30.0, trouble="no daemon is running")
    assert texts(View(), away)[0] == "NO ANSWER, figures 1m10s old: no daemon is running"
    assert screen_lines(View(), away, 100.0, WIDE)[0].style is Style.ALERT
    assert "4242" in "\n".join(texts(View(), replace(away, figures=Figures(CALM, {}, (held(),)))))
    slow = news_of(answered_at=95.0, asked_at=97.0)
    assert texts(View(), slow)[0] == "SLOW: waiting for the daemon for 3s, figures 5s old"
    quick = news_of(asked_at=99.5)
    assert texts(View(), quick)[0].startswith("reclaimerd: mode enforce, 0 open incidents, looked at ")
    assert texts(View(), News())[0] == "reclaimctl top: asking the daemon"
    assert texts(View(), News(trouble="no"))[0] == "NO ANSWER, no figures yet: no"


def test_what_needs_a_person_is_said() -> None:
    """The first of it whole, and how much else there is; a driver that does not answer stands out."""
    status = {**STATUS, "attention": ["the breaker tripped", "b", "c"], "driver": {"state": "unresponsive"}}
    lines = screen_lines(View(), news_of(status=status), 100.0, WIDE)
    assert "paused, HOLD, 1 open incident" in lines[0].text
    assert lines[1].style is Style.ALERT
    assert lines[2].text == "ATTENTION (and 2 more: reclaimctl status): the breaker tripped"


@pytest.mark.parametrize(
    ("columns", "lines"), [(20, 5), (1, 1), (LEAST_COLUMNS - 1, 24), (80, LEAST_LINES - 1)]
)
def test_too_small(columns: int, lines: int) -> None:
    """It says so, within the room there is, and shows no half of a table."""
    shown = texts(View(), news_of(), Paper(columns, lines))
    assert len(shown) <= lines
    assert all(len(line) <= columns for line in shown)
    assert shown[0] == "terminal too small"[: columns - 1] + "~" if columns < 18 else "terminal too small"


@pytest.mark.parametrize("lines", [24, 200])
def test_eight_gpus_and_many_holders(lines: int) -> None:
    """On a low screen some GPUs are only counted, and the chosen row is in sight wherever it stands."""
    gpus = [{"uuid": f"GPU-{n}", "index": n, "name": f"Card {n}", "holders": 9} for n in range(16)]
    rows = tuple(held(1000 + n, used_bytes=float(n)) for n in range(100))
    news = news_of(rows, {**CALM, "gpus": gpus})
    for keys in ([], ["end"], ["page-down", "page-down"]):
        view = typed(keys, rows)
        shown = screen_lines(view, news, 100.0, Paper(120, lines))
        assert len(shown) == lines
        chosen = [line.text for line in shown if line.style is Style.CHOSEN]
        place = chosen_place(view, shown_rows(view, rows))
        assert [line.split()[0] for line in chosen] == [str(shown_rows(view, rows)[place].pid)]
    told = "\n".join(line.text for line in shown)
    assert ("more GPUs: reclaimctl status" in told) == (lines == 24)
    everything = texts(View(), news, Paper(120))
    assert all(str(row.pid) in "\n".join(everything) for row in rows)


def test_an_older_daemon_leaves_fields_out() -> None:
    """Then they are unknown, never 0 and never a traceback."""
    figures = figures_of({}, {"rows": [{}, {"pid": 7, "used_bytes": True, "uid": None}, "nonsense"]})
    shown = texts(View(), News(figures, 99.0))
    assert [row.used_bytes for row in figures.rows] == [None, None]
    assert sum("unknown" in line for line in shown) >= 3
    assert figures_of({}, {}).rows == ()


def test_narrow_tables_leave_columns_out_whole() -> None:
    """By their rank, never cutting a pid; a column without a word is left out too."""
    columns = (Column("PID", 7, 7, 0, right=True), Column("NOTE", 6, 6, 1), Column("MORE", 20, 50, 2))
    rows = [("1234567", "", "words"), ("22", "", "y" * 80)]
    wide, narrow = grid(columns, rows, Paper(200)), grid(columns, rows, Paper(20))
    assert wide[0].split() == ["PID", "MORE"]
    assert wide[2].endswith("y" * 49 + "~")
    assert narrow == ["    PID", "1234567", "     22"]
    assert grid(columns, [("1", "n", "m")], Paper(20))[0].split() == ["PID", "NOTE"]


NAMES = st.text(max_size=60) | st.sampled_from(
    [HOSTILE, "漢字" * 20, "e" + "\u0301" * 200, "👩‍👩‍👧" * 9, "\udc9b\x00", "a\tb\r\n"]
)


@given(
    name=NAMES,
    columns=st.integers(0, 240),
    lines=st.integers(1, 60) | st.none(),
    page=st.sampled_from([Page.TABLE, Page.FILTER, Page.INSPECT, Page.HELP]),
    ascii_only=st.booleans(),
)
def test_nothing_is_wider_than_the_screen(
    name: str, columns: int, lines: int | None, page: Page, *, ascii_only: bool
) -> None:
    """Whatever is named how and at any size: every line fits, is printable, and in ASCII where asked."""
    row = held(user=name, state=name, workload=name, command=name, why=name, verdict=name)
    gpu = {"uuid": name, "index": name, "name": name, "note": name, "recovery_action": name}
    status = {**STATUS, "gpus": [gpu], "attention": [name], "mode": name}
    found = Inspected(row.ref, (name, Table((name,), ((name,),))), name)
    news = news_of((row,), status, trouble=name, inspected=found)
    view = View(page, text=name if page is Page.FILTER else "", inspected=row.ref)
    paper = Paper(columns, lines, ascii_only)
    shown = screen_lines(view, news, 100.0, paper)
    assert lines is None or len(shown) <= lines
    for line in shown:
        assert cell_len(line.text) <= columns
        assert line.text.isprintable()
        assert not ascii_only or line.text.isascii()


@given(text=NAMES, width=st.integers(2, 50))
def test_folding_loses_nothing(text: str, width: int) -> None:
    """The pieces together are the text, and each fits."""
    paper = Paper(width, ascii_only=True)
    pieces = fold(text, paper)
    assert "".join(pieces) == fit(text, Paper(10_000, ascii_only=True))
    assert all(len(piece) <= width for piece in pieces)
