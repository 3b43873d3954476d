"""Corners of who becomes a target that a changed line would pass through unseen: see docs/mutation.md."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.draft import Draft
from reclaimerd.daemon.members import members_of
from reclaimerd.daemon.node_opening import WAIT_SECONDS
from reclaimerd.daemon.opening import Moment, Order
from reclaimerd.daemon.ordering import open_by_rule, open_ordered
from reclaimerd.errors import ExitCode
from reclaimerd.judge.endings import withdrawn
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import Actor, ActorKind, ActorRole, Incident, Stage, Subject
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import ListedStage, Mode, Policy, Scope
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import DeadListing, Snapshot
from reclaimerd.model.verdict import RuleReason, Ruling, Verdict
from tests.builders import (
    GPU_A,
    GPU_B,
    MONO,
    OPERATOR,
    RULE_ACTOR,
    WALL,
    a_busy_snapshot,
    a_holder,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    a_snapshot,
    a_target,
    a_workload,
    an_incident,
)

NOW = Moment(MONO, WALL)
UID = 1000
OWNER = replace(OPERATOR, name="ann", uid=UID, role=ActorRole.OWNER)
ME = a_process()


def ordered(
    *open_before: Incident, snapshot: Snapshot | None = None, policy: Policy | None = None, **order: Any
) -> tuple[Ticket, Draft]:
    """Return what one order came to beside these incidents: its ticket, and the draft."""
    ticket = Ticket(replace(Order(100, OPERATOR), **order))
    draft = Draft({one.id: one for one in open_before}, Ledger())
    seen = a_busy_snapshot() if snapshot is None else snapshot
    open_ordered(draft, [ticket], (seen, policy or a_policy()), NOW)
    return ticket, draft


def by_rule(
    verdict: Verdict, snapshot: Snapshot, policy: Policy, *before: Incident, handed: bool = False
) -> list[Incident]:
    """Return what one verdict opens beside these incidents."""
    draft = Draft({one.id: one for one in before}, Ledger())
    in_hand = frozenset({verdict.ref} if handed else ())
    return open_by_rule(draft, Evaluation((verdict,), ()), (snapshot, policy), in_hand, NOW)


WHY = (RuleReason("over-cap", Ruling.RECLAIM, "holds 8.0 GiB"),)
RECLAIM = Verdict(ME.ref, Ruling.RECLAIM, WHY, "over-cap", (GPU_A,))


def test_a_verdict_opens_for_its_own_rule_and_process_alone() -> None:
    """A rule that is no more, a process not seen, one in a person's hands, another ruling: nothing."""
    seen, policy = a_busy_snapshot(), a_policy(a_rule("other"), a_rule())
    (opened,) = by_rule(RECLAIM, seen, policy)
    assert opened.actor.name == "over-cap"
    assert by_rule(replace(RECLAIM, rule="no more"), seen, policy) == []
    assert by_rule(RECLAIM, a_snapshot(), policy) == []
    assert by_rule(replace(RECLAIM, ref=a_ref(100, 9)), seen, policy) == []
    assert by_rule(RECLAIM, seen, policy, handed=True) == []
    for ruling in Ruling:
        found = by_rule(replace(RECLAIM, ruling=ruling), seen, policy)
        assert bool(found) is (ruling is Ruling.RECLAIM)


def test_an_incident_that_is_over_keeps_no_rule_from_another() -> None:
    """One that stands does: nobody is the target of two."""
    seen, policy = a_busy_snapshot(), a_policy()
    over = withdrawn(an_incident(), "the rule holds no more", WALL)
    assert len(by_rule(RECLAIM, seen, policy, over)) == 1
    assert by_rule(RECLAIM, seen, policy, an_incident()) == []


def test_a_pid_that_is_named_with_its_start_is_taken_up() -> None:
    """Only another start is somebody else; and nobody there is said as it was asked."""
    assert ordered(start_ticks=ME.ref.start_ticks)[0].incident is not None
    assert ordered(pid=4242)[0].text == "there is no process 4242"
    assert ordered(pid=4242, start_ticks=7)[0].text == "there is no process 4242@7"


def test_scope_process_takes_no_child_along() -> None:
    """Whatever the worker named."""
    root, child = a_process(), a_process(101, start=2, ppid=100)
    snapshot = a_snapshot(processes=[root, child])
    for pids in ((), (101,)):
        assert members_of(root, Scope.PROCESS, snapshot, pids) == (root.ref,)


