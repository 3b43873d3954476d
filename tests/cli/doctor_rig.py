"""Hosts of a test's own for the checks of `doctor`, with files below one folder."""

from dataclasses import replace
from pathlib import Path

from reclaimerd.cli.doctor_host import Host, Where
from reclaimerd.cli.doctor_table import CHECKS
from reclaimerd.cli.doctor_words import Check
from reclaimerd.cli.http_socket import NoAnswer
from reclaimerd.model.policy import Policy


def a_where(folder: Path, **changes: Path) -> Where:
    """Return a place where nothing is yet."""
    policy = folder / "none.toml"
    where = Where(policy, folder / "state", folder / "log", folder / "s")
    return replace(where, **changes)


def a_host(folder: Path, policy: Policy | None = None, **known: object) -> Host:
    """Return a host whose files lie below `folder`; `known` is what was read of it already."""
    host = Host(a_where(folder), folder)
    vars(host).update(
        {"policy": policy or Policy(), "status": NoAnswer("nobody"), "daemon_pid": None, **known}
    )
    return host


def put(folder: Path, name: str, text: str) -> None:
    """Write one file of a host."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def check_of(name: str) -> Check:
    """Return one check of the table."""
    return next(one for one in CHECKS if one.name == name)
