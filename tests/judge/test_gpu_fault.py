"""The gravest source wins, a lost GPU is lost whatever it asks for, and unknown never means a reset."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.driver_blocks import driver_blocks
from reclaimerd.judge.gpu_fault import ACTIONS, fault_of
from reclaimerd.model.fault import FaultClass, FaultSource, StandingXid
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.kernel import Leaving, Plight, TaskCondition
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import FaultDomain
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from tests.builders import BOOT, GPU_A, GPU_B, MONO, WALL, a_gpu, a_ref, a_snapshot
from tests.judge.kernel_builders import a_ktask, a_look
from tests.judge.reset_builders import ready, with_kernel


def with_gpu(**fields: Any) -> Snapshot:
    """Return a host whose one GPU differs."""
    return a_snapshot(gpus=(a_gpu(**fields),))


def a_xid(code: int = 48, fault: FaultClass = FaultClass.RESET, **overrides: Any) -> StandingXid:
    """Return an Xid that stands against GPU A in this boot."""
    return replace(StandingXid(GPU_A, BOOT, code, fault, seq=7, at=WALL), **overrides)


def of(snapshot: Snapshot, *xids: StandingXid) -> FaultClass:
    """Return the class of GPU A's fault."""
    return fault_of(GPU_A, snapshot, Ledger(xids=xids)).fault


def a_plight(**overrides: Any) -> Plight:
    """Return a process that is judged stuck in a known place of the driver."""
    plight = Plight(
        ref=a_ref(),
        condition=TaskCondition.EXITING,
        leaving=Leaving.STUCK_BLOCKED,
        since=MONO,
        released_at=MONO,
        looks=5,
        text="stuck in uvm_spin_loop",
        signature="uvm-spin",
        fault_domain=FaultDomain.DRIVER,
    )
    return replace(plight, **overrides)


def test_every_word_of_the_driver_has_a_class() -> None:
    """No recovery action is left without one, and only three let a reset pass."""
    assert set(ACTIONS) == set(RecoveryAction)
    mild = {action for action, fault in ACTIONS.items() if fault < FaultClass.UNKNOWN}
    assert mild == {RecoveryAction.NONE, RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET}


@pytest.mark.parametrize("action", RecoveryAction)
def test_a_recovery_action_alone(action: RecoveryAction) -> None:
    """With nothing else against it the action's class is the GPU's."""
    assert of(with_gpu(recovery_action=Known(action))) is ACTIONS[action]


def test_unreadable_is_unknown_and_absent_is_none() -> None:
    """What could not be read fails closed; a driver that has no such word leaves it to the Xids."""
    assert of(with_gpu(recovery_action=Unreadable("timeout"))) is FaultClass.UNKNOWN
    assert of(with_gpu(recovery_action=Absent("not supported"))) is FaultClass.NONE
    assert of(with_gpu(recovery_action=Absent("not supported")), a_xid()) is FaultClass.RESET


def test_the_gravest_source_wins_whichever_it_is() -> None:
    """Action and Xid, either way round; all of them are told, the gravest first."""
    asks = with_gpu(recovery_action=Known(RecoveryAction.GPU_RESET))
    assert of(asks, a_xid(13, FaultClass.APPLICATION)) is FaultClass.RESET
    found = fault_of(GPU_A, asks, Ledger(xids=(a_xid(79, FaultClass.REBOOT),)))
    assert found.fault is FaultClass.REBOOT
    assert "Xid 79" in found.text
    assert [source[0] for source in found.sources] == [FaultSource.XID, FaultSource.RECOVERY_ACTION]


def test_xids_of_another_gpu_or_boot_say_nothing() -> None:
    """What stood before the boot is over; what stands against a neighbour is the neighbour's."""
    others = (a_xid(79, FaultClass.LOST, gpu=GPU_B), a_xid(79, FaultClass.LOST, boot_id="earlier"))
    assert of(a_snapshot(), *others) is FaultClass.NONE


@pytest.mark.parametrize("why", ["GPU is lost", "NVML: GPU has fallen off the bus"])
def test_a_lost_gpu_is_lost_though_it_asks_for_a_reset(why: str) -> None:
    """NVML error 15 in any reading beats the action, which reads GPU_RESET on a lost GPU."""
    asks = with_gpu(memory=Unreadable(why), recovery_action=Known(RecoveryAction.GPU_RESET))
    assert of(asks) is FaultClass.LOST
    assert of(with_gpu(memory=Unreadable("timeout"))) is FaultClass.NONE


