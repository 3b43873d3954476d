"""The simulation's systemctl, spoken to by the very code that starts a drain target by systemd's."""

import asyncio
from pathlib import Path

import pytest

from reclaimerd.act.drain_unit import DrainUnit
from reclaimerd.act.unit_mark import UnitMark
from reclaimerd.model.drain_policy import UnitTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.units import SimulatedUnit, read_units
from tests.act.drain_builders import a_request
from tests.builders import BOOT
from tests.rigs.simulated import TWO_GPUS

pytestmark = pytest.mark.process
UNIT = "reclaimerd-drain.target"


def test_a_drain_target_is_started_and_stopped(tmp_path: Path) -> None:
    """Missing it is a lasting no; then it is started once, kept if it is another's, and stopped if ours."""

    async def write(path: Path, content: bytes) -> None:
        await asyncio.to_thread(path.write_bytes, content)

    with Keeper(tmp_path / "sim", TWO_GPUS) as keeper:
        mark = UnitMark(tmp_path / "drain-unit.json", BOOT, write)
        target = DrainUnit(str(keeper.systemctl), UnitTarget(UNIT), mark, any_owner=True)
        missing = asyncio.run(target.request(a_request()))
        assert isinstance(missing, NotAsked)
        assert missing.lasting
        keeper.place_units(SimulatedUnit(UNIT, active=True))
        assert isinstance(asyncio.run(target.request(a_request())), Foreign)
        keeper.place_units(SimulatedUnit(UNIT, active=False))
        assert asyncio.run(target.request(a_request())) == Asked(f"{UNIT} is active")
        assert read_units(keeper.directory).state(UNIT) == "active"
        assert asyncio.run(target.status(a_request())) == Asked(f"{UNIT} is active")
        assert asyncio.run(target.withdraw(a_request())) == Asked(f"{UNIT} is stopped")
        assert read_units(keeper.directory).state(UNIT) == "inactive"
