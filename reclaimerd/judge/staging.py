"""On which hosts of a fleet a rule enforces that enforces on a share of them; pure.

A host's place goes by its machine id and the rule's name alone: it is the same at each start, another for
each rule, and a share that grows drops nobody. Whoever has no machine id is in no share.
"""

import hashlib
from dataclasses import replace

from reclaimerd.judge.modes import WHOLE_PERCENT
from reclaimerd.model.policy import FaultRule, Policy, Rule

_PLACE_BYTES = 8
_FLOAT_BITS = 53
"""As many as a float holds exactly: with all 64 the greatest places would be rounded up to 1."""


def place_of(machine_id: str, rule: str) -> float:
    """Return a host's place among all for one rule, from 0 on and below 1.

    It is the first 8 bytes of the SHA-256 of machine id and rule name, as a number of that many bits.
    """
    digest = hashlib.sha256(f"{machine_id}{rule}".encode()).digest()
    number = int.from_bytes(digest[:_PLACE_BYTES], "big")
    return (number >> (8 * _PLACE_BYTES - _FLOAT_BITS)) / (1 << _FLOAT_BITS)


def is_staged(rule: Rule | FaultRule) -> bool:
    """Tell whether a rule enforces on a share of the hosts only."""
    return rule.enforce_on_percent < WHOLE_PERCENT


def enforces_on(machine_id: str, rule: Rule | FaultRule) -> bool:
    """Tell whether this host is among those on which the rule enforces, as far as the modes let it."""
    if not is_staged(rule):
        return True
    return bool(machine_id) and place_of(machine_id, rule.name) < rule.enforce_on_percent / WHOLE_PERCENT


def staged(policy: Policy, machine_id: str) -> Policy:
    """Return the policy as this host must take it: with its staged rules that enforce here."""
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, *policy.fault_rules)
    here = frozenset(rule.name for rule in rules if is_staged(rule) and enforces_on(machine_id, rule))
    return replace(policy, enforces_here=here)
