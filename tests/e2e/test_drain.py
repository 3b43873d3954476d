"""A drain request from end to end: asked once, over restarts and pauses, and taken back by a person."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.hung_driver import HungHost, drains, hung_host
from tests.e2e.rig import Daemon, Json, Table
from tests.rigs.simulated import wait_until

SOON: Table = {"driver_alarm": "1s", "driver_drain_after": "2s"}


def asked(host: HungHost) -> Json:
    """Wait until the request stands; return it as `status` shows it."""
    wait_until(lambda: bool(drains(host.rig)), f"the request goes out: {host.rig.story()}")
    wait_until(lambda: (drain_of(host) or {}).get("phase") == "stands", "it stands")
    shown = drain_of(host)
    assert shown is not None
    return shown


def drain_of(host: HungHost) -> Json | None:
    """Return the request of this node."""
    found: Json | None = host.rig.ask("/v1/status").get("drain")
    return found


@pytest.mark.slow
def test_a_person_takes_the_request_back() -> None:
    """The file has the whole story; undrained it is gone, and the record says who, why, and each step."""
    with hung_host(drain=SOON) as host:
        host.hang_until_abandoned(host.start())
        shown = asked(host)
        (path,) = drains(host.rig)
        body = json.loads(path.read_bytes())
        assert (body["id"], body["code"]) == (shown["id"], "driver_unresponsive")
        assert "reboot" in body["mend"]
        status = host.rig.ctl("status")
        assert status.code == 10
        assert any(shown["id"] in line for line in status.answer["attention"])
        wrong = host.rig.ctl("undrain", "--incident", "inc-nobody")
        assert wrong.code == 6
        assert shown["id"] in wrong.err
        host.come_back()
        host.wait_state("responsive")
        assert drains(host.rig) == [path]
        done = host.rig.ctl("undrain", "--incident", shown["id"], "--reason", "it was mended")
        assert (done.code, done.answer) == (0, {"drain": None})
        assert drains(host.rig) == []
        texts = [one["reason"] for one in host.rig.records("drain_step")]
        assert "an operator takes the request back: it was mended" in texts
        assert host.rig.verify_audit().code == 0


def killed(daemon: Daemon) -> None:
    """End the daemon as a crash does."""
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.process.wait(10)


def test_a_restart_goes_on_with_the_request_and_asks_nobody_again() -> None:
    """Killed when it stands: the next life shows the same request, writes no second one, and can undo it."""
    with hung_host(drain=SOON) as host:
        daemon = host.start()
        host.hang_until_abandoned(daemon)
        shown = asked(host)
        killed(daemon)
        host.rig.start_daemon()
        host.rig.passes(3)
        again = drain_of(host)
        assert again is not None
        assert (again["id"], again["targets"]) == (shown["id"], shown["targets"])
        assert len(drains(host.rig)) == 1
        assert host.rig.ctl("undrain", "--incident", shown["id"]).code == 0
        assert drains(host.rig) == []


@pytest.mark.slow
def test_without_the_daemon_one_command_takes_it_back() -> None:
    """The command itself asks each target, and ends when they have let go; the daemon finds it over."""
    with hung_host(drain=SOON) as host:
        daemon = host.start()
        host.hang_until_abandoned(daemon)
        shown = asked(host)
        host.come_back()
        host.wait_state("responsive")
        killed(daemon)
        done = host.rig.ctl("undrain", "--incident", shown["id"], "--reason", "it was mended")
        assert (done.code, drains(host.rig)) == (0, [])
        host.rig.start_daemon()
        wait_until(lambda: drain_of(host) is None, "it is over")
        assert host.rig.verify_audit().code == 0


@pytest.mark.slow
def test_while_a_person_has_paused_nobody_is_asked() -> None:
    """The pause stops the request; resumed it goes out."""
    with hung_host(drain=SOON) as host:
        daemon = host.start()
        assert host.rig.ctl("pause", "--reason", "maintenance").code == 0
        host.hang_until_abandoned(daemon)
        host.rig.wait_record("alarm")
        wait_until(lambda: bool(host.rig.records("refused")), "the gate says no")
        assert drains(host.rig) == []
        assert drain_of(host) is None
        assert host.rig.ctl("resume").code == 0
        asked(host)


PROGRAM = """#!/usr/bin/python3 -I
import json, pathlib, sys
body = json.load(sys.stdin)
log = pathlib.Path(__file__).with_suffix(".log")
with log.open("a") as file:
    file.write(f"{sys.argv[1]} {body['id']} {body['code']}\\n")
print(f"ticket for {body['host']}")
"""


def a_program(folder: Path) -> Path:
    """Write a program that keeps a line for each call."""
    path = folder / "ticket"
    path.write_text(PROGRAM, encoding="utf-8")
    path.chmod(0o755)
    return path


def told(program: Path) -> list[str]:
    """Return the calls that the program saw."""
    log = program.with_suffix(".log")
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


@pytest.mark.slow
def test_a_program_of_the_sites_is_asked_once_and_told_of_the_end(tmp_path: Path) -> None:
    """By the policy file: with an arbiter it is asked beside the file, and again when it is taken back."""
    program = a_program(tmp_path)
    tables: dict[str, Table] = {
        "drain": SOON,
        "drain.fleet": {"arbiter": "receiver"},
        "drain.command": {"program": str(program)},
    }
    with hung_host(**tables) as host:
        daemon = host.start()
        host.hang_until_abandoned(daemon)
        shown = asked(host)
        states = {one["name"]: one["state"] for one in shown["targets"]}
        assert states == {"file": "asked", "command": "asked"}, shown
        killed(daemon)
        host.rig.start_daemon()
        host.rig.passes(3)
        assert told(program) == [f"request {shown['id']} driver_unresponsive"]
        assert host.rig.ctl("undrain", "--incident", shown["id"]).code == 0
        assert told(program)[1:] == [f"withdraw {shown['id']} driver_unresponsive"]


@pytest.mark.slow
def test_without_an_arbiter_no_program_is_asked(tmp_path: Path) -> None:
    """A fleet could be drained empty: the file is written, and the status says why nobody else was asked."""
    program = a_program(tmp_path)
    tables: dict[str, Table] = {"drain": SOON, "drain.command": {"program": str(program)}}
    with hung_host(**tables) as host:
        host.hang_until_abandoned(host.start())
        shown = asked(host)
        states = {one["name"]: one["state"] for one in shown["targets"]}
        assert states == {"file": "asked", "command": "failed"}
        assert "nobody counts the fleet's drained nodes" in host.rig.ctl("status").out
        host.rig.passes(4)
        assert told(program) == []
        assert host.rig.ctl("undrain", "--incident", shown["id"]).code == 0
        assert told(program) == []
