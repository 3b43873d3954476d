"""How an incident about a GPU itself begins: its target, its plan, and who is told to go first."""

from dataclasses import replace

from reclaimerd.daemon.gpu_opening import fault_incident, gpu_target, ordered_reset
from reclaimerd.daemon.opening import Moment, Order
from reclaimerd.model.incident import ActorKind, Stage, Subject
from reclaimerd.model.policy import ListedStage, Mode, Policy
from reclaimerd.model.process import WorkloadKind
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    MONO,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_process,
    a_ref,
    a_snapshot,
)
from tests.daemon.reset_rigs import MEND, fault_policy

NOW = Moment(MONO, WALL)
ORDER = Order(0, OPERATOR, gpu=GPU_A)


def test_a_gpu_alone_has_no_member_and_no_process() -> None:
    """Its root is nobody of this boot, and what it holds is not measured."""
    target = gpu_target(GPU_A, (), a_snapshot())
    assert (target.root.boot_id, target.root.pid, target.members) == (BOOT, 0, ())
    assert (target.gpus, target.unmeasured, target.held_bytes) == ((GPU_A,), (GPU_A,), ())
    assert target.command == f"GPU 0 ({GPU_A})"
    assert target.workload.kind is WorkloadKind.NONE


def test_a_gpu_that_is_not_seen_has_no_index() -> None:
    """It may be lost: its UUID is enough."""
    assert gpu_target(GPU_B, (), a_snapshot()).command == f"GPU ? ({GPU_B})"


def test_the_first_holder_that_was_read_names_the_workload() -> None:
    """For the budgets, which count workloads."""
    reading = a_process(100)
    seen = a_busy_snapshot(reading)
    target = gpu_target(GPU_A, (a_ref(7), reading.ref), seen)
    assert (target.root, target.members) == (reading.ref, (a_ref(7), reading.ref))
    assert (target.uid, target.workload) == (1000, reading.workload)


def test_an_ordered_reset_tells_no_holder_to_go() -> None:
    """Reset, then one drain request where it fails; the order's words go along."""
    order = replace(ORDER, force=True, dry_run=True, reason="broken")
    incident = ordered_reset(order, GPU_A, (a_busy_snapshot(), Policy()), NOW)
    assert (incident.subject, incident.stage, incident.target.members) == (Subject.GPU, Stage.PENDING, ())
    assert incident.plan.stages == (ListedStage.RESET, ListedStage.DRAIN)
    assert (incident.plan.force, incident.plan.dry_run, incident.reason) == (True, True, "broken")
    assert (incident.actor, incident.boot_id, incident.opened_mono) == (OPERATOR, BOOT, MONO)
    plain = ordered_reset(ORDER, GPU_A, (a_snapshot(), Policy()), NOW)
    assert (plain.plan.force, plain.plan.dry_run) == (False, False)
    assert plain.reason == "an operator asked for a reset"
    assert plain.id != incident.id


def test_a_rules_incident_has_the_rules_stages_and_patience() -> None:
    """And the ladder's where the rule says nothing."""
    policy = fault_policy()
    found = (GPU_A, "Xid 48 (reset)", (a_ref(100),))
    incident = fault_incident(MEND, found, (a_busy_snapshot(), policy), NOW)
    assert (incident.actor.kind, incident.actor.name) == (ActorKind.RULE, "mend")
    assert (incident.reason, incident.target.members) == ("Xid 48 (reset)", (a_ref(100),))
    assert incident.plan.stages == MEND.stages
    ladder = policy.ladder
    patience = (incident.plan.sigterm_seconds, incident.plan.sigkill_seconds)
    assert patience == (ladder.sigterm_seconds, ladder.sigkill_seconds)
    assert not incident.plan.dry_run
    own = replace(MEND, sigterm_seconds=1.0, sigkill_seconds=2.0, mode=Mode.DRY_RUN)
    incident = fault_incident(own, found, (a_busy_snapshot(), policy), NOW)
    assert (incident.plan.sigterm_seconds, incident.plan.sigkill_seconds) == (1.0, 2.0)
    assert incident.plan.dry_run
