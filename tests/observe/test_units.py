"""What a stop of a unit would reach, asked of a `systemctl` that is a real program of the test's own."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.reset_facts import UnitFacts, UnitState
from reclaimerd.observe import units as units_module
from reclaimerd.observe.units import (
    FABRIC_MANAGER,
    SCHEDULERS,
    NoSystemd,
    UnitReader,
    facts_of,
    parse_show,
    units_of,
)

pytestmark = pytest.mark.process

PROGRAM = """#!/bin/sh
echo "$*" >> {folder}/asked
[ "$1" = show ] || exit 9
shift 4
for unit in "$@"; do
    if [ -f "{folder}/$unit" ]; then cat "{folder}/$unit"; else cat {folder}/nothing; fi
    echo
done
"""
NOTHING = "Id=\nLoadState=not-found\nActiveState=inactive\n"


class Units:
    """A folder of units and the program that shows them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "systemctl"
        self.write(PROGRAM.format(folder=folder))
        (folder / "nothing").write_text(NOTHING)

    def write(self, program: str) -> None:
        """Write the program."""
        self.program.write_text(program)
        self.program.chmod(0o755)

    def add(self, name: str, active: str = "active", **relations: str) -> None:
        """Load a unit."""
        rows = {"Id": name, "LoadState": "loaded", "ActiveState": active, **relations}
        (self.folder / name).write_text("".join(f"{key}={value}\n" for key, value in rows.items()))

    def read(self, *names: str) -> Reading[UnitFacts] | NoSystemd:
        """Return what the reader says."""
        reader = UnitReader(time.monotonic, systemctl=self.program, booted=self.folder)
        return asyncio.run(reader.read(names))

    def known(self, *names: str) -> UnitFacts:
        """Return the facts, which must be known."""
        found = self.read(*names)
        assert isinstance(found, Known), found
        return found.value

    def asked(self) -> list[str]:
        """Return the command lines so far."""
        return (self.folder / "asked").read_text().splitlines()


@pytest.fixture
def units(tmp_path: Path) -> Units:
    """Return a host whose systemd knows no unit."""
    return Units(tmp_path)


def test_units_that_are_not_there_are_named_as_not_loaded(units: Units) -> None:
    """One question, in systemctl's own form; no unit, no scheduler, no Fabric Manager."""
    facts = units.known("nvidia-dcgm.service")
    assert facts == UnitFacts((UnitState("nvidia-dcgm.service", loaded=False, active="inactive"),))
    (line,) = units.asked()
    assert line.startswith("show -p Id,LoadState,ActiveState,RequiredBy,BoundBy,ConsistsOf,PropagatesStopTo")
    assert " -- nvidia-dcgm.service kubelet.service " in line


def test_what_a_stop_reaches_is_walked_to_the_end(units: Units) -> None:
    """All four relations, three deep, a circle, and only those that run; what fails or is down is not."""
    units.add("nvidia-dcgm.service", RequiredBy="a.service down.service", BoundBy="b.service")
    units.add("a.service", ConsistsOf="c.service")
    units.add("b.service", "activating", PropagatesStopTo="nvidia-dcgm.service")
    units.add("c.service", RequiredBy="d.service")
    units.add("d.service", "failed")
    units.add("down.service", "inactive", RequiredBy="under.service")
    units.add("under.service", "deactivating")
    state = units.known("nvidia-dcgm.service").unit("nvidia-dcgm.service")
    assert state is not None
    assert state.stops_too == ("a.service", "b.service", "c.service", "under.service")
    assert (state.loaded, state.active, state.triggers) == (True, "active", ())


def test_what_may_start_it_again_is_named_and_not_walked(units: Units) -> None:
    """An active path unit; one that is down starts nothing; what hangs on them is not a matter of a stop."""
    units.add("p.service", TriggeredBy="p.path p.timer")
    units.add("p.path", RequiredBy="paths.target")
    units.add("p.timer", "inactive")
    state = units.known("p.service").unit("p.service")
    assert state == UnitState("p.service", loaded=True, active="active", triggers=("p.path",))
    assert "paths.target" not in units.asked()[-1]


def test_schedulers_and_the_fabric_manager_are_found_by_their_state(units: Units) -> None:
    """Active ones only; asked for beside the others, and not listed among them."""
    units.add("kubelet.service")
    units.add("slurmd.service", "inactive")
    units.add(FABRIC_MANAGER)
    facts = units.known()
    assert (facts.units, facts.schedulers, facts.fabric_manager) == ((), ("kubelet.service",), True)


