"""What is due and when: the patience of every stage, and who is never signalled again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.judge.steps import (
    MOST_CLOCK_RESTARTS,
    OutOfSteps,
    Wait,
    due_step,
    later_stages,
    stage_expiry,
    step_of,
    unlisted_stages,
    was_killed,
    was_signalled,
    with_heirs,
    with_intent,
    with_look,
    with_outcome,
    with_passed_over,
)
from reclaimerd.model.identity import AttemptId, ProcessRef
from reclaimerd.model.incident import (
    Attempt,
    Incident,
    Outcome,
    OutcomeKind,
    Release,
    Stage,
    TargetOutcome,
)
from reclaimerd.model.policy import DEFAULT_STAGES, ListedStage
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Step
from tests.builders import (
    GIB,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_plan,
    a_process,
    a_ref,
    a_row,
    a_snapshot,
    a_target,
    a_task,
    an_incident,
)

_MINE = a_process(100)
_ME = _MINE.ref
_ALL = tuple(ListedStage)
_SIGNALS = (Stage.SIGTERM, Stage.SIGKILL)
_OPEN = (Stage.PENDING, Stage.WARNED, Stage.SUSPENDED, *_SIGNALS, Stage.RESET, Stage.DRAIN)


def _sent(
    stage: Stage, *refs: ProcessRef, kind: OutcomeKind | None = OutcomeKind.SENT, number: int = 1
) -> Attempt:
    """Return an attempt with this outcome for each of its targets (None: no outcome yet)."""
    outcome = None if kind is None else Outcome(kind, "", tuple(TargetOutcome(ref, kind) for ref in refs))
    return Attempt(AttemptId(f"att-{number}"), stage, refs, WALL, outcome)


def _at(stage: Stage, **overrides: object) -> Incident:
    """Return an incident that entered `stage` at MONO, its one process addressed at that stage."""
    attempts = (_sent(stage, _ME),) if stage in _SIGNALS else ()
    fields: dict[str, object] = {"stage": stage, "attempts": attempts, **overrides}
    return an_incident(a_target(_MINE), **fields)


def _look(after: float = 0.0, *, gone: bool = False) -> Snapshot:
    """Return a look `after` seconds later, the target alive or gone with its memory still used."""
    if gone:
        return a_snapshot(gpus=(a_gpu(used=8 * GIB),), at=MONO + after, exited=frozenset({_ME}))
    return a_busy_snapshot(_MINE, at=MONO + after)


def _stage_due(due: object) -> Stage | None:
    return due.stage if isinstance(due, Step) else None


# --- what is due -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [Stage.PENDING, Stage.WARNED, Stage.SUSPENDED])
def test_the_first_listed_stage_is_due_at_once(stage: Stage) -> None:
    """Before any signal there is no patience: the gates alone decide."""
    due = due_step(_at(stage), _look())
    assert _stage_due(due) is Stage.SIGTERM
    assert isinstance(due, Step)
    assert due.targets == (_ME,)


def test_a_step_carries_what_the_incident_says() -> None:
    """Actor, reason, target, dry run and force go along unchanged."""
    incident = an_incident(actor=OPERATOR, plan=a_plan(dry_run=True, force=True))
    step = step_of(incident, Stage.SIGKILL, (_ME,))
    assert (step.incident, step.actor, step.target) == (incident.id, OPERATOR, incident.target)
    assert (step.reason, step.dry_run, step.force) == (incident.reason, True, True)
    assert (step.stage, step.targets) == (Stage.SIGKILL, (_ME,))


def test_sigterm_has_its_patience_and_sigkill_follows() -> None:
    """One instant before the deadline nothing is due, at the deadline SIGKILL is."""
    incident = _at(Stage.SIGTERM)
    assert due_step(incident, _look(29.9)) == Wait(MONO + 30)
    assert _stage_due(due_step(incident, _look(30))) is Stage.SIGKILL


def test_sigkill_has_its_patience_and_a_drain_follows() -> None:
    """A target that is not leaving waits for no exit grace."""
    incident = _at(Stage.SIGKILL, release=Release(1, 8 * GIB, MONO + 59))
    assert due_step(incident, _look(59.9)) == Wait(MONO + 60)
    assert _stage_due(due_step(incident, _look(60))) is Stage.DRAIN


def test_a_stage_that_is_not_listed_is_skipped() -> None:
    """Without SIGTERM in the plan SIGKILL comes first, and RESET only where it is listed."""
    incident = _at(Stage.PENDING, plan=a_plan(stages=(ListedStage.SIGKILL,)))
    assert _stage_due(due_step(incident, _look())) is Stage.SIGKILL
    with_reset = _at(Stage.SIGKILL, plan=a_plan(stages=_ALL))
    assert _stage_due(due_step(with_reset, _look(60))) is Stage.RESET


def test_a_reset_waits_for_its_proof_and_a_drain_follows() -> None:
    """The memory must have been able to come back before the next step is due."""
    incident = _at(Stage.RESET)
    assert due_step(incident, _look(9.9)) == Wait(MONO + 10)
    assert _stage_due(due_step(incident, _look(10))) is Stage.DRAIN


def test_nothing_follows_a_drain() -> None:
    """The last stage has no patience: it was asked for, or nothing is left."""
    assert stage_expiry(_at(Stage.DRAIN), _look()) is None
    assert isinstance(due_step(_at(Stage.DRAIN), _look()), OutOfSteps)


def test_a_plan_without_stages_is_out_of_steps_at_once() -> None:
    """Nothing is done that the plan does not list."""
    assert isinstance(due_step(_at(Stage.PENDING, plan=a_plan(stages=())), _look()), OutOfSteps)


def test_a_stage_that_was_passed_over_is_not_tried_again() -> None:
    """The note that the record shows is what skips it."""
    incident = with_passed_over(_at(Stage.PENDING), Stage.SIGTERM, "it would be discarded")
    assert incident.passed_over == ("sigterm: it would be discarded",)
    assert _stage_due(due_step(incident, _look())) is Stage.SIGKILL
    drained = with_passed_over(_at(Stage.SIGKILL), Stage.DRAIN, "no reason")
    assert isinstance(due_step(drained, _look(60)), OutOfSteps)


# --- a target that is gone -------------------------------------------------------------------------


@pytest.mark.parametrize("stage", _OPEN)
def test_a_gone_target_waits_for_its_proof_only(stage: Stage) -> None:
    """Whatever the stage's own patience: once all are gone the memory has `proof_seconds` to come back."""
    incident = _at(stage, gone_mono=MONO + 5)
    assert due_step(incident, _look(14.9, gone=True)) == Wait(MONO + 15)


