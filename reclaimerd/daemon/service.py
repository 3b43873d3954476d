"""The loop around the passes: it alone sleeps, and tells the service manager how we are.

One pass's unexpected error is logged, that pass acts no further, and the loop goes on. A store that
can't be trusted ends the daemon.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from reclaimerd.daemon import entries
from reclaimerd.daemon.auto_evidence import AutoEvidence
from reclaimerd.daemon.counting import after_boot
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.driver_watch import DRIVER_ROLE
from reclaimerd.daemon.engine import ROLES, Engine
from reclaimerd.daemon.evidence_wiring import Investigator
from reclaimerd.daemon.following import resumed
from reclaimerd.daemon.notify import LifeSigns, watchdog_seconds
from reclaimerd.daemon.opening import Moment, Order
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.past import Reader
from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.views import status_sentence
from reclaimerd.errors import CorruptStoreError, ReclaimerdError, RecordError, UnsuitableHostError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.policy import Scope
from reclaimerd.model.ports import Batch
from reclaimerd.model.process import ProcessLook
from reclaimerd.model.snapshot import DriverState
from reclaimerd.observe.probe import Answered
from reclaimerd.record import logs
from reclaimerd.record.store import AbandonedWorker, Remembered

T = TypeVar("T")
ABSENT_EVERY_SECONDS = 30.0
"""How often a driver that is not there is looked for again."""
REMEMBER_EVERY_SECONDS = 5.0
HEAD_EVERY_SECONDS = 60.0
"""How often the audit's head goes to the log: an anchor outside our own files."""
LAST_ACT_SECONDS = 2.0
"""How long an act under way may still take when the end is asked for."""
AFTER_ERROR_SECONDS = 1.0


