"""Who becomes a target of an order or a rule, who is told no, and what joins what."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.members import members_of
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import ActorKind, Incident, Stage
from reclaimerd.model.ledger import Pause
from reclaimerd.model.policy import GateSettings, ListedStage, Mode, Scope, UserProtection
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import DeadListing
from tests.builders import (
    GIB,
    GPU_A,
    MONO,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_row,
    a_rule,
    a_snapshot,
    a_task,
    a_workload,
)
from tests.fakes import Rig, a_rig

NO_RULE = a_policy(a_rule(above=70 * GIB))


def only(rig: Rig) -> Incident:
    """Return the one open incident."""
    (incident,) = rig.cycle.state.incidents.values()
    return incident


def test_an_order_becomes_an_incident_of_the_operator_with_the_operators_plan() -> None:
    """SIGTERM alone without force; grace and timeout as asked; the actor is the person."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.order(grace_seconds=5.0, timeout_seconds=9.0, reason="mine")
    asyncio.run(rig.passes())
    incident = only(rig)
    assert incident.actor.kind is ActorKind.OPERATOR
    assert incident.plan.stages == (ListedStage.SIGTERM,)
    assert (incident.plan.sigterm_seconds, incident.plan.timeout_seconds) == (5.0, 9.0)
    assert incident.reason == "mine"
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_an_order_waits_for_a_look_that_was_asked_about_it() -> None:
    """The pid goes into the look, so that a holder nobody knew yet is read."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.order()
    asyncio.run(rig.passes())
    assert 100 in rig.sampler.looks[0].pids


def test_a_process_that_is_not_there_ends_with_six_and_nothing_happens() -> None:
    """No such pid: exit 6, one refusal on record, no permit."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    ticket = rig.order(4242)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert "there is no process 4242" in ticket.text
    assert rig.executor.permits == []
    assert [entry.kind for entry in rig.recorder.entries] == [RecordKind.REFUSED]


def test_a_pid_with_another_start_is_somebody_else() -> None:
    """PID@START that no longer matches: exit 6 that names both, the stranger lives."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    ticket = rig.order(100, start_ticks=77)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert "100@77" in ticket.text
    assert rig.executor.permits == []


def test_a_process_of_another_user_than_expected_is_refused() -> None:
    """--expect-user protects against a pid that changed hands."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    ticket = rig.order(expect_uid=4321)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert rig.executor.permits == []


def test_a_process_that_can_not_be_read_is_refused() -> None:
    """Unknown means hands off, for an operator too: exit 3 with why."""
    rig = a_rig(a_snapshot(unreadable={100: "no answer in 200 ms"}), NO_RULE)
    ticket = rig.order()
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert "no answer in 200 ms" in ticket.text
    assert rig.executor.permits == []


def test_a_process_without_a_gpu_ends_with_six() -> None:
    """Nobody is signalled for a GPU that it does not hold."""
    rig = a_rig(a_snapshot(processes=[a_process()]), NO_RULE)
    ticket = rig.order()
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert rig.executor.permits == []


def test_a_dead_listed_pid_names_the_living_holder_and_the_command() -> None:
    """NVML lists a dead parent: exit 6 with the heir's PID@START and the command that takes it."""
    heir = a_process(101, start=9)
    snapshot = a_snapshot(
        gpus=[a_gpu(processes=[a_row(100)])],
        processes=[heir],
        holders=[a_holder(heir, listed=False, heir_of=a_ref(100))],
        dead_listings=(DeadListing(GPU_A, 100, Known(8 * GIB)),),
    )
    rig = a_rig(snapshot, NO_RULE)
    ticket = rig.order(100)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert "reclaimctl kill --pid 101@9" in ticket.text
    assert rig.executor.permits == []


def test_a_dead_listed_pid_whose_holder_nobody_sees_says_so() -> None:
    """No invented command when nobody is seen to hold the context."""
    rig = a_rig(a_snapshot(dead_listings=(DeadListing(GPU_A, 100, Known(1)),)), NO_RULE)
    ticket = rig.order(100)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert "nobody is seen" in ticket.text


def test_a_zombie_is_no_process_to_kill() -> None:
    """Every task dead: exit 6, no signal."""
    dead = a_process(tasks=(a_task(state="Z"),))
    rig = a_rig(a_busy_snapshot(dead), NO_RULE)
    ticket = rig.order()
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert rig.executor.permits == []