@pytest.mark.parametrize("stage", [Stage.PENDING, *_SIGNALS])
def test_a_gone_target_is_never_signalled_again(stage: Stage) -> None:
    """When its memory is not back, RESET or DRAIN follow; their step names nobody who is gone."""
    plan = a_plan(stages=_ALL)
    due = due_step(_at(stage, gone_mono=MONO, plan=plan), _look(10, gone=True))
    assert _stage_due(due) is Stage.RESET
    assert isinstance(due, Step)
    assert due.targets == ()
    assert due.target.members == (_ME,)


def test_only_the_living_are_named() -> None:
    """A member that is gone is not signalled, the other is."""
    two = a_process(101)
    incident = an_incident(a_target(_MINE, two))
    due = due_step(incident, a_busy_snapshot(two, exited=frozenset({_ME})))
    assert isinstance(due, Step)
    assert due.targets == (two.ref,)


# --- exit grace ------------------------------------------------------------------------------------


def _leaving_look(after: float, tasks: int = 1, used: int = 8 * GIB) -> Snapshot:
    leaving = a_process(100, tasks=tuple(a_task(100 + n, "D", PF_EXITING) for n in range(tasks)))
    return a_busy_snapshot(leaving, used=used, at=MONO + after)


def test_exit_grace_counts_from_the_last_release_not_from_the_signal() -> None:
    """An exit that lets go of something every while is healthy, however long it takes."""
    incident = _at(Stage.SIGKILL)
    for after, tasks in ((1, 8), (100, 7), (200, 6)):
        incident = with_look(incident, _leaving_look(after, tasks))
    assert incident.release == Release(6, 8 * GIB, MONO + 200)
    assert due_step(incident, _leaving_look(319, 6)) == Wait(MONO + 320)
    assert _stage_due(due_step(incident, _leaving_look(320, 6))) is Stage.DRAIN


def test_exit_grace_never_shortens_the_stages_own_patience() -> None:
    """The later of the two ends it."""
    incident = _at(Stage.SIGKILL, plan=a_plan(exit_grace_seconds=5.0), release=Release(1, 8 * GIB, MONO + 1))
    assert stage_expiry(incident, _leaving_look(2)) == MONO + 60


