"""A reset step by step up to the tool: what refuses leaves everything as it was."""

from dataclasses import replace

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.ports import Look
from reclaimerd.model.reset_run import ChangeState, ResetPhase, ResetResult
from tests.builders import BOOT, GPU_A, GPU_B, WALL
from tests.daemon.reset_ends import MADE, SETTING, UNDONE, assert_ended, assert_refused_and_restored, run
from tests.daemon.reset_host import CHANGES, DCGM, EXPORTER, RUN, TOOL, FakeHost, with_changes

DAY_SECONDS = 86400.0


def test_a_reset_goes_through_every_phase_and_puts_everything_back() -> None:
    """Fence, units, persistence mode, the tool once; then all back, the settings after persistence mode."""
    host = FakeHost()
    run(host)
    assert host.acts == [*MADE, "tool", *UNDONE]
    assert host.resets == host.tool.runs == 1
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")
    phases = [one.action for one in host.of_kind(RecordKind.RESET_STEP)]
    order = [phase for at, phase in enumerate(phases) if at == 0 or phases[at - 1] != phase]
    assert order == ["prepare", "fence", "stop_clients", "look_again", "reset", "verify", "restore"]
    assert {(one.incident, one.attempt) for one in host.records} == {("inc-1", RUN)}


def test_the_first_record_names_everything_that_will_be_changed() -> None:
    """Before anything is done the record has each change with what was before, and the GPUs."""
    host = FakeHost()
    run(host)
    evidence = host.records[0].evidence
    assert [change.name in line for change, line in zip(CHANGES, evidence, strict=False)] == [True] * 5
    assert f"stop {DCGM}; before: active" in evidence
    assert evidence[-1] == f"reset {GPU_A}"


def test_what_the_verification_compares_with_is_taken_before_the_tool_runs() -> None:
    """The kernel log's last record and the tool's start are durable with the phase."""
    host = FakeHost()
    run(host)
    assert host.run.kernel_seq == 41
    assert host.run.tool == TOOL
    assert host.run.tool_at is not None


def test_a_verified_reset_takes_away_the_xids_of_its_gpus_alone() -> None:
    """Another GPU's fault stands."""
    host = FakeHost()
    mine = StandingXid(GPU_A, BOOT, 95, FaultClass.RESET, 7, WALL)
    host.ledger = replace(host.ledger, xids=(mine, replace(mine, gpu=GPU_B)))
    run(host)
    assert [xid.gpu for xid in host.ledger.xids] == [GPU_B]


@pytest.mark.parametrize("last_seq", [41, None], ids=["by the log's numbers", "by time"])
def test_what_came_after_the_verifying_look_stands(last_seq: int | None) -> None:
    """A pass has put it into the ledger before the result is written: it is a new fault."""
    old = StandingXid(GPU_A, BOOT, 95, FaultClass.RESET, 41, WALL - DAY_SECONDS)
    fresh = replace(old, code=48, seq=42, at=WALL + DAY_SECONDS)
    removed = replace(old, code=79, fault=FaultClass.LOST, seq=0, at=WALL + DAY_SECONDS)

    def a_pass_beside(_count: int, _look: Look) -> None:
        if host.tool.runs:
            host.ledger = replace(host.ledger, xids=(old, fresh, removed))

    host = FakeHost(last_seq=last_seq, on_look=a_pass_beside)
    run(host)
    assert host.run.result is ResetResult.VERIFIED
    assert host.ledger.xids == (fresh, removed)


def test_a_tool_that_cannot_be_run_here_refuses_before_anything_is_changed() -> None:
    """All refusals that can be known come first."""
    host = FakeHost()
    host.tool.why_not = "no systemd here"
    run(host)
    assert host.acts == []
    assert_refused_and_restored(host, "no systemd here")


@pytest.mark.parametrize(
    ("phase", "made"),
    [
        (ResetPhase.PREPARE, 0),
        (ResetPhase.FENCE, 0),
        (ResetPhase.STOP_CLIENTS, 1),
        (ResetPhase.LOOK_AGAIN, len(MADE)),
    ],
)
def test_a_leave_that_is_taken_back_is_none_in_any_phase_before_the_tool(
    phase: ResetPhase, made: int
) -> None:
    """No further step is taken, not even the fence is asked for; what was changed is put back."""
    host = FakeHost(withdrawn_in=phase)
    run(host)
    assert len([act for act in host.acts if act.startswith("make")]) == made
    assert_refused_and_restored(host, "the mode is observe by now")


def test_a_fence_that_is_not_read_back_stops_nothing() -> None:
    """No client is stopped before the fence stands; a fence that may be half made is released."""
    host = FakeHost(fails={"make node-1": 1})
    run(host)
    assert host.acts == ["make node-1", "undo node-1"]
    assert_refused_and_restored(host, "the scheduler's fence does not stand: it did not")


def test_a_host_without_a_scheduler_needs_no_fence() -> None:
    """No FENCE change planned is no refusal."""
    host = FakeHost()
    with_changes(host, *CHANGES[1:])
    run(host)
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")
    assert "fence: no scheduler owns this host, so there is no fence" in host.texts