@pytest.mark.parametrize("force", [False, True])
def test_a_protected_target_is_refused_with_three_whatever_the_force(*, force: bool) -> None:
    """Exit 3, the protection by name, no permit; force changes nothing."""
    guard = UserProtection("the-db", unit="train-100.service")
    rig = a_rig(a_busy_snapshot(), replace(NO_RULE, protections=(guard,)))
    ticket = rig.order(force=force)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert [reason.kind.value for reason in ticket.reasons] == ["protected"]
    assert "the-db" in ticket.reasons[0].text
    assert rig.executor.permits == []


def test_two_orders_for_one_process_join_and_signal_it_once() -> None:
    """The second follows the first's incident; both get its end."""
    snapshot = a_busy_snapshot()
    rig = a_rig(snapshot, NO_RULE)
    first, second = rig.order(), rig.order()
    asyncio.run(rig.passes())
    assert first.incident == second.incident
    assert rig.executor.sent == {a_ref(): ["sigterm"]}
    rig.show(a_snapshot(exited=frozenset({a_ref()})))
    asyncio.run(rig.passes())
    assert (first.exit_code, second.exit_code) == (ExitCode.OK, ExitCode.OK)


def test_force_that_joins_adds_sigkill_and_cuts_the_patience() -> None:
    """A second order with force and a shorter grace gets its SIGKILL in the same incident."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.order(grace_seconds=300.0)
    asyncio.run(rig.passes())
    rig.order(force=True, grace_seconds=2.0)
    asyncio.run(rig.passes(3))
    assert rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}


def test_a_joined_order_leaves_when_its_own_time_is_up() -> None:
    """The incident goes on for the one who gave it more time; the other gets exit 5."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    patient = rig.order(timeout_seconds=600.0, grace_seconds=500.0)
    asyncio.run(rig.passes())
    hasty = rig.order(timeout_seconds=3.0)
    asyncio.run(rig.passes(5))
    assert hasty.exit_code is ExitCode.TIME_UP
    assert patient.exit_code is None
    assert only(rig).stage is Stage.SIGTERM


SETTLING = a_policy(gates=GateSettings(settling_seconds=7200.0))


def test_an_order_takes_over_a_rule_s_incident_that_has_done_nothing() -> None:
    """A rule's incident that waits (settling) does not hold up a person: it becomes theirs."""
    rig = a_rig(a_busy_snapshot(), SETTLING)
    asyncio.run(rig.passes())
    assert rig.executor.permits == []
    name = only(rig).id
    ticket = rig.order(timeout_seconds=50.0)
    asyncio.run(rig.passes())
    incident = only(rig)
    assert (incident.id, ticket.incident) == (name, name)
    assert incident.actor.kind is ActorKind.OPERATOR
    assert incident.plan.timeout_seconds == pytest.approx(51.0)
    assert rig.executor.sent == {a_ref(): ["sigterm"]}
    assert not rig.cycle.state.ledger.spends
    assert any("took it over from rule over-cap" in entry.reason for entry in rig.recorder.entries)


def test_a_gentle_order_follows_a_rule_that_sent_sigterm_already() -> None:
    """Its wish is done: nothing is sent again, and the rule's ladder goes on."""
    rig = a_rig(a_busy_snapshot(), a_policy(gates=GateSettings(settling_seconds=0.0)))
    asyncio.run(rig.passes())
    ticket = rig.order()
    asyncio.run(rig.passes(2))
    assert only(rig).actor.kind is ActorKind.RULE
    assert ticket.incident == only(rig).id
    assert rig.executor.sent == {a_ref(): ["sigterm"]}


def test_force_on_a_rule_s_incident_is_not_held_up_by_what_binds_rules() -> None:
    """A pause stops the rule's SIGKILL and not the person's."""
    rig = a_rig(a_busy_snapshot(), a_policy(gates=GateSettings(settling_seconds=0.0)))
    asyncio.run(rig.passes())
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, pause=Pause("root", "", WALL))
    rig.order(force=True, grace_seconds=1.0)
    asyncio.run(rig.passes(2))
    assert rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}


def test_a_dry_order_on_an_open_incident_changes_nothing() -> None:
    """It is told what stands, exit 0, and the incident keeps its plan."""
    rig = a_rig(a_busy_snapshot(), NO_RULE)
    rig.order()
    asyncio.run(rig.passes())
    before = only(rig)
    ticket = rig.order(dry_run=True, force=True)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.OK
    assert only(rig).plan == before.plan


