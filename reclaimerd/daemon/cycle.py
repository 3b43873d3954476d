"""One pass: look, judge, plan, ask the gates, write the intent, act, write the outcome.

The cycle joins eyes, mind, hands and memory; it holds no policy of its own, reads nothing but through
the sampler, and performs nothing that was not durable first. What can't be made durable is not done,
and the pass's changes are dropped; a full disk stops what rules want and not what operators want.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.admission import Admitted, Work, admit_all, trip_breaker
from reclaimerd.daemon.counting import pruned, with_ends
from reclaimerd.daemon.desk import Desk, Ticket
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.drafting import Seen, bring_up, open_new
from reclaimerd.daemon.drain_tending import tend
from reclaimerd.daemon.drains import is_drain
from reclaimerd.daemon.faults import upsets
from reclaimerd.daemon.following import unsure_of
from reclaimerd.daemon.joints import Joints
from reclaimerd.daemon.looking import followed, take_look
from reclaimerd.daemon.noting import note_alarms, note_late
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.performing import take_outcomes
from reclaimerd.daemon.plights import with_plights
from reclaimerd.daemon.resets import is_reset, open_gpus
from reclaimerd.daemon.standing import hand_back
from reclaimerd.daemon.state import PassReport, State
from reclaimerd.daemon.telling import tell_all
from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.judge.departures import advance_departures
from reclaimerd.judge.evaluate import alarms, evaluate
from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.hidden import hidden_alarms
from reclaimerd.judge.modes import in_force
from reclaimerd.judge.protections import protection_of
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.incident import ActorKind, Stage, newest_acted
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Protection


class Cycle:
    """The one pass, and the state it carries from one to the next."""

    __slots__ = ("_turn", "desk", "given", "joints", "looking", "started_mono", "state")

    def __init__(self, policy: Policy, joints: Joints, state: State) -> None:
        self.given = policy
        self.joints = joints
        self.state = state
        self.desk = Desk()
        self.started_mono = joints.clock()
        self.looking = False
        """A pass that still looks has planned nothing: it may be cut short."""
        self._turn = asyncio.Lock()

    @property
    def policy(self) -> Policy:
        """Return the policy as it holds now, with what a person suspended."""
        return in_force(self.given, self.state.ledger.suspended)

    @policy.setter
    def policy(self, given: Policy) -> None:
        self.given = given

    async def run_pass(self) -> PassReport:
        """Make one pass.

        Raises UnsuitableHostError when the driver can't be worked with at all, CorruptStoreError when
        the store can't be trusted any more.
        """
        began = self.joints.clock()
        if self.state.corrupt is not None:
            raise self.state.corrupt
        look = take_look(self.state, self.desk, self.policy)
        self.looking = True
        try:
            snapshot = await self.joints.sampler.sample(look)
        finally:
            self.looking = False
        snapshot = self._with_news(snapshot)
        async with self._turn:
            admitted, acts = await self._judge_and_act(snapshot, frozenset(look.pids))
        return PassReport(
            wake_at=admitted.wake_at,
            at_once=admitted.again_at_once or acts > 0 or bool(self.desk.waiting),
            acts=acts,
            seconds=self.joints.clock() - began,
        )

    def _with_news(self, snapshot: Snapshot) -> Snapshot:
        """Return the look with what the machine said since the last durable pass."""
        known = (*self.state.faults.addresses, *(gpu.pci_address for gpu in snapshot.gpus))
        news, events = self.joints.news.look(known)
        missed = self.joints.news.missed()
        if missed:
            self.state.faults = replace(self.state.faults, missed=missed)
        if upsets(self.joints.news.fresh(events)) or missed:
            self.joints.driver_changed()
            self.state.wants_full_scan = True
        self.state.departures = departures = advance_departures(self.state.departures, snapshot)
        return replace(snapshot, kernel_news=news, device_events=events, departures=departures)

    async def _judge_and_act(self, snapshot: Snapshot, looked: frozenset[int]) -> tuple[Admitted, int]:
        now = Moment(snapshot.at, snapshot.taken_at)
        snapshot, self.state.plight_memory = with_plights(
            snapshot, self.state.plight_memory, followed(self.state), self.joints.plight_settings(self.policy)
        )
        known = (self.state.sustained, self.joints.judge(), self.state.past)
        evaluation = evaluate(snapshot, self.policy, *known)
        self.state.snapshot, self.state.evaluation = snapshot, evaluation
        self.state.sustained, self.state.past = evaluation.sustained, evaluation.past
        draft = Draft(dict(self.state.incidents), self.state.ledger)
        draft.owe(self.state.owed)
        seen = Seen(snapshot, evaluation, self.policy, now)
        settled = bring_up(draft, seen, self.state, self.joints)
        told, self.state.faults = self.state.faults, settled.faults
        taken = self.desk.take(looked)
        fresh = open_new(draft, seen, taken, settled.faults.verdicts, (self.state, self.joints))
        context = self._context(draft, snapshot, now)
        warned = self.joints.warnings.finished()
        take_outcomes(draft, [work for work, _ in warned], [outcome for _, outcome in warned], context)
        trip_breaker(draft, fresh, context)
        said = dict(self.state.said)
        admitted = admit_all(draft, context, said, self.state.operator_fault)
        for at in (settled.paused_until, *(ticket.until for ticket in self.desk.under_way)):
            admitted.wake(at)
        late = note_late(draft, self.state.handed, snapshot, now)
        if not self.joints.foreground:  # one command is not the guard
            self.state.well_mono = tend(draft, snapshot, self.state, self.policy.drain, now)
        alarmed = note_alarms(
            draft, (*alarms(evaluation), *hidden_alarms(snapshot, self.policy)), self.state.alarmed
        )
        draft.put_ledger(pruned(draft.ledger, now.wall))
        work = await self._make_durable(draft, admitted.work, taken)
        if self.state.record_fault:  # what is not on record is told again
            self.state.faults = replace(settled.faults, away=told.away, missed=told.missed, gap=told.gap)
            admitted.again_at_once = False  # it would come to the same, again and again
        else:
            self.state.alarmed, self.state.said = alarmed, said
            self.state.driver_watch = settled.driver_watch
            self.joints.warnings.recorded(warned)
            self.joints.news.taken(snapshot.kernel_news, snapshot.device_events)
            for name in late:
                del self.state.handed[name]
        await self._act(work, context)
        self.joints.look_after_drain()
        self.state.wants_reset_look = self.state.wants_reset_look or admitted.wants_reset_look
        tell_all(self.desk, self.state.incidents, (snapshot, now, self.state.ledger), admitted.refused)
        self._retire()
        return admitted, len(work)

    async def write(self, change: Callable[[Ledger], Ledger] | None, records: tuple[AuditEntry, ...]) -> None:
        """Make a change of the ledger durable outside a pass: pause, resume, breaker.

        Raises RecordError when it could not; then nothing changed.
        """
        async with self._turn:
            draft = Draft(dict(self.state.incidents), self.state.ledger)
            if change is not None:
                draft.put_ledger(change(draft.ledger))
            draft.entries.extend(records)
            if all(one.actor is None for one in records):  # a person's change waits for no rule's debt
                draft.owe(self.state.owed)
            try:
                await self._commit(draft)
            except CorruptStoreError as error:
                self.state.corrupt = error
                raise

    async def hand_back(self, why: str, wall: float) -> None:
        """End what operators have open here, since nobody follows it any more. Raises RecordError."""
        async with self._turn:
            draft = Draft(dict(self.state.incidents), self.state.ledger)
            draft.owe(self.state.owed)
            hand_back(draft, why, Moment(self.joints.clock(), wall))
            await self._commit(draft)

    def _context(self, draft: Draft, snapshot: Snapshot, now: Moment) -> GateContext:
        return GateContext(
            policy=self.policy,
            snapshot=snapshot,
            ledger=draft.ledger,
            now=now.mono,
            wall=now.wall,
            started_mono=self.settled_from(),
            judge=self.joints.judge(),
            foreground=self.joints.foreground,
            hold_file=self.joints.hold_file(self.policy),
            record_fault=self.state.record_fault,
            host_namespace=self.joints.host_namespace,
            open_gpus=open_gpus(draft.incidents.values(), self.policy),
            unsure=unsure_of(draft.incidents.values(), self.state.evaluation),
            host=self.joints.host,
            drain_targets=self.joints.drain_targets(),
        )

    def settled_from(self) -> float:
        """Return from when the settling time counts: our start, or the driver's last change of hands."""
        changed = self.state.faults.changed_mono
        return self.started_mono if changed is None else max(self.started_mono, changed)

    def context(self) -> GateContext | None:
        """Return what the gates would look at now, from the last look; None before the first."""
        return None if self.state.snapshot is None else self.context_of(self.state.snapshot)

    def context_of(self, snapshot: Snapshot) -> GateContext:
        """Return what the gates would look at with this look, and all else as it is now."""
        draft = Draft(dict(self.state.incidents), self.state.ledger)
        return self._context(draft, snapshot, Moment(snapshot.at, snapshot.taken_at))

    def protection_of(self, reading: ProcessReading) -> Protection | None:
        """Return why nobody may touch this process, by the last look; None when anyone may."""
        files = {} if self.state.snapshot is None else self.state.snapshot.host_files
        return protection_of(reading, host_files=files, policy=self.policy, ours=self.joints.ours())

    async def _act(self, work: list[Work], context: GateContext) -> None:
        """Perform what is durable, and put on record what came of it."""
        if not work:
            return
        for item in [item for item in work if is_reset(item.permit)]:
            self.joints.begin_reset(item.attempt.id)
        work = [item for item in work if not (is_reset(item.permit) or is_drain(item.permit))]
        for item in [item for item in work if item.attempt.stage is Stage.WARNED]:
            self.joints.warnings.begin(item)
        work = [item for item in work if item.attempt.stage is not Stage.WARNED]
        outcomes = await self.joints.executor.execute_all([item.permit for item in work])
        after = Draft(dict(self.state.incidents), self.state.ledger)
        after.owe(self.state.owed)
        take_outcomes(after, work, outcomes, context)
        try:
            await self._commit(after)
        except RecordError as error:
            self._note_fault(error)
            # The signals were sent: what came of them is kept, written when it can be, never sent again.
            self._take(after)
            self.state.owed = after.unwritten()

    async def _make_durable(self, draft: Draft, work: list[Work], taken: list[Ticket]) -> list[Work]:
        """Write the intents first; return the work whose intent is durable.

        That is all of it, on a full disk the operators' alone, or none.
        """
        alone = draft.operators_alone(self.state.incidents, self.state.ledger)
        if self.state.record_fault:
            text = f"records are durable again; before: {self.state.record_fault}"
            draft.note(entries.of_host(RecordKind.NOTE, text))
        try:
            await self._commit(draft)
        except RecordError as error:
            self._note_fault(error)
        else:
            self.state.record_fault = self.state.operator_fault = ""
            return work
        if not self.state.operator_fault:
            try:
                await self._commit(alone)
            except RecordError as error:
                self.state.operator_fault = str(error)
            else:
                return [item for item in work if item.permit.step.actor.kind is ActorKind.OPERATOR]
        for ticket in (one for one in taken if one.exit_code is None):
            ticket.refuse(f"nothing can be put on record: {self.state.operator_fault}")
        return []

    def _note_fault(self, error: RecordError) -> None:
        """Keep why nothing can be recorded, and whether that binds operators too."""
        recorder = self.joints.recorder
        self.state.record_fault = recorder.fault() or str(error)
        self.state.operator_fault = recorder.fault_for_operators()

    async def _commit(self, draft: Draft) -> None:
        """Make a draft durable and only then take it as the truth; ends feed the cool-downs."""
        draft.put_ledger(with_ends(draft.ledger, draft.incidents, self.state.incidents))
        if not draft.is_empty:
            await self.joints.recorder.commit(draft.batch())
            self.state.owed = self.state.owed.less(draft)
        self._take(draft)

    def _take(self, draft: Draft) -> None:
        self.state.incidents = dict(draft.incidents)
        self.state.ledger = draft.ledger

    def _retire(self) -> None:
        """Let go of ended incidents; those handed over stay on a watch list for a late release."""
        for incident in [one for one in self.state.incidents.values() if one.ended]:
            if incident.id in self.state.owed.incidents:
                continue
            del self.state.incidents[incident.id]
            self.state.said.pop(incident.id, None)
            self.state.last_acted = newest_acted((incident, self.state.last_acted))
            self.joints.forget(incident.id)
            if incident.stage is Stage.HANDED_OVER and incident.released_at is None:
                self.state.handed[incident.id] = incident
