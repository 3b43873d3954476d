"""`reclaimctl top`: joins the feed, the keys and the screen. Only looks: it has no call that acts."""

import shutil
import time

from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import INTERRUPTED
from reclaimerd.cli.top_feed import Feed
from reclaimerd.cli.top_grid import Paper
from reclaimerd.cli.top_keys import Page, View, pressed
from reclaimerd.cli.top_rows import News, figures_of
from reclaimerd.cli.top_screen import screen_lines
from reclaimerd.cli.top_terminal import Terminal, ascii_only, open_terminal
from reclaimerd.errors import ExitCode

WIDE = 200
"""Columns of a screen that is printed where there is no terminal and COLUMNS says nothing."""


def watch(settings: Settings, interval_seconds: float) -> int:
    """Show who holds which GPU until the person leaves; return the exit code.

    Raises NoTerminalError, and NotAllowedError or DaemonSaidNoError when we may not look.
    """
    feed = Feed(settings.socket, interval_seconds)
    try:
        with open_terminal() as terminal:
            feed.start()
            _loop(terminal, feed)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        feed.stop()
    return int(ExitCode.OK)


def _loop(terminal: Terminal, feed: Feed) -> None:
    view = View()
    while view.page is not Page.LEFT:
        news = feed.news
        if news.over is not None:
            raise news.over
        terminal.draw(screen_lines(view, news, time.monotonic(), terminal.paper()))
        key = terminal.key()
        if key is not None:
            view = pressed(view, key, () if news.figures is None else news.figures.rows)
            feed.inspect(view.inspected)


def both_answers(settings: Settings) -> Json:
    """Return what one screen is made of, of the daemon or of the engine in the foreground."""
    return {
        "status": request(settings, Request("GET", "/v1/status")).body,
        "ps": request(settings, Request("GET", "/v1/ps")).body,
    }


def printed_lines(answers: Json) -> list[str]:
    """Return one screen as plain text, with every row; as wide as the terminal, or as COLUMNS says."""
    paper = Paper(shutil.get_terminal_size((WIDE, 24)).columns, None, ascii_only())
    now = time.monotonic()
    news = News(figures_of(answers["status"], answers["ps"]), answered_at=now)
    return [line.text for line in screen_lines(View(), news, now, paper)]
