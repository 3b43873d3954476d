"""The reset gate refuses for everybody still on the GPU, for every exiting task, and for every unknown."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.gates import explain
from reclaimerd.judge.reset_gate import reset_reasons
from reclaimerd.judge.reset_verdict import verified
from reclaimerd.model.identity import GpuUuid, ProcessRef
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.process import (
    PF_EXITING,
    PF_POSTCOREDUMP,
)
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    DeadListing,
    DriverReading,
    DriverState,
    GpuReading,
    RecoveryAction,
    ScanCoverage,
    Snapshot,
)
from reclaimerd.model.step import Reason, ReasonKind
from tests.builders import (
    GPU_A,
    GPU_B,
    a_busy_snapshot,
    a_gpu,
    a_holder,
    a_process,
    a_ref,
    a_row,
    a_snapshot,
    a_task,
)
from tests.judge.reset_builders import a_run, asking, ready


def ask(snapshot: Snapshot, *targets: ProcessRef, gpu: GpuUuid = GPU_A) -> tuple[Reason, ...]:
    """Return the gate's reasons on one snapshot."""
    return reset_reasons(gpu, frozenset(targets), asking(_whole(snapshot)))


def _whole(snapshot: Snapshot) -> Snapshot:
    return snapshot if snapshot.reset_facts is not None else ready(snapshot)


def kinds(snapshot: Snapshot, *targets: ProcessRef) -> list[ReasonKind]:
    """Return the kinds of the reasons."""
    return [reason.kind for reason in ask(snapshot, *targets)]


def with_gpu(**overrides: Any) -> Snapshot:
    """Return an idle host whose GPU differs in one field."""
    return a_snapshot(gpus=(replace(a_gpu(), **overrides),))


def test_an_idle_whole_and_healthy_host_is_not_refused() -> None:
    """Nobody on the GPU, everything read: the gate has nothing against it."""
    assert ask(a_snapshot()) == ()
    answer = explain(GPU_A, asking(ready()))
    assert answer.permitted
    assert any(GPU_A in step for step in answer.steps)


def test_a_refusal_is_explained_without_a_target() -> None:
    """Explaining names the living holder and how to end it."""
    answer = explain(GPU_A, asking(ready(a_busy_snapshot())))
    assert not answer.permitted
    assert answer.reasons[0].processes == (a_ref(),)
    assert "reclaimctl kill --pid 100@1" in answer.reasons[0].mend


def test_unknown_gpu_is_refused_by_name() -> None:
    """A UUID that was not seen is no GPU to reset."""
    reasons = ask(a_snapshot(), gpu=GpuUuid("GPU-none"))
    assert [reason.kind for reason in reasons] == [ReasonKind.GPU_UNKNOWN]


@pytest.mark.parametrize("letter", list("DRSIt"))
@pytest.mark.parametrize("flag", [PF_EXITING, PF_POSTCOREDUMP])
def test_an_exiting_task_refuses_in_any_letter(letter: str, flag: int) -> None:
    """One task in the exit path is enough, whatever its state letter and whoever it belongs to."""
    leaving = a_process(tasks=(a_task(100), a_task(101, letter, flag)))
    assert kinds(a_busy_snapshot(leaving)) == [ReasonKind.EXIT_PATH]
    assert f"101 in {letter}" in ask(a_busy_snapshot(leaving))[0].text


def test_a_remembered_holder_in_the_exit_path_refuses() -> None:
    """One that shows no descriptor any more, but held the GPU while healthy, counts."""
    leaving = a_process(tasks=(a_task(100, "D", PF_EXITING),))
    row = a_holder(leaving, listed=False, node=False, remembered=True)
    assert kinds(a_snapshot(processes=[leaving], holders=[row])) == [ReasonKind.EXIT_PATH]


def test_a_target_that_lost_its_descriptors_still_refuses() -> None:
    """A target inside the exit path is no holder by any sign; the gate looks at it all the same."""
    leaving = a_process(tasks=(a_task(100, "S", PF_EXITING),))
    reasons = ask(a_snapshot(processes=[leaving]), leaving.ref)
    assert [reason.kind for reason in reasons] == [ReasonKind.EXIT_PATH]
    assert "the target" in reasons[0].text


def test_every_living_holder_is_named_the_target_too() -> None:
    """A reset needs nobody: the target that lives refuses like any other."""
    snapshot = a_busy_snapshot(a_process(100), a_process(101))
    reasons = ask(snapshot, a_ref(100))
    assert [reason.kind for reason in reasons] == [ReasonKind.HOLDERS, ReasonKind.HOLDERS]
    assert "the target" in reasons[0].text
    assert reasons[1].processes == (a_ref(101),)


def test_a_holder_of_shared_nodes_only_may_hold_it() -> None:
    """Who has only nvidiactl or uvm open may hold any GPU, and refuses."""
    row = a_holder(listed=False, node=False, shared_node_only=True)
    reasons = ask(a_snapshot(processes=[a_process()], holders=[row]))
    assert [reason.kind for reason in reasons] == [ReasonKind.HOLDERS]
    assert "may hold it" in reasons[0].text


@pytest.mark.parametrize(("unreadable", "text"), [({100: "hung"}, "hung"), ({}, "not proven")])
def test_a_holder_that_can_not_be_read_refuses(unreadable: dict[int, str], text: str) -> None:
    """Not seen is not gone."""
    reasons = ask(a_snapshot(holders=[a_holder()], unreadable=unreadable))
    assert reasons[0].kind is ReasonKind.UNREADABLE
    assert text in reasons[0].text


