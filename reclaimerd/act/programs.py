"""Which programs may be run as root, and how what they print is put into a record.

It may not run anything. Paths are looked at on local disks and at once.
"""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.child import Overran, run_bounded
from reclaimerd.host.files import refuse_unsafe

_MAX_SENTENCE = 300


def program_fault(program: str, *, any_owner: bool = False) -> str:
    """Return why this program may not be run as root, or "".

    Only root may be able to change it or what leads to it; `any_owner` is for the simulation's programs.
    """
    path = Path(program)
    if not path.is_absolute():
        return f"{program} is no absolute path"
    try:
        found = path.stat()
    except OSError as error:
        return f"{program}: {error.strerror}"
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IXUSR:
        return f"{program} is no program"
    concern = None if any_owner else refuse_unsafe(path)
    return f"{program} does not belong to root alone ({concern})" if concern else ""


def sentence(text: str, words: str = "") -> str:
    """Return the line that holds `words` (the first that is not empty by default), cut and printable."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    line = next((line for line in lines if line and words in line), "nothing")
    return "".join(letter if letter.isprintable() else "?" for letter in line[:_MAX_SENTENCE])


@dataclass(frozen=True, slots=True)
class Said:
    """A program that ended in time: its code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Return its first line, of stderr before stdout."""
        return sentence(f"{self.err}\n{self.out}")


async def ask(argv: Sequence[str], seconds: float, stdin_text: str | None = None) -> Said | str:
    """Run a short program once within the bound, killed past it; return what it said, or why it did not."""
    try:
        end = await run_bounded(argv, deadline_seconds=seconds, stdin_text=stdin_text)
    except OSError as error:
        return f"{argv[0]} did not start ({error.strerror})"
    if isinstance(end, Overran):
        return f"{' '.join(argv)} did not end within {seconds:g} s"
    return Said(end.code, end.out, end.err)
