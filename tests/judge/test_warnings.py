"""When an owner is warned, what follows and what never does, and what the gates say to a warning."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.attempts import addressed
from reclaimerd.judge.endings import may_be_withdrawn
from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.explaining import next_step, planned_stages
from reclaimerd.judge.gates import admit
from reclaimerd.judge.steps import Due, OutOfSteps, Wait, due_step, step_of, unlisted_stages, with_outcome
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.trial import trial
from reclaimerd.judge.warnings import (
    MOST_TRIES,
    RETRY_SECONDS,
    only_warned,
    span,
    warning_of,
    warns,
    was_warned,
    what_follows,
)
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Plan, Stage
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import (
    BreakerSettings,
    GateSettings,
    ListedStage,
    Mode,
    Policy,
    RuleAction,
    UserProtection,
)
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from reclaimerd.model.verdict import RuleReason, Ruling
from tests.builders import (
    GPU_A,
    MONO,
    OPERATOR,
    OURS,
    WALL,
    a_busy_snapshot,
    a_context,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_target,
    an_incident,
)

BEFORE = a_plan(warn_seconds=600.0)
ONLY = a_plan(stages=(), warn_seconds=0.0, only_warns=True)
BUSY = a_busy_snapshot()


def warned(kind: OutcomeKind | None, number: int = 1) -> Attempt:
    """Return one try to warn the owner."""
    outcome = None if kind is None else Outcome(kind, f"try {number}")
    return Attempt(AttemptId(f"inc-1.{number}"), Stage.WARNED, (a_ref(),), WALL, outcome)


def tried(*kinds: OutcomeKind | None, plan: Plan = BEFORE, **overrides: Any) -> Incident:
    """Return an incident that is pending after these tries, the last one at MONO."""
    attempts = tuple(warned(kind, number) for number, kind in enumerate(kinds, 1))
    return an_incident(plan=plan, attempts=attempts, **overrides)


def delivered(plan: Plan = BEFORE, **overrides: Any) -> Incident:
    """Return an incident whose owner was warned at MONO."""
    return tried(OutcomeKind.DELIVERED, plan=plan, **{"stage": Stage.WARNED, **overrides})


def due(incident: Incident, after: float = 0.0, snapshot: Snapshot = BUSY) -> Due:
    """Return what is due so long after MONO."""
    return due_step(incident, replace(snapshot, at=MONO + after, taken_at=WALL + after))


def stage_of(what: Due) -> Stage | None:
    """Return the stage of a step, None for anything else."""
    return what.stage if isinstance(what, Step) else None


# The ladder


@pytest.mark.parametrize("plan", [BEFORE, ONLY, a_plan(warn_seconds=0.0)])
def test_the_warning_comes_first(plan: Plan) -> None:
    """Whatever the plan has, its first step is the warning, with its words in it."""
    step = due(an_incident(plan=plan))
    assert isinstance(step, Step)
    assert step.stage is Stage.WARNED
    assert step.warning == warning_of(an_incident(plan=plan))
    assert step.targets == (a_ref(),)


def test_without_a_warning_in_the_plan_there_is_none() -> None:
    """An ordinary plan begins with its signal, which says nothing to anybody."""
    step = due(an_incident())
    assert isinstance(step, Step)
    assert (step.stage, step.warning) == (Stage.SIGTERM, None)


def test_after_a_warning_nothing_follows_for_its_time() -> None:
    """600 s are waited for to the second, then comes SIGTERM."""
    assert due(delivered(), 599.9) == Wait(MONO + 600.0)
    assert stage_of(due(delivered(), 600.0)) is Stage.SIGTERM


@pytest.mark.parametrize("listed", [ListedStage.SIGKILL, ListedStage.RESET, ListedStage.DRAIN])
def test_after_a_warning_the_first_listed_stage_may_follow(listed: ListedStage) -> None:
    """A plan without SIGTERM goes on with what it has, and the ladder's table knows that road."""
    plan = replace(BEFORE, stages=(listed,))
    assert stage_of(due(delivered(plan), 600.0)) is Stage(listed.value)
    attempt = Attempt(AttemptId("inc-1.2"), Stage(listed.value), (a_ref(),), WALL)
    after = with_outcome(delivered(plan), attempt, Outcome(OutcomeKind.SENT), MONO + 600.0)
    assert after.stage is Stage(listed.value)