def test_memory_that_comes_back_is_a_release_too() -> None:
    """Less GPU memory with the same number of tasks moves the mark; CPU time does not."""
    incident = with_look(_at(Stage.SIGKILL), _leaving_look(1))
    assert with_look(incident, _leaving_look(50)).release == incident.release
    less = with_look(incident, _leaving_look(50, used=7 * GIB))
    assert less.release == Release(1, 7 * GIB, MONO + 50)


def test_a_look_that_failed_is_no_release() -> None:
    """A silent driver and an unreadable process leave the mark where it was."""
    incident = with_look(_at(Stage.SIGKILL), _leaving_look(1, 3))
    silent = replace(a_gpu(), processes=Unreadable("silent"))
    blind = a_snapshot(gpus=(silent,), at=MONO + 60, unreadable={100: "no answer"})
    assert with_look(incident, blind).release == incident.release


def test_no_mark_is_set_by_a_first_look_that_failed() -> None:
    """The first whole look sets it."""
    incident = _at(Stage.SIGKILL)
    assert with_look(incident, a_snapshot(gpus=())).release is None
    assert with_look(incident, _leaving_look(9)).release == Release(1, 8 * GIB, MONO + 9)


# --- looks -----------------------------------------------------------------------------------------


def test_the_first_look_at_a_gone_target_is_noted_once() -> None:
    """The proof's patience counts from when every member was first seen gone."""
    incident = with_look(_at(Stage.SIGKILL), _look(3, gone=True))
    assert incident.gone_mono == MONO + 3
    assert with_look(incident, _look(7, gone=True)) is incident


def test_a_target_that_has_a_living_process_again_is_not_gone() -> None:
    """An heir that joined lives."""
    incident = _at(Stage.SIGKILL, gone_mono=MONO)
    assert with_look(incident, _look(1)).gone_mono is None


# --- heirs -----------------------------------------------------------------------------------------


def test_an_heir_joins_is_signalled_and_restarts_the_clock() -> None:
    """It gets the same SIGTERM and the same patience as the dead one had."""
    incident = with_heirs(_at(Stage.SIGTERM, gone_mono=MONO + 20), (a_ref(300),), MONO + 25)
    assert incident.processes == (_ME, a_ref(300))
    assert (incident.stage_mono, incident.gone_mono, incident.joins) == (MONO + 25, None, 1)
    heir = a_process(300)
    snapshot = a_busy_snapshot(heir, at=MONO + 25, exited=frozenset({_ME}))
    due = due_step(incident, snapshot)
    assert isinstance(due, Step)
    assert (due.stage, due.targets) == (Stage.SIGTERM, (a_ref(300),))


def test_heirs_restart_the_clock_thrice_at_most() -> None:
    """A target that forks on and on gains no more time, and its exit grace starts no more either."""
    incident = _at(Stage.SIGTERM)
    for number in range(1, MOST_CLOCK_RESTARTS + 3):
        incident = replace(incident, release=Release(1, 1, MONO))
        incident = with_heirs(incident, (a_ref(300 + number),), MONO + number)
        restarted = number <= MOST_CLOCK_RESTARTS
        assert incident.stage_mono == MONO + min(number, MOST_CLOCK_RESTARTS)
        assert (incident.release is None) is restarted
    assert len(incident.survivors) == MOST_CLOCK_RESTARTS + 2


def test_an_heirs_progress_is_measured_from_its_own_first_look() -> None:
    """The dead parent's last mark (one task) would hide that an heir of eight tasks lets go."""
    incident = _at(Stage.SIGKILL, release=Release(1, 8 * GIB, MONO))
    incident = with_heirs(incident, (a_ref(300),), MONO + 1)
    for after, tasks in ((2, 8), (30, 7)):
        heir = a_process(300, tasks=tuple(a_task(300 + n, "D", PF_EXITING) for n in range(tasks)))
        incident = with_look(incident, a_busy_snapshot(heir, at=MONO + after, exited=frozenset({_ME})))
    assert incident.release is not None
    assert (incident.release.tasks, incident.release.at) == (7, MONO + 30)


# --- outcomes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [OutcomeKind.SENT, OutcomeKind.ALREADY_GONE, OutcomeKind.UNKNOWN])
@pytest.mark.parametrize("stage", _SIGNALS)
def test_a_signal_that_was_or_may_have_been_sent_moves_the_stage(stage: Stage, kind: OutcomeKind) -> None:
    """UNKNOWN counts as sent: it is never sent again."""
    attempt = _sent(stage, _ME, kind=None)
    incident = with_intent(_at(Stage.PENDING), attempt)
    assert incident.attempts == (attempt,)
    outcome = Outcome(kind, "", (TargetOutcome(_ME, kind),))
    after = with_outcome(incident, attempt, outcome, MONO + 2)
    assert (after.stage, after.stage_mono) == (stage, MONO + 2)
    assert after.attempts[0].outcome == outcome
    assert isinstance(due_step(after, _look(3)), Wait)


