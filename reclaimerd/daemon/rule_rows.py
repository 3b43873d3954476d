"""What `status` says of the rules as a whole: how many there are, and which enforce on some hosts only."""

from reclaimerd.daemon.rows import Json
from reclaimerd.judge.modes import MODES
from reclaimerd.judge.staging import is_staged
from reclaimerd.model.policy import FaultRule, Policy, Rule


def rules_part(policy: Policy) -> Json:
    """Return the number of rules, and which of them the fleet shares out over its hosts."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return {
        "rules": len(policy.rules),
        "staged": [
            {
                "rule": rule.name,
                "percent": rule.enforce_on_percent,
                "enforces_here": rule.name in policy.enforces_here,
                "mode": min(policy.mode, rule.mode, key=MODES.index).value,
            }
            for rule in rules
            if is_staged(rule)
        ],
    }
