"""Real children for the tests of `act`, and the looks that the tests hand in.

Run as a program (`python -m tests.act.children MODE ...`) it is one of the children that a shell
can't play: one that records every signal it gets, an unprivileged sender, a PID that is used again.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.act.signals import SignalOrder, send
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ports import LastLook, LookAgainPort, NoLongerRight, StillRight
from reclaimerd.model.step import Step
from tests.builders import BOOT, a_step

BOUND_SECONDS = 20.0
LAST_WORD = signal.SIGRTMAX
"""Ends a recorder. Of many that pend the lowest number is taken first: this one comes after all others."""
OBEYS = ("/bin/sh", "-c", "echo ready; exec sleep 60")
IGNORES = ("/bin/sh", "-c", "trap '' TERM; echo ready; exec sleep 60")


def read_start_ticks(pid: int) -> int:
    """Return the start time in ticks of one process (proc(5) stat, field 22)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[19])


def ref_of(pid: int) -> ProcessRef:
    """Return the identity of a living child."""
    return ProcessRef(BOOT, pid, read_start_ticks(pid))


async def look_at_ticks(step: Step, ref: ProcessRef) -> LastLook:
    """Compare the start ticks, as the worker does among much else."""
    del step
    try:
        ticks = read_start_ticks(ref.pid)
    except FileNotFoundError:
        return NoLongerRight("its stat is gone", changed=True)
    if ticks == ref.start_ticks:
        return StillRight()
    return NoLongerRight(f"pid {ref.pid} is another process now", changed=True)


def answering(look: LastLook, meanwhile: Callable[[], object] = lambda: None) -> LookAgainPort:
    """Return a look that has something happen meanwhile and then gives this answer."""

    async def look_again(step: Step, ref: ProcessRef) -> LastLook:
        del step, ref
        meanwhile()
        return look

    return look_again


@dataclass(frozen=True, slots=True)
class Child:
    """One real child that has said `ready`, and its identity."""

    process: subprocess.Popen[str]
    ref: ProcessRef

    def end(self) -> int:
        """Wait for its end and return its exit code (negative: by signal)."""
        return self.process.wait(BOUND_SECONDS)

    def end_now(self) -> None:
        """End it by SIGTERM and reap it."""
        self.process.terminate()
        self.end()

    def alive(self) -> bool:
        """Tell whether it runs on."""
        return self.process.poll() is None

    def wait_dead(self) -> None:
        """Wait until its last thread is gone, without reaping it."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            assert poll.poll(BOUND_SECONDS * 1000), "the child did not die in time"
        finally:
            os.close(pidfd)


@contextmanager
def child(*argv: str) -> Iterator[Child]:
    """Start a program that prints `ready`; it is gone and reaped at the end of the block."""
    with children(1, *argv) as (only,):
        yield only


@contextmanager
def children(count: int, *argv: str) -> Iterator[tuple[Child, ...]]:
    """Start a program many times over; all are gone and reaped at the end of the block."""
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))  # noqa: PERF401 - a list being filled survives a failed start
        yield tuple(Child(process, _ready(process)) for process in started)
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait(BOUND_SECONDS)
            if process.stdout is not None:
                process.stdout.close()


def _ready(process: subprocess.Popen[str]) -> ProcessRef:
    """Wait for the first line of a child and return its identity."""
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], BOUND_SECONDS)
    assert readable, "the child did not start in time"
    assert process.stdout.readline() == "ready\n"
    return ref_of(process.pid)


def program(mode: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs this file in one mode."""
    return (sys.executable, "-m", "tests.act.children", mode, *arguments)


def stop(target: Child) -> None:
    """SIGSTOP a child and wait until it is stopped."""
    os.kill(target.process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, target.process.pid, os.WSTOPPED | os.WNOWAIT)


def record_signals(path: str) -> None:
    """Write down every signal that arrives, and end at LAST_WORD."""
    everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    with Path(path).open("a", encoding="utf-8") as log:
        while True:
            number = signal.sigwait(everything)
            if number == LAST_WORD:
                return
            log.write(f"{signal.Signals(number).name}\n")
            log.flush()


def send_unprivileged(pid: str, uid: str) -> None:
    """Give up root, try to signal one process, and print what came of it."""
    ref = ref_of(int(pid))
    os.setresuid(int(uid), int(uid), int(uid))
    order = SignalOrder(signal.SIGTERM)
    (outcome,) = asyncio.run(send(a_step(), (ref,), order, look_again=look_at_ticks, boot_id=BOOT))
    print(f"{outcome.kind}|{outcome.detail}")  # noqa: T201 - the test reads it


def reuse_pid(when: str, log: str) -> None:
    """As init of a PID namespace, have a stranger take a target's PID, signal the target, print the outcome.

    `when` is `before` (the pidfd is opened) or `between` (it and the signal).
    """
    old = _forked(_sleep)
    ref = ref_of(old)
    strangers: list[int] = []

    def replace_target() -> None:
        os.kill(old, signal.SIGKILL)
        os.waitpid(old, 0)
        _wait_for_next_tick(ref.start_ticks)
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(old - 1), encoding="ascii")
        strangers.append(_forked(lambda: record_signals(log)))

    if when == "before":
        replace_target()
    # A look that sees nothing wrong at the worst moment: only the pidfd protects the stranger.
    blind_look = answering(StillRight(), replace_target)
    look_again: LookAgainPort = look_at_ticks if when == "before" else blind_look
    order = SignalOrder(signal.SIGKILL)
    (outcome,) = asyncio.run(send(a_step(), (ref,), order, look_again=look_again, boot_id=BOOT))
    same_pid = strangers == [old]
    lives = os.waitpid(old, os.WNOHANG) == (0, 0)
    os.kill(old, LAST_WORD)
    _, status = os.waitpid(old, 0)
    quiet_end = os.waitstatus_to_exitcode(status) == 0
    print(f"{outcome.kind}|{same_pid}|{lives}|{quiet_end}")  # noqa: T201 - the test reads it


def _sleep() -> None:
    """Say so, and sleep."""
    print("ready", flush=True)  # noqa: T201 - the parent waits for it
    time.sleep(60)


def _forked(work: Callable[[], None]) -> int:
    """Fork a child that does some work, wait for the line it prints, and return its pid."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writer, 1)
        work()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as line:
        assert line.readline() == "ready\n"
    return pid


def _wait_for_next_tick(start_ticks: int) -> None:
    """Wait until a new process can't have the given start tick (the kernel's own clock decides)."""
    per_second = os.sysconf("SC_CLK_TCK")
    until = time.monotonic() + BOUND_SECONDS
    while int(time.clock_gettime(time.CLOCK_BOOTTIME) * per_second) <= start_ticks + 1:
        if time.monotonic() > until:
            raise TimeoutError("the clock stands still")
        time.sleep(0.005)


MODES: dict[str, Callable[..., None]] = {
    "record": record_signals,
    "unprivileged": send_unprivileged,
    "reuse": reuse_pid,
}

if __name__ == "__main__":
    MODES[sys.argv[1]](*sys.argv[2:])
