"""A cycle over fakes on a host that refuses no reset, and the reset procedure's part of the ledger.

The procedure itself is not here: `let_end` writes what it would have written.
"""

from dataclasses import replace

from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.reset_ledger import settled
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultRule, Mode, Policy
from reclaimerd.model.reset_run import ResetPhase, ResetResult, ResetRun
from reclaimerd.model.snapshot import Snapshot
from tests.builders import BOOT, GIB, GPU_A, GPU_B, OPERATOR, WALL, a_gpu, a_policy, a_rule, a_snapshot
from tests.fakes import Rig, a_rig
from tests.judge.reset_builders import ready

QUIET = a_rule(above=70 * GIB)
"""A memory rule that nobody breaks."""
MEND = FaultRule("mend", xid_classes=("reset",), for_seconds=0.0, mode=Mode.ENFORCE)


def two_gpus() -> Snapshot:
    """Return a look, made for a reset, at two healthy GPUs that nobody holds."""
    return ready(a_snapshot(gpus=(a_gpu(GPU_A), a_gpu(GPU_B))))


def fault_policy(*rules: FaultRule, **overrides: object) -> Policy:
    """Return an enforcing policy with fault rules."""
    return replace(a_policy(QUIET, fault_rules=rules or (MEND,)), **overrides)  # type: ignore[arg-type]


def an_xid(gpu: GpuUuid = GPU_A, fault: FaultClass = FaultClass.RESET, code: int = 48) -> StandingXid:
    """Return an Xid that stands against a GPU."""
    return StandingXid(gpu, BOOT, code, fault, 7, WALL)


def a_reset_rig(snapshot: Snapshot | None = None, policy: Policy | None = None, **overrides: object) -> Rig:
    """Return a cycle over such a look; a policy of None has no rule that ever holds."""
    seen = two_gpus() if snapshot is None else snapshot
    return a_rig(seen, a_policy(QUIET) if policy is None else policy, **overrides)


def a_faulty_rig(snapshot: Snapshot | None = None, policy: Policy | None = None, **overrides: object) -> Rig:
    """Return one on which an Xid that asks for a reset stands against GPU A."""
    rig = a_reset_rig(snapshot, fault_policy() if policy is None else policy, **overrides)
    rig.cycle.state.ledger = Ledger(xids=(an_xid(),))
    return rig


def order_reset(rig: Rig, gpu: GpuUuid = GPU_A, **words: object) -> Ticket:
    """Lay down an operator's order for a reset."""
    ticket = Ticket(replace(Order(0, OPERATOR, gpu=gpu), **words))  # type: ignore[arg-type]
    rig.cycle.desk.place(ticket)
    return ticket


def only(rig: Rig) -> Incident:
    """Return the one open incident."""
    (incident,) = rig.cycle.state.incidents.values()
    return incident


def only_run(rig: Rig) -> ResetRun:
    """Return the one run in the ledger."""
    (run,) = rig.cycle.state.ledger.resets
    return run


def let_end(rig: Rig, result: ResetResult, text: str = "it ended so") -> ResetRun:
    """Let the one reset under way end as the procedure would leave it."""
    phase = ResetPhase.LEFT_ALONE if result is ResetResult.ABANDONED else ResetPhase.DONE
    run = replace(only_run(rig), phase=phase, result=result, text=text)
    state = rig.cycle.state
    wall = rig.sampler.snapshot.taken_at
    state.ledger = settled(replace(state.ledger, resets=(run,)), run, rig.cycle.policy, wall)
    return run


def batches_with_runs(rig: Rig) -> list[int]:
    """Return which of the durable batches carry a reset in their ledger."""
    return [
        number
        for number, batch in enumerate(rig.recorder.batches)
        if batch.ledger is not None and batch.ledger.resets
    ]