def test_an_alias_is_itself(units: Units) -> None:
    """A unit asked for by another name is not among what a stop of it reaches."""
    units.add("alias.service", BoundBy="real.service x.service", Id="real.service")
    units.add("x.service")
    state = units.known("alias.service").unit("alias.service")
    assert state is not None
    assert state.stops_too == ("x.service",)


def test_a_unit_that_is_asked_for_twice_is_one(units: Units) -> None:
    """Also where the policy lists the Fabric Manager itself."""
    facts = units.known(FABRIC_MANAGER, FABRIC_MANAGER)
    assert [unit.name for unit in facts.units] == [FABRIC_MANAGER]


def test_a_walk_without_end_is_unreadable(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound nothing is known: half a walk would stop what nobody looked at."""
    monkeypatch.setattr(units_module, "MOST_UNITS", 9)
    units.add("a.service", BoundBy=" ".join(f"u{number}.service" for number in range(9)))
    assert units.read("a.service") == Unreadable("a stop would reach more than 9 units")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\necho 'no bus' >&2; exit 1\n", "systemctl show: exit code 1: no bus"),
        ("#!/bin/sh\nexit 4\n", "systemctl show: exit code 4: no words"),
        ("#!/bin/sh\necho Id=x\n", "systemctl showed 1 of 8 units"),
        ("#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8; do echo Id=x; echo; done\n", "does not tell the state of"),
        ("#!/bin/sh\nhead -c 70000 /dev/zero\n", "systemctl said too much"),
        ("#!/nonexistent\n", "systemctl can't be run: "),
    ],
)
def test_an_answer_that_is_none_is_unreadable(units: Units, program: str, why: str) -> None:
    """An error, half an answer, another form, a flood, no program: never "no unit"."""
    units.write(program)
    found = units.read("a.service")
    assert isinstance(found, Unreadable)
    assert why in found.why


def test_a_systemctl_that_hangs_is_ended_at_the_deadline(
    units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A systemd that does not answer costs so much and no more."""
    monkeypatch.setattr(units_module, "MOST_SECONDS", 0.3)
    units.write("#!/bin/sh\nexec sleep 600\n")
    began = time.monotonic()
    assert units.read("a.service") == Unreadable("systemctl took longer than 0.3 s")
    assert time.monotonic() - began < 5


def test_the_deadline_is_that_of_the_whole_walk(units: Units) -> None:
    """A second question after the time is up is not asked."""
    units.add("a.service", BoundBy="b.service")
    times = iter((0.0, 1.0, 5.0))
    reader = UnitReader(lambda: next(times), systemctl=units.program, booted=units.folder)
    assert asyncio.run(reader.read(["a.service"])) == Unreadable("systemctl took longer than 5 s")
    assert len(units.asked()) == 1


def test_a_host_without_systemd_says_so_and_runs_nothing(units: Units) -> None:
    """As sd_booted(3): no folder, no systemd."""
    reader = UnitReader(time.monotonic, systemctl=units.program, booted=units.folder / "no")
    assert asyncio.run(reader.read(["a.service"])) == NoSystemd()
    assert not (units.folder / "asked").exists()


def test_a_simulated_host_asks_its_own_systemctl_or_none(units: Units) -> None:
    """`DIR/systemctl` if it is there; never this machine's."""
    units.add("a.service")
    found = asyncio.run(units_of(time.monotonic, units.folder).read(["a.service"]))
    assert isinstance(found, Known)
    assert found.value.units[0].active == "active"
    units.program.unlink()
    assert asyncio.run(units_of(time.monotonic, units.folder).read(["a.service"])) == NoSystemd()
    assert units_of(time.monotonic, None)._systemctl == Path("/usr/bin/systemctl")


def test_a_unit_that_was_not_shown_counts_as_running() -> None:
    """Of whom nothing is known, nobody says that a stop does not reach it."""
    shown = {"a.service": {"LoadState": "loaded", "ActiveState": "active", "BoundBy": "b.service"}}
    facts = facts_of(shown, ["a.service"])
    assert facts.units[0].stops_too == ("b.service",)
    assert (facts.schedulers, facts.fabric_manager) == (SCHEDULERS, True)


def test_blocks_are_taken_in_the_order_asked() -> None:
    """By position: an alias shows another Id; a value may hold `=`."""
    text = "Id=b\nLoadState=loaded\nActiveState=active\nX=a=b\n\nLoadState=x\nActiveState=y\n"
    shown = parse_show(text, ["one", "two"])
    assert isinstance(shown, Mapping)
    assert (shown["one"]["X"], shown["two"]["ActiveState"]) == ("a=b", "y")
