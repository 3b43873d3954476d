"""The terminal of `top`, by the standard library's curses: lines onto it, keys from it, and restored after.

Knows nothing of GPUs. The terminal is given back as it was, however the program ends that can be caught.
"""

import curses
import locale
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from reclaimerd.cli.top_grid import Line, Paper, Style
from reclaimerd.errors import ExitCode, ReclaimerdError

KEY_WAIT_MS = 200
"""How long a key is waited for until the screen is drawn anew."""
ESCAPE_MS = 25
"""How long after Esc the rest of a function key may still come."""
_NAMED_KEYS: Mapping[int, str] = {
    curses.KEY_UP: "up",
    curses.KEY_DOWN: "down",
    curses.KEY_LEFT: "left",
    curses.KEY_PPAGE: "page-up",
    curses.KEY_NPAGE: "page-down",
    curses.KEY_HOME: "home",
    curses.KEY_END: "end",
    curses.KEY_ENTER: "enter",
    curses.KEY_BACKSPACE: "backspace",
}
_LETTER_KEYS: Mapping[str, str] = {
    "\n": "enter",
    "\r": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\b": "backspace",
}


class NoTerminalError(ReclaimerdError):
    """There is no terminal, or none that can be drawn on."""

    exit_code = ExitCode.USAGE


def ascii_only() -> bool:
    """Tell whether the locale's charset is not UTF-8; takes the locale up from the environment."""
    with suppress(locale.Error):
        locale.setlocale(locale.LC_ALL, "")
    return locale.nl_langinfo(locale.CODESET).upper() not in {"UTF-8", "UTF8"}


@dataclass(frozen=True, slots=True)
class Terminal:
    """A screen that is open."""

    screen: "curses.window"
    looks: Mapping[Style, int]
    ascii_only: bool

    def paper(self) -> Paper:
        """Return the size that it has now."""
        lines, columns = self.screen.getmaxyx()
        return Paper(columns, lines, self.ascii_only)

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines and nothing else."""
        self.screen.erase()
        for number, line in enumerate(lines):
            # The last cell of the last line is written, and then curses can't move on; or we just shrank.
            with suppress(curses.error):
                self.screen.addstr(number, 0, line.text, self.looks[line.style])
        self.screen.refresh()

    def key(self) -> str | None:
        """Return the key that was pressed by its name; None when none came in time.

        Raises KeyboardInterrupt when the terminal is gone: no key will come, and waiting would spin.
        """
        try:
            pressed = self.screen.get_wch()
        except curses.error:
            if not sys.stdin.isatty():
                raise KeyboardInterrupt from None
            return None
        if pressed == curses.KEY_RESIZE:
            self.screen.clear()
            return None
        if isinstance(pressed, str):
            return _LETTER_KEYS.get(pressed, pressed)
        return _NAMED_KEYS.get(pressed)


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Open the screen for the block. Raises NoTerminalError; Ctrl-C and SIGTERM raise KeyboardInterrupt."""
    _refuse_unknown()
    plain = ascii_only()
    # Else curses takes these for the size, also after the window changed.
    for name in ("LINES", "COLUMNS"):
        os.environ.pop(name, None)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    screen = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        curses.set_escdelay(ESCAPE_MS)
        screen.keypad(True)
        screen.timeout(KEY_WAIT_MS)
        with suppress(curses.error):
            curses.curs_set(0)
        yield Terminal(screen, _looks(), plain)
    finally:
        with suppress(curses.error):
            curses.curs_set(1)
        with suppress(curses.error):
            screen.keypad(False)
            curses.nocbreak()
            curses.echo()
        with suppress(curses.error):
            curses.endwin()
        signal.signal(signal.SIGTERM, before)


def _refuse_unknown() -> None:
    """Raise NoTerminalError where nothing can be drawn."""
    mend = "`reclaimctl ps` prints the same once, and so does `reclaimctl top --once`"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminalError("top needs a terminal, for its keys and for its screen", mend)
    name = os.environ.get("TERM", "")
    try:
        curses.setupterm(name or "unknown", sys.stdout.fileno())
    except curses.error:
        raise NoTerminalError(f"nothing is known of a terminal of the kind TERM={name!r}", mend) from None
    if curses.tigetstr("cup") is None:
        raise NoTerminalError(f"a terminal of the kind TERM={name!r} has no screen to draw on", mend)


def _looks() -> Mapping[Style, int]:
    """Return how each kind of line looks: with NO_COLOR by weight alone."""
    looks = {
        Style.PLAIN: curses.A_NORMAL,
        Style.HEAD: curses.A_BOLD,
        Style.ALERT: curses.A_BOLD,
        Style.CHOSEN: curses.A_REVERSE,
        Style.MARKED: curses.A_BOLD,
    }
    if os.environ.get("NO_COLOR"):
        return looks
    with suppress(curses.error):
        curses.start_color()
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        curses.init_pair(2, curses.COLOR_YELLOW, -1)
        looks[Style.ALERT] |= curses.color_pair(1)
        looks[Style.MARKED] |= curses.color_pair(2)
    return looks