@pytest.mark.parametrize(
    "kind",
    sorted(set(OutcomeKind) - {OutcomeKind.SENT, OutcomeKind.ALREADY_GONE, OutcomeKind.UNKNOWN}),
)
def test_a_signal_that_was_not_sent_moves_nothing(kind: OutcomeKind) -> None:
    """The outcome is kept, and the stage and its clock stay."""
    attempt = _sent(Stage.SIGTERM, _ME, kind=None)
    incident = with_intent(_at(Stage.PENDING), attempt)
    after = with_outcome(incident, attempt, Outcome(kind), MONO + 2)
    assert (after.stage, after.stage_mono) == (Stage.PENDING, MONO)
    assert after.attempts[0].outcome == Outcome(kind)


def test_an_outcome_belongs_to_its_own_attempt() -> None:
    """The others keep theirs."""
    first, second = _sent(Stage.SIGTERM, _ME), _sent(Stage.SIGKILL, _ME, kind=None, number=2)
    incident = _at(Stage.SIGTERM, attempts=(first, second))
    after = with_outcome(incident, second, Outcome(OutcomeKind.SENT), MONO + 2)
    assert after.attempts[0] == first
    assert after.attempts[1].outcome == Outcome(OutcomeKind.SENT)


def test_a_signal_for_a_late_heir_does_not_restart_the_stage() -> None:
    """The stage's clock moved when the heir joined, not when it was signalled."""
    attempt = _sent(Stage.SIGTERM, a_ref(300), kind=None, number=2)
    incident = with_intent(_at(Stage.SIGTERM), attempt)
    after = with_outcome(incident, attempt, Outcome(OutcomeKind.SENT), MONO + 20)
    assert (after.stage, after.stage_mono) == (Stage.SIGTERM, MONO)


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        (Stage.RESET, OutcomeKind.RESET_DONE),
        (Stage.RESET, OutcomeKind.RESET_REFUSED),
        (Stage.RESET, OutcomeKind.RESET_ABANDONED),
        (Stage.RESET, OutcomeKind.FAILED),
        (Stage.DRAIN, OutcomeKind.ACCEPTED),
        (Stage.DRAIN, OutcomeKind.FAILED),
    ],
)
def test_a_reset_and_a_drain_are_tried_once_whatever_came_of_them(stage: Stage, kind: OutcomeKind) -> None:
    """The stage moves with every outcome: neither is repeated."""
    attempt = _sent(stage, _ME, kind=None, number=2)
    after = with_outcome(with_intent(_at(Stage.SIGKILL), attempt), attempt, Outcome(kind), MONO + 2)
    assert (after.stage, after.stage_mono) == (stage, MONO + 2)
    assert stage not in later_stages(after)


def test_an_outcome_that_the_ladder_does_not_know_here_raises() -> None:
    """SIGTERM after SIGKILL is a bug, and nothing changes."""
    incident = _at(Stage.SIGKILL)
    with pytest.raises(IllegalTransitionError):
        with_outcome(incident, _sent(Stage.SIGTERM, _ME, kind=None), Outcome(OutcomeKind.SENT), MONO)


# --- withheld, unknown, unsent ---------------------------------------------------------------------


def test_a_withheld_signal_is_tried_again_for_that_target_alone() -> None:
    """The last look withheld it from one of two."""
    two = a_process(101)
    outcome = Outcome(
        OutcomeKind.WITHHELD,
        "",
        (TargetOutcome(_ME, OutcomeKind.SENT), TargetOutcome(two.ref, OutcomeKind.WITHHELD)),
    )
    attempt = Attempt(AttemptId("att-1"), Stage.SIGTERM, (_ME, two.ref), WALL, outcome)
    incident = an_incident(a_target(_MINE, two), stage=Stage.SIGTERM, attempts=(attempt,))
    due = due_step(incident, a_busy_snapshot(_MINE, two, at=MONO + 1))
    assert isinstance(due, Step)
    assert (due.stage, due.targets) == (Stage.SIGTERM, (two.ref,))


