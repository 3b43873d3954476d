"""The metrics of one moment: right figures, and no series for what is unknown."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from reclaimerd.daemon.metrics import MetricFacts, Values, metrics_of
from reclaimerd.daemon.tally import Buckets, Tally
from reclaimerd.judge.plight import PlightSettings
from reclaimerd.judge.series import Past, Point, Series
from reclaimerd.model.drain import Ask, AskState, DrainPhase, NodeDrain
from reclaimerd.model.fault import FaultClass, StandingXid
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Stage
from reclaimerd.model.kernel import Leaving, Plight, TaskCondition
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Suspension
from reclaimerd.model.outlets import NotifyTarget
from reclaimerd.model.policy import FaultDomain, Signature
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_run import GpuBreaker, Untouchable
from reclaimerd.model.snapshot import DriverReading, DriverState, RecoveryAction, Snapshot
from tests.act.drain_builders import a_request
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_policy,
    a_ref,
    a_rule,
    a_snapshot,
    an_incident,
)
from tests.fakes import Rig, a_rig

CALM = a_policy(a_rule(above=70 * GIB))
KNOWN_PLACE = Signature("known-place", "a place", "m", "m", FaultDomain.DRIVER)


def after_a_pass(snapshot: Snapshot, **overrides: object) -> Rig:
    """Return a rig that has looked once."""
    rig = a_rig(snapshot, CALM, **overrides)
    asyncio.run(rig.passes())
    return rig


def values(rig: Rig, name: str, tally: Tally | None = None) -> Values:
    """Return one metric's series now."""
    found = metrics_of(rig.cycle, MetricFacts(tally or Tally(), WALL - 60)).get(f"reclaimerd_{name}", {})
    assert not isinstance(found, Buckets)
    return found


def chosen(series: Values) -> list[str]:
    """Return the last label of the series that are 1, of a family that marks one word of a set."""
    return [labels[-1] for labels, value in series.items() if value == 1]


def plights(*signatures: str) -> Mapping[ProcessRef, Plight]:
    """Return stuck processes, one in each place."""
    return {
        a_ref(pid): Plight(
            a_ref(pid), TaskCondition.EXITING, Leaving.STUCK_BLOCKED, MONO, MONO, 3, "stuck", signature=name
        )
        for pid, name in enumerate(signatures, start=300)
    }


def test_before_the_first_look_nothing_is_said_of_gpus() -> None:
    """What the daemon knows of itself is there; what nobody looked at has no series."""
    rig = a_rig(a_busy_snapshot(), CALM)
    names = metrics_of(rig.cycle, MetricFacts(Tally(), WALL))
    assert values(rig, "start_time_seconds") == {(): WALL - 60}
    assert values(rig, "last_pass_timestamp_seconds") == {}
    assert values(rig, "audit_head_sequence") == {}
    assert not [name for name in names if name.startswith("reclaimerd_gpu_")]
    assert "reclaimerd_driver_state" not in names


def test_a_gpu_s_figures() -> None:
    """Memory, holders and contexts of each GPU by its UUID."""
    rig = after_a_pass(a_busy_snapshot())
    seen = rig.cycle.state.snapshot
    assert seen is not None
    memory = {gpu.uuid: gpu.memory for gpu in seen.gpus}
    for gpu, reading in memory.items():
        assert isinstance(reading, Known)
        assert values(rig, "gpu_memory_used_bytes")[gpu,] == reading.value.used_bytes
        assert values(rig, "gpu_memory_total_bytes")[gpu,] == reading.value.total_bytes
    assert values(rig, "gpu_holders") == {(GPU_A,): 1, (GPU_B,): 0}
    assert values(rig, "gpu_contexts") == {(GPU_A,): 1, (GPU_B,): 0}
    assert chosen(values(rig, "gpu_recovery_action")) == ["none", "none"]