def test_a_missing_pci_device_is_a_lost_gpu() -> None:
    """The kernel's word counts without any error of NVML."""
    assert of(with_kernel(present=(), missing=("0000:00:00.0",))) is FaultClass.LOST
    assert of(ready()) is FaultClass.NONE
    assert of(ready(kernel=Unreadable("hung"))) is FaultClass.NONE


def test_a_neighbour_of_the_same_number_in_another_domain_is_another_device() -> None:
    """A domain of five digits is no less a domain: what is there or gone at 0000 says nothing of 10000."""
    far = a_gpu(pci_address="00010000:00:00.0")
    assert of(with_kernel(a_snapshot(gpus=(far,)), present=("10000:00:00.0",))) is FaultClass.NONE
    near = with_kernel(a_snapshot(gpus=(far,)), present=("0000:00:00.0",))
    assert of(near) is FaultClass.UNKNOWN
    assert of(with_kernel(a_snapshot(gpus=(far,)), present=(), missing=("10000:00:00.0",))) is FaultClass.LOST


def test_a_device_without_our_driver_is_unknown() -> None:
    """There, but bound to another driver or none: not lost, and nobody can say what a reset would do."""
    assert of(with_kernel(present=(), missing=())) is FaultClass.UNKNOWN
    assert of(with_kernel(present=("0000:d8:00.0",), missing=("0000:5e:00.0",))) is FaultClass.UNKNOWN


def test_a_gpu_that_was_not_seen_is_unknown() -> None:
    """Not seen is neither well nor lost."""
    assert fault_of(GpuUuid("GPU-none"), a_snapshot(), Ledger()).fault is FaultClass.UNKNOWN


@pytest.mark.parametrize("action", [RecoveryAction.NONE, RecoveryAction.NODE_REBOOT])
def test_an_action_read_while_a_task_is_blocked_in_the_driver_is_unknown(action: RecoveryAction) -> None:
    """Nothing the driver says then is believed, neither the good nor the bad."""
    look = a_look(200, a_ktask(200, "D", frames="nvidia_ioctl/nvidia " + "do_syscall_64"))
    snapshot = replace(with_gpu(recovery_action=Known(action)), kernel={200: look})
    assert of(snapshot) is FaultClass.UNKNOWN
    assert of(replace(snapshot, exited=frozenset({look.ref}))) is ACTIONS[action]


@pytest.mark.parametrize("leaving", [Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING])
@pytest.mark.parametrize("domain", [FaultDomain.DRIVER, FaultDomain.HARDWARE])
def test_who_is_stuck_in_the_driver_for_its_hardware_blocks_too(
    leaving: Leaving, domain: FaultDomain
) -> None:
    """A spin in wait of the GPU's firmware shows no D and no stack, and is inside the driver all the same."""
    plight = a_plight(leaving=leaving, fault_domain=domain)
    snapshot = replace(with_gpu(recovery_action=Known(RecoveryAction.NONE)), plights={a_ref(): plight})
    assert [block.ref for block in driver_blocks(snapshot)] == [a_ref()]
    assert of(snapshot) is FaultClass.UNKNOWN


def test_who_is_blocked_in_the_driver() -> None:
    """A frame of the driver in D, or a judged plight with a driver's signature; nothing else."""
    inside = a_look(200, a_ktask(200, "D", frames="rm_ioctl/nvidia"))
    elsewhere = a_look(201, a_ktask(201, "D", frames="fuse_wait/fuse"))
    runs = a_look(202, a_ktask(202, "S", frames="rm_ioctl/nvidia"))
    looks = {200: inside, 201: elsewhere, 202: runs}
    plights = {a_ref(): a_plight(), a_ref(200): a_plight(ref=a_ref(200))}
    snapshot = a_snapshot(kernel=looks, plights=plights)
    assert [block.ref.pid for block in driver_blocks(snapshot)] == [100, 200]
    assert "rm_ioctl [nvidia]" in driver_blocks(snapshot)[1].text


@pytest.mark.parametrize(
    "change",
    [
        {"leaving": Leaving.PROGRESSING},
        {"fault_domain": FaultDomain.WORKLOAD},
        {"signature": ""},
    ],
)
def test_other_plights_block_nothing(change: dict[str, Any]) -> None:
    """One that still lets go, waits elsewhere, or is not known, is no block in the driver."""
    assert driver_blocks(a_snapshot(plights={a_ref(): a_plight(**change)})) == ()
    silent = a_plight(text="")
    assert "uvm-spin" in driver_blocks(a_snapshot(plights={a_ref(): silent}))[0].text
    gone = frozenset({a_ref()})
    assert driver_blocks(a_snapshot(plights={a_ref(): silent}, exited=gone)) == ()
