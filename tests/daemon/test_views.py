"""What people read of the daemon: nothing unknown as zero, and every concern named."""

import asyncio
import json
from dataclasses import replace
from typing import Any, cast

from reclaimerd.daemon.faults import FaultMemory
from reclaimerd.daemon.news import News
from reclaimerd.daemon.views import (
    driver_view,
    incident_row,
    process_view,
    ps_view,
    status_sentence,
    status_view,
)
from reclaimerd.model.incident import Stage, Subject
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.policy import GateSettings
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_run import (
    Change,
    ChangeKind,
    ChangeState,
    GpuBreaker,
    ResetPhase,
    Untouchable,
)
from reclaimerd.model.snapshot import (
    DeadListing,
    DriverReading,
    DriverState,
)
from tests.builders import (
    BOOT,
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
    a_rule,
    a_snapshot,
    a_target,
    a_task,
    an_incident,
)
from tests.daemon.test_news import FakeLog
from tests.fakes import Rig, a_rig
from tests.judge.reset_builders import a_run

CALM = a_policy(a_rule(above=70 * GIB))


def seen(rig: Rig) -> Rig:
    """Return the rig after one pass."""
    asyncio.run(rig.passes())
    return rig


def listed(value: object) -> list[dict[str, Any]]:
    """Return a view's rows."""
    return cast("list[dict[str, Any]]", value)


def test_before_the_first_look_nothing_is_said_of_the_host() -> None:
    """No rows, no GPUs, and words that say that nobody looked."""
    cycle = a_rig(a_snapshot()).cycle
    assert ps_view(cycle)["rows"] == []
    assert status_view(cycle, {})["driver"] == {"state": "not read yet", "text": "no look yet"}
    assert status_sentence(cycle) == "starting"
    assert process_view(cycle, 100) is None


def test_status_names_all_that_stops_acts() -> None:
    """Pause, HOLD, breaker, record fault, settling and handed-over incidents, each in words."""
    policy = replace(CALM, gates=GateSettings(settling_seconds=60.0))
    rig = seen(a_rig(a_busy_snapshot(), policy, hold_file=lambda _policy: "/run/HOLD"))
    rig.cycle.started_mono = MONO
    handed = an_incident(end_text="no stage is left")
    rig.cycle.state.handed = {handed.id: handed}
    rig.cycle.state.record_fault = "no space left"
    rig.cycle.state.ledger = Ledger(
        spends=(Spend(SpendKind.WORKLOAD, "x", WALL), Spend(SpendKind.WORKLOAD, "y", WALL, dry_run=True)),
        pause=Pause("root", "lunch", WALL, WALL + 60),
        breaker=Breaker("too many", WALL),
    )
    view = status_view(rig.cycle, {"pid": 7})
    assert view["paused"] == {"by": "root", "reason": "lunch", "since": WALL, "until": WALL + 60}
    assert view["hold"] == "/run/HOLD"
    assert view["breaker"] == {"reason": "too many", "since": WALL}
    assert view["settling_seconds_left"] == 59.0
    assert view["budget"] == {"resets_left_today": 2, "workloads_left_today": 2, "drains_left_today": 1}
    assert view["pid"] == 7
    attention = " | ".join(view["attention"])  # type: ignore[arg-type]  # a list of sentences
    for word in ("no space left", "too many", "/run/HOLD", "inc-1"):
        assert word in attention
    json.dumps(view)


def test_a_healthy_host_asks_for_no_attention() -> None:
    """An empty list is exit 0 of `status`."""
    rig = seen(a_rig(a_busy_snapshot(), CALM))
    assert status_view(rig.cycle, {})["attention"] == []
    assert status_sentence(rig.cycle) == "enforce: 2 GPUs, 1 holders, 0 incidents"


def test_a_silent_driver_is_named_in_the_one_sentence() -> None:
    """The service manager shows it without a command."""
    silent = DriverReading(DriverState.UNRESPONSIVE, MONO - 5, "no answer for 5 s")
    rig = seen(a_rig(a_snapshot(driver=silent), CALM))
    assert "driver unresponsive (no answer for 5 s)" in status_sentence(rig.cycle)
    assert status_view(rig.cycle, {})["attention"]


def test_no_driver_is_told_and_breaks_no_view() -> None:
    """Nothing to watch; a remembered holder of a GPU that is not read any more breaks no table."""
    absent = DriverReading(DriverState.ABSENT, MONO, "no library")
    rig = seen(a_rig(a_snapshot(driver=absent, gpus=[], holders=[a_holder(remembered=True)]), CALM))
    assert status_sentence(rig.cycle) == "no NVIDIA driver: nothing to watch"
    assert ps_view(rig.cycle)["rows"] == []
    assert status_view(rig.cycle, {})["attention"] == ["no NVIDIA driver: nothing to watch (no library)"]


def test_an_unreadable_figure_is_none_and_never_zero() -> None:
    """Memory, share and utilisation: None, and the note says why."""
    blind = a_gpu(memory=Unreadable("timeout"), utilisation=Absent("not offered while MIG is enabled"))
    holder = a_holder(used_bytes=Unreadable("no permission"))
    rig = seen(a_rig(a_snapshot(gpus=[blind], processes=[a_process()], holders=[holder]), CALM))
    (row,) = listed(ps_view(rig.cycle)["rows"])
    assert row["used_bytes"] is None
    assert row["share_percent"] is None
    assert row["utilisation_percent"] is None
    assert "no permission" in row["note"]
    (gpu,) = listed(status_view(rig.cycle, {})["gpus"])
    assert gpu["used_bytes"] is None
    assert "timeout" in gpu["note"]


