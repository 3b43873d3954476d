"""The child that makes one group of checks: `python -m reclaimerd.cli.doctor_child`, an order on its stdin.

It says a line when it begins a check and a line when that is done, so that the parent knows at which one
it hangs. What a check raises becomes `unknown`: no answer is no "ok".
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from reclaimerd.cli.doctor_host import Host, Where
from reclaimerd.cli.doctor_table import CHECKS
from reclaimerd.cli.doctor_words import Check, Finding, Said, State, unknown
from reclaimerd.errors import ReclaimerdError


def order_of(group: str, where: Where) -> str:
    """Return the order for one group, as the child reads it."""
    paths = {name: getattr(where, name) for name in Where.__slots__}
    return json.dumps({"group": group, **{key: None if at is None else str(at) for key, at in paths.items()}})


def where_of(order: Mapping[str, str | None]) -> Where:
    """Return where things are, by the order."""
    given = {name: None if order[name] is None else Path(str(order[name])) for name in Where.__slots__}
    return Where(**given)  # type: ignore[arg-type]  # order_of wrote them from a Where


def examined(checks: Iterable[Check], host: Host) -> Iterator[Finding | str]:
    """Yield each check's name before it is made, and what it found."""
    for check in checks:
        yield check.name
        said = _answer(check, host)
        yield Finding(check.name, said.state, said.text, said.mend)


def _answer(check: Check, host: Host) -> Said:
    try:
        return check.read(host)
    except ReclaimerdError as error:
        return unknown(error.message, error.mend)
    except PermissionError as error:
        mend = "run doctor as root" if os.geteuid() != 0 else ""
        return unknown(f"{error.filename or check.name}: {error.strerror}", mend)
    except Exception as error:  # noqa: BLE001  # the border: one check that breaks must not hide the others
        return unknown(f"the check broke off: {type(error).__name__}: {error}")


def line_of(one: Finding | str) -> str:
    """Return one line of the child's."""
    if isinstance(one, str):
        return json.dumps({"begins": one})
    return json.dumps({"name": one.name, "state": one.state, "text": one.text, "mend": one.mend})


def heard(out: str, checks: Iterable[Check], why: str) -> list[Finding]:
    """Return a finding for each check of a group from what its child printed; `why` it said no more."""
    found: dict[str, Finding] = {}
    begun = ""
    for line in out.splitlines():
        match _parsed(line):
            case {"begins": str(name)}:
                begun = name
            case {"name": str(name), "state": str(state), "text": str(text), "mend": str(mend)}:
                found[name] = Finding(name, State(state), text, mend)
            case _:
                continue
    rest = f"not looked at, as the check before it ended the group: {begun}"
    return [
        found.get(one.name)
        or Finding(one.name, State.UNKNOWN, why if one.name == begun or not begun else rest)
        for one in checks
    ]


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None  # cut in the middle, or a library's own words


def main() -> None:
    """Make the checks of the group that the order names."""
    order = json.load(sys.stdin)
    host = Host(where_of(order))
    for one in examined([check for check in CHECKS if check.group == order["group"]], host):
        sys.stdout.write(line_of(one) + "\n")
        sys.stdout.flush()
    # A look-up of a name that hangs may sit in a thread, and an ordinary end would wait for it.
    os._exit(0)


if __name__ == "__main__":
    main()
