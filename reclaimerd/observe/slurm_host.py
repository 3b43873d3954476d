"""What of Slurm's runs on this host: its node daemon, and where its programs and its configuration lie.

For the procfs worker, in its side thread: a disk may hang. Reads, and starts nothing.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import refuse_unsafe
from reclaimerd.host.proc_text import parse_stat, parse_status
from reclaimerd.observe.slurm_places import DAEMONS, read_program

DAEMON = "slurmd"
_CMDLINE_BYTES = 4096
_MOST_DAEMONS = 16
_GRES_FILE = "gres.conf"


@dataclass(frozen=True, slots=True)
class SlurmDaemon:
    """One slurmd of this host's own: the node that its command line names, and when it started.

    `node` is "" where it names none: then Slurm goes by the host's name.
    """

    pid: int
    start_ticks: int
    node: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class SlurmHost:
    """Slurm's programs, "" for one that is not there or not root's alone, and its daemons.

    squeue and sinfo are those beside scontrol. `gres_age_seconds` counts from the last change of
    gres.conf, None when there is none.
    """

    scontrol: str
    slurmd: str
    squeue: str = ""
    daemons: tuple[SlurmDaemon, ...] = ()
    gres_age_seconds: float | None = None
    sinfo: str = ""


@dataclass(frozen=True, slots=True)
class SlurmPlaces:
    """Where to look: `root` is the programs', `folder` the configuration's, "" while it is not known.

    `scontrol` and `slurmd` are the paths that the policy names, "" where it names none.
    """

    root: str = "/"
    scontrol: str = ""
    slurmd: str = ""
    folder: str = ""


def read_slurm_host(places: SlurmPlaces, proc: Path = Path("/proc")) -> SlurmHost:
    """Return what there is. Without scontrol no process is looked at: most hosts have no Slurm."""
    root = Path(places.root)
    program = read_program(root, places.scontrol)
    if not program:
        return SlurmHost("", "")
    slurmd = read_program(root, places.slurmd, DAEMONS)
    daemons, age = tuple(_read_daemons(proc)), _read_age(places.folder)
    return SlurmHost(program, slurmd, _beside(program, "squeue"), daemons, age, _beside(program, "sinfo"))


def _beside(program: str, name: str) -> str:
    """Return the program of this name in the same folder, "" when it is not there or not root's alone."""
    path = Path(program).with_name(name)
    return "" if refuse_unsafe(path) is not None else str(path)


def _read_age(folder: str) -> float | None:
    if not folder:
        return None
    try:
        return max(0.0, time.time() - (Path(folder) / _GRES_FILE).stat().st_mtime)
    except OSError:
        return None


def _read_daemons(proc: Path) -> Iterator[SlurmDaemon]:
    """Yield root's slurmd processes in the host's PID namespace, without those that they forked."""
    found: dict[int, tuple[int, SlurmDaemon]] = {}
    for name in os.listdir(proc):  # noqa: PTH208  # names alone: pathlib would make an object of each
        if name.isdecimal() and _comm(proc / name) == DAEMON and len(found) < _MOST_DAEMONS:
            with suppress(OSError, ValueError):
                row = _read_daemon(proc, name)
                if row is not None:  # others' processes of that name must not fill the bound
                    found[int(name)] = row
    for parent, daemon in found.values():
        if parent not in found:
            yield daemon


def _comm(folder: Path) -> str:
    try:
        return (folder / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError:
        return ""


def _read_daemon(proc: Path, name: str) -> tuple[int, SlurmDaemon] | None:
    """Return a daemon behind its parent's pid; None for a process that is not the host's and root's."""
    folder = proc / name
    status = parse_status((folder / "status").read_text(encoding="utf-8", errors="replace"))
    if set(status.uids) != {0} or len(status.ns_pids) != 1:
        return None
    stat = parse_stat((folder / "stat").read_text(encoding="utf-8", errors="replace"))
    with (folder / "cmdline").open("rb") as file:
        words = file.read(_CMDLINE_BYTES).decode("utf-8", "replace").split("\0")
    uptime = float((proc / "uptime").read_text(encoding="ascii").split()[0])
    age = max(0.0, uptime - stat.start_ticks / os.sysconf("SC_CLK_TCK"))
    return status.ppid, SlurmDaemon(int(name), stat.start_ticks, _node_of(words), age)


def _node_of(words: list[str]) -> str:
    """Return the node's name in slurmd's arguments (`-N NAME`), "" where they have none."""
    for place, word in enumerate(words[1:], 1):
        if word == "-N":
            return words[place + 1] if place + 1 < len(words) else ""
        if word.startswith("-N"):
            return word.removeprefix("-N")
    return ""
