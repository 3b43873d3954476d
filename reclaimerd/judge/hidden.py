"""Say which processes hold a GPU and are hidden from the process table: an alarm each, and nothing else.

Case C55. Such a process is never taken for a dead one, and no rule acts on it: who can hide a process is
root here, and a person must look. Pure.
"""

from reclaimerd.model.policy import Policy, RuleKind
from reclaimerd.model.snapshot import Snapshot


def hidden_alarms(snapshot: Snapshot, policy: Policy) -> tuple[str, ...]:
    """Return a sentence for each process and GPU, the same while it stands; none without a rule for it."""
    rules = [rule for rule in policy.rules if rule.kind is RuleKind.HIDDEN]
    if not rules:
        return ()
    return tuple(
        f"pid {one.pid} holds {one.gpu} and is hidden from the process table: {one.why}"
        for one in snapshot.hidden
    )
