"""What a warning, or the want of one, says against a step by rule.

A warning is bound by mode, pause, HOLD, settling, identity, record and protection, and spends no budget:
it is no act on anybody's work. The signal after it passes every gate anew, and these: nothing happens
to a process whose rule asks for a warning that was not delivered, and the rule must ask for the act now.
"""

from collections.abc import Iterator

from reclaimerd.judge.gate_context import GateContext
from reclaimerd.judge.steps import was_signalled
from reclaimerd.judge.warnings import warns, was_warned
from reclaimerd.model.incident import Incident, Stage
from reclaimerd.model.policy import Rule, RuleAction
from reclaimerd.model.step import Reason, ReasonKind, Step
from reclaimerd.model.verdict import Ruling

_ASKS_ANEW = frozenset({Stage.WARNED, Stage.SIGTERM, Stage.SIGKILL})
"""Until the first signal is sent, the rule must ask for each of these in the very look."""
_PLAN = "docs/warnings.md says what a rule that warns may do"
_CHANGED = "nothing more follows here; what the rule asks for since begins when this has ended"
_WAIT = "wait: it goes on when the rule asks for it again, and ends when the rule no longer holds"


def warning_reasons(step: Step, incident: Incident, rule: Rule, context: GateContext) -> Iterator[Reason]:
    """Yield why a rule's step may not be taken before, or in place of, a warning, or not in this look."""
    warning, only_warns = step.stage is Stage.WARNED, incident.plan.only_warns
    asks = rule.action is RuleAction.RECLAIM or (only_warns and rule.action is RuleAction.WARN)
    if not warning and only_warns:
        yield Reason(ReasonKind.MODE, f"rule {rule.name!r} only warns", _PLAN)
    elif not asks:
        text = f"rule {rule.name!r} has the action {rule.action} by now, and had another before"
        yield Reason(ReasonKind.WITHDRAWN, text, _CHANGED)
    elif not warning and warns(incident.plan) and not (was_warned(incident) or step.dry_run):
        yield Reason(ReasonKind.MODE, "its owner must be warned first, and was not", _PLAN)
    says = context.unsure.get(incident.id)
    if says is None or step.stage not in _ASKS_ANEW or was_signalled(incident):
        return
    kind = ReasonKind.UNDETERMINED if says.ruling is Ruling.UNDETERMINED else ReasonKind.WITHDRAWN
    yield Reason(kind, f"rule {rule.name!r} does not ask for it in this look: {says.text}", _WAIT)
