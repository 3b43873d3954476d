"""The simulated systemctl: states, propagation and failures of units, with real processes behind them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.keeper_door import ask_at_door
from reclaimerd.simulation.units import SimulatedUnit, read_jobs, read_units, write_units
from tests.e2e.cgroups import cgroup
from tests.rigs.simulated import TWO_GPUS, state_of

pytestmark = pytest.mark.process
DCGM = SimulatedUnit(
    "nvidia-dcgm.service", workload=("--gpu", "GPU-a"), consists_of=("dcgm-exporter.service",)
)
EXPORTER = SimulatedUnit("dcgm-exporter.service", workload=("--gpu", "GPU-b", "--ignore-term"))


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    """Return a simulated host with two GPUs, in a directory too deep for a socket's path."""
    with Keeper(tmp_path / ("deep" * 30) / "sim", TWO_GPUS) as standing:
        yield standing


def systemctl(keeper: Keeper, *words: str) -> tuple[int, str, str]:
    """Run it; return its exit code, output and complaint."""
    done = subprocess.run([keeper.systemctl, *words], capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, done.stdout, done.stderr


def test_show_prints_systemd_s_form(keeper: Keeper) -> None:
    """One block a unit, keys in its own order, an unknown unit is not-found and inactive."""
    keeper.place_units(SimulatedUnit("a.service", consists_of=("b.service", "c.service")))
    words = (
        "show",
        "-p",
        "ActiveState,LoadState",
        "-p",
        "Id",
        "-p",
        "ConsistsOf",
        "--",
        "a.service",
        "z.service",
    )
    known = "Id=a.service\nConsistsOf=b.service c.service\nLoadState=loaded\nActiveState=active\n"
    unknown = "Id=z.service\nConsistsOf=\nLoadState=not-found\nActiveState=inactive\n"
    assert systemctl(keeper, *words) == (0, f"{known}\n{unknown}", "")
    assert systemctl(keeper, "show", "--value", "--property=ActiveState", "a.service")[1] == "active\n"


def test_a_stop_ends_the_process_and_a_start_brings_another(keeper: Keeper) -> None:
    """The unit's process holds its GPU while it is active; others of the host stay."""
    keeper.place_units(DCGM, EXPORTER)
    other = keeper.launch("--gpu", "GPU-a").pid
    pids = {name: unit.pid for name, unit in read_units(keeper.directory).units.items()}
    assert systemctl(keeper, "is-active", "nvidia-dcgm.service") == (0, "active\n", "")
    assert systemctl(keeper, "stop", "nvidia-dcgm.service") == (0, "", "")
    assert [state_of(pid) for pid in pids.values()] == ["gone", "gone"]
    assert systemctl(keeper, "is-active", "nvidia-dcgm.service") == (3, "inactive\n", "")
    assert systemctl(keeper, "stop", "nvidia-dcgm.service")[0] == 0
    assert systemctl(keeper, "start", "nvidia-dcgm.service") == (0, "", "")
    fresh = read_units(keeper.directory).units["nvidia-dcgm.service"]
    assert state_of(fresh.pid) == "S"
    assert state_of(other) == "S"
    assert read_jobs(keeper.directory) == (
        "stop dcgm-exporter.service",
        "stop nvidia-dcgm.service",
        "start nvidia-dcgm.service",
    )


@pytest.mark.root
def test_a_unit_s_process_lies_in_the_unit_s_cgroup(keeper: Keeper) -> None:
    """At its first start and at each later one: /proc says whose it is, as on a real host."""
    name = f"simulated-{os.getpid()}.service"
    with cgroup(name) as folder:
        keeper.place_units(SimulatedUnit(name, workload=("--gpu", "GPU-a"), cgroup=str(folder)))
        first = read_units(keeper.directory).units[name].pid
        assert name in Path(f"/proc/{first}/cgroup").read_text()
        assert systemctl(keeper, "stop", name)[0] == 0
        assert systemctl(keeper, "start", name)[0] == 0
        second = read_units(keeper.directory).units[name].pid
        assert second != first
        assert name in Path(f"/proc/{second}/cgroup").read_text()
        assert systemctl(keeper, "stop", name)[0] == 0


def test_failing_jobs_change_nothing(keeper: Keeper) -> None:
    """A unit that does not stop goes on, one that does not start stays down; each says why and what it is."""
    keeper.place_units(
        SimulatedUnit("stays.service", workload=("--gpu", "GPU-a"), fail_stop="busy"),
        SimulatedUnit("down.service", active=False, fail_start="broken"),
        SimulatedUnit("bad.service", active=False, workload=("--gpu", "GPU-z")),
    )
    code, out, err = systemctl(keeper, "stop", "stays.service")
    assert (code, out) == (1, "")
    assert err.startswith("Job for stays.service failed: busy\n(simulation")
    assert systemctl(keeper, "is-active", "-q", "stays.service") == (0, "", "")
    assert systemctl(keeper, "start", "down.service")[0] == 1
    assert "no such GPU" in systemctl(keeper, "start", "bad.service")[2]
    assert systemctl(keeper, "stop", "none.service")[0] == 5
    assert systemctl(keeper, "start", "none.service")[0] == 5
    assert read_jobs(keeper.directory) == ()


def test_a_unit_that_returns_is_active_again(keeper: Keeper) -> None:
    """As with a path unit: the stop succeeds, and another process is there."""
    keeper.place_units(SimulatedUnit("p.service", workload=("--gpu", "GPU-a"), returns=True))
    first = read_units(keeper.directory).units["p.service"].pid
    assert systemctl(keeper, "stop", "p.service")[0] == 0
    second = read_units(keeper.directory).units["p.service"].pid
    assert second != first
    assert read_units(keeper.directory).state("p.service") == "active"


def test_a_unit_whose_process_died_has_failed(keeper: Keeper) -> None:
    """Nobody stopped it, and it is not active; a start brings it back."""
    keeper.place_units(DCGM)
    pid = read_units(keeper.directory).units[DCGM.name].pid
    assert ask_at_door(keeper.directory, {"op": "end", "pids": [pid]}) == {"left": []}
    assert systemctl(keeper, "is-active", DCGM.name) == (3, "failed\n", "")
    assert systemctl(keeper, "start", DCGM.name)[0] == 0
    assert read_units(keeper.directory).state(DCGM.name) == "active"


def test_the_door_ends_nobody_else_and_never_the_simulation(keeper: Keeper) -> None:
    """A pid that is no descendant of the keeper is left alone; stop is its controller's."""
    with subprocess.Popen(["/usr/bin/sleep", "60"]) as stranger:
        assert ask_at_door(keeper.directory, {"op": "end", "pids": [stranger.pid]}) == {"left": []}
        assert stranger.poll() is None
        stranger.kill()
    assert "error" in ask_at_door(keeper.directory, {"op": "stop"})
    assert keeper.launch("--gpu", "GPU-a").pid


def test_units_survive_the_way_through_the_file(tmp_path: Path) -> None:
    """Every field is written and read; no file is no units; faults come together."""
    assert read_units(tmp_path).units == {}
    lists = (("--gpu", "G"), ("r",), ("b",), ("c",), ("p",), ("t",))
    unit = SimulatedUnit('a "b".service', False, *lists, "x", "y", 0.5, 0.25, True, "/c", 7, 8)
    write_units(tmp_path, [unit])
    assert read_units(tmp_path).units == {unit.name: unit}
    (tmp_path / "units.toml").write_text('[[unit]]\nname = 3\nactive = "no"\nspeed = 1\n')
    with pytest.raises(UnsuitableHostError) as caught:
        read_units(tmp_path)
    for word in ("name", "active", "speed"):
        assert word in caught.value.message
    for text in ("unit = 3", "= 3", '[[unit]]\nname = "a"\n[[unit]]\nname = "a"\n'):
        (tmp_path / "units.toml").write_text(text)
        with pytest.raises(UnsuitableHostError):
            read_units(tmp_path)
