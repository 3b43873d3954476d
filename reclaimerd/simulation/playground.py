"""A simulated GPU host to try things on, as docs/tutorial.md does: it stands until it is told to go.

`python3 -m reclaimerd.simulation.playground DIR` returns when the host stands, with two GPUs and a process on
each; the same with `--stop` ends both. It may touch nothing but that directory and the processes it started.
"""

import argparse
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.keeper import Keeper

GIB = 1 << 30
GPUS = (
    SimulatedGpu("GPU-00000000-0000-4000-8000-00000000000a", "Simulated GPU", 80 * GIB),
    SimulatedGpu("GPU-00000000-0000-4000-8000-00000000000b", "Simulated GPU", 80 * GIB),
)
STUBBORN = ("--gpu", GPUS[0].uuid, "--bytes", "8GiB", "--label", "train", "--ignore-term")
LARGE = ("--gpu", GPUS[1].uuid, "--bytes", "30GiB", "--label", "notebook")
_NAME = "playground.pid"
_WITHIN_SECONDS = 60.0


def main(argv: Sequence[str]) -> int:
    """Start a host in the background, be that host, or end it; return the exit code."""
    parser = argparse.ArgumentParser(prog="playground", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--stop", action="store_true", help="end the host that stands there")
    parser.add_argument("--stay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    directory: Path = options.directory.absolute()
    note = directory.with_name(f"{directory.name}.{_NAME}")
    try:
        if options.stay:
            return _be(directory, note)
        return _stop(note) if options.stop else _start(directory)
    except (ReclaimerdError, OSError) as error:
        sys.stderr.write(f"playground: {error}\n")
        return 1


def _start(directory: Path) -> int:
    """Start the host as a session of its own, and pass on what it says when it stands."""
    words = [sys.executable, "-m", "reclaimerd.simulation.playground", str(directory), "--stay"]
    # Its faults go to a file of no name: it must not hold open what somebody reads to the end.
    with tempfile.TemporaryFile() as faults:
        # It outlives us on purpose: --stop ends it.
        host = subprocess.Popen(  # our own program
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=faults, start_new_session=True
        )
        if host.stdout is None:
            raise ReclaimerdError("the host gave no output")
        said = host.stdout.read()
        faults.seek(0)
        sys.stderr.buffer.write(faults.read())
    sys.stdout.buffer.write(said)
    sys.stdout.flush()
    return 0 if said else 1


def _be(directory: Path, note: Path) -> int:
    """Hold the host until SIGTERM or SIGINT."""
    ends = {signal.SIGTERM, signal.SIGINT}
    with Keeper(directory, GPUS) as keeper:
        stubborn, large = keeper.launch_all((STUBBORN, LARGE))
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # after the launch: nobody shall inherit it
        note.write_text(str(os.getpid()), encoding="ascii")
        sys.stdout.write(f"a host with 2 GPUs stands in {directory}\n")
        sys.stdout.write(f"pid {stubborn.pid} holds GPU 0, pid {large.pid} holds GPU 1\n")
        sys.stdout.flush()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, sys.stdout.fileno())  # whoever started us waits for the end of our words
        os.close(silence)
        signal.sigwait(ends)
    note.unlink(missing_ok=True)
    return 0


def _stop(note: Path) -> int:
    """End the host and wait until it is gone."""
    try:
        pid = int(note.read_text(encoding="ascii"))
        pidfd = os.pidfd_open(pid)
    except (OSError, ValueError):
        raise ReclaimerdError("no host stands there") from None
    try:
        # The pid could be another's by now: only a process of this very program is ended.
        if b"reclaimerd.simulation.playground" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            raise ReclaimerdError(f"pid {pid} is no playground", f"remove {note}")
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not select.select([pidfd], [], [], _WITHIN_SECONDS)[0]:
            raise ReclaimerdError(f"the host, pid {pid}, does not end")
    finally:
        os.close(pidfd)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
