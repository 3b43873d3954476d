"""How far a rule may go, and which rule bears a name. Pure."""

from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule

MODES = (Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE)
"""From the most careful on."""


def effective_mode(policy: Policy, rule: Rule | FaultRule) -> Mode:
    """Return how far a rule may go: the global mode caps its own."""
    return min(policy.mode, rule.mode, key=MODES.index)


def goes_further(rule: Rule | FaultRule, other: Rule | FaultRule, policy: Policy) -> bool:
    """Tell whether one rule may go further than another: observe, dry run, enforce."""
    first, second = (MODES.index(effective_mode(policy, one)) for one in (rule, other))
    return first > second


def rule_named(policy: Policy, name: str) -> Rule | FaultRule | None:
    """Return the rule of this name, of whatever kind; names are unique across kinds."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return next((rule for rule in rules if rule.name == name), None)
