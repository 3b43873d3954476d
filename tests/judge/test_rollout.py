"""From stories to a report: fates by the gates on record and by budgets counted anew."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from reclaimerd.judge.rollout import MOST_STORIES, Period, rollout_of
from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Actor, ActorKind, OutcomeKind
from reclaimerd.model.policy import FaultRule, Mode, Policy, RuleAction
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.rollout import AdviceWord, Fate, LaterStage, RuleReport
from reclaimerd.model.step import ReasonKind
from tests.builders import BOOT, a_policy, a_rule
from tests.judge.rollout_builders import (
    PROOF,
    Written,
    an_entry,
    came_of_it,
    ended,
    opened,
    planned,
    refused,
    told,
    whom,
)

WEEK = Period(0.0, 7 * 86400.0)
DRY = a_policy(a_rule(mode=Mode.DRY_RUN))


def report_of(records: Iterable[Written], policy: Policy = DRY, period: Period = WEEK) -> RuleReport:
    """Return the report on the policy's first rule."""
    return rollout_of(told(records), policy, period)[0]


def test_a_dry_act_with_nothing_against_it_is_at_once() -> None:
    """With what its gates said of the later stages."""
    report = report_of(
        [
            opened(1.0),
            came_of_it(1.0),
            planned(1.0, "sigkill", "all"),
            planned(1.0, "drain", "no_drain_reason"),
            ended(1.0),
        ]
    )
    (story,) = report.stories
    assert (story.fate, story.stopped_by, story.in_grace) == (Fate.AT_ONCE, (), False)
    assert report.stages == (
        LaterStage("sigkill", 1, ()),
        LaterStage("drain", 0, (("no_drain_reason", 1),)),
    )
    assert (report.kind, report.mode, report.targets) == ("memory", Mode.DRY_RUN, 1)
    assert (report.users, report.workloads) == ((("1000", 1),), (("job-100.service", 1),))


def test_what_a_gate_refused_to_the_end_was_stopped_by_it() -> None:
    """Mode, budget and cool-down beside it say nothing; protection does."""
    report = report_of([opened(1.0), refused(1.0, ReasonKind.MODE, ReasonKind.BUDGET, ReasonKind.PROTECTED)])
    (story,) = report.stories
    assert (story.fate, story.stopped_by, story.text) == (Fate.STOPPED, ("protected",), "protected says no")
    assert report.stopped_by == (("protected", 1),)


def test_mode_budget_and_cool_down_alone_stop_nothing_on_record() -> None:
    """An observing rule's target, and one whose budget a dry run had spent on another."""
    report = report_of([opened(1.0), refused(1.0, ReasonKind.MODE, ReasonKind.BUDGET, ReasonKind.COOL_DOWN)])
    assert report.count(Fate.AT_ONCE) == 1


def test_what_held_it_up_moves_its_act() -> None:
    """A dry act after a HOLD is due when it came, and says what held it up."""
    records = [opened(1.0), refused(1.0, ReasonKind.HOLD), came_of_it(900.0), ended(900.0)]
    gone = [opened(901.0, incident="inc-2"), ended(1100.0, proof=PROOF, incident="inc-2")]
    report = report_of([*records, *gone])
    (story,) = report.stories
    assert story.held_up_by == ("hold",)
    assert report.held_up_by == (("hold", 1),)
    assert story.in_grace
    assert "ended by itself 200 s later" in story.text


def test_whoever_stops_breaking_the_rule_in_the_grace_is_told_apart() -> None:
    """It was let go, and is not gone."""
    records = [opened(0.0), came_of_it(0.0), ended(0.0), opened(1.0, incident="inc-2")]
    report = report_of([*records, ended(250.0, incident="inc-2")])
    assert "stopped breaking the rule 250 s later" in report.stories[0].text
    report = report_of([*records, ended(350.0, incident="inc-2")])
    assert report.in_grace == 0


def test_over_within_the_warning_s_time_is_over_before_it_was_due() -> None:
    """A rule with a notice acts after it."""
    policy = a_policy(a_rule(mode=Mode.DRY_RUN, warn_before_seconds=600.0))
    records = [opened(0.0), came_of_it(0.0, action="warned"), ended(300.0, proof=PROOF)]
    assert report_of(records, policy).count(Fate.ENDED_FIRST) == 1
    later = [*records[:2], ended(700.0, proof=PROOF)]
    assert report_of(later, policy).count(Fate.AT_ONCE) == 1


def test_a_rule_that_only_warns_has_done_all_by_its_warning() -> None:
    """What refused the warning before does not stop it any more."""
    policy = a_policy(a_rule(mode=Mode.DRY_RUN, action=RuleAction.WARN))
    warned = [opened(0.0), refused(0.0, ReasonKind.HOLD), came_of_it(5.0, action="warned")]
    assert report_of(warned, policy).count(Fate.AT_ONCE) == 1
    assert report_of(warned[:2], policy).count(Fate.STOPPED) == 1


