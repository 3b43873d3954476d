"""What `status` says of the rules as a whole: how many there are, and which enforce on some hosts only."""

from reclaimerd.daemon.rows import Json
from reclaimerd.judge.modes import MODES, effective_mode
from reclaimerd.judge.staging import is_staged
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule


def rules_part(policy: Policy) -> Json:
    """Return how many rules there are, how many may enforce here, and which are shared out over hosts."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    return {
        "rules": len(policy.rules),
        "enforcing": sum(effective_mode(policy, rule) is Mode.ENFORCE for rule in rules),
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