def test_an_operator_s_kill_works_in_every_mode_and_is_not_counted() -> None:
    """Settling, HOLD and pause bind rules; the order goes through and spends nothing."""
    rig = a_rig(a_busy_snapshot(), replace(SETTLING, rules=()), hold_file=lambda _policy: "/run/HOLD")
    rig.cycle.started_mono = MONO
    rig.order()
    asyncio.run(rig.passes())
    assert rig.executor.sent == {a_ref(): ["sigterm"]}
    assert rig.cycle.state.ledger.spends == ()


def test_the_members_of_a_tree_come_deepest_first_and_the_root_last() -> None:
    """Grandchild, child, root; a stranger and a zombie are no members."""
    root, child = a_process(100), a_process(101, start=2, ppid=100)
    grandchild = a_process(102, start=3, ppid=101)
    dead = a_process(103, start=4, ppid=100, tasks=(a_task(103, state="Z"),))
    stranger = a_process(104, start=5)
    snapshot = a_snapshot(processes=[root, child, grandchild, dead, stranger])
    assert members_of(root, Scope.TREE, snapshot) == (grandchild.ref, child.ref, root.ref)


def test_named_pids_that_this_look_did_not_see_are_no_members() -> None:
    """The worker's list is taken by identity only: an unseen pid is left out."""
    root, child = a_process(100), a_process(101, start=2, ppid=100)
    snapshot = a_snapshot(processes=[root, child])
    assert members_of(root, Scope.TREE, snapshot, (101, 999)) == (child.ref, root.ref)


def test_a_workload_without_a_boundary_is_its_root_alone() -> None:
    """An empty path is no workload: nobody else is taken along."""
    nowhere = a_workload("", path="")
    root, other = a_process(100, workload=nowhere), a_process(101, start=2, workload=nowhere)
    snapshot = a_snapshot(processes=[root, other])
    assert members_of(root, Scope.WORKLOAD, snapshot) == (root.ref,)


def test_a_workload_takes_all_of_its_boundary() -> None:
    """Same controller and path: members; another unit: not."""
    unit = a_workload("job.service")
    root, mate = a_process(100, workload=unit), a_process(101, start=2, workload=unit)
    snapshot = a_snapshot(processes=[root, mate, a_process(102, start=3)])
    assert members_of(root, Scope.WORKLOAD, snapshot) == (mate.ref, root.ref)


def test_a_loop_of_parents_does_not_hang() -> None:
    """Two readings that name each other as parent (a pid reused between reads) end somewhere."""
    one, two = a_process(100, ppid=101), a_process(101, start=2, ppid=100)
    assert set(members_of(one, Scope.TREE, a_snapshot(processes=[one, two]))) == {one.ref, two.ref}


def test_a_tree_s_order_is_taken_when_only_a_child_holds() -> None:
    """The root holds nothing itself: with scope tree its family's GPU counts."""
    root, child = a_process(100), a_process(101, start=2, ppid=100)
    snapshot = replace(a_busy_snapshot(child), processes={100: root, 101: child})
    rig = a_rig(snapshot, NO_RULE)
    ticket = rig.order(100, scope=Scope.TREE)
    asyncio.run(rig.passes())
    assert ticket.incident is not None
    assert list(rig.executor.sent) == [child.ref, root.ref]


def test_the_expected_user_binds_all_that_goes_along() -> None:
    """A child of another user goes with its tree: the order is refused, and nobody is signalled."""
    root, child = a_process(100), a_process(101, start=2, ppid=100, uids=(4321,) * 4)
    snapshot = replace(a_busy_snapshot(child), processes={100: root, 101: child})
    for scope, refused in ((Scope.TREE, True), (Scope.PROCESS, False)):
        rig = a_rig(snapshot if refused else a_busy_snapshot(root), NO_RULE)
        ticket = rig.order(100, scope=scope, expect_uid=root.uids[0])
        asyncio.run(rig.passes())
        assert (ticket.exit_code is ExitCode.REFUSED) is refused
        assert ("pid 101 belongs to uid 4321" in ticket.text) is refused
        assert (rig.executor.permits == []) is refused