def test_a_holder_that_can_not_be_read_is_a_row_that_says_so() -> None:
    """Its uid and age are unknown, its state tells why."""
    rig = seen(a_rig(a_snapshot(holders=[a_holder()], unreadable={100: "no answer"}), CALM))
    (row,) = listed(ps_view(rig.cycle)["rows"])
    assert row["uid"] is None
    assert row["state"] == "unreadable (no answer)"


def test_each_way_of_holding_has_its_word() -> None:
    """Listed, by node, by a shared node, remembered, and as an heir with whose context it is."""
    holders = [
        a_holder(a_process(100)),
        a_holder(a_ref(101), node=False),
        a_holder(a_ref(102), listed=False),
        a_holder(a_ref(103), listed=False, node=False, shared_node_only=True),
        a_holder(a_ref(104), listed=False, node=False, remembered=True),
        a_holder(a_ref(105), listed=False, heir_of=a_ref(99)),
    ]
    dead = DeadListing(GPU_A, 99, Known(GIB))
    rig = seen(a_rig(a_snapshot(holders=holders, processes=[a_process()], dead_listings=(dead,)), CALM))
    view = ps_view(rig.cycle)
    rows = view["rows"]
    assert isinstance(rows, list)
    assert [row["how"] for row in rows] == [
        "listed+node",
        "listed",
        "node",
        "shared node",
        "remembered",
        "heir",
    ]
    assert "99@1" in rows[5]["note"]
    assert view["dead"] == [
        {
            "gpu": GPU_A,
            "pid": 99,
            "used_bytes": GIB,
            "holders": [str(a_ref(pid)) for pid in (102, 103, 104, 105)],
        }
    ]


def test_inspect_shows_verdict_protection_incident_and_tasks() -> None:
    """All that decides about one process, in one object that is plain JSON."""
    rig = seen(a_rig(a_busy_snapshot(a_process(tasks=(a_task(), a_task(101, "R")))), a_policy()))
    view = process_view(rig.cycle, 100)
    assert view is not None
    assert view["verdict"]["ruling"] == "reclaim"  # type: ignore[index]  # an object
    assert view["protection"] is None
    assert view["incident"] in rig.cycle.state.incidents
    assert [task["tid"] for task in view["process"]["tasks"]] == [100, 101]  # type: ignore[index]  # an object
    json.dumps(view)
    assert process_view(rig.cycle, 4242) is None


def test_inspect_names_the_protection() -> None:
    """Ourselves are protected, and it says by what."""
    rig = seen(a_rig(a_snapshot(processes=[a_process(900)]), CALM))
    view = process_view(rig.cycle, 900)
    assert view is not None
    assert view["protection"]["by"] == "built-in"  # type: ignore[index]  # an object
    assert view["verdict"] is None


def test_a_silent_driver_s_age_counts_from_its_first_silence() -> None:
    """Evidence and since are shown, never a negative age."""
    reading = DriverReading(DriverState.UNRESPONSIVE, MONO - 7.0, "hung", Known("580"), "stack")
    view = driver_view(reading, MONO)
    assert (view["since_seconds"], view["evidence"], view["version"]) == (7.0, "stack", "580")
    assert driver_view(reading, MONO - 100)["since_seconds"] == 0.0


def test_an_incident_row_counts_from_its_opening() -> None:
    """Open: no end; the ref is PID@START."""
    row = incident_row(an_incident(), a_snapshot(at=MONO + 12.0))
    assert (row["ref"], row["end"], row["since_seconds"]) == ("100@1", "", 12.0)


def test_status_tells_of_resets_breakers_and_what_is_not_watched() -> None:
    """Where each stands and what it changed; who must not be touched, and what a person has to do."""
    rig = seen(a_rig(a_busy_snapshot(), CALM, news=News(FakeLog(fault="no log"), None)))
    change = Change(ChangeKind.UNIT, "nvidia-dcgm.service", "active", ChangeState.MADE)
    run = a_run(phase=ResetPhase.VERIFY, phase_at=WALL, changes=(change,), text="looking")
    over = an_incident(
        subject=Subject.GPU, stage=Stage.HANDED_OVER, end_text="refused", target=a_target(command="GPU 0 (x)")
    )
    rig.cycle.state.ledger = Ledger(
        resets=(run,),
        untouchable=(Untouchable((GPU_A,), BOOT, WALL, "the tool hangs"),),
        gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL),),
    )
    rig.cycle.state.handed = {over.id: over}
    view = status_view(rig.cycle, {})
    (reset,) = listed(view["resets"])
    assert (reset["phase"], reset["gpus"], reset["text"]) == ("verify", [GPU_A], "looking")
    assert reset["changed"] == ["unit nvidia-dcgm.service: made"]
    assert view["not_watched"] == ["no log"]
    assert listed(view["do_not_touch"]) == [{"gpus": [GPU_A], "since": WALL, "why": "the tool hangs"}]
    assert listed(view["gpu_breakers"]) == [{"gpu": GPU_A, "reason": "failed twice", "since": WALL}]
    concerns = cast("list[str]", view["attention"])
    assert f"DO NOT TOUCH {GPU_A}: the tool hangs; reboot the node" in concerns
    assert any(one.startswith(f"no reset of {GPU_A} any more: failed twice") for one in concerns)
    assert f"incident {over.id} (GPU 0 (x)) was handed over: refused" in concerns


def test_settling_counts_again_from_the_drivers_last_change_of_hands() -> None:
    """As it does from our own start."""
    rig = seen(a_rig(a_busy_snapshot(), replace(CALM, gates=GateSettings(settling_seconds=100.0))))
    assert status_view(rig.cycle, {})["settling_seconds_left"] == 0.0
    rig.cycle.state.faults = FaultMemory(changed_mono=rig.now[0] - 30.0)
    assert status_view(rig.cycle, {})["settling_seconds_left"] == 70.0