def test_an_attempt_withheld_as_a_whole_is_tried_again() -> None:
    """An outcome that names no target speaks for all of them."""
    attempt = Attempt(AttemptId("att-2"), Stage.SIGKILL, (_ME,), WALL, Outcome(OutcomeKind.WITHHELD))
    earlier = _sent(Stage.SIGKILL, a_ref(99))
    incident = _at(Stage.SIGKILL, attempts=(earlier, attempt))
    assert _stage_due(due_step(incident, _look(1))) is Stage.SIGKILL


@pytest.mark.parametrize("stage", _SIGNALS)
@pytest.mark.parametrize("kind", [OutcomeKind.UNKNOWN, OutcomeKind.SENT, OutcomeKind.NOT_PERMITTED, None])
def test_an_unknown_signal_is_never_sent_again(stage: Stage, kind: OutcomeKind | None) -> None:
    """Also not while its outcome is missing: the stage's patience runs, and the next stage follows."""
    incident = _at(stage, attempts=(_sent(stage, _ME, kind=kind),))
    assert isinstance(due_step(incident, _look(1)), Wait)
    assert _stage_due(due_step(incident, _look(60))) is not stage


@pytest.mark.parametrize(
    ("kind", "signalled"),
    [
        (OutcomeKind.SENT, True),
        (OutcomeKind.UNKNOWN, True),
        (None, True),
        (OutcomeKind.WITHHELD, False),
        (OutcomeKind.ALREADY_GONE, False),
        (OutcomeKind.NOT_PERMITTED, False),
        (OutcomeKind.DRY_RUN, False),
    ],
)
def test_signalled_is_who_got_or_may_have_got_a_signal(kind: OutcomeKind | None, *, signalled: bool) -> None:
    """An end that we may have caused is never called "by itself"."""
    incident = _at(Stage.PENDING, attempts=(_sent(Stage.SIGTERM, _ME, kind=kind),))
    assert was_signalled(incident) is signalled
    assert not was_killed(incident)
    killed = _at(Stage.PENDING, attempts=(_sent(Stage.SIGKILL, _ME, kind=kind),))
    assert was_killed(killed) is signalled
    assert was_signalled(killed) is signalled


def test_one_target_that_got_it_is_enough() -> None:
    """Although the gravest outcome says that it was withheld."""
    targets = (TargetOutcome(_ME, OutcomeKind.SENT), TargetOutcome(a_ref(101), OutcomeKind.WITHHELD))
    attempt = Attempt(AttemptId("a"), Stage.SIGTERM, (_ME,), WALL, Outcome(OutcomeKind.WITHHELD, "", targets))
    assert was_signalled(_at(Stage.PENDING, attempts=(attempt,)))


def test_a_reset_or_a_drain_is_no_signal() -> None:
    """Whoever ends after them alone ended by itself."""
    attempts = (_sent(Stage.RESET, _ME, kind=OutcomeKind.UNKNOWN), _sent(Stage.DRAIN, _ME))
    assert not was_signalled(_at(Stage.DRAIN, attempts=attempts))


# --- the operator's timeout ------------------------------------------------------------------------


def test_the_time_that_an_operator_gave_ends_it_in_any_stage() -> None:
    """Also before the stage's own patience, and although a step would be due."""
    plan = a_plan(timeout_seconds=20.0)
    for stage in _OPEN:
        assert due_step(_at(stage, plan=plan), _look(20)) == OutOfSteps("the time that was given is up")
    assert due_step(_at(Stage.SIGTERM, plan=plan), _look(5)) == Wait(MONO + 20)
    longer = a_plan(timeout_seconds=90.0)
    assert due_step(_at(Stage.SIGTERM, plan=longer), _look(5)) == Wait(MONO + 30)


def test_without_a_further_stage_an_operators_incident_waits_for_its_timeout() -> None:
    """`kill` without --force sends SIGTERM and waits for the whole time."""
    plan = a_plan(stages=(ListedStage.SIGTERM,), timeout_seconds=90.0)
    assert due_step(_at(Stage.SIGTERM, plan=plan), _look(40)) == Wait(MONO + 90)
    gone = _at(Stage.SIGTERM, plan=plan, gone_mono=MONO + 5)
    assert isinstance(due_step(gone, _look(15, gone=True)), OutOfSteps)


# --- lists of stages -------------------------------------------------------------------------------