def test_the_deepest_goes_first_though_it_is_the_oldest() -> None:
    """Its start says nothing of its place: it was moved below another one later."""
    root, child = a_process(), a_process(101, start=9, ppid=100)
    grandchild = a_process(102, start=2, ppid=101)
    snapshot = a_snapshot(processes=[root, child, grandchild])
    assert members_of(root, Scope.TREE, snapshot) == (grandchild.ref, child.ref, root.ref)


def test_one_below_a_loop_of_parents_ends_somewhere_too() -> None:
    """A pid that was used again between two reads may make any loop above it."""
    one, two = a_process(100, ppid=101), a_process(101, start=2, ppid=100)
    below = a_process(102, start=3, ppid=101)
    found = members_of(one, Scope.TREE, a_snapshot(processes=[one, two, below]))
    assert set(found) == {one.ref, two.ref, below.ref}


def test_named_members_are_taken_and_no_others() -> None:
    """The worker read who belongs to it: neither a parent's number nor a boundary adds to that."""
    root, named, child = a_process(), a_process(101, start=2, ppid=1), a_process(102, start=3, ppid=100)
    snapshot = a_snapshot(processes=[root, named, child])
    assert members_of(root, Scope.TREE, snapshot, (101,)) == (named.ref, root.ref)


def test_a_boundary_of_the_same_path_under_another_controller_is_another() -> None:
    """Two cgroup hierarchies may have one path each."""
    unit = a_workload("job.service")
    root, other = a_process(workload=unit), a_process(101, workload=replace(unit, controller="memory"))
    assert members_of(root, Scope.WORKLOAD, a_snapshot(processes=[root, other])) == (root.ref,)


@pytest.mark.parametrize(
    ("node", "remembered", "named"), [(True, False, 1), (False, True, 1), (False, False, 0)]
)
def test_who_is_named_for_a_dead_one_shows_that_it_holds(*, node: bool, remembered: bool, named: int) -> None:
    """By its open node, or because it held the GPU before; not for NVML's word alone: that names the dead."""
    heir = a_process(101, start=9)
    dead = DeadListing(GPU_A, 100, Known(1))
    stranger = DeadListing(GPU_B, 99, Known(1))
    row = a_holder(heir, node=node, remembered=remembered)
    snapshot = a_snapshot(processes=[heir], holders=[row], dead_listings=(stranger, dead))
    ticket, _ = ordered(snapshot=snapshot)
    assert ticket.exit_code is ExitCode.NO_TARGET
    assert ticket.text.count("--pid 101@9") == named


def test_the_expected_user_is_the_real_one() -> None:
    """As ps shows it: a set-uid program is its caller's, and the refusal says whose it is."""
    seen = a_busy_snapshot(a_process(uids=(UID, 0, 0, 0)))
    assert ordered(snapshot=seen, expect_uid=UID)[0].incident is not None
    refused, draft = ordered(snapshot=seen, expect_uid=0)
    assert refused.exit_code is ExitCode.REFUSED
    assert refused.text == f"pid 100 belongs to uid {UID}, not to the expected 0"
    assert draft.incidents == {}


def test_an_incident_that_is_over_is_not_joined() -> None:
    """Its process is there again in sight: the order opens one of its own."""
    over = withdrawn(an_incident(), "the rule holds no more", WALL)
    ticket, draft = ordered(over)
    assert ticket.incident not in (None, over.id)
    assert len(draft.incidents) == 2


@pytest.mark.parametrize(
    "other",
    [
        withdrawn(an_incident(subject=Subject.GPU), "healthy again", WALL),
        an_incident(),
        an_incident(replace(a_target(), gpus=(GPU_B,)), subject=Subject.GPU),
    ],
    ids=["over", "of a process", "of another GPU"],
)
def test_what_holds_up_no_ordered_reset(other: Incident) -> None:
    """Only an open incident about the GPU itself does."""
    ticket, draft = ordered(other, pid=0, gpu=GPU_A)
    assert ticket.incident in draft.incidents
    assert ticket.exit_code is None
    about_it = an_incident(subject=Subject.GPU)
    assert ordered(about_it, pid=0, gpu=GPU_A)[0].exit_code is ExitCode.REFUSED


def test_a_rule_that_only_watches_a_gpu_makes_way_for_an_ordered_reset() -> None:
    """Its incident would do nothing for ever: it ends, on record, and the order's is opened."""
    watching = an_incident(subject=Subject.GPU)
    policy = a_policy(a_rule(mode=Mode.OBSERVE))
    ticket, draft = ordered(watching, policy=policy, pid=0, gpu=GPU_A)
    over = draft.incidents[watching.id]
    assert (over.stage, over.end_text) == (Stage.STOOD_DOWN, "root ordered the reset")
    assert [one.kind for one in draft.entries] == [RecordKind.INCIDENT_ENDED, RecordKind.INCIDENT_OPENED]
    assert ticket.incident in draft.incidents