@pytest.mark.parametrize(("name", "made"), [(DCGM, 2), (EXPORTER, 3), (GPU_A, 4)])
def test_a_client_that_does_not_stop_refuses_and_what_was_stopped_comes_back(name: str, made: int) -> None:
    """Later clients are never touched: not stopped, and above all not started."""
    host = FakeHost(fails={f"make {name}": 1})
    run(host)
    assert host.acts[:made] == MADE[:made]
    undone = [f"undo {change.name}" for change in CHANGES[:made]]
    assert sorted(host.acts[made:]) == sorted([*undone, f"undo {SETTING}"])
    assert_refused_and_restored(host, "it did not")


def test_a_holder_that_came_while_the_fence_was_asked_refuses_before_a_client_is_stopped() -> None:
    """Nobody's monitoring is stopped for a reset that can't be."""
    host = FakeHost()
    host.holders.add(300)
    run(host)
    assert host.acts == ["make node-1", "undo node-1"]
    assert_refused_and_restored(host, "pid 300 holds it")


def test_what_somebody_else_has_stopped_is_neither_stopped_nor_started() -> None:
    """A unit that is down and a persistence mode that is off by now are not ours to put back."""
    host = FakeHost(persistence=False)
    host.units[DCGM] = "inactive"
    host.holders.discard(200)
    run(host)
    assert f"make {DCGM}" not in host.acts
    assert host.units[DCGM] == "inactive"
    assert host.persistence is False
    assert host.run.changes[1].state is ChangeState.PLANNED
    assert (host.run.phase, host.run.result) == (ResetPhase.DONE, ResetResult.VERIFIED)


def test_a_stopped_client_has_a_moment_to_vanish() -> None:
    """Its process may hold the GPU a little longer; then the reset goes on."""
    host = FakeHost(lingers_for=3.0)
    run(host)
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_a_stopped_client_that_does_not_vanish_refuses_in_bounded_time() -> None:
    """The wait has the policy's limit."""
    host = FakeHost(lingers_for=1e9)
    began = host.now
    run(host)
    assert host.now - began < host.policy.reset.unit_seconds + 5.0
    assert_refused_and_restored(host, "pid 200 holds it")
    refusals = [one.refusals for one in host.of_kind(RecordKind.RESET_STEP) if one.refusals]
    assert [reason.processes[0].pid for reason in refusals[0]] == [200, 201]


def test_a_newcomer_refuses_at_once() -> None:
    """A race is an ordinary outcome: nobody waits for somebody who has just come."""
    host = FakeHost()
    host.on_look = lambda count, _look: host.holders.add(300) if count == 2 else None
    run(host)
    assert len(host.looks) == 2
    assert_refused_and_restored(host, "pid 300 holds it")


def test_a_grip_of_our_own_that_cannot_be_closed_refuses() -> None:
    """An NVML client is a holder, our own too."""
    host = FakeHost(grip_closes=False)
    run(host)
    assert_refused_and_restored(host, "our own view of the driver can't be closed")


@pytest.mark.parametrize("pid", range(300, 400))
def test_whoever_comes_before_the_last_look_is_never_reset_over(pid: int) -> None:
    """A hundred races: the last look, without the driver, sees the newcomer, and no tool starts."""
    host = FakeHost()
    host.on_look = lambda _count, look: host.holders.add(pid) if look.without_driver else None
    run(host)
    assert host.looks[-1] == Look(full_scan=True, deep=True, reset=True, without_driver=True)
    assert_refused_and_restored(host, f"pid {pid} holds it")
    assert host.run.tool is None


def test_a_last_look_that_is_too_old_is_made_again() -> None:
    """Two slow judgements, and a third in time."""
    host = FakeHost(gate_delays=[0.3, 0.25])
    run(host)
    assert sum(look.without_driver for look in host.looks) == 3
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_three_last_looks_that_are_too_old_refuse() -> None:
    """No reset by what was true a while ago."""
    host = FakeHost(gate_delays=[0.3, 0.3, 0.3])
    run(host)
    assert sum(look.without_driver for look in host.looks) == 3
    assert_refused_and_restored(host, "could not be started within 0.2 s of 3 last looks")


@pytest.mark.parametrize("look", [1, 2, 3])
@pytest.mark.parametrize("error", [ReclaimerdError("no answer"), KeyError("no answer")], ids=["known", "bug"])
def test_eyes_that_fail_before_the_tool_refuse(look: int, error: Exception) -> None:
    """Whatever can't be seen refuses, a bug of ours too, and the way leads back."""
    host = FakeHost()

    def fail(count: int, _look: Look) -> None:
        if count == look:
            raise error

    host.on_look = fail
    run(host)
    assert_refused_and_restored(host, "no answer")


def test_units_that_cannot_be_read_are_taken_as_they_were_when_planned() -> None:
    """What was running by the plan is stopped, and comes back."""
    host = FakeHost(units_readable=False)
    run(host)
    assert host.acts == [*MADE, "tool", *UNDONE]
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")


def test_the_ledgers_kernel_record_stands_in_where_no_look_had_one() -> None:
    """Of this boot only: another boot's numbers mean nothing."""
    for boot, seq in ((BOOT, 17), ("another boot", None)):
        host = FakeHost(last_seq=None)
        host.ledger = replace(host.ledger, kernel_seq=17, kernel_boot=boot)
        run(host)
        assert host.run.kernel_seq == seq