def test_budgets_let_some_wait_and_stop_others() -> None:
    """Three at once by the shipped budget: the second waits half an hour, the third is over before."""
    records = [opened(float(pid), whom(pid)) for pid in (1, 2, 3)]
    records.append(ended(100.0, proof=PROOF, target=whom(3)))
    report = report_of(records)
    assert [story.fate for story in report.stories] == [Fate.AT_ONCE, Fate.LATER, Fate.STOPPED]
    assert report.stopped_by == (("budget", 1),)
    assert report.longest_wait_seconds == pytest.approx(1799.0)


def test_what_was_really_done_is_told_as_done() -> None:
    """By its own instant, whatever the budget in force says of it."""
    report = report_of(
        [opened(0.0), came_of_it(0.0, OutcomeKind.SENT), ended(9.0, "reclaimed", PROOF)], a_policy()
    )
    assert (report.count(Fate.ACTED), report.advice.word) == (1, AdviceWord.ENFORCES)


def test_several_due_in_one_pass_would_trip_the_breaker() -> None:
    """What one pass opened has one instant; members of one workload are one."""
    apart = [opened(1.0, whom(1)), opened(1.0, whom(2)), opened(2.0, whom(3))]
    assert report_of(apart).breaker_trips == 1
    together = [opened(1.0, whom(1, unit="a.service")), opened(1.0, whom(2, unit="a.service"))]
    assert report_of(together).breaker_trips == 0


def test_a_fault_rule_goes_by_what_its_gates_said() -> None:
    """Resets have budgets of their own: those refusals count as they stand, and nobody's uid is to blame."""
    gpu = replace(
        whom(),
        root=ProcessRef(BOOT, 0, 0),
        members=(),
        uid=0,
        workload=Workload(WorkloadKind.NONE, "no workload"),
    )
    rule = FaultRule("over-cap", mode=Mode.DRY_RUN, xid_classes=("reset",))
    policy = replace(a_policy(), rules=(), fault_rules=(rule,))
    stopped = report_of([opened(0.0, gpu), refused(0.0, ReasonKind.BUDGET, target=gpu)], policy)
    assert (stopped.count(Fate.STOPPED), stopped.stopped_by) == (1, (("budget", 1),))
    acted = report_of([opened(0.0, gpu), came_of_it(0.0, action="reset", target=gpu)], policy)
    assert (acted.count(Fate.AT_ONCE), acted.users, acted.workloads) == (1, (), ())


def test_who_has_no_boundary_has_no_workload() -> None:
    """The word for no workload is not a name that could be exempt."""
    loose = replace(whom(), workload=Workload(WorkloadKind.NONE, "no workload"))
    assert report_of([opened(0.0, loose)]).workloads == ()


def test_a_rule_that_is_gone_from_the_policy_comes_last() -> None:
    """Its targets are counted, and nothing is advised but that."""
    other = Actor(ActorKind.RULE, "old")
    records = [
        (1.0, an_entry(RecordKind.INCIDENT_OPENED, whom(1), "inc-1", actor=other)),
        (2.0, an_entry(RecordKind.INCIDENT_OPENED, whom(2), "inc-2", actor=other)),
        (3.0, replace(came_of_it(3.0, OutcomeKind.SENT, target=whom(2), incident="inc-2")[1], actor=other)),
    ]
    first, last = rollout_of(told(records), DRY, WEEK)
    assert (first.rule, first.advice.word) == ("over-cap", AdviceWord.NEVER_FIRED)
    assert (last.rule, last.advice.word, last.targets) == ("old", AdviceWord.NOT_IN_POLICY, 2)
    assert last.count(Fate.ACTED) == 1


def test_one_rule_alone_may_be_asked_for() -> None:
    """Others of the policy are not in the report."""
    policy = a_policy(a_rule("one"), a_rule("two"))
    assert [report.rule for report in rollout_of(told([], "two"), policy, WEEK)] == ["two"]


def test_the_counted_looks_stand_beside_the_targets() -> None:
    """The tally of a rule is its own."""
    counted = RuleTally("over-cap", looks=10, undetermined=1)
    tally = Tally(0.0, 5, "digest", (counted,))
    assert report_of([(1.0, AuditEntry(RecordKind.TALLY, tally=tally))]).tally == counted


def test_a_time_of_no_length_has_no_rate() -> None:
    """Nothing is divided by it."""
    assert report_of([opened(0.0)], period=Period(5.0, 5.0)).per_day == 0.0
    assert Period(5.0, 1.0).days == 0.0


def test_stories_are_kept_up_to_a_bound_and_all_counted() -> None:
    """The oldest are kept."""
    report = report_of([opened(float(pid), whom(pid)) for pid in range(1, MOST_STORIES + 50)])
    assert (len(report.stories), report.targets) == (MOST_STORIES, MOST_STORIES + 49)
    assert report.stories[0].pid == 1
