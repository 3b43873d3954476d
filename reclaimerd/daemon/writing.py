"""Become the one writer of a state directory, or say who is, and how to mend it."""

import asyncio
import os
import select
import signal
from pathlib import Path

from reclaimerd.errors import RecordError, WriterBusyError
from reclaimerd.host.files import ensure_directory
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ports import Batch
from reclaimerd.observe.probe import Answered, Probe
from reclaimerd.record.writer_claim import Busy, WriterState, claim, current_writer

_TAKEOVER_SECONDS = 5.0


_READS_ONLY = "this engine only reads and keeps no record"


class MadeNothing:
    """The recorder of an engine that only reads: what it was shown may be said, and nothing done."""

    async def commit(self, batch: Batch) -> None:
        """Refuse whatever an act needs; what was merely seen (an alarm, an Xid) is told and not kept."""
        acts = any(entry.incident is not None or entry.actor is not None for entry in batch.entries)
        if acts or batch.incidents:
            raise RecordError(_READS_ONLY)

    def fault(self) -> str:
        """Return no fault: a reader has nothing to record."""
        return ""

    def fault_for_operators(self) -> str:
        """Return why nobody may act through this engine."""
        return _READS_ONLY


async def claim_writer(
    state_dir: Path, me: ProcessRef, procfs: Probe, *, takeover: bool
) -> ProcessRef | None:
    """Become the writer, or raise WriterBusyError that names who is.

    With `takeover` a living writer is ended by SIGKILL through its pidfd first; it is returned, and the
    caller must put that on record.
    """
    try:
        ensure_directory(state_dir, 0o700)
    except OSError as error:
        raise RecordError(f"{state_dir}: {error.strerror}", "make it, or name another --state-dir") from error
    rival = await asyncio.to_thread(current_writer, state_dir)
    state = WriterState.DEAD if rival is None else await _state_of(rival, procfs)
    ended: ProcessRef | None = None
    if takeover and rival is not None and state is WriterState.ALIVE:
        await _end(rival, procfs)
        ended = rival
        state = await _state_of(rival, procfs)

    def known(ref: ProcessRef) -> WriterState:
        if ref == rival:
            return state
        return WriterState.DEAD if _is_gone(ref.pid) else WriterState.ALIVE

    answer = await asyncio.to_thread(claim, state_dir, me, known)
    if isinstance(answer, Busy):
        raise WriterBusyError(
            f"pid {answer.ref.pid} writes to {state_dir} and does not answer on the control socket",
            "wait for it, restart the service, or add --takeover, which ends it with SIGKILL",
        )
    return ended


async def read_start_ticks(procfs: Probe, pid: int) -> int | None:
    """Return when a process started (clock ticks since boot); None when that can't be told."""
    answer = await procfs.ask("start_of", {"pid": pid})
    if not isinstance(answer, Answered) or not isinstance(answer.parts[0], dict):
        return None
    ticks = answer.parts[0].get("start_ticks")
    return ticks if isinstance(ticks, int) else None


async def has_living_writer(state_dir: Path, procfs: Probe) -> bool:
    """Tell whether a living process writes to this state directory; its workers are then its own."""
    rival = await asyncio.to_thread(current_writer, state_dir)
    return rival is not None and await _state_of(rival, procfs) is WriterState.ALIVE


async def _state_of(ref: ProcessRef, procfs: Probe) -> WriterState:
    """Return what became of a process; one that can't be looked at counts as alive."""
    if _is_gone(ref.pid):  # the usual case after a crash, and no worker need be quick to see it
        return WriterState.DEAD
    answer = await procfs.ask("start_of", {"pid": ref.pid})
    if not isinstance(answer, Answered) or not isinstance(answer.parts[0], dict):
        return WriterState.ALIVE
    part = answer.parts[0]
    if part.get("gone") or part.get("start_ticks") != ref.start_ticks:
        return WriterState.DEAD
    return WriterState.EXITING if part.get("all_exiting") else WriterState.ALIVE


def _is_gone(pid: int) -> bool:
    """Tell whether the last thread of this pid's process is gone; reads nothing of it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        return bool(poller.poll(0))
    finally:
        os.close(pidfd)


async def _end(ref: ProcessRef, procfs: Probe) -> None:
    """SIGKILL exactly this process: pidfd first, then the worker compares, then the signal."""
    try:
        pidfd = os.pidfd_open(ref.pid)
    except ProcessLookupError:
        return
    try:
        if await _state_of(ref, procfs) is WriterState.ALIVE:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        await asyncio.to_thread(poller.poll, _TAKEOVER_SECONDS * 1000)
    finally:
        os.close(pidfd)
