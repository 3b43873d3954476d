"""The question of commands that change much: whoever sits at the terminal says yes, or nothing happens."""

import sys

import click

from reclaimerd.errors import ExitCode, ReclaimerdError


class NotConfirmedError(ReclaimerdError):
    """Nobody said yes; nothing was changed."""

    exit_code = ExitCode.REFUSED


def confirm(what: str, *, yes: bool) -> None:
    """Ask whoever sits at the terminal; raise NotConfirmedError unless they say yes."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):  # the question goes to stderr
        raise NotConfirmedError(
            f"nobody is at a terminal to be asked: {what}? Nothing was changed", "--yes says it beforehand"
        )
    if not click.confirm(f"{what}?", default=False, err=True):
        raise NotConfirmedError("nothing was changed")
