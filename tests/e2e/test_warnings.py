"""Warnings to owners from end to end: the real daemon, real processes, a real terminal, a real hook."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.act.reset_tools import program
from tests.act.terminals import OWNER, Terminal, terminal_of
from tests.e2e.policies import Table
from tests.e2e.rig import Json, Rig, is_alive, moment, rule, signals_in, simulated_host

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a terminal is given away by root alone"),
]
WAIT_SECONDS = 8.0
PATIENCE_SECONDS = 60.0
BEFORE = rule(warn_before="8s")
ONLY = {key: value for key, value in rule(action="warn").items() if key not in ("stages", "grace")}
OWNED = ("--real-uid", str(OWNER))


@contextmanager
def a_host(*rules: Table, **warn: object) -> Iterator[Rig]:
    """Return a host with these rules and this [warn] table."""
    tables: Mapping[str, Table] = {"warn": warn} if warn else {}
    with simulated_host(*rules, tables=tables) as rig:
        yield rig


def outcomes(rig: Rig, pid: int, action: str) -> list[Json]:
    """Return the outcomes of one kind of step on record."""
    return [one for one in rig.records("outcome", pid=pid) if one["action"] == action]


def assert_told(own: Terminal, pid: int) -> str:
    """Assert that the warning stands on the owner's terminal, and return it."""
    shown = own.read("inc-")
    assert "ask the administrators" in shown
    assert f"Your process {pid} holds" in shown
    return shown


def test_the_owner_is_warned_and_sigterm_follows_after_the_time() -> None:
    """The text arrives; no signal before its time is over; then SIGTERM as usual, all of it on record."""
    with terminal_of() as own, a_host(BEFORE) as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        shown = assert_told(own, pid)
        assert "asked to end (SIGTERM) in 8 s at the earliest" in shown
        rig.wait_record("outcome", pid=pid)
        assert signals_in(signals) == []
        status = rig.ask("/v1/status")
        (row,) = status["incidents"]
        assert row["stage"] == "warned"
        assert str(row["follows"]).startswith("its owner was warned; sigterm follows in ")
        assert "its owner was warned; sigterm follows in" in rig.begin("status").result().out
        rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE_SECONDS)
        (warned,) = outcomes(rig, pid, "warned")
        assert warned["outcome"]["kind"] == "delivered"
        assert f"terminals: told {own.path}" in warned["outcome"]["detail"]
        intents = [one for one in rig.records("intent", pid=pid) if one["action"] == "warned"]
        assert f"says: Your process {pid} holds" in json.dumps(intents)
        (term,) = outcomes(rig, pid, "sigterm")
        assert moment(term) - moment(warned) >= WAIT_SECONDS
        assert signals_in(signals).count("SIGTERM") == 1  # a SIGCONT comes with it, and may be noted first
        assert rig.verify_audit().code == 0


def test_a_rule_that_warns_does_nothing_more() -> None:
    """The text says so; many passes later the process has got no signal, and its incident stands."""
    with terminal_of() as own, a_host(ONLY) as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        assert "This is a warning only" in assert_told(own, pid)
        rig.passes(8)
        assert signals_in(signals) == []
        assert is_alive(pid)
        assert rig.records("incident_ended", pid=pid) == []
        assert len(outcomes(rig, pid, "warned")) == 1
        explained = rig.ask(f"/v1/explain/pid/{pid}")
        assert explained["incident"]["follows"] == "its owner was warned; nothing follows"
        assert own.read() == ""


def test_without_any_way_nobody_is_touched() -> None:
    """No terminal of the owner's and no hook: the try is on record, nothing is sent, the next is due."""
    with a_host(BEFORE) as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        outcome = rig.wait_record("outcome", pid=pid)
        assert outcome["outcome"]["kind"] == "not_delivered"
        assert f"uid {OWNER} has no terminal here; hook: none is set" in outcome["outcome"]["detail"]
        rig.passes(8)
        assert signals_in(signals) == []
        assert len(outcomes(rig, pid, "warned")) == 1
        gates = rig.ask(f"/v1/explain/pid/{pid}")["incident"]["gates"]
        assert gates["stage"] == "warned"
        assert 0 < gates["due_seconds"] <= 60


