"""What takes the leave for a reset back while it is under way: the policy, or our own dry run."""

from dataclasses import replace

import pytest

from reclaimerd.daemon.news import News
from reclaimerd.daemon.reset_gates import ResetGates
from reclaimerd.model.incident import Actor, ActorKind
from reclaimerd.model.policy import Mode, Policy
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.step import ReasonKind
from tests.daemon.reset_host import FakeHost
from tests.daemon.reset_rigs import MEND, a_reset_rig, fault_policy, two_gpus

BY_RULE = replace(FakeHost().run, actor=Actor(ActorKind.RULE, MEND.name))
BY_OPERATOR = FakeHost().run
SHADOW = replace(MEND, mode=Mode.DRY_RUN)
OTHER = replace(MEND, name="other")


@pytest.mark.parametrize(
    ("run", "policy", "dry_run", "kinds"),
    [
        (BY_RULE, fault_policy(), False, []),
        (BY_RULE, fault_policy(mode=Mode.OBSERVE), False, [ReasonKind.MODE]),
        (BY_RULE, fault_policy(SHADOW), False, [ReasonKind.MODE]),
        (BY_RULE, fault_policy(OTHER), False, [ReasonKind.WITHDRAWN]),
        (BY_RULE, fault_policy(), True, [ReasonKind.MODE]),
        (BY_OPERATOR, fault_policy(mode=Mode.OBSERVE), False, []),
        (BY_OPERATOR, fault_policy(), True, [ReasonKind.MODE]),
    ],
    ids=["as it was", "observe", "dry run", "rule gone", "daemon dry", "operator", "operator, daemon dry"],
)
def test_a_leave_lasts_as_long_as_what_gave_it(
    run: ResetRun, policy: Policy, *, dry_run: bool, kinds: list[ReasonKind]
) -> None:
    """A rule's by the policy in force now, at the last look too; a daemon in dry run resets for nobody."""
    rig = a_reset_rig(policy=policy, dry_run=dry_run)
    gates = ResetGates(lambda: rig.cycle, News(None, None))
    assert [reason.kind for reason in gates.withdrawn(run)] == kinds
    assert [reason.kind for reason in gates.last(two_gpus(), run)] == kinds
