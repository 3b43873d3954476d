"""`reclaimctl doctor` beside a real daemon on a simulated host: ready, hanging, and with a cut log."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reclaimerd.cli.doctor_child import examined
from reclaimerd.cli.doctor_host import Host, Where
from reclaimerd.cli.doctor_run import examine
from reclaimerd.cli.doctor_table import CHECKS
from reclaimerd.cli.doctor_words import Finding, State
from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from tests.e2e.rig import Rig, simulated_host

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Return a simulated host with a daemon that has made a pass."""
    with simulated_host() as made:
        made.start_daemon()
        made.passes(1)
        yield made


def where(rig: Rig) -> Where:
    """Return where its things are."""
    return Where(rig.policy, rig.state, rig.host / "log", rig.socket, rig.host)


def look(rig: Rig, *names: str) -> dict[str, Finding]:
    """Make a few checks here, without a child."""
    mine = [check for check in CHECKS if check.name in names]
    return {one.name: one for one in examined(mine, Host(where(rig))) if isinstance(one, Finding)}


def test_a_host_with_a_daemon_is_seen_whole(rig: Rig) -> None:
    """Driver, GPUs, policy, socket, folders and log are well, and the daemon's record did not grow by it."""
    before = len(rig.records())
    ran = rig.ctl("doctor")
    said = {one["name"]: one for one in ran.answer["checks"]}
    assert ran.code == (0 if ran.answer["ready"] else 10)
    for name in (
        "driver",
        "gpus",
        "recovery",
        "daemon",
        "writer",
        "policy",
        "socket",
        "audit",
        "reserve",
        "clock",
    ):
        assert said[name]["state"] == "ok", said[name]
    assert said["gpus"]["text"] == "2 GPUs: First, Second"
    assert said["capabilities"]["state"] != "unknown"
    kinds = {record["kind"] for record in rig.records()[before:]}
    assert not kinds & {"attempt", "denied"}, kinds


def test_what_is_wrong_is_told_and_a_hang_is_bounded(rig: Rig) -> None:
    """A GPU that wants a reset, a driver that never answers, and a log that lost its last line."""
    host = read_simulated_host(rig.host)
    sick = replace(host, gpus=(replace(host.gpus[0], recovery_action="gpu_reset"), *host.gpus[1:]))
    write_simulated_host(rig.host, sick)
    assert look(rig, "recovery")["recovery"].state is State.FAIL
    write_simulated_host(rig.host, replace(host, hang=True))
    mine = [check for check in CHECKS if check.group == "driver"]
    found = {one.name: one for one in asyncio.run(examine(where(rig), mine, bound_seconds=4.0))}
    assert found["driver"].state in (State.UNKNOWN, State.FAIL)
    assert {found[name].state for name in ("gpus", "persistence", "mig", "mps")} == {State.UNKNOWN}
    write_simulated_host(rig.host, host)
    rig.daemons[0].stop()
    assert {one.state for one in look(rig, "audit", "writer").values()} == {State.OK}
    assert look(rig, "daemon")["daemon"].state is State.WARN
    log = rig.host / "log" / "audit.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]))
    cut = look(rig, "audit")["audit"]
    assert (cut.state, "audit verify" in cut.mend) == (State.FAIL, True)
    assert log.read_bytes() == b"".join(lines[:-1])
