"""What `explain` says binds an operator's reset, what `again` asks in mid-reset, and what resets cost."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge import budgets
from reclaimerd.judge.gates import admit, again, explain, without_own
from reclaimerd.judge.reset_gate import reset_reasons
from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Incident, Stage
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import FaultRule, ListedStage, Mode
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_facts import Generation, NvLinks, ResetFacts
from reclaimerd.model.reset_run import GpuBreaker, ResetPast, ResetPhase, ResetResult
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from reclaimerd.model.step import Permit, ReasonKind, Refusal, Step
from tests.builders import (
    GPU_A,
    GPU_B,
    OPERATOR,
    RULE_ACTOR,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_snapshot,
    a_step,
    a_target,
    a_task,
    an_incident,
)
from tests.judge.reset_builders import (
    a_run,
    a_unit,
    asking,
    gpu_facts,
    kernel_facts,
    ready,
    reset_policy,
    with_facts,
    with_units,
)


def kinds(snapshot: Snapshot | None = None, *, force: bool = False, **overrides: Any) -> list[ReasonKind]:
    """Return the kinds of what `explain` says against a reset of GPU A."""
    answer = explain(GPU_A, asking(snapshot or ready(), **overrides), force=force)
    assert answer.permitted is not bool(answer.reasons)
    return [reason.kind for reason in answer.reasons]


def resets(*ages: float, key: str = GPU_A) -> Ledger:
    """Return a ledger with resets so many seconds ago."""
    return Ledger(spends=tuple(Spend(SpendKind.RESET, key, WALL - age) for age in ages))


def test_an_idle_gpu_with_persistence_on_is_permitted_with_its_steps() -> None:
    """The answer names the steps and the GPUs of the one command."""
    answer = explain(GPU_A, asking(ready()))
    assert answer.permitted
    assert answer.gpus == (GPU_A,)
    assert any("persistence mode off" in step for step in answer.steps)


@pytest.mark.parametrize(
    ("context", "kind"),
    [
        ({"ledger": Ledger(pause=Pause("root", "maintenance", WALL))}, ReasonKind.PAUSED),
        ({"hold_file": "/run/reclaimerd/HOLD"}, ReasonKind.HOLD),
        ({"ledger": Ledger(breaker=Breaker("too much", WALL))}, ReasonKind.BREAKER),
        ({"ledger": Ledger(gpu_breakers=(GpuBreaker(GPU_A, "2 failed", WALL),))}, ReasonKind.BREAKER),
        ({"record_fault": "disk full"}, ReasonKind.RECORD),
        ({"host_namespace": False}, ReasonKind.WRONG_NAMESPACE),
        ({"open_gpus": {GPU_A: (IncidentId("inc-9"),)}}, ReasonKind.OTHER_INCIDENT),
    ],
)
def test_what_binds_an_operators_reset_binds_the_answer(context: dict[str, Any], kind: ReasonKind) -> None:
    """Pause, hold, breakers, record, namespace: force removes none of them."""
    assert kinds(**context) == kinds(force=True, **context) == [kind]


def test_force_waives_budget_and_cool_down_only() -> None:
    """A GPU that was reset an hour ago may be forced; one with a holder may not."""
    assert kinds(ledger=resets(3600)) == [ReasonKind.BUDGET]
    assert kinds(ledger=resets(3600), force=True) == []
    past = Ledger(past_resets=(ResetPast((GPU_A,), ResetResult.VERIFIED, WALL - 60),))
    assert kinds(ledger=past) == [ReasonKind.COOL_DOWN]
    assert kinds(ledger=past, force=True) == []
    assert kinds(ready(a_busy_snapshot()), force=True) == [ReasonKind.HOLDERS]


@pytest.mark.parametrize(
    "past",
    [
        ResetPast((GPU_A,), ResetResult.REFUSED, WALL - 60),
        ResetPast((GPU_B,), ResetResult.VERIFIED, WALL - 60),
        ResetPast((GPU_A,), ResetResult.VERIFIED, WALL - 60, dry_run=True),
        ResetPast((GPU_A,), ResetResult.FAILED, WALL - 1200),
    ],
    ids=["refused", "another GPU", "dry run", "long ago"],
)
def test_what_was_no_reset_of_this_gpu_cools_nothing(past: ResetPast) -> None:
    """A refused one did not reset it; a dry run reset nothing."""
    assert kinds(ledger=Ledger(past_resets=(past,))) == []


def test_a_host_has_two_resets_a_day_of_whatever_gpu() -> None:
    """GPUs that went together at one instant are one reset."""
    one = resets(80000, key=GPU_B)
    joint = Ledger(spends=(*one.spends, *resets(80000, key="GPU-x").spends))
    assert kinds(ledger=one) == kinds(ledger=joint) == []
    two = Ledger(spends=(*one.spends, *resets(70000, key=GPU_B).spends))
    assert kinds(ledger=two) == [ReasonKind.BUDGET]
    assert kinds(ledger=two, force=True) == []


PAIR = tuple(
    gpu_facts(
        uuid,
        index,
        generation=Known(Generation.BEFORE_AMPERE),
        links=Known(NvLinks(1, (f"0000:0{1 - index}:00.0",))),
    )
    for index, uuid in enumerate((GPU_A, GPU_B))
)


def by_operator(**target: Any) -> tuple[Step, Incident]:
    """Return an operator's reset of GPU A."""
    incident = an_incident(
        a_target(members=(), **target), actor=OPERATOR, plan=a_plan(stages=(ListedStage.RESET,))
    )
    return a_step(incident, Stage.RESET, targets=()), incident


