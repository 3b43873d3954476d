"""The simulated host's systemd units, DIR/units.toml: their state, what a stop reaches, how they fail.

An active unit may run a real process of the simulation. It may not start or end one: that is the
keeper's, and `systemctl` asks it.
"""

import contextlib
import fcntl
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.simulation.claims import read_start_ticks
from reclaimerd.simulation.toml_table import Table

UNITS_FILE = "units.toml"
UNITS_LOCK = ".units.lock"
UNITS_LOG = "systemctl.log"


@dataclass(frozen=True, slots=True)
class SimulatedUnit:
    """One unit. `workload` are the options of the process that it runs while active, [] for none.

    The four lists are systemd's own properties; a stop takes along who is required by, bound by, part
    of or told by it. `fail_stop` and `fail_start` say why the job fails. `returns`: it is active again
    right after its stop, as with a socket or a path unit. `cgroup` is a cgroup directory that exists,
    for its process ("": where it was started). `pid` and `start_ticks` are its process.
    """

    name: str
    active: bool = True
    workload: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    bound_by: tuple[str, ...] = ()
    consists_of: tuple[str, ...] = ()
    propagates_stop_to: tuple[str, ...] = ()
    triggered_by: tuple[str, ...] = ()
    fail_stop: str = ""
    fail_start: str = ""
    slow_stop_seconds: float = 0.0
    slow_start_seconds: float = 0.0
    returns: bool = False
    cgroup: str = ""
    pid: int = 0
    start_ticks: int = 0

    @property
    def stops_too(self) -> tuple[str, ...]:
        """Return the units that are stopped with this one."""
        return (*self.required_by, *self.bound_by, *self.consists_of, *self.propagates_stop_to)

    def running(self, pid: int) -> "SimulatedUnit":
        """Put this process (0: none) where the unit's belong, and return the unit active with it."""
        if pid and self.cgroup:
            (Path(self.cgroup) / "cgroup.procs").write_text(str(pid), encoding="ascii")
        return replace(self, active=True, pid=pid, start_ticks=(read_start_ticks(pid) or 0) if pid else 0)


_KEYS: Mapping[str, str] = {"slow_stop_seconds": "slow_stop", "slow_start_seconds": "slow_start"}


@dataclass(frozen=True, slots=True)
class SimulatedUnits:
    """All units by name."""

    units: Mapping[str, SimulatedUnit] = field(default_factory=dict)

    def state(self, name: str) -> str:
        """Return a unit's ActiveState; a unit whose process died by itself has failed."""
        unit = self.units.get(name)
        if unit is None or not unit.active:
            return "inactive"
        if unit.workload and read_start_ticks(unit.pid) != unit.start_ticks:
            return "failed"
        return "active"

    def with_unit(self, unit: SimulatedUnit) -> "SimulatedUnits":
        """Return the same with one unit added or changed."""
        return SimulatedUnits({**self.units, unit.name: unit})


def read_units(directory: Path) -> SimulatedUnits:
    """Return DIR/units.toml, no units without it; raises UnsuitableHostError that names every fault."""
    path = directory / UNITS_FILE
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("unit", [])
    except FileNotFoundError:
        return SimulatedUnits()
    except ValueError as error:
        raise UnsuitableHostError(f"{path}: not TOML: {error}", "mend the file") from error
    faults: list[str] = []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UnsuitableHostError(f"{path}: unit: must be [[unit]] tables", "mend the file")
    units = [_unit_from(row, faults) for row in rows]
    if len({unit.name for unit in units}) != len(units):
        faults.append("unit: two units have the same name")
    if faults:
        raise UnsuitableHostError(f"{path}: {'; '.join(faults)}", "mend the file")
    return SimulatedUnits({unit.name: unit for unit in units})


def _unit_from(row: Mapping[str, object], faults: list[str]) -> SimulatedUnit:
    table = Table(f"unit {row.get('name', '?')}: ", row, faults)
    unit = SimulatedUnit(
        name=table.text("name"),
        active=table.flag("active"),
        workload=table.texts("workload"),
        required_by=table.texts("required_by"),
        bound_by=table.texts("bound_by"),
        consists_of=table.texts("consists_of"),
        propagates_stop_to=table.texts("propagates_stop_to"),
        triggered_by=table.texts("triggered_by"),
        fail_stop=table.text("fail_stop", ""),
        fail_start=table.text("fail_start", ""),
        slow_stop_seconds=table.number("slow_stop"),
        slow_start_seconds=table.number("slow_start"),
        returns=table.flag("returns"),
        cgroup=table.text("cgroup", ""),
        pid=int(table.number("pid")),
        start_ticks=int(table.number("start_ticks")),
    )
    table.finish()
    return unit


def workload_argv(directory: Path, options: Sequence[str]) -> list[str]:
    """Return the command of a workload with these options."""
    return [sys.executable, "-m", "reclaimerd.simulation.workload", "--dir", str(directory), *options]


def is_unit_active(directory: Path, name: str) -> bool:
    """Tell whether a unit of this host is active."""
    return read_units(directory).state(name) == "active"


def write_units(directory: Path, units: Sequence[SimulatedUnit]) -> None:
    """Write DIR/units.toml in one step."""
    lines: list[str] = []
    for unit in units:
        lines.append("[[unit]]")
        lines += [f"{_KEYS.get(name, name)} = {json.dumps(getattr(unit, name))}" for name in unit.__slots__]
    fresh = directory / f".{UNITS_FILE}.{os.getpid()}"
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fresh.replace(directory / UNITS_FILE)


def change_unit(directory: Path, name: str, change: Callable[[SimulatedUnit], SimulatedUnit]) -> None:
    """Change one unit; two changes at once take turns. Raises KeyError for an unknown unit."""
    with _units_lock(directory):
        known = read_units(directory)
        write_units(directory, tuple(known.with_unit(change(known.units[name])).units.values()))


@contextlib.contextmanager
def _units_lock(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / UNITS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def note_job(directory: Path, verb: str, name: str) -> None:
    """Append one job that changed a unit's state to DIR/systemctl.log."""
    with (directory / UNITS_LOG).open("a", encoding="utf-8") as log:
        log.write(f"{verb} {name}\n")


def read_jobs(directory: Path) -> tuple[str, ...]:
    """Return the jobs that changed a unit's state ("stop NAME", "start NAME"), oldest first."""
    try:
        return tuple((directory / UNITS_LOG).read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return ()
