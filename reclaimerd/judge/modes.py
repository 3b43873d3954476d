"""How far a rule may go, and which rule bears a name. Pure."""

from dataclasses import replace

from reclaimerd.model.ledger import Suspension
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule

MODES = (Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE)
"""From the most careful on."""
WHOLE_PERCENT = 100.0


def effective_mode(policy: Policy, rule: Rule | FaultRule) -> Mode:
    """Return how far a rule may go here: the global mode caps its own, and so does its share of hosts."""
    mode = min(policy.mode, rule.mode, key=MODES.index)
    staged = rule.enforce_on_percent < WHOLE_PERCENT and rule.name not in policy.enforces_here
    return Mode.DRY_RUN if staged and mode is Mode.ENFORCE else mode


def goes_further(rule: Rule | FaultRule, other: Rule | FaultRule, policy: Policy) -> bool:
    """Tell whether one rule may go further than another: observe, dry run, enforce."""
    first, second = (MODES.index(effective_mode(policy, one)) for one in (rule, other))
    return first > second


def rule_named(policy: Policy, name: str) -> Rule | FaultRule | None:
    """Return the rule of this name, of whatever kind; names are unique across kinds."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return next((rule for rule in rules if rule.name == name), None)


def in_force(policy: Policy, suspended: tuple[Suspension, ...]) -> Policy:
    """Return the policy as it holds now: a rule that a person suspended only observes."""
    names = {one.rule for one in suspended}
    if not names:
        return policy
    return replace(
        policy,
        rules=tuple(replace(one, mode=Mode.OBSERVE) if one.name in names else one for one in policy.rules),
        fault_rules=tuple(
            replace(one, mode=Mode.OBSERVE) if one.name in names else one for one in policy.fault_rules
        ),
    )


def suspension_of(rule: str, suspended: tuple[Suspension, ...]) -> Suspension | None:
    """Return what a person said when they suspended this rule, None where nobody did."""
    return next((one for one in suspended if one.rule == rule), None)


def suspension_text(suspension: Suspension) -> str:
    """Return in words who suspended a rule, and why."""
    why = f": {suspension.reason}" if suspension.reason else ""
    return f"rule {suspension.rule!r} was suspended by {suspension.by}{why}"