def test_what_can_t_be_read_is_never_zero() -> None:
    """An unreadable figure has no series; the other GPU keeps its own."""
    blind = Unreadable("no permission")
    gpus = (a_gpu(GPU_A), replace(a_gpu(GPU_B), memory=blind, processes=blind, recovery_action=blind))
    rig = after_a_pass(a_snapshot(gpus=gpus))
    for name in ("gpu_memory_used_bytes", "gpu_memory_total_bytes", "gpu_contexts"):
        assert set(values(rig, name)) == {(GPU_A,)}, name
    assert {labels[0] for labels in values(rig, "gpu_recovery_action")} == {GPU_A}


def test_growth_is_the_slope_of_all_holders_where_one_is_kept() -> None:
    """10 MB/s and 5 MB/s are 15; a series that is not full says nothing; of two windows the longer counts."""

    def series(
        pid: int, rate: float, window: float, *, full: bool = True
    ) -> dict[tuple[object, ...], Series]:
        points = tuple(Point(MONO + at, MONO + at, int(rate * at), None) for at in range(int(window) + 1))
        since = MONO if full else MONO + 1
        return {(a_ref(pid), GPU_A, window): Series(since, window, points)}

    rig = after_a_pass(a_busy_snapshot())
    kept = series(100, 10e6, 100.0) | series(101, 5e6, 100.0) | series(101, 99e6, 50.0)
    rig.cycle.state.past = Past(series=kept | series(102, 77e6, 100.0, full=False))  # type: ignore[arg-type]  # keys as `Key`
    assert values(rig, "gpu_growth_bytes_per_second") == {(GPU_A,): pytest.approx(15e6, rel=1e-6)}
    rig.cycle.state.past = Past()
    assert values(rig, "gpu_growth_bytes_per_second") == {}


def test_the_last_xid_counts() -> None:
    """Of two that stand the later one, with its time."""
    rig = after_a_pass(a_busy_snapshot())
    xids = (
        StandingXid(GPU_A, BOOT, 79, FaultClass.LOST, 9, WALL - 5),
        StandingXid(GPU_A, BOOT, 31, FaultClass.APPLICATION, 4, WALL - 50),
    )
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=xids)
    assert values(rig, "gpu_last_xid") == {(GPU_A,): 79}
    assert values(rig, "gpu_last_xid_timestamp_seconds") == {(GPU_A,): WALL - 5}


def test_what_stops_acts_is_one() -> None:
    """Pause, HOLD, breaker, record fault, GPUs that nobody may touch, dry run."""
    rig = after_a_pass(a_busy_snapshot())
    names = ("paused", "hold", "breaker_open", "record_fault", "dry_run")
    assert {name: values(rig, name)[()] for name in names} == dict.fromkeys(names, 0)
    rig.cycle.joints = replace(rig.cycle.joints, hold_file=lambda _policy: "/run/HOLD", dry_run=True)
    rig.cycle.state.record_fault = "no space"
    rig.cycle.state.ledger = Ledger(
        pause=Pause("root", "lunch", WALL),
        breaker=Breaker("too many", WALL),
        gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL),),
        untouchable=(Untouchable((GPU_B,), BOOT, WALL, "hangs"),),
    )
    assert {name: values(rig, name)[()] for name in names} == dict.fromkeys(names, 1)
    assert values(rig, "gpu_breaker_open") == {(GPU_A,): 1, (GPU_B,): 0}
    assert values(rig, "gpu_do_not_touch") == {(GPU_A,): 0, (GPU_B,): 1}
    assert chosen(values(rig, "mode")) == ["enforce"]
    assert set(values(rig, "budget_left")) == {("workloads",), ("resets",), ("drains",)}


def test_a_silent_driver_s_time_runs_on_between_looks() -> None:
    """It is counted from when it fell silent to now, not to the last look."""
    silent = DriverReading(DriverState.UNRESPONSIVE, MONO - 5, "no answer")
    rig = after_a_pass(a_snapshot(driver=silent))
    rig.now[0] = MONO + 100
    assert values(rig, "driver_unresponsive_seconds") == {(): 105}
    assert chosen(values(rig, "driver_state")) == ["unresponsive"]
    calm = after_a_pass(a_snapshot())
    assert values(calm, "driver_unresponsive_seconds") == {(): 0}


