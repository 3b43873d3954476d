"""One pass: look, judge, plan, ask the gates, write the intent, act, write the outcome.

The cycle joins eyes, mind, hands and memory; it holds no policy of its own, reads nothing but through
the sampler, and performs nothing that was not durable first. What can't be made durable is not done,
and the pass's changes are dropped.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.admission import Admitted, Work, admit_all, trip_breaker
from reclaimerd.daemon.desk import Desk
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.following import acted, follow, late_releases
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.ordering import open_by_rule, open_ordered
from reclaimerd.daemon.performing import take_outcomes
from reclaimerd.daemon.telling import tell_all
from reclaimerd.errors import RecordError
from reclaimerd.judge.evaluate import Evaluation, JudgeContext, alarms, evaluate
from reclaimerd.judge.gate_context import GateContext, workload_key
from reclaimerd.judge.protections import Ours, protection_of
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import Incident, Stage
from reclaimerd.model.ledger import Ended, Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import ExecutorPort, Look, RecorderPort, SamplerPort
from reclaimerd.model.snapshot import ProcessReading, Snapshot
from reclaimerd.model.verdict import Protection, Sustained

LEDGER_DAYS = 7
"""Older spends and ends bind nothing any more."""


@dataclass(frozen=True, slots=True)
class Joints:
    """What the cycle joins: eyes, memory, hands, and what only `wiring` can know of this host."""

    sampler: SamplerPort
    recorder: RecorderPort
    executor: ExecutorPort
    judge: Callable[[], JudgeContext]
    ours: Callable[[], Ours]
    hold_file: Callable[[Policy], str]
    clock: Callable[[], float]
    host_namespace: bool = True
    foreground: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class State:
    """What the cycle knows between passes; all that must survive a restart is in the store too."""

    incidents: dict[IncidentId, Incident] = field(default_factory=dict)
    handed: dict[IncidentId, Incident] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    sustained: tuple[Sustained, ...] = ()
    snapshot: Snapshot | None = None
    evaluation: Evaluation | None = None
    said: dict[IncidentId, str] = field(default_factory=dict)
    alarmed: frozenset[str] = frozenset()
    record_fault: str = ""
    wants_full_scan: bool = False
    asked_pids: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PassReport:
    """When the next pass is due (monotonic seconds; None: at the interval), and what was done."""

    wake_at: float | None
    at_once: bool
    acts: int
    seconds: float


class Cycle:
    """The one pass, and the state it carries from one to the next."""

    __slots__ = ("_turn", "desk", "joints", "policy", "started_mono", "state")

    def __init__(self, policy: Policy, joints: Joints, state: State) -> None:
        self.policy = policy
        self.joints = joints
        self.state = state
        self.desk = Desk()
        self.started_mono = joints.clock()
        self._turn = asyncio.Lock()

    async def run_pass(self) -> PassReport:
        """Make one pass. Raises UnsuitableHostError when the driver can't be worked with at all."""
        began = self.joints.clock()
        look = self._look()
        snapshot = await self.joints.sampler.sample(look)
        async with self._turn:
            admitted, acts = await self._judge_and_act(snapshot, frozenset(look.pids))
        return PassReport(
            wake_at=admitted.wake_at,
            at_once=admitted.again_at_once or acts > 0 or bool(self.desk.waiting),
            acts=acts,
            seconds=self.joints.clock() - began,
        )

    async def _judge_and_act(self, snapshot: Snapshot, looked: frozenset[int]) -> tuple[Admitted, int]:
        now = Moment(snapshot.at, snapshot.taken_at)
        evaluation = evaluate(snapshot, self.policy, self.state.sustained, self.joints.judge())
        self.state.snapshot, self.state.evaluation = snapshot, evaluation
        self.state.sustained = evaluation.sustained
        draft = Draft(dict(self.state.incidents), self.state.ledger)
        follow(draft, snapshot, evaluation, now)
        open_ordered(draft, self.desk.take(looked), (snapshot, self.policy), now)
        fresh: list[Incident] = []
        if not self.joints.foreground:
            fresh = open_by_rule(draft, evaluation, (snapshot, self.policy), self._handed_refs(), now)
        context = self._context(draft, snapshot, now)
        trip_breaker(draft, fresh, context)
        admitted = admit_all(draft, context, self.state.said)
        late = late_releases(self.state.handed, snapshot)
        for incident, why in late:
            draft.put(replace(incident, released_at=now.wall), [entries.late_release(incident, why)])
        alarmed = self._note_alarms(draft, evaluation)
        acts = await self._write_and_act(draft, admitted, context)
        if not self.state.record_fault:
            self.state.alarmed = alarmed
            for incident, _ in late:
                del self.state.handed[incident.id]
        self.state.wants_full_scan = admitted.wants_full_scan
        tell_all(self.desk, self.state.incidents, (snapshot, now), admitted.refused)
        self._retire()
        return admitted, acts

    async def write(self, change: Callable[[Ledger], Ledger] | None, records: tuple[AuditEntry, ...]) -> None:
        """Make a change of the ledger durable outside a pass: pause, resume, breaker.

        Raises RecordError when it could not; then nothing changed.
        """
        async with self._turn:
            draft = Draft(dict(self.state.incidents), self.state.ledger)
            if change is not None:
                draft.put_ledger(change(draft.ledger))
            for record in records:
                draft.note(record)
            await self._commit(draft)

    def _look(self) -> Look:
        open_refs = {ref for one in self.state.incidents.values() for ref in one.processes}
        handed = {ref for one in self.state.handed.values() for ref in one.processes}
        asked, self.state.asked_pids = self.state.asked_pids, set()
        return Look(
            watch=tuple(sorted(open_refs | handed)),
            pids=(*self.desk.pids(), *sorted(asked)),
            full_scan=self.state.wants_full_scan,
            deep=self.state.wants_full_scan,
        )

    def _context(self, draft: Draft, snapshot: Snapshot, now: Moment) -> GateContext:
        return GateContext(
            policy=self.policy,
            snapshot=snapshot,
            ledger=draft.ledger,
            now=now.mono,
            wall=now.wall,
            started_mono=self.started_mono,
            ours=self.joints.ours(),
            foreground=self.joints.foreground,
            hold_file=self.joints.hold_file(self.policy),
            record_fault=self.state.record_fault,
            host_namespace=self.joints.host_namespace,
        )

    def context(self) -> GateContext | None:
        """Return what the gates would look at now, from the last look; None before the first."""
        if self.state.snapshot is None:
            return None
        now = Moment(self.state.snapshot.at, self.state.snapshot.taken_at)
        return self._context(Draft({}, self.state.ledger), self.state.snapshot, now)

    def protection_of(self, reading: ProcessReading) -> Protection | None:
        """Return why nobody may touch this process, by the last look; None when anyone may."""
        files = {} if self.state.snapshot is None else self.state.snapshot.host_files
        return protection_of(reading, host_files=files, policy=self.policy, ours=self.joints.ours())

    async def _write_and_act(self, draft: Draft, admitted: Admitted, context: GateContext) -> int:
        """Intent first: nothing is performed before its batch is durable."""
        draft.put_ledger(_pruned(draft.ledger, context.wall))
        try:
            await self._commit(draft)
        except RecordError as error:
            self.state.record_fault = str(error)
            self._drop_orders(str(error))
            return 0
        if not admitted.work:
            return 0
        outcomes = await self.joints.executor.execute_all([work.permit for work in admitted.work])
        after = Draft(dict(self.state.incidents), self.state.ledger)
        take_outcomes(after, admitted.work, outcomes, context)
        try:
            await self._commit(after)
        except RecordError as error:
            self.state.record_fault = str(error)
            self._keep_in_memory(after, admitted.work)
        return len(admitted.work)

    async def _commit(self, draft: Draft) -> None:
        """Make a draft durable and only then take it as the truth; ends feed the cool-downs."""
        self._note_ends(draft)
        if not draft.is_empty or self.state.record_fault:
            await self.joints.recorder.commit(draft.batch())
            self.state.record_fault = ""
        self.state.incidents = dict(draft.incidents)
        self.state.ledger = draft.ledger

    def _note_ends(self, draft: Draft) -> None:
        ends = []
        for one in draft.incidents.values():
            before = self.state.incidents.get(one.id)
            fresh = one.released_at is None and (before is None or not before.ended)
            if one.ended and fresh and acted(one):
                was_reset = any(attempt.stage is Stage.RESET for attempt in one.attempts)
                at = one.ended_at if one.ended_at is not None else one.opened_at
                ends.append(Ended(workload_key(one.target), one.target.gpus, at, was_reset))
        if ends:
            draft.put_ledger(replace(draft.ledger, ended=draft.ledger.ended + tuple(ends)))

    def _keep_in_memory(self, after: Draft, work: list[Work]) -> None:
        """Hold on to outcomes that could not be written: the signals were sent, and are not sent again."""
        for item in work:
            self.state.incidents[item.incident] = after.incidents[item.incident]

    def _drop_orders(self, why: str) -> None:
        for ticket in self.desk.under_way:
            if ticket.incident is None or ticket.incident not in self.state.incidents:
                ticket.refuse(f"nothing can be put on record: {why}")

    def _note_alarms(self, draft: Draft, evaluation: Evaluation) -> frozenset[str]:
        now = frozenset(alarms(evaluation))
        for text in sorted(now - self.state.alarmed):
            draft.note(entries.of_host(RecordKind.ALARM, text))
        return now

    def _handed_refs(self) -> frozenset[ProcessRef]:
        return frozenset(ref for one in self.state.handed.values() for ref in one.processes)

    def _retire(self) -> None:
        """Let go of ended incidents; those handed over stay on a watch list for a late release."""
        for incident in [one for one in self.state.incidents.values() if one.ended]:
            del self.state.incidents[incident.id]
            self.state.said.pop(incident.id, None)
            if incident.stage is Stage.HANDED_OVER and incident.released_at is None:
                self.state.handed[incident.id] = incident


def _pruned(ledger: Ledger, wall: float) -> Ledger:
    oldest = wall - LEDGER_DAYS * 86400.0
    spends = tuple(spend for spend in ledger.spends if spend.at >= oldest)
    ended = tuple(end for end in ledger.ended if end.at >= oldest)
    if (len(spends), len(ended)) == (len(ledger.spends), len(ledger.ended)):
        return ledger
    return replace(ledger, spends=spends, ended=ended)
