"""The screens of `top`: what is known and what is asked for in, lines out. Pure; `now` is an argument."""

from collections.abc import Iterator, Mapping, Sequence

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import Table, age_text, clock_text, instant, percent_text, plain_lines, size_text
from reclaimerd.cli.report import driver_line
from reclaimerd.cli.top_grid import Column, Line, Paper, Style, fit, fold, grid
from reclaimerd.cli.top_keys import FARTHEST, Page, View, chosen_place, shown_rows
from reclaimerd.cli.top_rows import Held, Inspected, News

LEAST_COLUMNS, LEAST_LINES = 40, 10
SLOW_SECONDS = 1.5
"""An answer that is waited for longer than this is said."""
GPU_COLUMNS = (
    Column("GPU", 3, 3, right=True),
    Column("NAME", 8, 24, 3),
    Column("MEMORY", 21, 23, 0),
    Column("USE", 5, 7, 1, right=True),
    Column("HOLDERS", 7, 7, 2, right=True),
    Column("RECOVERY", 8, 20, 4),
    Column("UUID", 12, 41, 6),
    Column("NOTE", 8, FARTHEST, 5),
)
HELD_COLUMNS = (
    Column("PID", 7, 10, 0, right=True),
    Column("USER", 7, 16, 1),
    Column("GPU", 3, 3, 0, right=True),
    Column("MEMORY", 9, 10, 0, right=True),
    Column("SM%", 3, 3, 3, right=True),
    Column("AGE", 6, 7, 2, right=True),
    Column("STATE", 8, 30, 4),
    Column("POLICY", 7, 12, 3),
    Column("WORKLOAD", 10, 48, 5),
    Column("COMMAND", 12, 60, 6),
    Column("WHY", 12, FARTHEST, 7),
)
KEYS = "q quit  ? help  / filter  Enter inspect  r reverse  sort: m a g u s"
HELP = (
    "reclaimctl top: who holds which GPU. It only looks: no key ends, resets or changes anything.",
    "",
    "m a g u s    sort by memory, age, GPU, user, SM%; what is not known stands last",
    "r            reverse the order",
    "/            filter: only rows that have the text somewhere; Enter keeps it, Esc drops it",
    "up down      choose a process; also j and k, page up and down, Home, End",
    "Enter        all that is known of the chosen process, as `reclaimctl inspect` prints it",
    "Esc, q       back; on the table Esc drops the filter and q quits, as Ctrl-C does",
    "",
    "USE          how busy the whole GPU is",
    "SM%          what this process used of it; read only where a rule of the policy needs it, else -",
    "POLICY, WHY  what the rules make of it now: reclaim, watch, spare or undetermined, and why",
    "~            stands where a text was cut; a wider screen shows more, and more columns",
    "",
    "To act: reclaimctl kill --pid PID@START; inspect shows PID@START.",
)


def screen_lines(view: View, news: News, now: float, paper: Paper) -> list[Line]:
    """Return the screen; never more lines, and none wider, than the paper takes."""
    most = paper.lines
    if most is not None and (most < LEAST_LINES or paper.columns < LEAST_COLUMNS):
        words = ("terminal too small", f"needs {LEAST_COLUMNS}x{LEAST_LINES}", "q quits")
        return [Line(fit(word, paper), Style.ALERT) for word in words][:most]
    match view.page:
        case Page.HELP:
            body = [Line(text) for line in HELP for text in fold(line, paper)]
            foot = "any of Enter, Esc, q, ? goes back"
        case Page.INSPECT:
            body = _inspected_lines(view, news, paper)
            foot = "up/down scrolls, Esc or q goes back"
        case Page.TABLE | Page.FILTER | Page.LEFT:
            body = _table_lines(view, news, paper)
            foot = f"filter: {view.text}_" if view.page is Page.FILTER else KEYS
    lines = [*_head_lines(news, now, paper), *body]
    if most is None:
        return lines
    lines = lines[: most - 1]
    lines += [Line("")] * (most - 1 - len(lines))
    return [*lines, Line(fit(foot, paper), Style.HEAD)]


def _head_lines(news: News, now: float, paper: Paper) -> Iterator[Line]:
    """Yield how the daemon answers, first what is wrong with that; then its own state in a line."""
    age = "no figures yet" if news.answered_at is None else f"figures {age_text(now - news.answered_at)} old"
    waited = 0.0 if news.asked_at is None else now - news.asked_at
    if news.trouble:
        yield Line(fit(f"NO ANSWER, {age}: {news.trouble}", paper), Style.ALERT)
    elif waited > SLOW_SECONDS:
        yield Line(fit(f"SLOW: waiting for the daemon for {age_text(waited)}, {age}", paper), Style.ALERT)
    elif news.figures is None:
        yield Line(fit("reclaimctl top: asking the daemon", paper), Style.HEAD)
    else:
        yield Line(fit(_state_text(news.figures.status), paper), Style.HEAD)
    if news.figures is None:
        return
    status = news.figures.status
    yield Line(fit(driver_line(status), paper), _driver_style(status))
    attention = [str(one) for one in status.get("attention") or ()]
    if attention:
        more = f" (and {len(attention) - 1} more: reclaimctl status)" if len(attention) > 1 else ""
        yield Line(fit(f"ATTENTION{more}: {attention[0]}", paper), Style.ALERT)


