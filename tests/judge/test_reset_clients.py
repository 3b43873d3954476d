"""Units that are ours to stop are steps; what their stop reaches, and what the kernel holds, refuses."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.reset_clients import stoppable_units
from reclaimerd.judge.reset_gate import reset_reasons
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import BusyThread, DisplayClient, ModuleUse
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind
from tests.builders import GPU_A, OURS, a_gpu, a_holder, a_process, a_row, a_snapshot, a_task, a_workload
from tests.judge.reset_builders import (
    a_unit,
    asking,
    kernel_facts,
    modules,
    ready,
    reset_policy,
    with_kernel,
    with_units,
)

DCGM = "nvidia-dcgm.service"
PERSISTENCED = FileIdentity(1, 50)
PERSISTENCED_FILE = {PERSISTENCED: "/usr/bin/nvidia-persistenced"}


def ask(snapshot: Snapshot, **settings: Any) -> tuple[Reason, ...]:
    """Return the gate's reasons for GPU A, with nobody as the target."""
    return reset_reasons(GPU_A, frozenset(), asking(snapshot, policy=reset_policy(**settings)))


def kinds(snapshot: Snapshot, **settings: Any) -> list[ReasonKind]:
    """Return the kinds of the reasons."""
    return [reason.kind for reason in ask(snapshot, **settings)]


def held_by(reading: ProcessReading, **overrides: Any) -> Snapshot:
    """Return a host whose GPU A this process has open."""
    row = a_holder(reading, listed=False)
    return a_snapshot(processes=[reading], holders=[row], **overrides)


def a_service(name: str = DCGM, pid: int = 70, **overrides: Any) -> ProcessReading:
    """Return a root process of a system unit."""
    fields: dict[str, Any] = {"uids": (0, 0, 0, 0), "workload": a_workload(name)}
    return a_process(pid, **(fields | overrides))


# Units


def test_a_holder_of_a_listed_unit_is_a_step_and_no_refusal() -> None:
    """DCGM holds the GPU, runs, and is listed: nothing refuses."""
    snapshot = held_by(a_service())
    assert ask(with_units(a_unit(), snapshot=snapshot)) == ()


@pytest.mark.parametrize(
    "unit",
    [a_unit(active="inactive"), a_unit(loaded=False), a_unit("nvsm.service")],
    ids=["stopped", "not loaded", "another"],
)
def test_a_unit_that_we_could_not_stop_excuses_nobody(unit: Any) -> None:
    """A left-over of a stopped unit, or one that systemd does not know, is a holder like any other."""
    reasons = ask(with_units(unit, snapshot=held_by(a_service())))
    assert [reason.kind for reason in reasons] == [ReasonKind.HOLDERS]
    assert DCGM in reasons[0].text


@pytest.mark.parametrize(
    "workload",
    [
        a_workload(DCGM, trusted=False),
        a_workload(DCGM, kind=WorkloadKind.SESSION),
        a_workload("other.service"),
    ],
    ids=["forged", "session", "not listed"],
)
def test_a_name_alone_excuses_nobody(workload: Any) -> None:
    """Only a unit that root's own cgroup directories prove, and that is listed, is ours to stop."""
    snapshot = held_by(a_service(workload=workload))
    assert kinds(with_units(a_unit(), snapshot=snapshot)) == [ReasonKind.HOLDERS]


def test_a_target_in_a_listed_unit_still_refuses() -> None:
    """The target of an incident is no client to be stopped on the way."""
    reading = a_service()
    context = asking(with_units(a_unit(), snapshot=held_by(reading)))
    found = reset_reasons(GPU_A, frozenset({reading.ref}), context)
    assert [reason.kind for reason in found] == [ReasonKind.HOLDERS]


def test_what_a_stop_would_reach_is_named_one_by_one() -> None:
    """Active units outside the list that would go too, or start it again: a reason for each."""
    unit = a_unit(stops_too=("dcgm-exporter.service", "x.service"), triggers=("y.path", "nvsm.service"))
    reasons = ask(with_units(unit))
    assert [reason.kind for reason in reasons] == [ReasonKind.CLIENT_UNIT] * 2
    assert "x.service" in reasons[0].text
    assert "y.path" in reasons[1].text
    listed = (DCGM, "dcgm-exporter.service", "x.service", "y.path", "nvsm.service")
    assert ask(with_units(unit), stop_units=listed) == ()


