"""The simulation's nvidia-smi and systemctl, spoken to by the very code that speaks to the vendor's."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.clients import Clients, ClientTools
from reclaimerd.act.placement import ChildPlace
from reclaimerd.act.reset import ResetTool
from reclaimerd.act.reset_texts import outcome_of_tool
from reclaimerd.model.identity import AttemptId, GpuUuid
from reclaimerd.model.incident import OutcomeKind
from reclaimerd.model.policy import ResetSettings
from reclaimerd.model.ports import ChangeFailed, ChangeMade, ToolEnded, ToolRuns
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_facts import UnitState
from reclaimerd.model.reset_run import Change, ChangeKind
from reclaimerd.observe.units import UnitReader
from reclaimerd.simulation.claims import read_start_ticks
from reclaimerd.simulation.host import change_simulated_host, read_simulated_host
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.smi_reset import read_resets
from reclaimerd.simulation.units import SimulatedUnit, read_units
from tests.rigs.simulated import TWO_GPUS

pytestmark = pytest.mark.process
UUID = GpuUuid("GPU-a")
RUN = AttemptId("inc-1.1")
DCGM, EXPORTER, KUBELET = "nvidia-dcgm.service", "dcgm-exporter.service", "kubelet.service"


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host whose first GPU has persistence mode on, and a power limit of its own."""
    gpus = (replace(TWO_GPUS[0], persistence=True, power_limit="300.00"), TWO_GPUS[1])
    with Keeper(tmp_path / "sim", gpus) as standing:
        yield standing


def clients_of(keeper: Keeper) -> Clients:
    """Return the hands that stop and start."""
    tools = ClientTools(str(keeper.systemctl), str(keeper.smi), any_owner=True)
    return Clients(tools, lambda: ResetSettings(unit_seconds=15.0), lambda: "inc-1")


def tool_of(keeper: Keeper, directory: Path) -> ResetTool:
    """Return the reset tool over the simulation's nvidia-smi."""

    async def start_ticks_of(pid: int) -> int | None:
        return read_start_ticks(pid)

    async def stack_of(_pid: int) -> str:
        return ""

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    place = ChildPlace()
    return ResetTool(
        str(keeper.smi),
        directory,
        place,
        boot_id,
        start_ticks_of,
        stack_of,
        any_owner=True,
    )


def test_units_are_read_as_systemd_s_are(keeper: Keeper) -> None:
    """State, what a stop reaches, what may start it again, and the scheduler."""
    keeper.place_units(
        SimulatedUnit(DCGM, consists_of=(EXPORTER,), triggered_by=("dcgm.path",)),
        SimulatedUnit(EXPORTER),
        SimulatedUnit("dcgm.path"),
        SimulatedUnit(KUBELET),
    )
    reader = UnitReader(time.monotonic, keeper.systemctl, keeper.directory)
    read = asyncio.run(reader.read([DCGM, "nvsm.service"]))
    assert isinstance(read, Known), read
    assert read.value.unit(DCGM) == UnitState(
        DCGM, loaded=True, active="active", stops_too=(EXPORTER,), triggers=("dcgm.path",)
    )
    assert read.value.unit("nvsm.service") == UnitState("nvsm.service", loaded=False, active="inactive")
    assert read.value.schedulers == (KUBELET,)
    assert not read.value.fabric_manager


def test_clients_are_stopped_and_put_back(keeper: Keeper) -> None:
    """Unit, persistence mode and every setting: made, read back, undone, read back."""
    keeper.place_units(SimulatedUnit(DCGM, workload=("--gpu", "GPU-a")))
    clients = clients_of(keeper)
    unit = Change(ChangeKind.UNIT, DCGM, "active")
    persistence = Change(ChangeKind.PERSISTENCE, UUID, "1")
    for change in (unit, persistence):
        assert isinstance(asyncio.run(clients.make(change)), ChangeMade)
    assert read_units(keeper.directory).state(DCGM) == "inactive"
    assert not read_simulated_host(keeper.directory).gpus[0].persistence
    settings = {
        "power_limit": "250.00",
        "compute_mode": "3",
        "accounting_mode": "1",
        "application_clocks": "2619,1200",
    }
    undone = [Change(ChangeKind.SETTING, f"{UUID} {kind}", value) for kind, value in settings.items()]
    for change in (*undone, persistence, unit):
        assert isinstance(asyncio.run(clients.undo(change)), ChangeMade)
    gpu = read_simulated_host(keeper.directory).gpus[0]
    assert gpu.persistence
    assert {kind: getattr(gpu, kind) for kind in settings} == settings
    assert read_units(keeper.directory).state(DCGM) == "active"


def test_a_change_that_is_only_said_is_a_failure(keeper: Keeper) -> None:
    """A unit that stays, and a persistence mode that the tool only claims to have set."""
    keeper.place_units(SimulatedUnit(DCGM, fail_stop="busy"))
    fail = {"GPU-a": {"set_persistence": "silent"}}
    change_simulated_host(keeper.directory, lambda host: replace(host, fail=fail))
    clients = clients_of(keeper)
    for change in (Change(ChangeKind.UNIT, DCGM, "active"), Change(ChangeKind.PERSISTENCE, UUID, "1")):
        assert isinstance(asyncio.run(clients.make(change)), ChangeFailed)


@pytest.mark.parametrize(
    ("how", "meaning"),
    [
        ("", OutcomeKind.RESET_DONE),
        ("in_use", OutcomeKind.RESET_REFUSED),
        ("not_supported", OutcomeKind.RESET_REFUSED),
        ("lost", OutcomeKind.FAILED),
        ("silent", OutcomeKind.RESET_NOT_VERIFIED),
    ],
)
def test_the_tool_s_words_are_understood(
    keeper: Keeper, tmp_path: Path, how: str, meaning: OutcomeKind
) -> None:
    """Run as the product runs it, once; what it says means what it did."""
    change_simulated_host(
        keeper.directory,
        lambda host: replace(
            host,
            gpus=(replace(host.gpus[0], persistence=False), host.gpus[1]),
            fail={"GPU-a": {"reset": how}} if how else {},
        ),
    )
    tool = tool_of(keeper, tmp_path / "resets")
    assert tool.fault() == ""

    async def run() -> ToolEnded:
        assert await tool.prepare(RUN, (UUID,)) == ""
        begun = await tool.start(RUN, time.monotonic() + 20.0)
        assert isinstance(begun, ToolRuns), begun
        again = await tool.start(RUN, time.monotonic() + 20.0)
        assert isinstance(again, ToolRuns), again
        ended = await tool.wait(RUN, 20.0)
        assert isinstance(ended, ToolEnded), ended
        return ended

    ended = asyncio.run(run())
    assert outcome_of_tool(ended.code, ended.text).kind is meaning
    assert len(read_resets(keeper.directory)) == (0 if meaning is OutcomeKind.RESET_REFUSED else 1)