def _state_text(status: Json) -> str:
    count = len(status.get("incidents") or ())
    words = [f"reclaimerd: mode {status.get('mode', 'unknown')}"]
    words += [
        word
        for word, yes in (
            ("dry run", status.get("dry_run")),
            ("paused", status.get("paused")),
            ("HOLD", status.get("hold")),
            ("driver released", status.get("driver_released")),
        )
        if yes
    ]
    return ", ".join([*words, f"{count} open incident{'' if count == 1 else 's'}", _look_text(status)])


def _look_text(status: Json) -> str:
    """Return when the daemon looked: in the host's local time, as it says itself."""
    last = status.get("last_pass")
    at = instant(last.get("at")) if isinstance(last, Mapping) else None
    if at is None:
        return "no look yet"
    return f"looked at {clock_text(at)}{', simulated host' if status.get('simulated') else ''}"


def _driver_style(status: Json) -> Style:
    driver = status.get("driver")
    answers = isinstance(driver, Mapping) and driver.get("state") == "responsive"
    return Style.PLAIN if answers else Style.ALERT


def _table_lines(view: View, news: News, paper: Paper) -> list[Line]:
    """Return the GPUs, then the holders with the chosen one in sight."""
    if news.figures is None:
        return []
    gpus = [gpu for gpu in news.figures.status.get("gpus") or () if isinstance(gpu, Mapping)]
    lines = [*_gpu_lines(gpus, paper), Line("")]
    rows = shown_rows(view, news.figures.rows)
    lines.append(Line(fit(_count_text(view, len(rows), len(news.figures.rows)), paper)))
    table = grid(HELD_COLUMNS, [row.cells() for row in rows], paper)
    lines.append(Line(table[0], Style.HEAD))
    place = chosen_place(view, rows)
    first, last = 0, len(rows)
    if paper.lines is not None:
        # Two lines of the head may become three, and the foot is one.
        room = max(1, paper.lines - len(lines) - 4)
        first = max(0, min(place - room // 2, len(rows) - room))
        last = first + room
    for number, row in list(enumerate(rows))[first:last]:
        chosen = paper.lines is not None and number == place
        lines.append(_row_line(row, table[number + 1], paper, chosen=chosen))
    return lines


def _row_line(row: Held, text: str, paper: Paper, *, chosen: bool) -> Line:
    if chosen:
        return Line(fit(f"{text:{paper.columns}}", paper), Style.CHOSEN)
    return Line(text, Style.MARKED if row.verdict == "reclaim" else Style.PLAIN)


def _count_text(view: View, shown: int, known: int) -> str:
    order = f"by {view.sort.value}{', reversed' if view.reverse else ''}"
    if known == 0:
        return "no process that holds a GPU was seen"
    if not view.text:
        return f"{known} rows {order}"
    return f"{shown} of {known} rows {order}, with {view.text!r}"


def _gpu_lines(gpus: Sequence[Mapping[str, object]], paper: Paper) -> Iterator[Line]:
    """Yield the GPUs; on a low screen only as many as leave half of it to the holders."""
    most = len(gpus) if paper.lines is None else max(1, (paper.lines - 6) // 2)
    shown = gpus if len(gpus) <= most else gpus[: max(1, most - 1)]
    head, *lines = grid(GPU_COLUMNS, [_gpu_cells(gpu) for gpu in shown], paper)
    yield Line(head, Style.HEAD)
    yield from (Line(line) for line in lines)
    if len(shown) < len(gpus):
        yield Line(fit(f"and {len(gpus) - len(shown)} more GPUs: reclaimctl status", paper))


def _gpu_cells(gpu: Mapping[str, object]) -> tuple[str, ...]:
    return (
        str(gpu.get("index")),
        str(gpu.get("name")),
        f"{size_text(gpu.get('used_bytes'))} / {size_text(gpu.get('total_bytes'))}",
        percent_text(gpu.get("utilisation_percent")),
        str(gpu.get("holders")),
        str(gpu.get("recovery_action")),
        str(gpu.get("uuid")),
        str(gpu.get("note") or ""),
    )


def _inspected_lines(view: View, news: News, paper: Paper) -> list[Line]:
    """Return one process as `inspect` prints it, folded, from the line that it was scrolled to."""
    found = news.inspected
    if found is None or found.ref != view.inspected:
        return [Line(fit(f"asking for process {view.inspected}", paper))]
    lines = [text for block in _inspect_text(found) for text in fold(block, paper)]
    first = max(0, min(view.scroll, len(lines) - 1))
    return [
        Line(text, Style.ALERT if found.trouble and n == 0 else Style.PLAIN) for n, text in enumerate(lines)
    ][first:]


def _inspect_text(found: Inspected) -> Iterator[str]:
    if found.trouble:
        yield found.trouble
    for block in found.blocks:
        yield from plain_lines(block) if isinstance(block, Table) else (block,)