def test_a_rule_that_only_observes_does_not_hold_up_one_that_enforces() -> None:
    """The first opens an incident that may do nothing; when the other comes due it makes way, on record."""
    watching = a_rule(name="watching", mode=Mode.OBSERVE)
    enforcing = a_rule(name="enforcing", for_seconds=30.0)
    rig = a_rig(
        a_busy_snapshot(),
        a_policy(watching, enforcing, gates=GateSettings(settling_seconds=0.0), mode=Mode.ENFORCE),
    )
    asyncio.run(rig.passes(3))
    assert only(rig).actor.name == "watching"
    assert rig.executor.sent == {}
    for _ in range(40):
        rig.age(1.0)
        asyncio.run(rig.passes(1))
    assert rig.executor.sent[a_ref()][0] == "sigterm"
    ended = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)[0]
    assert (ended.end, ended.reason) == ("stood_down", "rule enforcing goes further")


def a_family(**rule: object) -> tuple[Rig, ProcessReading, ProcessReading]:
    """Return a rig whose rule takes a whole tree, the root of it, and the child that holds nothing."""
    root, child = a_process(100), a_process(101, start=2, ppid=100)
    snapshot = replace(a_busy_snapshot(root), processes={100: root, 101: child})
    policy = a_policy(replace(a_rule(scope=Scope.TREE), **rule), gates=GateSettings(settling_seconds=0.0))  # type: ignore[arg-type]
    return a_rig(snapshot, policy), root, child


def test_an_order_for_one_process_does_not_take_over_a_rule_s_whole_tree() -> None:
    """Whom the person did not name is not ended by the person's right: the rule's incident gives way."""
    rig, root, child = a_family(mode=Mode.OBSERVE)
    asyncio.run(rig.passes())
    assert set(only(rig).processes) == {root.ref, child.ref}
    ticket = rig.order(100, force=True, grace_seconds=0.0)
    asyncio.run(rig.passes(3))
    assert child.ref not in rig.executor.sent
    assert rig.executor.sent[root.ref] == ["sigterm", "sigkill"]
    assert ticket.incident is not None
    (end,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert (end.end, end.incident == ticket.incident) == ("stood_down", False)
    assert "ordered less than it takes along" in end.reason


def test_an_order_for_all_of_a_rule_s_tree_takes_it_over() -> None:
    """The person named everybody in it."""
    rig, root, child = a_family(mode=Mode.OBSERVE)
    asyncio.run(rig.passes())
    name = only(rig).id
    ticket = rig.order(100, scope=Scope.TREE)
    asyncio.run(rig.passes())
    assert ticket.incident == name
    assert set(rig.executor.sent) == {root.ref, child.ref}


@pytest.mark.parametrize("by_rule", [False, True])
def test_force_for_one_process_hastens_no_end_of_others(*, by_rule: bool) -> None:
    """SIGTERM was sent to a tree: --force for its child is refused, and adds no SIGKILL for the rest."""
    rig, root, child = a_family(mode=Mode.ENFORCE if by_rule else Mode.OBSERVE)
    if not by_rule:
        rig.order(100, scope=Scope.TREE)
    asyncio.run(rig.passes())
    before = dict(rig.executor.sent)
    assert set(before) == {root.ref, child.ref}
    rig.show(replace(rig.sampler.snapshot, holders=(a_holder(root), a_holder(child))))
    ticket = rig.order(101, force=True, grace_seconds=0.0)
    asyncio.run(rig.passes(3))
    assert ticket.exit_code is ExitCode.REFUSED
    assert "takes along pid 100" in ticket.text
    assert rig.executor.sent == before


def test_a_gentle_order_for_one_of_them_follows_the_incident_of_all() -> None:
    """It adds nothing, so it may join; so may a dry run."""
    rig, _, child = a_family()
    asyncio.run(rig.passes())
    rig.show(replace(rig.sampler.snapshot, holders=(*rig.sampler.snapshot.holders, a_holder(child))))
    ticket, dry = rig.order(101), rig.order(101, dry_run=True, force=True)
    asyncio.run(rig.passes())
    assert ticket.incident == only(rig).id
    assert dry.exit_code is ExitCode.OK


def test_whom_a_dead_member_was_in_the_way_of_is_not_asked() -> None:
    """Of a tree only the ordered process lives yet: nobody else is ended by the person's right."""
    rig, root, child = a_family(mode=Mode.OBSERVE)
    asyncio.run(rig.passes())
    name = only(rig).id
    gone = replace(rig.sampler.snapshot, processes={100: root}, exited=frozenset({child.ref}))
    rig.show(gone)
    ticket = rig.order(100)
    asyncio.run(rig.passes())
    assert ticket.incident == name
    assert set(rig.executor.sent) == {root.ref}