@pytest.mark.parametrize("after", [0.0, 1e6])
def test_a_plan_that_only_warns_waits_for_its_end(after: float) -> None:
    """Nothing follows, however long; it passes no stage over either."""
    assert due(delivered(ONLY), after) == Wait(None)
    assert unlisted_stages(delivered(ONLY)) == ()


def test_a_warning_that_reached_nobody_is_given_again_and_then_a_person_is_asked() -> None:
    """Three tries a minute apart; then it runs out of steps, and no signal is ever due."""
    no = OutcomeKind.NOT_DELIVERED
    assert due(tried(no), RETRY_SECONDS - 0.1) == Wait(MONO + RETRY_SECONDS)
    assert stage_of(due(tried(no), RETRY_SECONDS)) is Stage.WARNED
    assert stage_of(due(tried(no, no), RETRY_SECONDS)) is Stage.WARNED
    out = due(tried(no, no, no), 1e6)
    assert out == OutOfSteps("nobody could be warned in 3 tries, so nothing is done: try 3")
    assert MOST_TRIES == 3


def test_a_dry_run_in_vain_stays_where_it_is() -> None:
    """Nobody is handed a dry run: it waits for its rule."""
    no = OutcomeKind.NOT_DELIVERED
    assert due(tried(no, no, no, plan=replace(BEFORE, dry_run=True)), 1e6) == Wait(None)


def test_a_warning_of_which_nobody_knows_is_given_again() -> None:
    """Our death between intent and outcome: two warnings do no harm, an act without one would."""
    assert due(tried(OutcomeKind.UNKNOWN), 0.0) == Wait(MONO + RETRY_SECONDS)
    assert stage_of(due(tried(OutcomeKind.UNKNOWN), RETRY_SECONDS)) is Stage.WARNED


def test_while_a_warning_is_given_nothing_is_due() -> None:
    """Only its outcome brings more."""
    assert due(tried(None), 1e6) == Wait(None)


def test_whoever_ends_before_the_warning_is_followed_by_nothing() -> None:
    """Its patience for the proof, then out of steps: no reset and no drain without a warning."""
    gone = an_incident(plan=replace(BEFORE, stages=tuple(ListedStage)), gone_mono=MONO)
    empty = a_snapshot(exited=frozenset({a_ref()}))
    assert due(gone, 9.9, empty) == Wait(MONO + 10.0)
    out = due(gone, 10.0, empty)
    assert out == OutOfSteps("it ended before its owner could be warned, so nothing is done")


def test_whoever_ends_after_the_warning_is_waited_for_as_ever() -> None:
    """The proof has its time; then a plan that only warns has no step left."""
    empty = a_snapshot(exited=frozenset({a_ref()}))
    assert due(delivered(ONLY, gone_mono=MONO), 9.9, empty) == Wait(MONO + 10.0)
    assert isinstance(due(delivered(ONLY, gone_mono=MONO), 10.0, empty), OutOfSteps)


# Outcomes


def outcome_of(kind: OutcomeKind, **overrides: Any) -> Incident:
    """Return what an incident is after its first try came to this, 5 s after MONO."""
    incident = tried(None, **overrides)
    return with_outcome(incident, incident.attempts[0], Outcome(kind, "so it was"), MONO + 5.0)


def test_a_delivered_warning_moves_the_incident() -> None:
    """WARNED from now on; its verdict can still be withdrawn."""
    after = outcome_of(OutcomeKind.DELIVERED)
    assert (after.stage, after.stage_mono, after.plan.dry_run) == (Stage.WARNED, MONO + 5.0, False)
    assert was_warned(after)
    assert may_be_withdrawn(after)


@pytest.mark.parametrize(
    "kind",
    [OutcomeKind.NOT_DELIVERED, OutcomeKind.UNKNOWN, OutcomeKind.WITHHELD, OutcomeKind.FAILED],
)
def test_any_other_outcome_moves_nothing(kind: OutcomeKind) -> None:
    """Still PENDING, and the next try is counted from now."""
    after = outcome_of(kind)
    assert (after.stage, after.stage_mono) == (Stage.PENDING, MONO + 5.0)
    assert not was_warned(after)


def test_a_dry_warning_goes_on_as_a_dry_run_for_good() -> None:
    """Though its plan was real: nobody was warned, so nothing real may follow when the mode changes."""
    after = outcome_of(OutcomeKind.DRY_RUN)
    assert after.stage is Stage.WARNED
    assert after.plan.dry_run
    assert not was_warned(after)