def test_a_joint_reset_spends_for_each_gpu_and_is_bound_by_each() -> None:
    """The peer's budget and cool-down count, and the ledger has both afterwards."""
    context = asking(with_facts(*PAIR), policy=reset_policy(peers=True))
    step, incident = by_operator()
    permit = admit(step, incident, context)
    assert isinstance(permit, Permit)
    spends = budgets.spends_of(permit, incident, context)
    assert [spend.key for spend in spends] == [GPU_A, GPU_B]
    after = replace(context, ledger=Ledger(spends=spends[1:]), wall=WALL + 30)
    refusal = admit(step, incident, after)
    assert isinstance(refusal, Refusal)
    assert [reason.kind for reason in refusal.reasons] == [ReasonKind.BUDGET]


def test_an_incident_is_no_other_incident_to_itself() -> None:
    """Its own entry hinders it not; of two on one GPU neither may reset it."""
    step, incident = by_operator()
    own = asking(ready(), open_gpus={GPU_A: (incident.id,)})
    assert isinstance(admit(step, incident, own), Permit)
    both = asking(ready(), open_gpus={GPU_A: (incident.id, IncidentId("inc-2"))})
    refusal = admit(step, incident, both)
    assert isinstance(refusal, Refusal)
    assert [reason.kind for reason in refusal.reasons] == [ReasonKind.OTHER_INCIDENT]
    assert without_own(incident.id, both).open_gpus == {GPU_A: (IncidentId("inc-2"),)}


def test_a_fault_rule_is_found_by_its_name() -> None:
    """An incident by a rule of kind fault is no orphan; its mode binds it."""
    incident = an_incident(a_target(members=()), plan=a_plan(stages=(ListedStage.RESET,)))
    step = a_step(incident, Stage.RESET, targets=())

    def found(mode: Mode) -> Any:
        rule = FaultRule(RULE_ACTOR.name, xid_classes=("reset",), mode=mode)
        policy = a_policy(fault_rules=(rule,))
        return admit(step, incident, asking(ready(), policy=replace(policy, rules=())))

    assert isinstance(found(Mode.ENFORCE), Permit)
    assert found(Mode.DRY_RUN).dry_run
    assert [reason.kind for reason in found(Mode.OBSERVE).reasons] == [ReasonKind.MODE]


# Again, in mid-reset


def asked_again(
    snapshot: Snapshot,
    *,
    gpus: tuple[str, ...] = (GPU_A,),
    targets: frozenset[ProcessRef] = frozenset(),
    stopped: bool = True,
    **overrides: Any,
) -> list[ReasonKind]:
    """Return the kinds of what the gate says of a run on its way, its clients stopped or not yet."""
    run = a_run(*gpus, phase=ResetPhase.LOOK_AGAIN)
    fields: dict[str, Any] = {
        "ledger": Ledger(resets=(run,), spends=resets(1).spends),
        "open_gpus": {GPU_A: (run.incident,)},
    }
    return [
        reason.kind
        for reason in again(run, targets, asking(snapshot, **(fields | overrides)), stopped=stopped)
    ]


def test_the_run_itself_is_no_reason_against_itself() -> None:
    """Nor its incident, nor what it spent; any other run is."""
    assert asked_again(ready()) == []
    other = replace(a_run(GPU_B), id=AttemptId("inc-7.1"))
    assert asked_again(ready(), ledger=Ledger(resets=(a_run(), other))) == [ReasonKind.RESET_IN_FLIGHT]


def test_once_clients_are_stopped_none_is_excused() -> None:
    """A listed unit that runs again, or a target that did not go, refuses."""
    reading = a_process(70)
    service = replace(reading, workload=replace(reading.workload, unit="nvidia-dcgm.service"))
    held = a_snapshot(processes=[service], holders=[a_holder(service, listed=False)])
    snapshot = with_units(a_unit(), snapshot=held)
    assert kinds(snapshot) == []
    assert asked_again(snapshot, stopped=False) == []
    assert asked_again(snapshot) == [ReasonKind.HOLDERS]
    leaving = a_process(tasks=(a_task(100, "S", PF_EXITING),))
    shown = ready(a_snapshot(processes=[leaving]))
    assert asked_again(shown) == []
    assert asked_again(shown, targets=frozenset({leaving.ref})) == [ReasonKind.EXIT_PATH]


def test_hold_and_pause_reach_into_a_reset() -> None:
    """A person who says stop before the tool has begun is heard."""
    assert asked_again(ready(), hold_file="/etc/reclaimerd/HOLD") == [ReasonKind.HOLD]


