"""The argument of commands that look at one process: a pid, or PID@START as `ps` prints it.

Knows nothing of commands; a number that was given to another process meanwhile is never taken for it.
"""

import re
from dataclasses import dataclass

import click

from reclaimerd.errors import NoTargetError

PID_AT_START = re.compile(r"([1-9][0-9]{0,9})(?:@([0-9]{1,19}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process as a person names it; `start` is None where only the pid was given."""

    pid: int
    start: int | None = None

    def refuse_another(self, ref: object) -> None:
        """Raise NoTargetError when what was found, `PID@START`, is another process than the named one."""
        if self.start is not None and ref != f"{self.pid}@{self.start}":
            what = f"process {self.pid}@{self.start} is gone: its number belongs to {ref} now"
            raise NoTargetError(what, "`reclaimctl ps` shows who holds a GPU")


def parse_process(_ctx: click.Context, _param: click.Parameter, value: str) -> ProcessName:
    """Return the process that `123` or `123@4567` names."""
    found = PID_AT_START.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no process; write PID or PID@START as `reclaimctl ps` does")
    return ProcessName(int(found[1]), int(found[2]) if found[2] else None)
