"""Judge each act at the moment it is done, and each end as it becomes durable, by the simulated truth alone.

It shares no code with the judge: what it asks is what people were promised. Each breach is a sin, in words.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.identity import AttemptId, FileIdentity, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import ActorKind, Incident, Stage, Subject
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule
from reclaimerd.model.reset_run import ResetPhase
from reclaimerd.model.step import Step
from tests.machine.mirror import Mirror
from tests.machine.world import Proc, World

DAY = 86400.0
_TOLERANCE = 512 * 1024 * 1024
_STAGES = {
    signal.SIGTERM: Stage.SIGTERM,
    signal.SIGCONT: Stage.SIGTERM,
    signal.SIGKILL: Stage.SIGKILL,
}


@dataclass(slots=True)
class Stops:
    """What people were told stops the rules; `until` by the wall clock."""

    paused_until: float | None = None
    suspended_until: float | None = None
    hold: bool = False

    def expire(self, wall: float) -> None:
        """Forget what is over."""
        if self.paused_until is not None and wall >= self.paused_until:
            self.paused_until = None
        if self.suspended_until is not None and wall >= self.suspended_until:
            self.suspended_until = None


@dataclass(slots=True)
class Oracle:
    """The promises, over all lives of the daemon on one host."""

    world: World
    policy: Policy
    mirror: Mirror = field(default_factory=Mirror)
    stops: Stops = field(default_factory=Stops)
    sins: list[str] = field(default_factory=list)
    seen: dict[ProcessRef, tuple[int, FileIdentity, str]] = field(default_factory=dict)
    """What each process ran as in the look that was judged."""
    over: set[ProcessRef] = field(default_factory=set)
    """Whoever was over the cap in any look."""
    ordered: set[ProcessRef] = field(default_factory=set)
    sent: set[tuple[IncidentId, int, ProcessRef]] = field(default_factory=set)
    by_rule: dict[IncidentId, tuple[str, float]] = field(default_factory=dict)
    resets: list[tuple[GpuUuid, float]] = field(default_factory=list)
    drains: dict[str, float] = field(default_factory=dict)
    at_open: dict[IncidentId, dict[GpuUuid, tuple[int, int]]] = field(default_factory=dict)
    """What each GPU's dead had left, and how often it was reset, when the incident was opened."""
    started: float = 0.0
    started_wall: float = 0.0
    driver_is_closed: Callable[[], bool] = lambda: True
    acts: dict[str, int] = field(default_factory=dict)

    def _sin(self, text: str) -> None:
        self.sins.append(f"at {self.world.mono:.1f}: {text}")

    def _count(self, what: str) -> None:
        self.acts[what] = self.acts.get(what, 0) + 1

    # --- what becomes durable -------------------------------------------------------------------------

    def take_saved(self, incidents: Sequence[Incident], ledger: Ledger | None) -> None:
        """Take what the store has now."""
        self.mirror.save(incidents, ledger)

    def take_appended(self, entries: Sequence[AuditEntry]) -> None:
        """Take what the audit has now."""
        for entry in entries:
            self.mirror.append(entry)
            if entry.incident is None:
                continue
            if entry.kind is RecordKind.INCIDENT_OPENED:
                cards = self.world.cards.values()
                self.at_open[entry.incident] = {card.uuid: (card.ghost, card.resets) for card in cards}
            if entry.kind is RecordKind.INCIDENT_ENDED:
                self._count(f"end {entry.end}")
                if entry.end == Stage.RECLAIMED:
                    self._judge_reclaimed(entry.incident)

    def _judge_reclaimed(self, name: IncidentId) -> None:
        """RECLAIMED is said only of what is free in truth."""
        incident = self.mirror.incidents[name]
        before = self.at_open.get(name, {})
        for gpu in incident.target.gpus:
            card = self.world.cards[gpu]
            ghost, resets = before.get(gpu, (0, 0))
            if not card.present:
                self._sin(f"{name} is reclaimed, and {gpu} is off the bus")
            if incident.subject is Subject.GPU and card.resets <= resets:
                self._sin(f"{name} is reclaimed, and {gpu} was not reset")
            if incident.subject is Subject.PROCESS and card.ghost > ghost + _TOLERANCE:
                self._sin(f"{name} is reclaimed, and {card.ghost} bytes of {gpu} are not back")
        for ref in incident.processes if incident.subject is Subject.PROCESS else ():
            proc = self.world.proc(ref)
            if proc is not None and proc.may_hold:
                self._sin(f"{name} is reclaimed, and {ref} is {proc.phase}")
            if any(context.owner == ref and context.holders for context in self.world.contexts):
                self._sin(f"{name} is reclaimed, and the context of {ref} lives on")

    # --- signals --------------------------------------------------------------------------------------

    def judge_signal(self, step: Step | None, proc: Proc, number: signal.Signals) -> None:
        """Judge one signal at the moment it is sent."""
        self._count(number.name)
        if step is None:
            self._sin(f"{number.name} to {proc.ref} without a step")
            return
        what = f"{number.name} to {proc.ref} by {step.actor.kind} {step.actor.name}"
        if proc.ref not in step.targets:
            self._sin(f"{what}: it is no target of the step")
        if proc.is_shielded:
            self._sin(f"{what}: it is protected")
        if proc.may_hold and self.seen.get(proc.ref) != proc.looks:
            self._sin(f"{what}: it changed since it was judged")
        if not self._is_entitled(proc.ref):
            self._sin(f"{what}: nothing speaks against it")
        if step.dry_run:
            self._sin(f"{what}: in a dry run")
        stage = _STAGES[number]
        if self.mirror.open_intent(step.incident, stage, proc.ref) is None:
            self._sin(f"{what}: no intent of it is durable")
        key = (step.incident, int(number), proc.ref)
        if key in self.sent:
            self._sin(f"{what}: sent a second time")
        self.sent.add(key)
        if step.actor.kind is not ActorKind.OPERATOR:
            self._judge_leave(what, step.actor.name)
            self._judge_workloads(what, step.incident, proc)

    def _is_entitled(self, ref: ProcessRef) -> bool:
        """Tell whether it was over the cap, inherited from one that was, or is named in an order."""
        if ref in self.over or ref in self.ordered:
            return True
        accused = self.over | self.ordered
        return any(ref in one.holders and one.owner in accused for one in self.world.contexts)

    def _judge_leave(self, what: str, rule: str, *, goes_on: bool = False) -> None:
        """Judge what stops whatever rules do: pause, HOLD, breaker, mode, settling.

        What `goes_on` was permitted in an earlier life: it does not settle again.
        """
        self._judge_stops(what)
        rules: tuple[Rule | FaultRule, ...] = (*self.policy.rules, *self.policy.fault_rules)
        modes = {one.name: one.mode for one in rules}
        if modes.get(rule) is not Mode.ENFORCE or self.policy.mode is not Mode.ENFORCE:
            self._sin(f"{what}: its rule may not act")
        if self.stops.suspended_until is not None and rule == "over-cap":
            self._sin(f"{what}: its rule is suspended")
        if not goes_on and self.world.mono < self.started + self.policy.gates.settling_seconds:
            self._sin(f"{what}: it is settling still")

    def _judge_stops(self, what: str) -> None:
        if self.stops.paused_until is not None:
            self._sin(f"{what}: while paused")
        if self.stops.hold:
            self._sin(f"{what}: while a HOLD file stands")
        if self.mirror.ledger.breaker is not None:
            self._sin(f"{what}: while the breaker is open")

    def _judge_workloads(self, what: str, incident: IncidentId, proc: Proc) -> None:
        """Judge the budget of workloads, over all lives."""
        at = self.mirror.first_signal_at(incident)
        self.by_rule.setdefault(incident, (proc.unit, self.world.time() if at is None else at))
        budgets, wall = self.policy.budgets, self.world.time()
        for seconds, most in (
            (budgets.window_seconds, budgets.workloads_per_window),
            (DAY, budgets.workloads_per_day),
        ):
            units = {unit for unit, at in self.by_rule.values() if wall - at < seconds}
            if len(units) > most:
                self._sin(f"{what}: {len(units)} workloads within {seconds:.0f} s, more than {most}")

    # --- resets and drains ----------------------------------------------------------------------------

    def judge_reset(self, name: AttemptId, gpus: tuple[GpuUuid, ...]) -> None:
        """Judge a reset at the moment the tool takes its word."""
        self._count("reset")
        what = f"reset of {', '.join(gpus)} by {name}"
        run = next((one for one in self.mirror.ledger.resets if one.id == name), None)
        is_ours = run is not None and run.phase is ResetPhase.RESET and run.gpus == gpus
        if run is None or not is_ours or name not in self.mirror.intents:
            self._sin(f"{what}: no intent of it is durable")
            return
        for gpu in gpus:
            for proc in self.world.holders_of(gpu):
                self._sin(f"{what}: {proc.ref} ({proc.phase}) holds it")
            if not self.world.cards[gpu].present:
                self._sin(f"{what}: it is off the bus")
            if any(one.gpu == gpu for one in self.mirror.ledger.gpu_breakers):
                self._sin(f"{what}: its breaker is open")
        if not self.driver_is_closed():
            self._sin(f"{what}: our own client of the driver is open")
        self._judge_stops(what)
        if run.actor.kind is not ActorKind.OPERATOR:
            self._judge_leave(what, run.actor.name, goes_on=run.began_at < self.started_wall)
        if not run.force:
            self._judge_resets(what, gpus)
        self.resets += [(gpu, run.began_at) for gpu in gpus]

    def _judge_resets(self, what: str, gpus: tuple[GpuUuid, ...]) -> None:
        budgets, wall = self.policy.budgets, self.world.time()
        for gpu in gpus:
            window = budgets.reset_window_seconds
            done = sum(1 for uuid, at in self.resets if uuid == gpu and wall - at < window)
            if done >= budgets.resets_per_gpu:
                self._sin(f"{what}: {done} within {window:.0f} s already")
        today = {at for _, at in self.resets if wall - at < DAY}
        if len(today) >= budgets.resets_per_day:
            self._sin(f"{what}: {len(today)} on this host today already")

    def judge_drain(self, request: DrainRequest, standing: tuple[str, ...], *, is_fresh: bool) -> None:
        """Judge a drain request as it reaches whoever is asked."""
        self._count("drain")
        what = f"drain {request.id}"
        if len(standing) > 1:
            self._sin(f"{what}: {len(standing)} requests stand: {', '.join(standing)}")
        drain = self.mirror.ledger.drain
        if drain is None or drain.id != request.id or not any(ask.tries for ask in drain.asks):
            self._sin(f"{what}: no intent of it is durable")
            return
        if self.stops.paused_until is not None or self.stops.hold:
            self._sin(f"{what}: while paused, or held")
        joined = [self.mirror.incidents[one.incident] for one in drain.joined]
        by_nobody = all(one.actor.kind is not ActorKind.OPERATOR for one in joined)
        if self.policy.mode is not Mode.ENFORCE and by_nobody:
            self._sin(f"{what}: in the mode {self.policy.mode}")
        first = self.mirror.incidents[request.incident]
        if is_fresh and first.actor.kind is ActorKind.RULE and request.id not in self.drains:
            self.drains[request.id] = drain.began_at
            recent = [at for at in self.drains.values() if self.world.time() - at < DAY]
            if len(recent) > self.policy.budgets.drains_per_day:
                self._sin(f"{what}: {len(recent)} within a day")