@pytest.mark.parametrize("stage", [Stage.SIGTERM, Stage.STOOD_DOWN])
def test_an_outcome_that_comes_late_changes_no_stage(stage: Stage) -> None:
    """A person took it over, or it ended, while the owner was told."""
    after = outcome_of(OutcomeKind.DELIVERED, stage=stage)
    assert after.stage is stage
    assert after.attempts[0].outcome is not None


def test_a_warning_is_no_act() -> None:
    """Warned alone, in whatever number, is nothing done; one signal is."""
    assert only_warned(an_incident())
    assert only_warned(tried(OutcomeKind.NOT_DELIVERED, OutcomeKind.DELIVERED))
    signal = Attempt(AttemptId("inc-1.2"), Stage.SIGTERM, (a_ref(),), WALL)
    assert not only_warned(replace(delivered(), attempts=(warned(OutcomeKind.DELIVERED), signal)))
    assert addressed(delivered(), Stage.SIGTERM) == frozenset()


# Gates


def asked(stage: Stage, incident: Incident, **context: Any) -> list[ReasonKind]:
    """Return the kinds of reasons against a step, [] for leave."""
    answer = admit(step_of(incident, stage, incident.processes), incident, a_context(**context))
    return [reason.kind for reason in answer.reasons] if isinstance(answer, Refusal) else []


SPENT = Ledger(spends=tuple(Spend(SpendKind.WORKLOAD, f"w{n}", WALL, dry_run=False) for n in range(9)))
NOBODY = a_policy(breaker=BreakerSettings(workloads_per_pass=0, gpu_percent=0.0, gpus_at_least=1))


def test_a_warning_spends_no_budget_and_the_signal_after_it_does() -> None:
    """Spent budgets and a breaker that would trip stop the signal, not the warning."""
    for context in ({"ledger": SPENT}, {"policy": NOBODY}):
        assert asked(Stage.WARNED, an_incident(plan=BEFORE), **context) == []
        assert asked(Stage.SIGTERM, delivered(), **context) != []


def test_an_open_breaker_stops_what_announces_an_act_and_no_mere_warning() -> None:
    """Nobody is told of an act that can't follow."""
    ledger = Ledger(breaker=Breaker("too many", WALL))
    assert asked(Stage.WARNED, an_incident(plan=BEFORE), ledger=ledger) == [ReasonKind.BREAKER]
    assert asked(Stage.WARNED, an_incident(plan=ONLY), ledger=ledger) == []


@pytest.mark.parametrize("plan", [BEFORE, ONLY])
@pytest.mark.parametrize(
    ("context", "kind"),
    [
        ({"policy": a_policy(mode=Mode.OBSERVE)}, ReasonKind.MODE),
        ({"ledger": Ledger(pause=Pause("root", "work", WALL))}, ReasonKind.PAUSED),
        ({"hold_file": "/etc/reclaimerd/HOLD"}, ReasonKind.HOLD),
        ({"started_mono": MONO}, ReasonKind.SETTLING),
        ({"record_fault": "disk full"}, ReasonKind.RECORD),
        ({"snapshot": a_busy_snapshot(a_process(100, start=9))}, ReasonKind.IDENTITY),
        (
            {"policy": a_policy(protections=(UserProtection(name="mine", uids=((1000, 1000),)),))},
            ReasonKind.PROTECTED,
        ),
    ],
)
def test_what_binds_a_warning(plan: Plan, context: dict[str, Any], kind: ReasonKind) -> None:
    """Mode, pause, HOLD, settling, record, identity, protection: nobody is warned against any of them."""
    assert asked(Stage.WARNED, an_incident(plan=plan)) == []
    assert asked(Stage.WARNED, an_incident(plan=plan), **context) == [kind]


def test_without_a_delivered_warning_no_signal_has_leave() -> None:
    """Whatever stage the incident is said to be at: the gate goes by the outcomes on record."""
    for incident in (
        an_incident(plan=BEFORE),
        tried(OutcomeKind.NOT_DELIVERED, stage=Stage.WARNED),
        tried(OutcomeKind.DRY_RUN, stage=Stage.WARNED),
        delivered(ONLY),
    ):
        assert ReasonKind.MODE in asked(Stage.SIGTERM, incident)
    assert asked(Stage.SIGTERM, delivered()) == []


def test_a_dry_run_goes_on_after_a_dry_warning() -> None:
    """It has leave as a dry run, and for nothing else."""
    incident = tried(OutcomeKind.DRY_RUN, plan=replace(BEFORE, dry_run=True), stage=Stage.WARNED)
    step = step_of(incident, Stage.SIGTERM, incident.processes)
    answer = admit(step, incident, a_context())
    assert isinstance(answer, Permit)
    assert answer.dry_run