@pytest.mark.parametrize(
    "gone",
    [
        {"exited": frozenset({a_ref()})},
        {"processes": {100: a_process(tasks=(a_task(100, "Z", PF_EXITING),))}},
        {"processes": {100: a_process(start=2)}},
        {"boot_id": "another-boot"},
    ],
    ids=["proven", "zombie", "pid reused", "another boot"],
)
def test_a_holder_proven_gone_refuses_nothing(gone: dict[str, Any]) -> None:
    """Proof of its end, a wholly dead process, a reused pid or an earlier boot: it holds nothing."""
    assert ask(replace(a_snapshot(holders=[a_holder()]), **gone), a_ref()) == ()


def test_rows_of_nvml_that_nobody_accounts_for_refuse() -> None:
    """A listed pid without a known holder, and a dead one still listed, both mean somebody holds."""
    gpu = a_gpu(processes=[a_row(7), a_row(8)])
    dead = (DeadListing(GPU_A, 8, Known(1)), DeadListing(GPU_B, 9, Known(1)))
    reasons = ask(a_snapshot(gpus=(gpu,), dead_listings=dead))
    assert [reason.kind for reason in reasons] == [ReasonKind.HOLDERS, ReasonKind.HOLDERS]
    assert "pid 7" in reasons[0].text
    assert "pid 8, which is dead" in reasons[1].text


@pytest.mark.parametrize("field", ["mig", "recovery_action", "persistence"])
def test_what_must_be_known_refuses_unreadable_and_not_absent(field: str) -> None:
    """An unreadable figure refuses; one that the vendor does not offer refuses nothing."""
    assert kinds(with_gpu(**{field: Unreadable("lost")})) == [ReasonKind.UNREADABLE]
    assert ask(with_gpu(**{field: Absent("not offered")})) == ()


@pytest.mark.parametrize("field", ["processes", "memory"])
@pytest.mark.parametrize("reading", [Unreadable("lost"), Absent("not offered")])
def test_what_the_verdict_compares_must_be_there(field: str, reading: Reading[Any]) -> None:
    """A reset that could never be verified would end in a drain: it is refused before anything is stopped."""
    snapshot = with_gpu(**{field: reading})
    assert kinds(snapshot) == [ReasonKind.UNREADABLE]
    assert "no reset can be verified" in ask(snapshot)[0].text
    assert verified(a_run(), ready(snapshot), Ledger())
    assert verified(a_run(), ready(with_gpu()), Ledger()) == ()


def test_utilisation_need_not_be_known() -> None:
    """Utilisation is no business of this gate."""
    assert ask(with_gpu(utilisation=Unreadable("lost"))) == ()


@pytest.mark.parametrize("action", list(RecoveryAction))
def test_recovery_actions(action: RecoveryAction) -> None:
    """Only none and the two that ask for a reset pass; any other, and any unknown, refuses."""
    passing = {RecoveryAction.NONE, RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET}
    expected = [] if action in passing else [ReasonKind.RECOVERY_ACTION]
    assert kinds(with_gpu(recovery_action=Known(action))) == expected


def test_mig_refuses() -> None:
    """A reset would end the instances of others."""
    assert kinds(with_gpu(mig=Known(value=True))) == [ReasonKind.MIG]


@pytest.mark.parametrize("state", list(DriverState))
@pytest.mark.parametrize("why", ["", "no answer for 9 s"])
def test_only_a_responsive_driver_passes(state: DriverState, why: str) -> None:
    """Slow, unresponsive and absent refuse, and say what is known."""
    snapshot = a_snapshot(driver=DriverReading(state, since=0.0, why=why))
    expected = [] if state is DriverState.RESPONSIVE else [ReasonKind.DRIVER_UNRESPONSIVE]
    assert kinds(snapshot) == expected
    assert all(why in reason.text for reason in ask(snapshot))


def test_an_unwhole_scan_refuses_with_each_gap() -> None:
    """No full scan in this look, what it skipped, and each unreadable pid are reasons of their own."""
    scan = ScanCoverage(full_at=None, full_now=False, skipped=("pid 9: descriptors: permission denied",))
    reasons = ask(a_snapshot(scan=scan, unreadable={12: "hung"}))
    assert [reason.kind for reason in reasons] == [ReasonKind.UNREADABLE] * 3
    assert "pid 9" in reasons[1].text
    assert "pid 12" in reasons[2].text


def test_every_reason_is_named_at_once() -> None:
    """A refusal is whole: nobody has to mend one thing to learn the next."""
    gpu: GpuReading = replace(
        a_gpu(mig=Known(value=True)),
        memory=Unreadable("lost"),
        recovery_action=Known(RecoveryAction.UNKNOWN),
    )
    leaving = a_process(101, tasks=(a_task(101, "D", PF_EXITING),))
    snapshot = a_snapshot(
        gpus=(gpu,),
        processes=[a_process(), leaving],
        holders=[a_holder(), a_holder(leaving)],
        driver=DriverReading(DriverState.SLOW, since=0.0),
        scan=ScanCoverage(None, full_now=False),
    )
    assert set(kinds(snapshot)) == {
        ReasonKind.DRIVER_UNRESPONSIVE,
        ReasonKind.HOLDERS,
        ReasonKind.EXIT_PATH,
        ReasonKind.UNREADABLE,
        ReasonKind.RECOVERY_ACTION,
        ReasonKind.MIG,
    }