def test_stuck_processes_by_known_places_alone() -> None:
    """A name that neither package nor policy knows is `other`, none is `unknown`; a slow one is none."""
    settings = PlightSettings(signatures=(KNOWN_PLACE,))
    rig = after_a_pass(a_busy_snapshot(), plight_settings=lambda _policy: settings)
    seen = rig.cycle.state.snapshot
    assert seen is not None
    found = plights("known-place", "known-place", "made-up", "", "known-place")
    slow = {a_ref(304): replace(found[a_ref(304)], leaving=Leaving.PROGRESSING)}
    rig.cycle.state.snapshot = replace(seen, plights={**found, **slow})
    assert values(rig, "stuck_tasks") == {("known-place",): 2, ("other",): 1, ("unknown",): 1}


def test_incidents_by_stage() -> None:
    """Open ones by their stage, those handed over besides; every stage has a series."""
    rig = after_a_pass(a_busy_snapshot())
    one = an_incident(stage=Stage.SIGTERM)
    rig.cycle.state.incidents = {one.id: one}
    rig.cycle.state.handed = {one.id: replace(one, stage=Stage.HANDED_OVER)}
    found = values(rig, "incidents")
    assert found["sigterm",] == found["handed_over",] == 1
    assert sum(found.values()) == 2
    assert ("reclaimed",) not in found


def test_a_drain_request_s_state() -> None:
    """Its phase, each target, and its place; without one every phase is 0."""
    rig = after_a_pass(a_busy_snapshot())
    assert chosen(values(rig, "drain_phase")) == []
    assert values(rig, "drain_slot") == {(): 0}
    asks = (Ask("webhook", AskState.FAILED), Ask("file", AskState.ASKED))
    drain = NodeDrain(a_request(), BOOT, WALL, (), asks, phase=DrainPhase.STANDS, has_slot=True)
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, drain=drain)
    assert chosen(values(rig, "drain_phase")) == ["stands"]
    assert values(rig, "drain_target") == {("webhook", "failed"): 1, ("file", "asked"): 1}
    assert values(rig, "drain_slot") == {(): 1}


def test_series_that_alerts_look_at_begin_at_zero() -> None:
    """`increase` does not see the first one of a series that was not there."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, notices=(NotifyTarget("on-call", "https://x/"),)))
    asyncio.run(rig.passes())
    tally = Tally()
    tally.resets[GPU_A, "reset_done"] = 2
    assert values(rig, "resets_total", tally)[GPU_A, "reset_done"] == 2
    assert values(rig, "resets_total", tally)[GPU_B, "reset_not_verified"] == 0
    assert values(rig, "notices_total")["on-call", "dropped"] == 0


def test_every_word_of_the_driver_has_a_series() -> None:
    """An action that we know has its label, so an alert sees it come."""
    gpu = a_gpu(GPU_A, recovery_action=Known(RecoveryAction.NODE_REBOOT))
    found = values(after_a_pass(a_snapshot(gpus=(gpu,))), "gpu_recovery_action")
    assert {labels[1] for labels in found} == {action.value for action in RecoveryAction}
    assert chosen(found) == ["node_reboot"]


def test_rules_that_are_held_back_and_calls_that_were_denied() -> None:
    """Suspended ones, and those of a staged rollout by whether this host is in; every denied call counts."""
    rig = after_a_pass(a_busy_snapshot())
    assert values(rig, "suspended_rules") == {(): 0}
    assert values(rig, "staged_rules") == {("yes",): 0, ("no",): 0}
    rules = [a_rule(name, enforce_on_percent=50.0) for name in ("in", "out", "out-too")]
    rig.cycle.policy = replace(a_policy(*rules, a_rule("whole")), enforces_here=frozenset({"in", "whole"}))
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, suspended=(Suspension("in", "ann", "", WALL),))
    rig.cycle.state.denied = 70
    assert values(rig, "suspended_rules") == {(): 1}
    assert values(rig, "staged_rules") == {("yes",): 1, ("no",): 2}
    assert values(rig, "denied_calls_total") == {(): 70}
    assert values(rig, "audit_anchored_sequence") == {}