def test_a_hook_warns_where_there_is_no_terminal(tmp_path: Path) -> None:
    """Its exit 0 is the delivery, and SIGTERM follows; what it read names the process and no command line."""
    hook = program(tmp_path / "hook", f"cat > {tmp_path}/said")
    with a_host(BEFORE, terminals=False, hook=hook) as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED, "--label", "secret-word")
        rig.wait_record("incident_ended", pid=pid, seconds=PATIENCE_SECONDS)
        assert signals_in(signals).count("SIGTERM") == 1  # a SIGCONT comes with it, and may be noted first
    said = json.loads((tmp_path / "said").read_text())
    assert (said["schema"], said["pid"], said["uid"], said["seconds"]) == (1, pid, OWNER, WAIT_SECONDS)
    assert "secret-word" not in str(said)


@pytest.mark.parametrize(
    ("body", "why"), [("exit 7", "ended with 7"), ("exec sleep 60", "did not end within")]
)
def test_a_hook_that_fails_or_hangs_holds_up_nobody(tmp_path: Path, body: str, why: str) -> None:
    """Not delivered, no signal; the passes go on all the while, and an operator's kill with them."""
    hook = program(tmp_path / "hook", f"touch {tmp_path}/began; {body}")
    with a_host(BEFORE, terminals=False, hook=hook, within="6s") as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        other = rig.launch(size="1GiB")
        rig.wait_record("intent", pid=pid)
        began = time.monotonic()
        assert rig.kill(other.pid).code == 0
        if "sleep" in body:
            assert time.monotonic() - began < 6.0
            assert outcomes(rig, pid, "warned") == []
        outcome = rig.wait_record("outcome", pid=pid)
        assert outcome["outcome"]["kind"] == "not_delivered"
        assert why in outcome["outcome"]["detail"]
        rig.passes(4)
        assert signals_in(signals) == []


def test_a_dry_run_tells_nobody() -> None:
    """Named on record, nothing on the terminal, and the plan goes on to its dry SIGTERM."""
    with terminal_of() as own, a_host(rule(warn_before="1s", mode="dry-run")) as rig:
        rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        outcome = rig.wait_record("outcome", pid=pid)
        assert outcome["outcome"]["kind"] == "dry_run"
        assert f"would tell {own.path}" in outcome["outcome"]["detail"]
        rig.wait_record("planned", pid=pid)
        assert signals_in(signals) == []
        assert own.read() == ""


def test_an_operator_needs_no_warning() -> None:
    """A process whose rule only warns is killed at once when a person says so."""
    with terminal_of() as own, a_host(ONLY) as rig:
        rig.start_daemon()
        work = rig.launch(*OWNED)
        assert_told(own, work.pid)
        assert rig.kill(work.pid).code == 0
        assert not is_alive(work.pid)


def test_a_restart_in_mid_warning_warns_again_and_acts_on_nobody(tmp_path: Path) -> None:
    """Killed while its hook runs: the next daemon has the attempt as unknown, and no signal was sent."""
    hook = program(tmp_path / "hook", f"touch {tmp_path}/began; exec sleep 60")
    with a_host(BEFORE, terminals=False, hook=hook, within="30s") as rig:
        daemon = rig.start_daemon()
        pid, signals = rig.recorder("signals", *OWNED)
        rig.wait_record("intent", pid=pid)
        daemon.process.kill()
        daemon.process.wait()
        rig.start_daemon()
        outcome = rig.wait_record("outcome", pid=pid)
        assert outcome["outcome"]["kind"] == "unknown"
        assert "it is given again" in outcome["outcome"]["detail"]
        rig.passes(4)
        assert signals_in(signals) == []