@pytest.mark.parametrize("stage", [Stage.WARNED, Stage.RECLAIMED])
def test_a_warning_that_is_in_no_plan_is_refused(stage: Stage) -> None:
    """By rule or by an operator."""
    assert asked(stage, an_incident()) == [ReasonKind.MODE]
    assert asked(stage, an_incident(actor=OPERATOR)) == [ReasonKind.MODE]


@pytest.mark.parametrize(
    ("ruling", "kind"),
    [(Ruling.UNDETERMINED, ReasonKind.UNDETERMINED), (Ruling.WATCH, ReasonKind.WITHDRAWN)],
)
def test_the_rule_must_ask_for_it_in_the_very_look(ruling: Ruling, kind: ReasonKind) -> None:
    """Ten minutes after the warning: a rule that can't tell, or only watches by now, sends nothing."""
    says = {"unsure": {an_incident().id: RuleReason("over-cap", ruling, "who knows")}}
    assert asked(Stage.SIGTERM, delivered(), **says) == [kind]
    assert asked(Stage.WARNED, an_incident(plan=BEFORE), **says) == [kind]
    assert asked(Stage.SIGTERM, an_incident(), **says) == [kind]
    others = {"unsure": {"inc-2": RuleReason("over-cap", ruling, "who knows")}}
    assert asked(Stage.SIGTERM, delivered(), **others) == []
    sent = Attempt(AttemptId("inc-1.2"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
    signalled = replace(delivered(), stage=Stage.SIGTERM, attempts=(warned(OutcomeKind.DELIVERED), sent))
    assert asked(Stage.SIGKILL, signalled, **says) == []


def test_a_rule_that_asks_for_less_by_now_lets_nothing_follow() -> None:
    """A new policy makes it warn or observe: no SIGKILL follows a SIGTERM, and no act is announced."""
    sent = Attempt(AttemptId("inc-1.2"), Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))
    signalled = replace(delivered(), stage=Stage.SIGTERM, attempts=(warned(OutcomeKind.DELIVERED), sent))
    plain = an_incident(stage=Stage.SIGTERM, attempts=(sent,))
    for action in (RuleAction.WARN, RuleAction.OBSERVE):
        now = {"policy": a_policy(a_rule(action=action))}
        for incident in (signalled, plain):
            assert asked(Stage.SIGKILL, incident) == []
            assert asked(Stage.SIGKILL, incident, **now) == [ReasonKind.WITHDRAWN]
        assert asked(Stage.WARNED, an_incident(plan=BEFORE), **now) == [ReasonKind.WITHDRAWN]
        mere = [] if action is RuleAction.WARN else [ReasonKind.WITHDRAWN]
        assert asked(Stage.WARNED, an_incident(plan=ONLY), **now) == mere


# Words


ABOUT = 'of this host, and its administrators\' rule "over-cap" is about that.'
KILLED = "30 s later it will be ended (SIGKILL) if it still runs."


def test_what_an_owner_is_told_before_an_act() -> None:
    """Who, which GPU, which rule, when what follows, and whom to ask."""
    said = warning_of(an_incident(plan=BEFORE))
    assert said.seconds == 600.0
    assert said.lines == (
        f"Your process 100 holds {GPU_A} {ABOUT}",
        f"It will be asked to end (SIGTERM) in 10 min at the earliest, and {KILLED}",
        "To lose nothing: save your work, then end the process or let it give the GPU back.",
        "If it must go on, ask the administrators of this host, and name inc-1.",
    )


def test_what_an_owner_is_told_where_nothing_follows() -> None:
    """The same, without a threat."""
    said = warning_of(an_incident(a_target(gpus=()), plan=ONLY))
    assert said.seconds is None
    assert said.lines == (
        f"Your process 100 holds a GPU {ABOUT}",
        "This is a warning only: the rule does nothing to your process.",
        "If it must go on, ask the administrators of this host, and name inc-1.",
    )


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ((ListedStage.SIGTERM,), "It will be asked to end (SIGTERM) in 10 min at the earliest."),
        ((ListedStage.SIGKILL,), "It will be ended (SIGKILL) in 10 min at the earliest."),
        (
            (ListedStage.RESET,),
            "The GPU may be reset, or this host be taken out of service, in 10 min at the earliest.",
        ),
    ],
)
def test_each_plan_has_its_own_threat(stages: tuple[ListedStage, ...], text: str) -> None:
    """No more is announced than the plan may do."""
    assert warning_of(an_incident(plan=replace(BEFORE, stages=stages))).lines[1] == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (119.9, "119 s"), (120.0, "2 min"), (7199.0, "119 min"), (9000.0, "2 h")],
)
def test_a_span_is_never_longer_than_it_is(seconds: float, text: str) -> None:
    """Rounded down, in words."""
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("incident", "text"),
    [
        (an_incident(), ""),
        (an_incident(plan=BEFORE, actor=OPERATOR), ""),
        (
            an_incident(plan=BEFORE),
            "its owner is to be warned first, and without a delivered warning nothing is done",
        ),
        (delivered(), "its owner was warned; sigterm follows in 9 min at the earliest"),
        (
            delivered(replace(BEFORE, stages=())),
            "its owner was warned; nothing follows in 9 min at the earliest",
        ),
        (delivered(ONLY), "its owner was warned; nothing follows"),
        (
            delivered(replace(ONLY, dry_run=True)),
            "dry run: its owner would have been warned; nothing follows",
        ),
        (delivered(stage=Stage.SIGTERM), ""),
        (delivered(stage=Stage.STOOD_DOWN), ""),
    ],
)
def test_what_follows_is_said(incident: Incident, text: str) -> None:
    """For people who read status: what comes after the warning, and when."""
    assert what_follows(incident, MONO + 30.0) == text


