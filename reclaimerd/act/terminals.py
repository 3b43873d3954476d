"""Write one message to every terminal of one user, and say of each whether it took it.

`python -P -m reclaimerd.act.terminals`, a child with a deadline: opening or writing to a terminal may block
for ever. It reads its order as JSON on stdin and prints one JSON line for each terminal as it goes, so that
what was told before a deadline is known. Printable ASCII only leaves here: nobody's escape sequence. It
writes to no terminal that is not the user's, waits for no reader, and imports only what is cheap.
"""

import json
import os
import stat
import sys
import termios
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MOST_TERMINALS = 64
"""Of one user; more are counted and not told."""
MOST_BYTES = 3500
"""The buffer of a pseudo-terminal takes 4096 bytes from one write (drivers/tty/tty_buffer.c and n_tty.c)."""
_FLAGS = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Order:
    """What is said to whom: `passed_over` are device numbers that are no terminals of people."""

    uid: int
    text: str
    dry_run: bool = False
    passed_over: tuple[int, ...] = ()
    device_dir: str = "/dev"


@dataclass(frozen=True, slots=True)
class Answer:
    """One terminal, and why it took nothing ("" where it took, or would take, all of it)."""

    terminal: str
    why: str = ""


def main() -> int:
    """Do what stdin asks for; return 0, whoever was told."""
    order = order_of(json.loads(sys.stdin.read()))
    for answer in tell(order):
        sys.stdout.write(json.dumps({"terminal": answer.terminal, "why": answer.why}) + "\n")
        sys.stdout.flush()
    return 0


def order_of(asked: Mapping[str, object]) -> Order:
    """Return the order that JSON states. Raises KeyError, TypeError or ValueError for anything else."""
    uid, text, passed_over = asked["uid"], asked["text"], asked.get("passed_over", ())
    if not isinstance(uid, int) or not isinstance(text, str) or not isinstance(passed_over, list | tuple):
        raise TypeError("a uid, a text and a list of device numbers are wanted")
    numbers = tuple(int(number) for number in passed_over)
    return Order(uid, text, asked.get("dry_run") is True, numbers, str(asked.get("device_dir", "/dev")))


def tell(order: Order) -> Iterator[Answer]:
    """Write to each terminal in turn; yield what came of it."""
    message = message_bytes(order.text)
    found = [path for path in _candidates(Path(order.device_dir), order.uid) if _is_theirs(path, order)]
    for path in found[:MOST_TERMINALS]:
        yield Answer(str(path), _tell_one(path, message, order))
    for path in found[MOST_TERMINALS:]:
        yield Answer(str(path), f"only {MOST_TERMINALS} terminals of a user are told")


def message_bytes(text: str) -> bytes:
    """Return the text as a terminal is given it: printable ASCII, lines that start at the left."""
    lines = ("".join(letter if " " <= letter <= "~" else "?" for letter in line) for line in text.split("\n"))
    return ("\r\n" + "\r\n".join(lines) + "\r\n").encode("ascii")[:MOST_BYTES]


def _candidates(devices: Path, uid: int) -> Iterator[Path]:
    """Yield pseudo-terminals, and the consoles: root's own console is one where nobody is logged in."""
    yield from sorted((path for path in _listed(devices / "pts") if path.name.isdigit()), key=_number)
    if uid != 0:
        consoles = (path for path in _listed(devices) if path.name[:3] == "tty" and path.name[3:].isdigit())
        yield from sorted(consoles, key=_number)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("tty"))


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _is_theirs(path: Path, order: Order) -> bool:
    """Tell by a look that opens nothing: to open a console that nobody uses would make it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return _fits(found, order)


def _fits(found: os.stat_result, order: Order) -> bool:
    return (
        stat.S_ISCHR(found.st_mode) and found.st_uid == order.uid and found.st_rdev not in order.passed_over
    )


def _tell_one(path: Path, message: bytes, order: Order) -> str:
    """Return why this terminal took nothing, or ""."""
    try:
        terminal = os.open(path, _FLAGS)
    except OSError as error:
        return f"it can't be opened ({error.strerror})"
    try:
        if not _fits(os.fstat(terminal), order):
            return "it is not theirs any more"
        termios.tcgetattr(terminal)  # only a terminal has settings
        return "" if order.dry_run else _written(terminal, message)
    except (OSError, termios.error) as error:
        return f"it takes no message ({error.args[-1]})"
    finally:
        os.close(terminal)


def _written(terminal: int, message: bytes) -> str:
    """Write without waiting; a terminal that took a part was not told."""
    while message:
        try:
            count = os.write(terminal, message)
        except BlockingIOError:
            return "nobody reads it: its buffer is full, or its output is stopped"
        message = message[count:]
    return ""


if __name__ == "__main__":
    sys.exit(main())