def test_a_second_drain_by_hand_is_refused() -> None:
    """It adds nothing, and says what stands."""
    standing = an_incident(subject=Subject.NODE)
    ticket, draft = ordered(standing, pid=0, node=True)
    assert (ticket.exit_code, ticket.incident) == (ExitCode.REFUSED, None)
    assert "asks for it already" in ticket.text
    assert list(draft.incidents) == [standing.id]


@pytest.mark.parametrize(("asked", "waits"), [(None, WAIT_SECONDS), (0.0, 0.0), (7.0, 7.0)])
def test_how_long_an_ordered_drain_is_waited_for(asked: float | None, waits: float) -> None:
    """As long as was asked, else as the door has it."""
    ticket, draft = ordered(pid=0, node=True, timeout_seconds=asked)
    assert ticket.until == MONO + waits
    assert [one.subject for one in draft.incidents.values()] == [Subject.NODE]


@pytest.mark.parametrize(
    ("actor", "joins"),
    [
        (OWNER, True),
        (replace(OWNER, role=ActorRole.OPERATOR), False),
        (replace(OWNER, uid=UID + 1), False),
    ],
    ids=["their own", "theirs as an operator", "another owner's"],
)
def test_an_owner_joins_what_they_opened_as_an_owner(actor: Any, *, joins: bool) -> None:
    """What somebody may do as an operator is not the owner's to change, nor what another owner began."""
    standing = an_incident(actor=actor)
    ticket, draft = ordered(standing, actor=OWNER, snapshot=a_busy_snapshot(a_process(uids=(UID,) * 4)))
    assert (ticket.incident == standing.id) is joins
    assert (ticket.exit_code is ExitCode.REFUSED) is not joins
    assert len(draft.entries) == 1


@pytest.mark.parametrize(
    ("opened_by", "order"),
    [
        (replace(OPERATOR, name="bob"), {}),
        (RULE_ACTOR, {"dry_run": True}),
        (RULE_ACTOR, {"actor": OWNER}),
    ],
    ids=["a person's", "for a dry order", "for an owner"],
)
def test_what_gives_no_way_though_it_takes_others_along(opened_by: Actor, order: dict[str, Any]) -> None:
    """Only a rule's gives way, and only to who may act on it and means to: else it stands as it was."""
    root, child = a_process(uids=(UID,) * 4), a_process(101, start=2, ppid=100, uids=(UID,) * 4)
    standing = an_incident(a_target(root, child), actor=opened_by)
    seen = a_busy_snapshot(root, child)
    ticket, draft = ordered(standing, snapshot=seen, **order)
    assert draft.incidents == {standing.id: standing}
    assert (ticket.incident == standing.id) is (not order)


def test_joining_an_operators_incident_takes_nothing_over() -> None:
    """Force hastens it: its stages stay, the shorter grace counts; without force nothing changes."""
    plan = a_plan(stages=(ListedStage.SIGTERM,), sigterm_seconds=50.0, timeout_seconds=500.0)
    standing = an_incident(actor=replace(OPERATOR, name="bob"), plan=plan)
    _, draft = ordered(standing, reason="faster")
    (entry,) = draft.entries
    assert (draft.incidents[standing.id], entry.reason) == (standing, "root joined: faster")
    _, draft = ordered(standing, force=True, grace_seconds=2.0)
    after = draft.incidents[standing.id]
    assert draft.entries[0].reason == "root joined: no reason given"
    assert after.actor.name == "bob"
    assert after.plan == replace(
        plan, stages=(ListedStage.SIGTERM, ListedStage.SIGKILL), sigterm_seconds=2.0, force=True
    )
    _, draft = ordered(standing, force=True, grace_seconds=90.0)
    assert draft.incidents[standing.id].plan.sigterm_seconds == 50.0


def test_an_incident_taken_over_from_a_rule_counts_its_time_from_now() -> None:
    """It was opened a while ago: the operator's time begins now, and an old refusal is not theirs."""
    standing = an_incident(opened_mono=MONO - 40, last_refusal="settling")
    ticket, draft = ordered(standing, timeout_seconds=50.0)
    after = draft.incidents[standing.id]
    assert (after.actor.kind, after.plan.timeout_seconds) == (ActorKind.OPERATOR, 90.0)
    assert (ticket.until, after.last_refusal, after.stage) == (MONO + 50, "", Stage.PENDING)