def test_a_group_that_grew_is_refused() -> None:
    """A peer that was not in the plan was not asked about, nor are its clients stopped."""
    policy = reset_policy(peers=True)
    assert asked_again(with_facts(*PAIR), policy=policy) == [ReasonKind.PEERS]
    assert asked_again(with_facts(*PAIR), gpus=(GPU_A, GPU_B), policy=policy) == []


# Properties

_REFUSED = [
    ready(a_busy_snapshot()),
    ready(a_snapshot(gpus=(a_gpu(mig=Known(value=True)),))),
    ready(a_snapshot(gpus=(a_gpu(recovery_action=Known(RecoveryAction.NODE_REBOOT)),))),
    ready(a_busy_snapshot(a_process(tasks=(a_task(100, "R", PF_EXITING),)))),
    with_facts(gpu_facts(drain_state=Known(value=True))),
    with_facts(gpu_facts(display_active=Known(value=True))),
    with_facts(*PAIR),
    with_units(a_unit(stops_too=("x.service",))),
    with_units(schedulers=("slurmd.service",)),
    ready(kernel=Known(kernel_facts((a_gpu(),), other_resets=(5,)))),
    ready(kernel=Known(kernel_facts((), missing=("0000:00:00.0",)))),
]
_BLIND = Unreadable("lost")
_GPU_FIELDS = ("memory", "processes", "utilisation", "mig", "persistence", "recovery_action")
_FACT_FIELDS = (
    "generation",
    "links",
    "fabric",
    "virtualisation",
    "display_active",
    "drain_state",
    "mig_pending",
)


def _blinded(snapshot: Snapshot, field: str) -> Snapshot:
    facts = snapshot.reset_facts
    assert facts is not None
    if field in _GPU_FIELDS:
        changes: dict[str, Any] = {field: _BLIND}
        return replace(snapshot, gpus=tuple(replace(gpu, **changes) for gpu in snapshot.gpus))
    if field in _FACT_FIELDS:
        changes = {field: _BLIND}
        assert isinstance(facts.gpus, Known)
        gpus = Known(tuple(replace(one, **changes) for one in facts.gpus.value))
        return replace(snapshot, reset_facts=replace(facts, gpus=gpus))
    if field in ("gpus", "kernel", "units"):
        changes = {field: _BLIND}
        return replace(snapshot, reset_facts=replace(facts, **changes))
    return replace(snapshot, reset_facts=None)


_ANY_FIELD = st.sampled_from((*_GPU_FIELDS, *_FACT_FIELDS, "gpus", "kernel", "units", "none"))


@given(snapshot=st.sampled_from(_REFUSED), field=_ANY_FIELD)
def test_no_unreadable_field_turns_a_refusal_into_a_permit(snapshot: Snapshot, field: str) -> None:
    """Whatever can't be read any more, what was refused stays refused."""
    assert reset_reasons(GPU_A, frozenset(), asking(snapshot))
    assert reset_reasons(GPU_A, frozenset(), asking(_blinded(snapshot, field)))


@given(
    snapshot=st.sampled_from([ready(), *_REFUSED]),
    pid=st.integers(min_value=2000, max_value=2005),
    gpu=st.sampled_from((GPU_A, GPU_B)),
    shown=st.sampled_from(({"node": True}, {"shared_node_only": True}, {"listed": True})),
    seen=st.booleans(),
)
def test_one_holder_more_never_permits(
    snapshot: Snapshot, pid: int, gpu: GpuUuid, shown: dict[str, bool], *, seen: bool
) -> None:
    """A holder on this GPU refuses always; one on another never takes a reason away."""
    before = reset_reasons(GPU_A, frozenset(), asking(snapshot))
    fields: dict[str, Any] = {"listed": False, "node": False} | shown
    row = a_holder(a_ref(pid), gpu, **fields)
    more = {pid: a_process(pid)} if seen else {}
    after = replace(snapshot, holders=(*snapshot.holders, row), processes={**snapshot.processes, **more})
    found = reset_reasons(GPU_A, frozenset(), asking(after))
    assert set(before) <= set(found)
    assert gpu != GPU_A or len(found) > len(before)


@given(fields=st.sets(_ANY_FIELD, min_size=1))
def test_blindness_is_refused_unless_it_does_not_matter(fields: set[str]) -> None:
    """On an idle host only utilisation and an unswitched GPU's fabric may be unreadable."""
    snapshot = ready()
    for field in sorted(fields):
        if snapshot.reset_facts is not None and (
            field not in _FACT_FIELDS or isinstance(snapshot.reset_facts.gpus, Known)
        ):
            snapshot = _blinded(snapshot, field)
    refused = bool(reset_reasons(GPU_A, frozenset(), asking(snapshot)))
    assert refused is bool(fields - {"utilisation", "fabric"})


def test_facts_of_the_builders_are_whole() -> None:
    """The properties above blind real fields of real facts."""
    facts = ready().reset_facts
    assert isinstance(facts, ResetFacts)
    assert set(_FACT_FIELDS) < set(type(gpu_facts()).__slots__)
