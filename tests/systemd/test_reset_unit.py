"""Claims about the reset tool and the clients under a real systemd."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.rigs.simulated import wait_until
from tests.systemd.nspawn import Machine, boot, lines_of, missing_programs, python

STARTER = str(Path(__file__).with_name("starter.py"))
FOLDER = Path("/var/lib/reset-test")
TOOL_UNIT = "reclaimerd-reset-incident.1.service"
UNIT = f"""
[Service]
ExecStart={" ".join(python(STARTER))} reset {FOLDER}
Restart=always
RestartSec=100ms
StartLimitIntervalSec=0
KillMode=mixed
TimeoutStopSec=5s
"""
# Its own answer to a signal: one that is merely ignored would leave no trace here.
TOOL = f"""#!/usr/bin/python3
import pathlib, signal, sys, time
here = pathlib.Path("{FOLDER}")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: (here / "signalled").write_text(str(number)))
with (here / "ran").open("a") as ran:
    print(*sys.argv[1:], file=ran)
(here / "cgroup").write_text(pathlib.Path("/proc/self/cgroup").read_text())
while not (here / "go").exists():
    time.sleep(0.02)
print("GPU 00000000:1A:00.0 was successfully reset.")
"""
HOLDER = "[Service]\nExecStart=/bin/sleep infinity\n"
DEAF = "/bin/sh -c 'trap \"\" TERM; while :; do sleep 0.1; done'"
UNITS = {
    "holder.service": HOLDER,
    "exporter.service": f"[Unit]\nBindsTo=holder.service\nAfter=holder.service\n{HOLDER}",
    "other.service": HOLDER,
    "tardy.service": f"{HOLDER}ExecStartPre=/bin/sleep 300\nTimeoutStartSec=infinity\n",
    "slow.service": f"[Service]\nExecStart={DEAF}\nTimeoutStopSec=3s\n",
}
LIFE_SECONDS = 30.0
FRESH_SECONDS = 0.2

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.root,
    pytest.mark.process,
    pytest.mark.skipif(bool(missing_programs()), reason=missing_programs() or "never"),
]
Booter = Callable[[Mapping[str, str]], Machine]


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Booter]:
    """Return what boots one systemd; it is gone at the end, whatever happened."""
    machines: list[Machine] = []

    def begin(units: Mapping[str, str]) -> Machine:
        machines.append(boot(tmp_path, units))
        return machines[0]

    yield begin
    for machine in machines:
        machine.stop()


def _lives(machine: Machine) -> list[dict[str, object]]:
    return lines_of(machine.root / FOLDER.relative_to("/") / "lives")


def _wait_for_lives(machine: Machine, count: int) -> dict[str, object]:
    wait_until(lambda: len(_lives(machine)) >= count, f"line {count} of the starter", LIFE_SECONDS)
    return _lives(machine)[count - 1]


def test_a_reset_outlives_the_unit_that_began_it(booted: Booter) -> None:
    """A restart of our unit, kill -9 of it and a stop of the tool's own unit in mid-tool change nothing.

    The tool runs outside our cgroup, gets no signal, runs once, and the next life finds how it ended.
    """
    machine = booted({"starter.service": UNIT})
    folder = machine.root / FOLDER.relative_to("/")
    folder.mkdir(mode=0o700)
    (folder / "nvidia-smi").write_text(TOOL)
    (folder / "nvidia-smi").chmod(0o755)

    machine.systemctl("start", "starter.service")
    first = _wait_for_lives(machine, 1)
    assert first["state"] == "ToolRuns", first
    assert first["own"] == "/system.slice/starter.service"
    wait_until((folder / "cgroup").exists, "the tool runs")
    wait_until(lambda: TOOL_UNIT in (folder / "cgroup").read_text(), "the tool tells its cgroup")
    assert "starter.service" not in (folder / "cgroup").read_text()
    assert machine.show(TOOL_UNIT, "Slice") == "system.slice"
    started = json.loads((folder / "resets" / "incident.1.started").read_text())
    assert 0 < started["after_word_seconds"] <= FRESH_SECONDS

    machine.systemctl("restart", "starter.service")
    second = _wait_for_lives(machine, 2)
    machine.systemctl("kill", "--signal=KILL", "starter.service")
    third = _wait_for_lives(machine, 3)
    assert [life["state"] for life in (first, second, third)] == ["ToolRuns"] * 3
    assert first["ref"] == second["ref"] == third["ref"]
    assert len({str(life["pid"]) for life in (first, second, third)}) == 3

    machine.systemctl("stop", TOOL_UNIT)
    (folder / "go").touch()
    end = _wait_for_lives(machine, 4)
    assert end["state"] == "ToolEnded", end
    assert (end["code"], end["text"]) == (0, "GPU 00000000:1A:00.0 was successfully reset.\n")
    assert (folder / "ran").read_text() == "--gpu-reset -i GPU-aaaa\n"
    assert not (folder / "signalled").exists()


def test_the_end_of_a_tool_that_nobody_awaited_is_found(booted: Booter) -> None:
    """A tool that ends while our unit is down is known by its end at the next start, and not run again."""
    machine = booted({"starter.service": UNIT})
    folder = machine.root / FOLDER.relative_to("/")
    folder.mkdir(mode=0o700)
    (folder / "nvidia-smi").write_text(TOOL)
    (folder / "nvidia-smi").chmod(0o755)
    machine.systemctl("start", "starter.service")
    _wait_for_lives(machine, 1)
    machine.systemctl("stop", "starter.service")
    (folder / "go").touch()
    wait_until((folder / "resets" / "incident.1.ended").exists, "the runner left the end", LIFE_SECONDS)
    machine.systemctl("start", "starter.service")
    second = _wait_for_lives(machine, 2)
    assert (second["state"], second["code"]) == ("ToolEnded", 0)
    assert (folder / "ran").read_text() == "--gpu-reset -i GPU-aaaa\n"
    assert machine.show(TOOL_UNIT, "LoadState") == "not-found"


def _clients(machine: Machine, seconds: float, verb: str, *units: str) -> list[dict[str, object]]:
    done = machine.run(*python(STARTER), "clients", str(seconds), verb, *units)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_units_that_stop_together_come_back_together(booted: Booter) -> None:
    """A stop that propagates is put back unit by unit, in reverse; a unit nobody named is never touched."""
    machine = booted(UNITS)
    machine.systemctl("start", "holder.service", "exporter.service", "other.service")
    others = machine.show("other.service", "MainPID")
    made = _clients(machine, 20, "make", "exporter.service", "holder.service")
    assert [each["came"] for each in made] == ["ChangeMade", "ChangeMade"]
    for unit in ("holder.service", "exporter.service"):
        assert machine.show(unit, "ActiveState") == "inactive"
    undone = _clients(machine, 20, "undo", "holder.service", "exporter.service")
    assert [each["came"] for each in undone] == ["ChangeMade", "ChangeMade"]
    pids = {unit: machine.show(unit, "MainPID") for unit in ("holder.service", "exporter.service")}
    again = _clients(machine, 20, "undo", "holder.service", "exporter.service")
    assert [each["came"] for each in again] == ["ChangeMade", "ChangeMade"]
    for unit, pid in pids.items():
        assert (machine.show(unit, "ActiveState"), machine.show(unit, "MainPID")) == ("active", pid)
    assert machine.show("other.service", "MainPID") == others

    _clients(machine, 20, "make", "exporter.service", "holder.service")
    (asked,) = _clients(machine, 20, "ask", "tardy.service", "exporter.service", "holder.service")
    assert asked["came"] == "ChangeMade", asked
    for unit in ("holder.service", "exporter.service"):
        wait_until(partial(_is, machine, unit, "active"), f"{unit} runs beside one that starts slowly", 20.0)
    assert _is(machine, "tardy.service", "activating")


def _is(machine: Machine, unit: str, state: str) -> bool:
    return machine.show(unit, "ActiveState") == state


def test_a_unit_that_stops_too_late_is_a_failure_and_comes_back(booted: Booter) -> None:
    """A stop past its bound is said; undoing waits for the stop under way, then starts the unit."""
    machine = booted(UNITS)
    machine.systemctl("start", "slow.service")
    before = machine.show("slow.service", "MainPID")
    (made,) = _clients(machine, 0.5, "make", "slow.service")
    assert made["came"] == "ChangeFailed", made
    assert "did not end within 0.5 s" in str(made["why"])
    (undone,) = _clients(machine, 30, "undo", "slow.service")
    assert undone["came"] == "ChangeMade", undone
    assert machine.show("slow.service", "ActiveState") == "active"
    assert machine.show("slow.service", "MainPID") != before
