"""Ask the gates again for a reset that is under way: each time with what binds at that moment."""

from collections.abc import Callable
from dataclasses import dataclass

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.news import News
from reclaimerd.judge.evaluate import effective_mode, rule_named
from reclaimerd.judge.gates import again
from reclaimerd.judge.modes import suspension_of, suspension_text
from reclaimerd.judge.reset_gate import last_reasons
from reclaimerd.judge.reset_verdict import verified
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import ActorKind
from reclaimerd.model.policy import Mode
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind


@dataclass(frozen=True, slots=True)
class ResetGates:
    """The gates over the cycle's own ledger, policy, pause and HOLD as they are now."""

    cycle: Callable[[], Cycle]
    news: News

    def withdrawn(self, run: ResetRun) -> tuple[Reason, ...]:
        """Return what has taken the leave for it back since: our own dry run, or what its rule is by now."""
        cycle = self.cycle()
        if cycle.joints.dry_run:
            return (Reason(ReasonKind.MODE, "we run with --dry-run by now", "start without it"),)
        if run.actor.kind is ActorKind.OPERATOR:
            return ()
        rule = rule_named(cycle.policy, run.actor.name)
        if rule is None:
            text = f"the policy has no rule {run.actor.name!r} any more"
            return (Reason(ReasonKind.WITHDRAWN, text, "the incident stands down"),)
        if effective_mode(cycle.policy, rule) is Mode.ENFORCE:
            return ()
        stands = suspension_of(rule.name, cycle.state.ledger.suspended)
        if stands is not None:
            mend = f"reclaimctl rules resume {rule.name}"
            return (Reason(ReasonKind.PAUSED, suspension_text(stands), mend),)
        text = f"rule {rule.name!r} is {rule.mode} under the global mode {cycle.policy.mode} by now"
        return (Reason(ReasonKind.MODE, text, "set both modes to enforce if acts are wanted"),)

    def before(self, snapshot: Snapshot, run: ResetRun) -> tuple[Reason, ...]:
        """Return what speaks against it while the clients that are ours to stop still run."""
        context = self.cycle().context_of(snapshot)
        return again(run, self._targets(run), context, stopped=False)

    def whole(self, snapshot: Snapshot, run: ResetRun) -> tuple[Reason, ...]:
        """Return what speaks against it now that they are stopped: no unit is excused any more."""
        context = self.cycle().context_of(snapshot)
        return again(run, self._targets(run), context, stopped=True)

    def last(self, snapshot: Snapshot, run: ResetRun) -> tuple[Reason, ...]:
        """Return what the last look shows, without the driver; HOLD and a withdrawn leave stop it too."""
        return (*self.withdrawn(run), *last_reasons(run.gpus, self.cycle().context_of(snapshot)))

    def verified(self, run: ResetRun, snapshot: Snapshot) -> tuple[str, ...]:
        """Return what is not as it must be after the reset.

        A gap in the kernel's log since the tool ran hides Xids, also one that a pass has taken since.
        """
        texts = verified(run, snapshot, self.cycle().state.ledger)
        gap = self.news.gap_since(run.began_at if run.tool_at is None else run.tool_at)
        return (*texts, gap) if gap else texts

    def _targets(self, run: ResetRun) -> frozenset[ProcessRef]:
        incident = self.cycle().state.incidents.get(run.incident)
        return frozenset() if incident is None else frozenset(incident.processes)
