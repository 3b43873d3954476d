"""A daemon that is killed, stopped or reloaded in the middle of a ladder sends nothing twice."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.rig import Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process]
TRIES = 8


def freeze_at_intent(rig: Rig, pid: int, daemon_pid: int, number: signal.Signals) -> None:
    """Signal the daemon as soon as the intent about this process is in the file, before it is acted on."""
    path = rig.host / "log" / "audit.jsonl"
    deadline = time.monotonic() + 15
    mark = f'"pid":{pid},'.encode()
    with path.open("rb") as file:
        pending = b""
        while time.monotonic() < deadline:
            pending += file.read()
            *lines, pending = pending.split(b"\n")
            if any(b'"kind":"intent"' in line and mark in line for line in lines):
                os.kill(daemon_pid, number)
                return
    raise AssertionError(f"no intent in time: {rig.story()}")


def test_killed_between_intent_and_outcome_it_sends_nothing_twice() -> None:
    """In both cases, before and after the signal: no second SIGTERM, UNKNOWN, then SIGKILL and the proof."""
    with simulated_host(rule(grace="1s")) as rig:
        rig.hold.touch()
        rig.start_daemon()
        seen: set[bool] = set()
        for number in range(TRIES):
            daemon = rig.daemons[-1]
            pid, path = rig.recorder(f"signals-{number}")
            rig.hold.unlink(missing_ok=True)
            freeze_at_intent(rig, pid, daemon.pid, signal.SIGKILL)
            daemon.kill_now()
            cut = not rig.records("outcome", pid=pid)
            before = signals_in(path).count("SIGTERM")
            rig.start_daemon()
            ended = rig.wait_record("incident_ended", pid=pid)
            assert ended["end"] == "reclaimed", rig.story()
            assert not is_alive(pid)
            assert signals_in(path).count("SIGTERM") == before, rig.story()
            assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm", "sigkill"]
            first = rig.records("outcome", pid=pid)[0]["outcome"]["kind"]
            assert first == ("unknown" if cut else "sent")
            if cut:
                seen.add(bool(before))
                break
        assert seen, f"the daemon was never killed between intent and outcome in {TRIES} tries"
        assert rig.verify_audit().code == 0


def test_stopped_and_started_again_it_goes_on_where_it_was() -> None:
    """A stop after SIGTERM and a new start: no second SIGTERM, SIGKILL when the grace is over, the proof."""
    with simulated_host(rule(grace="3s")) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        rig.wait_record("outcome", pid=pid)
        assert daemon.stop() == 0
        rig.start_daemon()
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "reclaimed"
        assert signals_in(path).count("SIGTERM") == 1
        assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm", "sigkill"]
        kinds = [one["kind"] for one in rig.records()]
        assert kinds.count("started") == 2
        assert kinds.count("stopped") == 1


def test_a_target_that_ends_while_nobody_watches_is_told_truly() -> None:
    """It dies while the daemon is down: the new start finds it gone and proves it, without another signal."""
    with simulated_host(rule(grace="600s")) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        rig.wait_record("outcome", pid=pid)
        daemon.kill_now()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "it is gone")
        rig.start_daemon()
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "reclaimed"
        assert signals_in(path).count("SIGTERM") == 1
        assert len(rig.records("intent", pid=pid)) == 1


def test_a_kill_whose_daemon_dies_does_not_end_well() -> None:
    """The command says that the incident may go on, and does not exit 0; nothing is sent twice."""
    with simulated_host() as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        asked = rig.begin("kill", "--pid", str(pid), "--grace", "30s")
        rig.wait_record("outcome", pid=pid)
        daemon.kill_now()
        ran = asked.result()
        assert ran.code not in (0, 130), ran
        assert "Traceback" not in ran.err
        assert "reclaimctl incidents" in ran.err
        assert is_alive(pid)
        assert signals_in(path).count("SIGTERM") == 1


def test_a_reload_in_mid_ladder_keeps_the_incident_s_plan() -> None:
    """The open incident keeps its grace of one second, though the new policy has another."""
    with simulated_host(rule(grace="2s")) as rig:
        daemon = rig.start_daemon()
        pid, _ = rig.recorder()
        rig.wait_record("outcome", pid=pid)
        rig.write_policy(rule(grace="600s"))
        daemon.send(signal.SIGHUP)
        rig.wait_record("policy_loaded")
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "reclaimed"
        assert not is_alive(pid)


def test_a_bad_reload_keeps_the_old_policy_and_says_why() -> None:
    """The fault is on record with its line, and the old rule still acts."""
    with simulated_host(rule(grace="600s")) as rig:
        daemon = rig.start_daemon()
        rig.policy.write_text('[daemon]\nmode = "enforc"\n', encoding="utf-8")
        daemon.send(signal.SIGHUP)
        note = rig.wait_record("note")
        assert "the old policy stays" in note["reason"]
        assert f"{rig.policy}:2" in note["reason"] + daemon.words()
        pid, path = rig.recorder()
        rig.wait_record("outcome", pid=pid)
        assert signals_in(path).count("SIGTERM") == 1
        assert rig.ask("/v1/status")["mode"] == "enforce"


def test_an_incident_whose_rule_vanished_stands_down() -> None:
    """A reload that takes the rule away ends its incident before SIGKILL; the target lives."""
    with simulated_host(rule(grace="600s")) as rig:
        daemon = rig.start_daemon()
        pid, _ = rig.recorder()
        rig.wait_record("outcome", pid=pid)
        rig.write_policy()
        daemon.send(signal.SIGHUP)
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "stood_down"
        assert is_alive(pid)


def test_sigterm_stops_the_daemon_in_five_seconds_and_leaves_nothing() -> None:
    """Exit 0, no socket, no writer's claim, no worker left; also with a driver that never answers."""
    with simulated_host() as rig:
        daemon = rig.start_daemon()
        rig.passes(1)
        text = (rig.host / "host.toml").read_text()
        (rig.host / "host.toml").write_text(text.replace("hang = false", "hang = true"))
        children = [int(word) for word in _children(daemon.pid)]
        assert len(children) >= 2
        began = time.monotonic()
        daemon.send(signal.SIGTERM)
        assert daemon.process.wait(8) == 0
        assert time.monotonic() - began < 5
        assert not (rig.host / "reclaimerd.sock").exists()
        assert not (rig.state / "writer.json").exists()
        wait_until(lambda: not any(is_alive(child) for child in children), "its workers end", 5)


def test_workers_of_a_killed_daemon_end_by_themselves() -> None:
    """After SIGKILL of the daemon no worker of it is left."""
    with simulated_host() as rig:
        daemon = rig.start_daemon()
        rig.passes(1)
        children = [int(word) for word in _children(daemon.pid)]
        assert len(children) >= 2
        daemon.kill_now()
        wait_until(lambda: not any(is_alive(child) for child in children), "its workers end", 5)


def _children(pid: int) -> list[str]:
    return [
        word
        for task in Path(f"/proc/{pid}/task").iterdir()
        for word in (task / "children").read_text().split()
    ]