def test_later_and_unlisted_stages_follow_the_ladders_order() -> None:
    """However the plan lists them."""
    incident = _at(Stage.SIGTERM, plan=a_plan(stages=(ListedStage.DRAIN, ListedStage.SIGKILL)))
    assert later_stages(incident) == (Stage.SIGKILL, Stage.DRAIN)
    assert unlisted_stages(incident) == (ListedStage.SIGTERM, ListedStage.RESET)
    assert later_stages(_at(Stage.DRAIN, plan=a_plan(stages=_ALL))) == ()
    assert unlisted_stages(_at(Stage.PENDING, plan=a_plan(stages=_ALL))) == ()


# --- properties ------------------------------------------------------------------------------------


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[Incident, Snapshot]:
    """Draw any open incident of up to three processes, whatever was tried, and any later look."""
    members = tuple(a_process(100 + number) for number in range(draw(st.integers(1, 3))))
    refs = [member.ref for member in members]
    stages = tuple(draw(st.sets(st.sampled_from(_ALL))))
    attempts = tuple(
        _sent(stage, *draw(st.sets(st.sampled_from(refs), min_size=1)), kind=kind, number=number)
        for number, (stage, kind) in enumerate(
            draw(
                st.lists(
                    st.tuples(st.sampled_from(_SIGNALS), st.none() | st.sampled_from(OutcomeKind)),
                    max_size=4,
                )
            )
        )
    )
    exited = frozenset(draw(st.sets(st.sampled_from(refs))))
    stage = draw(st.sampled_from(_OPEN))
    after = draw(st.floats(0, 400))
    incident = an_incident(
        a_target(*members),
        stage=stage,
        stage_mono=MONO + draw(st.floats(0, after)),
        attempts=attempts,
        plan=a_plan(stages=stages, timeout_seconds=draw(st.none() | st.floats(1, 300))),
        gone_mono=draw(st.none() | st.floats(MONO, MONO + after)),
        passed_over=tuple(f"{passed}: no" for passed in draw(st.sets(st.sampled_from(_ALL)))),
        release=draw(st.none() | st.builds(Release, st.integers(0, 9), st.integers(0, 9), st.just(MONO))),
    )
    living = [member for member in members if member.ref not in exited]
    gpus = (a_gpu(processes=tuple(a_row(member.ref.pid) for member in living)),)
    return incident, a_snapshot(gpus=gpus, processes=living, exited=exited, at=MONO + after)


@given(_worlds())
def test_a_step_names_only_listed_stages_and_only_the_living(world: tuple[Incident, Snapshot]) -> None:
    """Never a stage outside the plan nor one below the present, never a process that is gone."""
    incident, snapshot = world
    due = due_step(incident, snapshot)
    if not isinstance(due, Step):
        return
    assert ListedStage(due.stage.value) in incident.plan.stages
    assert list(Stage).index(due.stage) >= list(Stage).index(incident.stage)
    assert not set(due.targets) & snapshot.exited
    assert set(due.targets) <= set(incident.processes)
    if due.stage in _SIGNALS:
        assert due.targets


@given(_worlds())
def test_sigkill_is_never_due_before_sigterm_had_its_time(world: tuple[Incident, Snapshot]) -> None:
    """Where SIGTERM is listed and was not passed over, SIGKILL waits for its patience."""
    incident, snapshot = world
    due = due_step(incident, snapshot)
    listed = ListedStage.SIGTERM in incident.plan.stages
    passed = any(note.startswith("sigterm:") for note in incident.passed_over)
    if not isinstance(due, Step) or due.stage is not Stage.SIGKILL or incident.stage is Stage.SIGKILL:
        return
    if listed and not passed:
        assert incident.stage is Stage.SIGTERM
    if incident.stage is Stage.SIGTERM:
        assert snapshot.at >= incident.stage_mono + incident.plan.sigterm_seconds


@given(_worlds())
def test_a_signal_that_may_have_been_sent_is_not_sent_twice(world: tuple[Incident, Snapshot]) -> None:
    """At the stage in force, whoever has an attempt that was not withheld is left alone."""
    incident, snapshot = world
    due = due_step(incident, snapshot)
    if not isinstance(due, Step) or due.stage is not incident.stage:
        return
    for attempt in incident.attempts:
        withheld = attempt.outcome is not None and attempt.outcome.kind is OutcomeKind.WITHHELD
        if attempt.stage is due.stage and not withheld:
            assert not set(attempt.targets) & set(due.targets)


def test_the_shipped_stages_are_the_documented_ones() -> None:
    """RESET is opt-in."""
    assert DEFAULT_STAGES == (ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.DRAIN)
