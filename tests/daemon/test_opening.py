"""How an incident begins: ids, targets with what they held, and plans."""

from dataclasses import replace

from reclaimerd.daemon.opening import (
    Moment,
    Order,
    new_attempt_id,
    new_incident_id,
    operator_incident,
    operator_plan,
    rule_incident,
    target_of,
)
from reclaimerd.model.incident import ActorKind
from reclaimerd.model.policy import LadderSettings, ListedStage, Mode, Scope
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.verdict import RuleReason, Ruling, Verdict
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_target,
    an_incident,
)

NOW = Moment(MONO, WALL)


def test_incident_ids_sort_by_time_and_fit_a_file_name() -> None:
    """Later is greater; letters, digits and dashes only; attempts count within the incident."""
    early, late = new_incident_id(WALL, lambda: "ffffff"), new_incident_id(WALL + 1, lambda: "000000")
    assert early < late
    assert early.replace("-", "").isalnum()
    assert new_incident_id(WALL) != new_incident_id(WALL)
    assert new_attempt_id(an_incident()) == "inc-1.1"


def test_a_target_names_what_its_members_held_on_each_gpu() -> None:
    """Two members on two GPUs: sums by GPU; an unreadable figure is named, never a zero that counts."""
    one, two = a_process(100), a_process(101, start=2)
    snapshot = a_snapshot(
        gpus=[a_gpu(GPU_A), a_gpu(GPU_B)],
        processes=[one, two],
        holders=[
            a_holder(one, used=2 * GIB),
            a_holder(two, used=3 * GIB),
            a_holder(two, GPU_B, used_bytes=Unreadable("no permission")),
            a_holder(999, used=50 * GIB),
        ],
    )
    target = target_of(one, Scope.TREE, (two.ref, one.ref), snapshot)
    assert target.held_bytes == ((GPU_A, 5 * GIB), (GPU_B, 0))
    assert target.unmeasured == (GPU_B,)
    assert target.gpus == (GPU_A, GPU_B)


def test_a_long_command_is_cut_and_a_missing_one_is_the_comm_in_brackets() -> None:
    """Names and command lines are data of bounded length."""
    long = a_process(cmdline=replace(a_process().cmdline, value=("x" * 5000,)))  # type: ignore[arg-type]
    assert len(target_of(long, Scope.PROCESS, (a_ref(),), a_busy_snapshot(long)).command) == 512
    none = a_process(cmdline=Unreadable("gone"), comm="odd name)")
    assert target_of(none, Scope.PROCESS, (a_ref(),), a_busy_snapshot(none)).command == "[odd name)]"


def test_a_rule_s_plan_takes_the_rule_s_times_and_the_ladder_s_for_the_rest() -> None:
    """`grace` of the rule, SIGKILL's patience of the ladder; the mode makes it a dry run."""
    rule = a_rule(sigterm_seconds=7.0, mode=Mode.DRY_RUN)
    verdict = Verdict(a_ref(), Ruling.RECLAIM, (RuleReason(rule.name, Ruling.RECLAIM, "8 GiB"),), rule.name)
    policy = a_policy(rule, ladder=LadderSettings(sigterm_seconds=300.0, sigkill_seconds=61.0))
    incident = rule_incident(verdict, rule, a_target(), policy, NOW)
    assert (incident.plan.sigterm_seconds, incident.plan.sigkill_seconds) == (7.0, 61.0)
    assert incident.plan.dry_run
    assert (incident.actor.kind, incident.actor.policy_digest) == (ActorKind.RULE, policy.digest)
    assert (incident.opened_mono, incident.stage_mono, incident.opened_at) == (MONO, MONO, WALL)
    assert incident.reason == "8 GiB"


def test_an_operator_s_times_default_to_the_policy_s_grace_and_a_minute_more() -> None:
    """Grace 30 s, timeout grace + 60 s; force lists SIGKILL; a grace of 0 is meant."""
    policy = a_policy()
    plan = operator_plan(Order(100, OPERATOR), policy)
    assert (plan.stages, plan.sigterm_seconds, plan.timeout_seconds) == ((ListedStage.SIGTERM,), 30.0, 90.0)
    forced = operator_plan(Order(100, OPERATOR, force=True, grace_seconds=0.0), policy)
    assert forced.stages == (ListedStage.SIGTERM, ListedStage.SIGKILL)
    assert (forced.sigterm_seconds, forced.timeout_seconds) == (0.0, 60.0)
    named = operator_plan(Order(100, OPERATOR, timeout_seconds=5.0), policy)
    assert named.timeout_seconds == 5.0
    assert operator_incident(Order(100, OPERATOR), a_target(), policy, NOW).reason == "an operator asked"