@pytest.mark.parametrize(("active", "refuses"), [("activating", True), ("failed", False)])
def test_a_unit_on_its_way_up_refuses(active: str, *, refuses: bool) -> None:
    """It may open the GPU in the next instant; one at rest may not, whatever hangs on it."""
    found = kinds(with_units(a_unit(active=active, stops_too=("x.service",))))
    assert found == ([ReasonKind.CLIENT_UNIT] if refuses else [])


def test_units_are_stopped_starters_first_and_the_widest_last() -> None:
    """A path unit before what it starts, and what hangs on another before that other."""
    units = (
        a_unit(DCGM, stops_too=("dcgm-exporter.service",), triggers=("nvsm.service",)),
        a_unit("dcgm-exporter.service"),
        a_unit("nvsm.service"),
        a_unit("nvidia-powerd.service", active="inactive"),
    )
    ordered = stoppable_units(reset_policy(), with_units(*units).reset_facts)
    assert [unit.name for unit in ordered] == ["nvsm.service", "dcgm-exporter.service", DCGM]
    assert stoppable_units(reset_policy(), None) == ()


def test_units_that_can_not_be_read_refuse_and_absent_ones_don_t() -> None:
    """A call that hung: unknown. No systemd at all: no unit to stop."""
    assert kinds(ready(units=Unreadable("hung"))) == [ReasonKind.UNREADABLE]
    assert kinds(ready(units=Absent("no systemd"))) == []
    held = ready(held_by(a_service()), units=Unreadable("hung"))
    assert kinds(held) == [ReasonKind.HOLDERS, ReasonKind.UNREADABLE]


def test_a_schedulers_host_needs_a_fence() -> None:
    """An agent runs: refused by name, unless the policy has a hook that asks for the fence."""
    snapshot = with_units(schedulers=("kubelet.service",))
    reasons = ask(snapshot)
    assert [reason.kind for reason in reasons] == [ReasonKind.FENCE]
    assert "kubelet.service" in reasons[0].text
    assert ask(snapshot, fence_hook="/usr/local/sbin/fence") == ()


# Known infrastructure


def persistenced(**overrides: Any) -> ProcessReading:
    """Return the host's own nvidia-persistenced."""
    fields: dict[str, Any] = {"exe_file": Known(PERSISTENCED), "uids": (120, 120, 120, 120)}
    return a_service("nvidia-persistenced.service", **(fields | overrides))


@pytest.mark.parametrize("workload", [a_workload("nvidia-persistenced.service"), a_workload("odd.service")])
def test_persistenced_is_expected_while_persistence_mode_is_on(workload: Any) -> None:
    """By its unit or as the host's own program: it lets go when asked by UUID, and is never stopped."""
    snapshot = held_by(persistenced(workload=workload), host_files=PERSISTENCED_FILE)
    assert ask(ready(snapshot)) == ()


def test_persistenced_without_persistence_mode_is_a_holder_by_name() -> None:
    """Nothing that we ask would make it go: known, not ours, refused."""
    gpu = a_gpu(persistence=Known(value=False))
    snapshot = held_by(persistenced(), gpus=(gpu,), host_files=PERSISTENCED_FILE)
    reasons = ask(ready(snapshot))
    assert [reason.kind for reason in reasons] == [ReasonKind.PROTECTED]
    assert "nvidia-persistenced" in reasons[0].text
    assert "not ours to stop" in reasons[0].text


def test_a_users_program_of_that_name_is_a_holder() -> None:
    """The name is free to anybody; only the host's own file in its own place is expected."""
    forged = a_process(comm="nvidia-persiste", exe=Known("/home/u/nvidia-persistenced"))
    reasons = ask(ready(held_by(forged)))
    assert [reason.kind for reason in reasons] == [ReasonKind.HOLDERS]
    assert "looks like nvidia-persistenced" in reasons[0].text


def test_our_own_worker_is_no_holder_until_it_leaves() -> None:
    """We close it before the reset; one that hangs in its exit refuses like anybody."""
    pid = min(OURS.workers)
    assert ask(ready(held_by(a_process(pid), gpus=(a_gpu(processes=[a_row(pid)]),)))) == ()
    assert ask(ready(held_by(a_process(OURS.pid)))) == ()
    leaving = a_process(pid, tasks=(a_task(pid, "D", 0x4),))
    assert kinds(ready(held_by(leaving))) == [ReasonKind.EXIT_PATH]