@dataclass(slots=True)
class Service:
    """One engine at work: passes, what people ask of it, and its end."""

    engine: Engine
    pacing: Pacing
    wall: Callable[[], float] = time.time
    last_pass_at: float | None = None
    last_pass_seconds: float = 0.0
    last_error: str = ""
    life_signs: LifeSigns = field(default_factory=LifeSigns)
    _remembered_at: float = field(default=0.0)
    _remembered: object = None
    _workers: tuple[AbandonedWorker, ...] = ()
    _in_pass: bool = False
    _head_at: float = float("-inf")
    _head: object = None
    _auto: AutoEvidence | None = None
    _reader: Reader = field(default_factory=Reader)

    @property
    def cycle(self) -> Cycle:
        """Return the engine's cycle."""
        return self.engine.cycle

    async def resume(self) -> None:
        """Take up what an earlier start left open; an attempt without an outcome becomes UNKNOWN.

        Raises RecordError when that can't be put on record.
        """
        state = self.cycle.state
        now = Moment(self.cycle.joints.clock(), self.wall())
        changed = []
        records: list[AuditEntry] = []
        for stored in self.engine.stored.open_incidents:
            incident, notes = resumed(stored, self.engine.me.boot_id, state.ledger, now)
            records += notes
            changed.append(incident)
            if not incident.ended:
                state.incidents[incident.id] = incident
        boot_id = self.engine.me.boot_id
        state.ledger, rebooted = after_boot(state.ledger, boot_id)
        records += rebooted
        state.handed = {one.id: one for one in self.engine.stored.handed_over if one.boot_id == boot_id}
        policy = self.cycle.policy
        started = f"mode {policy.mode}, {len(policy.rules)} rules, policy {policy.source or policy.digest}"
        records.append(entries.of_host(RecordKind.STARTED, started))
        await self.cycle.joints.recorder.commit(
            Batch(incidents=tuple(changed), ledger=state.ledger, entries=tuple(records))
        )
        await self.engine.resets.resume(state.ledger)

    async def run(self, *, once: bool = False) -> None:
        """Make passes until asked to stop; `once` makes one. READY is said after the first.

        Raises CorruptStoreError, and for the first pass UnsuitableHostError.
        """
        watchdog = watchdog_seconds()
        self.engine.news.watch(self.pacing.wake)
        while not self.pacing.stopping:
            began = self.cycle.joints.clock()
            wake_at = await self._until_stopped(self._one_pass(began), began)
            self._log_head()
            self._tell_manager()
            if once:
                return
            await self.pacing.sleep_until(wake_at if watchdog is None else min(wake_at, began + watchdog / 2))

    async def _until_stopped(self, one_pass: Coroutine[object, object, float], began: float) -> float:
        """Return when the next pass is due; at the end no look is waited for, an act only briefly."""
        task = asyncio.ensure_future(one_pass)
        stop = asyncio.ensure_future(self.pacing.stopped())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self.cycle.looking:
                await asyncio.wait((task,), timeout=LAST_ACT_SECONDS)
            if task.done():
                return task.result()
            self._warn("pass_cut_short", looking=self.cycle.looking)
            return began
        finally:
            stop.cancel()
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def look(
        self, *, pids: tuple[int, ...] = (), full_scan: bool = False, reset: bool = False, seconds: float
    ) -> bool:
        """Ask for a fresh pass and wait for it; tell whether one succeeded within the limit."""
        state = self.cycle.state
        state.asked_pids |= set(pids)
        state.wants_full_scan = state.wants_full_scan or full_scan
        state.wants_reset_look = state.wants_reset_look or reset
        # A pass that is under way began before we asked: its successor is the fresh one.
        after = self.pacing.passes + (1 if self._in_pass else 0)
        self.pacing.wake()
        return await self.pacing.wait_for_pass(after, seconds)

    async def family(self, order: Order) -> tuple[int, ...]:
        """Return the pids that an order's scope takes along, as the procfs worker names them now."""
        match order.scope:
            case Scope.PROCESS:
                return ()
            case Scope.TREE:
                answer = await self.engine.procfs.ask("descendants", {"pid": order.pid})
            case Scope.WORKLOAD:
                look = (await self.engine.procfs.ask_each([order.pid])).get(order.pid)
                if not isinstance(look, ProcessLook) or not look.reading.workload.path:
                    return ()
                place = look.reading.workload
                answer = await self.engine.procfs.ask("members", {"cgroup": [place.controller, place.path]})
        if isinstance(answer, Answered) and isinstance(answer.parts[0], dict):
            return tuple(int(pid) for pid in answer.parts[0]["pids"])
        return ()

    async def off_loop(self, work: Callable[[], T], what: str) -> T:
        """Read what was in a thread of its own, where no record waits for it. Raises RecordError."""
        return await self._reader.read(work, what)

    def facts(self) -> Json:
        """Return what only the service knows, for `status`."""
        released = self.engine.release.standing
        return {
            "pid": os.getpid(),
            "source": "foreground" if self.engine.choice.foreground else "daemon",
            "last_pass": {"at": self.last_pass_at, "seconds": round(self.last_pass_seconds, 6)},
            "last_error": self.last_error,
            "anchor_fault": self.engine.outlets.anchor_fault(),
            "driver_released": None if released is None else asdict(released),
        }

    async def stop(self) -> None:
        """Put the end on record and close everything; bounded, also with a stuck worker."""
        try:
            async with asyncio.timeout(2.0):
                await self.finish_evidence(0.5)
                await self._remember(force=True)
                record = entries.of_host(RecordKind.STOPPED, "asked to stop")
                entries_left = (*self.engine.rule_counts.records(), record)
                await self.cycle.write(None, entries_left)  # with what is still owed
        except (ReclaimerdError, TimeoutError) as error:
            logs.error("stop_not_recorded", error=str(error))
        await self.engine.close()

    async def finish_evidence(self, seconds: float) -> None:
        """Wait for evidence that is being collected, at most this long."""
        if self._auto is not None:
            await self._auto.finish(seconds)

    def _collect_evidence(self) -> None:
        snapshot = self.cycle.state.snapshot
        if self.engine.recorder is None or snapshot is None or not snapshot.plights:
            return
        if self._auto is None:
            self._auto = AutoEvidence(Investigator(self.engine))
        self._auto.start(self.cycle)

    async def _one_pass(self, began: float) -> float:
        """Make one pass, and return when the next is due."""
        interval = self.cycle.policy.interval_seconds
        self._in_pass = True
        try:
            report = await self.cycle.run_pass()
            self.last_error = ""
        except CorruptStoreError:
            raise
        except UnsuitableHostError as error:
            self.last_error = str(error)
            if self.last_pass_at is None:
                raise
            self._warn("host_unsuitable", error=self.last_error)
            self.cycle.desk.refuse_waiting(f"the driver can't be worked with: {self.last_error}")
            return began + ABSENT_EVERY_SECONDS
        except Exception as error:  # the one border: a bug in a pass must not end the guard
            self.last_error = f"{type(error).__name__}: {error}"
            if self.engine.choice.foreground:
                raise ReclaimerdError(f"a pass failed: {self.last_error}", "please report it") from error
            logs.error("pass_failed", error=self.last_error)
            self.engine.outlets.failed()
            return began + max(interval, AFTER_ERROR_SECONDS)
        finally:
            self._in_pass = False
        self.last_pass_at, self.last_pass_seconds = self.wall(), report.seconds
        self.engine.outlets.passed(report.seconds)
        await self.engine.rule_counts.passed(self.cycle)
        await self.pacing.passed()
        self._collect_evidence()
        if not self.engine.choice.read_only:  # it puts things back, which is an act
            await self.engine.resets.look_after()
        await self._remember(force=False)
        if report.at_once:
            return began
        state = self.cycle.state
        if state.snapshot is not None and state.snapshot.driver.state is DriverState.ABSENT:
            return began + ABSENT_EVERY_SECONDS
        return min(began + interval, report.wake_at) if report.wake_at is not None else began + interval

    def _tell_manager(self) -> None:
        """Tell the service manager how we are; a command in the foreground is nobody's service."""
        if self.engine.choice.foreground:
            return
        self.life_signs.passed("WATCHDOG=1", f"STATUS={status_sentence(self.cycle)}")

    def _warn(self, name: str, **fields: object) -> None:
        """Log a warning; a command in the foreground keeps its output to itself."""
        if not self.engine.choice.foreground:
            logs.warning(name, **fields)

    def _log_head(self) -> None:
        """Log the audit's head when it moved, at most once a minute."""
        recorder, now = self.engine.recorder, self.cycle.joints.clock()
        if recorder is None or self.engine.choice.foreground or now < self._head_at + HEAD_EVERY_SECONDS:
            return
        head = recorder.head()
        if head is not None and head != self._head:
            self._head, self._head_at = head, now
            logs.event("audit_head", seq=head.seq, hash=head.hash)

    async def _remember(self, *, force: bool) -> None:
        """Keep who holds what, and the workers, for the next start; not more often than it pays."""
        recorder = self.engine.recorder
        now = self.cycle.joints.clock()
        abandoned = self._left_if_we_end()
        # A new worker at once: it may hang just when we are killed, and must be found again.
        in_time = now >= self._remembered_at + REMEMBER_EVERY_SECONDS or abandoned != self._workers
        if recorder is None or not (force or in_time):
            return
        holders, baselines = self.engine.sampler.memory()
        kept = (tuple((one.ref, one.gpu) for one in holders), baselines, abandoned)
        if kept == self._remembered and not force:
            return
        try:
            await recorder.remember(Remembered(holders, baselines, abandoned))
        except RecordError as error:
            self._warn("memory_not_kept", error=str(error))
            return
        self._remembered, self._remembered_at, self._workers = kept, now, abandoned

    def _left_if_we_end(self) -> tuple[AbandonedWorker, ...]:
        """Return the workers that may outlive us, each with the clock of its silence."""
        alarmed = self.cycle.state.driver_watch.alarmed
        return tuple(
            AbandonedWorker(role, ref, since, alarmed=alarmed and role == DRIVER_ROLE and since is not None)
            for role, probe in zip(ROLES, self.engine.probes, strict=True)
            if (ref := probe.left_if_we_end) is not None
            for since in (probe.silent_since,)
        )
