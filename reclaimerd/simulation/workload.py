"""A simulated GPU workload: a real process that holds a simulated GPU and behaves badly on request.

`python -m reclaimerd.simulation.workload --dir DIR --gpu UUID --bytes 4GiB [...]` opens the GPU's
node, takes its claim, prints "ready PID [CHILD]" and then does as its options say. It may touch
nothing but the simulation's directory and itself.
"""

import argparse
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.claims import OutOfGpuMemoryError, own_claim, take_claim
from reclaimerd.simulation.clients import opening
from reclaimerd.simulation.host import SimulatedGpu, read_simulated_host
from reclaimerd.simulation.toml_table import size_bytes

EXIT_SYSCALL = {"x86_64": 60, "aarch64": 93}
"""The raw exit(2), which ends one thread (arch/*/syscall tables); libc's exit ends them all."""
PR_SET_PDEATHSIG = 1
THREAD_STACK_BYTES = 64 << 10
BECOME_SECONDS = "86400"
"""What the program is told to wait: the keeper ends it long before."""
LEAVE_POLL_SECONDS = 0.02
RECORDED_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCONT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def options_of(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed options."""
    parser = argparse.ArgumentParser(prog="workload", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="the simulation's directory")
    parser.add_argument("--gpu", required=True, action="append", help="UUID; may be repeated")
    parser.add_argument(
        "--bytes", type=size_bytes, default=0, help="memory on each GPU; 0: open the node only"
    )
    parser.add_argument("--context", type=ContextKind, default=ContextKind.COMPUTE)
    parser.add_argument("--sm", type=int, default=0, help="percent of each GPU that it uses all the time")
    parser.add_argument("--no-node", action="store_true", help="be listed, but open no node")
    parser.add_argument("--leak", action="store_true", help="its memory stays used after its end")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--record-signals", type=Path, help="append the name of each signal, and live on")
    parser.add_argument("--stop-self", action="store_true", help="SIGSTOP after ready")
    parser.add_argument("--exit-leader", action="store_true", help="the main thread leaves, another lives on")
    parser.add_argument("--fork-and-leave", action="store_true", help="a child inherits; the parent exits")
    parser.add_argument("--leave-on", type=Path, help="the parent exits when this file appears")
    parser.add_argument(
        "--become", help="after ready, become this program (`sleep`), keeping all descriptors"
    )
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--stuck-on", type=Path, help="opened first, so that its flush blocks the exit")
    parser.add_argument("--grow", type=size_bytes, default=0, help="allocate this much more, again and again")
    parser.add_argument("--every", type=float, default=0.2, help="seconds between two growths")
    parser.add_argument("--times", type=int, default=1, help="number of growths")
    parser.add_argument("--label", default="", help="free text, to be seen in the command line")
    parser.add_argument("--real-uid", type=int, help="whose process it is; its rights stay as they are")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> NoReturn:
    """Take the GPU, say so, and behave."""
    options = options_of(argv)
    _be_of(options.real_uid)
    _die_with_keeper()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.record_signals is not None:
        _record_signals(options.record_signals)
    try:
        gpus = _gpus_of(options)
        kept = _take(options, gpus)
    except (ReclaimerdError, OutOfGpuMemoryError, OSError) as error:
        sys.exit(f"workload: {error}")
    child = os.fork() if options.fork_and_leave else None
    if child == 0:
        _stay(options, gpus, kept)
    threading.stack_size(THREAD_STACK_BYTES)
    for _ in range(options.threads + int(options.exit_leader)):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    _say_ready(child)
    if child is not None:
        _leave(options.leave_on)
    if options.become is not None:
        _become(options.become, kept)
    if options.stop_self:
        os.kill(os.getpid(), signal.SIGSTOP)
    if options.exit_leader:
        ctypes.CDLL(None).syscall(EXIT_SYSCALL[os.uname().machine], 0)
    _stay(options, gpus, kept)


def _be_of(uid: int | None) -> None:
    """Belong to this user by the real uid, which is what counts for the owner of a process."""
    if uid is not None:
        os.setresuid(uid, -1, -1)


def _die_with_keeper() -> None:
    """Ask the kernel for SIGKILL when the keeper dies without having ended us."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _record_signals(path: Path) -> None:
    def note(number: int, _frame: object) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(signal.Signals(number).name + "\n")

    path.touch()
    for number in RECORDED_SIGNALS:
        signal.signal(number, note)


def _gpus_of(options: argparse.Namespace) -> tuple[SimulatedGpu, ...]:
    known = {gpu.uuid: gpu for gpu in read_simulated_host(options.dir).gpus}
    missing = [uuid for uuid in options.gpu if uuid not in known]
    if missing:
        raise OSError(f"no such GPU: {', '.join(missing)}")
    return tuple(known[uuid] for uuid in options.gpu)


def _take(options: argparse.Namespace, gpus: Sequence[SimulatedGpu]) -> list[int]:
    """Open and allocate; return the descriptors, which must stay open.

    The stuck file comes first: exit closes descriptors in rising order (fs/file.c, close_files), so
    the node and the claim are still held while its flush blocks.
    """
    kept = []
    if options.stuck_on is not None:
        kept.append(os.open(options.stuck_on, os.O_RDONLY))
    with opening(options.dir):
        if not options.no_node:
            kept += [os.open(gpu.device, os.O_RDWR | os.O_NOCTTY) for gpu in gpus]
        return kept + _allocate(options, gpus, options.bytes)


def _allocate(options: argparse.Namespace, gpus: Sequence[SimulatedGpu], asked_bytes: int) -> list[int]:
    if not asked_bytes:
        return []
    return [
        take_claim(
            options.dir,
            replace(own_claim(gpu.uuid, asked_bytes, options.context), sm_percent=options.sm),
            gpu.total_bytes,
            leaks=options.leak,
        )
        for gpu in gpus
    ]


def _say_ready(child: int | None) -> None:
    """Print the one line, then let go of the keeper's pipe."""
    print("ready", os.getpid(), *(() if child is None else (child,)), flush=True)  # noqa: T201 - the protocol
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, sys.stdout.fileno())
    os.dup2(silence, sys.stderr.fileno())
    os.close(silence)


def _become(program: str, kept: list[int]) -> NoReturn:
    """Become another program: same pid, same start, same descriptors, another exe."""
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    os.execv(program, [program, BECOME_SECONDS])  # noqa: S606  # no shell is wanted


def _leave(leave_on: Path | None) -> NoReturn:
    """Exit at once, or when the file appears."""
    while leave_on is not None and not leave_on.exists():
        time.sleep(LEAVE_POLL_SECONDS)
    os._exit(0)


def _stay(options: argparse.Namespace, gpus: Sequence[SimulatedGpu], kept: list[int]) -> NoReturn:
    """Grow as told, then wait for a signal that ends us."""
    for _ in range(options.times if options.grow else 0):
        time.sleep(options.every)
        try:
            kept += _allocate(options, gpus, options.grow)
        except OutOfGpuMemoryError:
            break
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
