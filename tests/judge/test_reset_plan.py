"""The plan changes what must be and no more, and says what was before."""

from dataclasses import replace
from typing import Any

from reclaimerd.judge.reset_plan import HOST, plan_of
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import (
    ErrorCounters,
    Generation,
    GpuSetting,
    NvLinks,
    SettingKind,
    UnitFacts,
)
from reclaimerd.model.reset_run import Change, ChangeKind, ChangeState
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GIB, GPU_A, GPU_B, a_gpu, a_snapshot
from tests.judge.reset_builders import (
    a_unit,
    asking,
    before,
    gpu_facts,
    ready,
    reset_policy,
    with_facts,
    with_units,
)


def changes(snapshot: Snapshot, **settings: Any) -> list[tuple[ChangeKind, str, str]]:
    """Return what a reset of GPU A would change."""
    plan = plan_of(GPU_A, asking(snapshot, policy=reset_policy(**settings)))
    assert {change.state for change in plan.changes} <= {ChangeState.PLANNED}
    return [(change.kind, change.name, change.before) for change in plan.changes]


def test_an_idle_gpu_with_persistence_on_changes_that_alone() -> None:
    """Persistence mode is a step of the plan, asked by UUID, with what it was."""
    assert changes(ready()) == [(ChangeKind.PERSISTENCE, GPU_A, "1")]
    off = ready(a_snapshot(gpus=(a_gpu(persistence=Known(value=False)),)))
    assert changes(off) == []


def test_only_what_runs_is_stopped() -> None:
    """A listed unit that is not active, and an active one that is not listed, are left as they are."""
    units = (a_unit(), a_unit("nvsm.service", active="inactive"), a_unit("other.service"))
    found = [change for change in changes(with_units(*units)) if change[0] is ChangeKind.UNIT]
    assert found == [(ChangeKind.UNIT, "nvidia-dcgm.service", "active")]


def test_the_fence_comes_before_anything_is_stopped() -> None:
    """On a scheduler's host it is the first change, and the last to be undone."""
    snapshot = with_units(a_unit(), schedulers=("slurmd.service",))
    plan = plan_of(GPU_A, asking(snapshot))
    assert [change.kind for change in plan.changes] == [
        ChangeKind.FENCE,
        ChangeKind.UNIT,
        ChangeKind.PERSISTENCE,
    ]
    assert plan.changes[0] == Change(ChangeKind.FENCE, HOST, "", text="host of slurmd.service")
    assert "slurmd.service" in plan.steps[0]
    assert "fence" in plan.steps[-1]


def test_settings_are_kept_that_differ_and_can_be_read() -> None:
    """A default needs no writing back; one that can't be read can't be, and the plan says so."""
    settings = (
        GpuSetting(SettingKind.POWER_LIMIT, Known("300.00")),
        GpuSetting(SettingKind.COMPUTE_MODE, Known("0"), is_default=True),
        GpuSetting(SettingKind.ACCOUNTING_MODE, Unreadable("no permission")),
        GpuSetting(SettingKind.APPLICATION_CLOCKS, Absent("not supported")),
    )
    snapshot = with_facts(gpu_facts(settings=settings))
    found = [change for change in changes(snapshot) if change[0] is ChangeKind.SETTING]
    assert found == [(ChangeKind.SETTING, f"{GPU_A} power_limit", "300.00")]
    steps = plan_of(GPU_A, asking(snapshot)).steps
    assert any("accounting_mode can't be read" in step for step in steps)
    assert not any("clocks" in step for step in steps)


def test_the_checklist_names_the_command_and_undoes_in_reverse() -> None:
    """The one command with the UUID, its deadline, and what is put back last first."""
    steps = plan_of(GPU_A, asking(with_units(a_unit()))).steps
    (tool,) = [step for step in steps if "nvidia-smi" in step]
    assert f"--gpu-reset -i {GPU_A}," in tool
    assert "300 s" in tool
    assert steps[-1] == "start the unit nvidia-dcgm.service again"
    assert steps[-2].startswith("persistence mode on again")


def test_what_the_verdict_compares_with_is_kept() -> None:
    """Counters, baseline and address as they were; None where they were not read."""
    counters = ErrorCounters(Known(3), Absent("no such"), Unreadable("x"))
    snapshot = replace(with_facts(gpu_facts(counters=counters)), baselines={GPU_A: 5})
    (kept,) = plan_of(GPU_A, asking(snapshot)).before
    expected = before(
        pci_address="00000000:00:00.0",
        uncorrected_ecc=3,
        remapped_rows=None,
        remap_failed=None,
        baseline_bytes=5,
        total_bytes=80 * GIB,
    )
    assert kept == expected


def test_peers_are_in_one_plan() -> None:
    """Every member's persistence and what it was, in one command."""
    pair = tuple(
        gpu_facts(
            uuid,
            index,
            generation=Known(Generation.BEFORE_AMPERE),
            links=Known(NvLinks(1, (f"0000:0{1 - index}:00.0",))),
        )
        for index, uuid in enumerate((GPU_A, GPU_B))
    )
    plan = plan_of(GPU_B, asking(with_facts(*pair), policy=reset_policy(peers=True)))
    assert plan.gpus == (GPU_B, GPU_A)
    assert [change.name for change in plan.changes] == [GPU_B, GPU_A]
    assert [kept.uuid for kept in plan.before] == [GPU_B, GPU_A]
    assert any(f"-i {GPU_B},{GPU_A}," in step for step in plan.steps)


def test_a_plan_without_facts_changes_nothing_it_does_not_know() -> None:
    """A GPU that was not seen, or a look without facts, plans no change that nobody could undo."""
    plan = plan_of(GPU_B, asking(a_snapshot()))
    assert plan.changes == ()
    assert plan.before[0].total_bytes == 0
    assert plan.before[0].uncorrected_ecc is None
    assert plan_of(GPU_A, asking(ready(units=Known(UnitFacts(()))))).changes[0].kind is ChangeKind.PERSISTENCE
