"""Stand ready for the word, run the vendor's reset tool to its own end, and leave on disk how it ended.

`python -I -m reclaimerd.act.reset_runner --dir D --run ID [--outside-of G] [--word-within S] -- TOOL ...`
It runs outside the daemon's cgroup. Without the word it leaves and has claimed nothing. The tool has no
deadline. It signals nobody, takes no notice of SIGTERM, SIGINT and SIGHUP (nor does the tool, which inherits
that), and never runs a tool twice under one id. It imports only what is cheap.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reclaimerd.act.reset_files import (
    OUTPUT_LIMIT_BYTES,
    Claim,
    Ended,
    Ready,
    Reserved,
    Started,
    Word,
    leave_ready,
    leave_started,
    reserve,
    run_fault,
)
from reclaimerd.host.proc_text import parse_cgroup, parse_stat
from reclaimerd.model.identity import AttemptId, ProcessRef

RAN = 0
TAKEN = 3
"""Another runner, or the daemon, has this run already."""
FAILED = 4
UNASKED = 5
"""Nobody gave the word in time; nothing was claimed."""
WORD_SECONDS = 60.0
_POLL_SECONDS = 0.005
"""Between two looks for the word; there is no inotify in the standard library."""
_DEAF_TO = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and how many seconds to stand ready for the word to it."""

    directory: Path
    run: AttemptId
    outside_of: str
    word_within: float
    tool: tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool at most once; return 0 when how it ended (or why it was not run) stands on disk."""
    order = _order(argv)
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    # Where a parent ignored it, the kernel would throw the tool's exit code away (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        return perform(order)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"reset runner {order.run}: {error}\n")
        return FAILED


def perform(order: Order) -> int:
    """Look where we are, stand ready, and with the word claim the run, run the tool, leave the end.

    Raises OSError, and ValueError for a word that is none of ours.
    """
    me = read_self()
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    within = [path for path in cgroups_of(lines) if is_inside(path, order.outside_of)]
    with reserve(order.directory, order.run, Claim(me)) as reserved:
        if within:
            why = (
                f"the tool would run in {within[0]}, inside {order.outside_of}: our own end would cut it off"
            )
            return _claimed(reserved, Ended(None, "", why))
        leave_ready(order.directory, order.run, Ready(me, unit_cgroup(lines)))
        word = _await_word(reserved, order.word_within)
        if word is None:
            return TAKEN if reserved.is_claimed() else UNASKED
        if not reserved.take():
            return TAKEN
        reserved.leave_end(_run_tool(order, word))
        return RAN


def _claimed(reserved: Reserved, ended: Ended) -> int:
    """Claim the run for a tool that is not run, and leave why."""
    if not reserved.take():
        return TAKEN
    reserved.leave_end(ended)
    return RAN


def _await_word(reserved: Reserved, seconds: float) -> Word | None:
    """Return a word that is still good; None when somebody else has the run, or nobody asked in time."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and not reserved.is_claimed():
        word = reserved.read_word()
        if word is not None and time.monotonic() <= word.not_after:
            return word
        time.sleep(_POLL_SECONDS)
    return None


def read_self() -> ProcessRef:
    """Return this process (proc(5); our own entries answer at once). Raises OSError."""
    stat = parse_stat(Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace"))
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ProcessRef(boot_id, os.getpid(), stat.start_ticks)


def cgroups_of(text: str) -> tuple[str, ...]:
    """Return the paths of one cgroup file, of every hierarchy."""
    return tuple(line.path for line in parse_cgroup(text))


def unit_cgroup(text: str) -> str:
    """Return the path in the hierarchy that systemd keeps (v2, else `name=systemd`), "" for the root."""
    lines = parse_cgroup(text)
    for controllers in ("", "name=systemd"):
        path = next((line.path for line in lines if line.controllers == controllers), "/")
        if path != "/":
            return path
    return ""


def is_inside(path: str, boundary: str) -> bool:
    """Tell whether a cgroup path is the boundary or lies below it; "" and "/" bound nothing."""
    if boundary in {"", "/"}:
        return False
    return PurePosixPath(path).is_relative_to(boundary)


def _run_tool(order: Order, word: Word) -> Ended:
    """Run the tool to its end, however long that takes, and return how it ended."""
    # In memory of its own and no pipe: the tool must be able to write on when we are gone.
    output = os.memfd_create("output")
    if time.monotonic() > word.not_after:
        return Ended(None, "", "the tool's turn came too late after the last look")
    try:
        process = subprocess.Popen(order.tool, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    except OSError as error:
        return Ended(None, "", f"{order.tool[0]} did not start ({error.strerror})")
    began_at = time.monotonic()
    with suppress(OSError):  # the tool runs; its end matters more than when it began
        leave_started(order.directory, order.run, Started(process.pid, began_at, began_at - word.given_at))
    code = process.wait()
    return Ended(code, os.pread(output, OUTPUT_LIMIT_BYTES, 0).decode("utf-8", "replace"))


def _order(argv: Sequence[str] | None) -> Order:
    """Return the order of a command line; anything else ends with 2 (argparse)."""
    parser = argparse.ArgumentParser(prog="reset_runner", allow_abbrev=False)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--outside-of", default="")
    parser.add_argument("--word-within", type=float, default=WORD_SECONDS)
    parser.add_argument("tool", nargs="+")
    found = parser.parse_args(argv)
    fault = run_fault(found.run)
    if fault or not found.dir.is_absolute() or not Path(found.tool[0]).is_absolute():
        parser.error(fault or "--dir and the tool are given by absolute paths")
    return Order(found.dir, AttemptId(found.run), found.outside_of, found.word_within, tuple(found.tool))


if __name__ == "__main__":
    sys.exit(main())