# What only the kernel knows


def test_a_deferred_close_refuses() -> None:
    """A kernel thread at work in the driver has no descriptor and no exit."""
    thread = BusyThread(77, "nv_queue", "nvidia_close_callback [nvidia]")
    reasons = ask(with_kernel(busy_threads=(thread,)))
    assert [reason.kind for reason in reasons] == [ReasonKind.DEFERRED_CLOSE]
    assert "nv_queue" in reasons[0].text


@pytest.mark.parametrize("name", ["nvidia_drm", "nvidia_modeset", "nvidia_peermem", "gdrdrv", "nvidia_fs"])
def test_a_kernel_client_refuses(name: str) -> None:
    """Displays, RDMA and storage hold GPUs without a process; an unloaded module holds none."""
    used = with_kernel(modules=modules(**{name: ModuleUse(name, Known(2), ("on_top",))}))
    assert kinds(used) == [ReasonKind.KERNEL_CLIENT]
    assert kinds(with_kernel(modules=modules(**{name: ModuleUse(name, Known(1), ("on_top",))}))) == []
    assert kinds(with_kernel(modules=modules(**{name: Absent("not loaded")}))) == []
    assert kinds(with_kernel(modules=modules(**{name: Unreadable("eio")}))) == [ReasonKind.UNREADABLE]
    unseen = tuple(module for module in modules() if module.name != name)
    assert kinds(with_kernel(modules=unseen)) == [ReasonKind.UNREADABLE]


@pytest.mark.parametrize("name", ["nvidia", "nvidia_uvm"])
def test_a_use_that_nobody_accounts_for_refuses(name: str) -> None:
    """More uses than modules on top and descriptors seen: somebody hidden."""
    used = modules(**{name: ModuleUse(name, Known(4), ("on_top",))})
    assert kinds(with_kernel(modules=used, opens=Known(2))) == [ReasonKind.KERNEL_CLIENT]
    assert kinds(with_kernel(modules=used, opens=Known(3))) == []
    for opens in (Unreadable("hung"), Absent("no such count")):
        blind = kinds(with_kernel(modules=used, opens=opens))
        assert set(blind) == {ReasonKind.UNREADABLE}
    uncounted = {one: Absent("this kernel does not count its users") for one in ("nvidia", "nvidia_uvm")}
    nothing = with_kernel(modules=modules(**uncounted), opens=Absent("no such count"))
    assert kinds(nothing) == []


def test_a_display_of_this_gpu_refuses_and_another_gpus_does_not() -> None:
    """By PCI address, in whichever form."""
    here = DisplayClient("0000:00:00.0", "card0-DP-1 is connected and enabled")
    there = DisplayClient("0000:77:00.0", "card1")
    reasons = ask(with_kernel(displays=(here, there)))
    assert [reason.kind for reason in reasons] == [ReasonKind.KERNEL_CLIENT]
    assert "card0-DP-1" in reasons[0].text


def test_another_reset_tool_and_what_was_skipped_refuse() -> None:
    """Somebody else's reset, and what the kernel search could not look at."""
    found = kinds(with_kernel(other_resets=(321,), skipped=("the stack of pid 9: no permission",)))
    assert found == [ReasonKind.UNREADABLE, ReasonKind.RESET_IN_FLIGHT]


@pytest.mark.parametrize("reading", [Unreadable("hung"), Absent("odd")])
def test_facts_that_were_not_read_at_all_refuse(reading: Any) -> None:
    """No word of NVML's or the kernel's is no word of consent."""
    assert kinds(ready(kernel=reading)) == [ReasonKind.UNREADABLE]
    assert kinds(ready(gpus=reading)) == [ReasonKind.UNREADABLE]
    assert kinds(ready(gpus=Known(()))) == [ReasonKind.UNREADABLE]
    assert kinds(a_snapshot()) == [ReasonKind.UNREADABLE]


def test_a_host_without_anything_odd_refuses_nothing() -> None:
    """The builders' host is one on which each of these tests can fail."""
    seen = a_snapshot()
    assert ask(ready(seen, kernel=Known(kernel_facts(seen.gpus)))) == ()
    assert ask(replace(ready(seen), simulated=True)) == ()