def test_explaining_names_the_warning_next() -> None:
    """Before it, after it, and where nothing follows."""
    assert next_step(an_incident(plan=BEFORE), a_context()).stage is Stage.WARNED
    waiting = next_step(tried(OutcomeKind.NOT_DELIVERED), a_context())
    assert (waiting.stage, waiting.due_seconds) == (Stage.WARNED, RETRY_SECONDS)
    after = next_step(delivered(), a_context())
    assert (after.stage, after.due_seconds) == (Stage.SIGTERM, 600.0)
    assert next_step(delivered(ONLY), a_context()).text == "its owner was warned; nothing follows"


def test_a_plan_is_told_with_its_warning() -> None:
    """First the warning, then what follows and how long after it; a rule that only warns has one step."""
    policy = a_policy()
    rule = a_rule(warn_before_seconds=600.0, stages=(ListedStage.SIGTERM, ListedStage.SIGKILL))
    steps = planned_stages(rule, policy, rule.stages)
    assert [(one.stage, one.after_seconds) for one in steps] == [
        (Stage.WARNED, 0.0),
        (Stage.SIGTERM, 600.0),
        (Stage.SIGKILL, 300.0),
    ]
    only = a_rule(action=RuleAction.WARN)
    assert [one.stage for one in planned_stages(only, policy, only.stages)] == [Stage.WARNED]
    assert [one.stage for one in planned_stages(a_rule(), policy, rule.stages)] == [
        Stage.SIGTERM,
        Stage.SIGKILL,
    ]


def test_warnings_alone_trip_no_breaker_in_a_trial() -> None:
    """What is only told becomes due to nobody."""
    strict = replace(NOBODY, gates=GateSettings())

    def breaker(policy: Policy) -> str:
        context = JudgeContext(ours=OURS, patterns=lambda _pattern, _text: False, user_ids={})
        return trial(BUSY, policy, (), context).breaker

    assert breaker(replace(strict, rules=(a_rule(),))) != ""
    assert breaker(replace(strict, rules=(a_rule(action=RuleAction.WARN),))) == ""


def test_which_plans_warn() -> None:
    """A time of None warns nobody; one of zero does."""
    assert not warns(a_plan())
    assert warns(a_plan(warn_seconds=0.0))
    assert warns(ONLY)


@pytest.mark.parametrize("priority", [0, 9])
def test_of_two_rules_the_one_that_reclaims_decides(priority: int) -> None:
    """In the same mode a warning never stands in the way of a rule that acts, whatever its priority."""
    mild = a_rule("mild", action=RuleAction.WARN, priority=priority)
    policy = a_policy(mild, a_rule("stern"))
    context = JudgeContext(ours=OURS, patterns=lambda _pattern, _text: False, user_ids={})
    (verdict,) = evaluate(BUSY, policy, (), context).verdicts
    assert (verdict.ruling, verdict.rule) == (Ruling.RECLAIM, "stern")
