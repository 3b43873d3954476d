"""The simulated host's `systemctl`: show, is-active, stop and start, over DIR/units.toml.

`python -m reclaimerd.simulation.systemctl DIR show -p Id,ActiveState -- UNIT`. What it prints for `show`
is systemd's form; to people it says that it is a simulation.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.simulation.keeper_door import ask_at_door
from reclaimerd.simulation.units import (
    SimulatedUnit,
    SimulatedUnits,
    change_unit,
    note_job,
    read_units,
    workload_argv,
)

OK = 0
FAILED = 1
NOT_ACTIVE = 3
NO_SUCH_UNIT = 5
LABEL = "(simulation: no unit of this machine was touched)"
VERBS = ("show", "is-active", "stop", "start")


def main(argv: Sequence[str]) -> int:
    """Run the tool; return its exit code (systemctl(1), "Exit status")."""
    directory = Path(argv[0])
    parser = argparse.ArgumentParser(prog="systemctl", allow_abbrev=False)
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("--property", "-p", action="append", default=[])
    parser.add_argument("--value", action="store_true")
    parser.add_argument("--quiet", "-q", action="store_true")
    for flag in ("--no-pager", "--no-ask-password", "--no-block", "--system", "--plain", "--no-legend"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("units", nargs="*")
    words = [word for word in argv[1:] if word != "--"]  # no unit's name begins with a dash
    asked = parser.parse_intermixed_args(words)
    try:
        return _do(directory, asked)
    except ReclaimerdError as error:
        _complain(str(error))
        return FAILED


def _do(directory: Path, asked: argparse.Namespace) -> int:
    match asked.verb:
        case "show":
            wanted = [name for words in asked.property for name in words.split(",")]
            known = read_units(directory)
            blocks = [_shown(known, name, wanted, value=asked.value) for name in asked.units]
            print("\n\n".join(blocks))  # noqa: T201 - a command line tool
            return OK
        case "is-active":
            known = read_units(directory)
            states = [known.state(name) for name in asked.units]
            if not asked.quiet:
                print("\n".join(states))  # noqa: T201 - the same
            return OK if "active" in states else NOT_ACTIVE
        case "stop":
            return max((_stop(directory, name) for name in asked.units), default=OK)
        case _:
            job = _ask_start if asked.no_block else _start
            return max((job(directory, name) for name in asked.units), default=OK)


def _shown(known: SimulatedUnits, name: str, wanted: Sequence[str], *, value: bool) -> str:
    """Return one unit's properties, in systemd's order and not the asker's."""
    unit = known.units.get(name)
    lists = unit or SimulatedUnit(name)
    state = known.state(name)
    properties = {
        "Id": name,
        "RequiredBy": " ".join(lists.required_by),
        "BoundBy": " ".join(lists.bound_by),
        "ConsistsOf": " ".join(lists.consists_of),
        "PropagatesStopTo": " ".join(lists.propagates_stop_to),
        "TriggeredBy": " ".join(lists.triggered_by),
        "LoadState": "loaded" if unit else "not-found",
        "ActiveState": state,
        "SubState": {"active": "running", "failed": "failed"}.get(state, "dead"),
        "MainPID": str(lists.pid if state == "active" else 0),
    }
    chosen = {key: text for key, text in properties.items() if not wanted or key in wanted}
    return "\n".join(text if value else f"{key}={text}" for key, text in chosen.items())


def _stop(directory: Path, name: str) -> int:
    """Stop a unit and whatever is stopped with it."""
    known = read_units(directory)
    unit = known.units.get(name)
    if unit is None:
        _complain(f"Failed to stop {name}: Unit {name} not loaded.")
        return NO_SUCH_UNIT
    if known.state(name) != "active":
        return OK
    time.sleep(unit.slow_stop_seconds)
    if unit.fail_stop:
        _complain(f"Job for {name} failed: {unit.fail_stop}")
        return FAILED
    worst = max((_stop(directory, other) for other in unit.stops_too), default=OK)
    if unit.pid and ask_at_door(directory, {"op": "end", "pids": [unit.pid]}).get("left"):
        _complain(f"Job for {name} failed: its process does not end.")
        return FAILED
    change_unit(directory, name, lambda one: replace(one, active=False, pid=0, start_ticks=0))
    note_job(directory, "stop", name)
    return max(worst, _start(directory, name)) if unit.returns else worst


def _ask_start(directory: Path, name: str) -> int:
    """Start a unit at once; one that starts slowly is on its way until somebody waits for it."""
    unit = read_units(directory).units.get(name)
    if unit is None or not unit.slow_start_seconds:
        return _start(directory, name)
    note_job(directory, "ask", name)
    return OK


def _start(directory: Path, name: str) -> int:
    known = read_units(directory)
    unit = known.units.get(name)
    if unit is None:
        _complain(f"Failed to start {name}: Unit {name} not found.")
        return NO_SUCH_UNIT
    if known.state(name) == "active":
        return OK
    time.sleep(unit.slow_start_seconds)
    if unit.fail_start:
        _complain(f"Job for {name} failed: {unit.fail_start}")
        return FAILED
    pid = 0
    if unit.workload:
        launched = ask_at_door(
            directory, {"op": "launch", "argvs": [workload_argv(directory, unit.workload)]}
        )
        each = launched["launched"][0]  # type: ignore[index]  # our own protocol
        if "error" in each:
            _complain(f"Job for {name} failed: {each['error']}")
            return FAILED
        pid = int(each["pid"])
    change_unit(directory, name, lambda one: one.running(pid))
    note_job(directory, "start", name)
    return OK


def _complain(text: str) -> None:
    print(text, LABEL, sep="\n", file=sys.stderr)  # noqa: T201 - a command line tool


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
