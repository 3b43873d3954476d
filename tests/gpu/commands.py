"""Our commands with state, log and socket in a folder of the test's: nothing of the host's own is touched."""

import sys
from pathlib import Path

STATE, LOG, SOCKET = "state", "log", "sock"


def places(folder: Path) -> list[str]:
    """Return the options that say so."""
    kept = (("--state-dir", STATE), ("--log-dir", LOG), ("--socket", SOCKET))
    return [word for option, name in kept for word in (option, str(folder / name))]


def reclaimctl(folder: Path, *words: str) -> list[str]:
    """Return one command of reclaimctl."""
    return [sys.executable, "-m", "reclaimerd.cli.main", *words, *places(folder)]
