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
    if not sys.stdin.isatty():
        raise NotConfirmedError(f"nobody is there to be asked whether to {what}", "--yes says it beforehand")
    if not click.confirm(f"{what}?", default=False, err=True):
        raise NotConfirmedError("nothing was changed")
