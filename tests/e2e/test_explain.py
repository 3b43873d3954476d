"""What rules make of real processes on a simulated host, by the daemon and without it; nothing is changed."""

import json
import os
import signal

import pytest

from tests.e2e.rig import GPU_A, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process]

PATIENT = rule(**{"for": "600s"}, readings=500)
"""It holds, and does not come due within a test."""


def the_rule(rig: Rig, pid: int) -> dict[str, object]:
    """Return the one rule's account of a process."""
    ran = rig.ctl("explain", "pid", str(pid))
    assert ran.code == 0, ran
    (row,) = ran.answer["rules"]
    return dict(row)


def test_a_rule_that_waits_says_since_when_and_until_when() -> None:
    """By the daemon: the count grows, the gates would let SIGTERM through, and nothing is sent."""
    with simulated_host(PATIENT) as rig:
        rig.start_daemon()
        pid, path = rig.recorder()
        wait_until(lambda: rig.verdict(pid) == "watch", "it is seen")
        rig.passes(3)
        first = the_rule(rig, pid)
        rig.passes(2)
        second = the_rule(rig, pid)
        assert (first["standing"], first["ruling"]) == ("holds", "watch")
        counts = [one["held"] for one in (first, second)]
        assert all(isinstance(one, dict) and 0 < one["seconds_left"] < 600 for one in counts)
        assert [one["readings"] for one in counts] == sorted({one["readings"] for one in counts})  # type: ignore[index]  # dicts, as asserted
        gates = first["gates"]
        assert isinstance(gates, dict)
        assert (gates["stage"], gates["permitted"]) == ("sigterm", True)
        assert signals_in(path) == []
        assert rig.records(pid=pid) == []


@pytest.mark.slow
def test_what_holds_a_rule_back_has_its_mend() -> None:
    """A HOLD file and a pause, by the gates themselves, the moment they stand."""
    with simulated_host(PATIENT) as rig:
        rig.start_daemon()
        pid = rig.launch().pid
        wait_until(lambda: rig.verdict(pid) == "watch", "it is seen")
        rig.hold.touch()
        assert rig.ctl("pause", "--reason", "upgrade").code == 0
        gates = the_rule(rig, pid)["gates"]
        assert isinstance(gates, dict)
        reasons = {one["kind"]: one["mend"] for one in gates["reasons"]}
        assert {"hold", "paused"} <= set(reasons)
        assert all(reasons.values())


@pytest.mark.slow
def test_an_incident_that_is_open_says_what_comes_next() -> None:
    """SIGTERM was sent and is ignored: SIGKILL is next, in its time."""
    with simulated_host(rule(grace="600s")) as rig:
        rig.start_daemon()
        pid = rig.launch("--ignore-term").pid
        rig.wait_record("outcome", pid=pid)
        body = rig.ctl("explain", "pid", str(pid)).answer
        assert body["incident"]["stage"] == "sigterm"
        assert body["incident"]["gates"]["stage"] == "sigkill"
        assert 0 < body["incident"]["gates"]["due_seconds"] <= 600
        assert is_alive(pid)


def test_without_a_daemon_one_look_is_explained() -> None:
    """The same words, with the note that no rule acts; PID@START, and who holds nothing; no state is made."""
    with simulated_host(PATIENT) as rig:
        pid = rig.launch().pid
        body = rig.ctl("explain", "pid", str(pid)).answer
        assert "no daemon runs" in body["notes"][0]
        assert body["rules"][0]["standing"] == "holds"
        assert rig.ctl("policy", "explain", "--pid", body["ref"]).answer["ref"] == body["ref"]
        assert rig.ctl("explain", "pid", f"{pid}@1").code == 6
        assert rig.ctl("explain", "pid", str(os.getpid())).code == 6
        assert rig.ctl("explain", "pid", "4194304").code == 6
        assert not rig.state.exists()


def test_a_policy_is_tried_on_the_present_and_on_a_recorded_look() -> None:
    """The daemon observes; the new policy would take one of two, today and from the file after both ended."""
    with simulated_host() as rig:
        rig.start_daemon()
        pid, path = rig.recorder()
        small = rig.launch(size="1GiB").pid
        wait_until(lambda: rig.verdict(small) == "watch" and rig.verdict(pid) == "watch", "both are seen")
        rig.passes(1)
        file = rig.directory / "look.json"
        assert rig.ctl("snapshot", "--out", str(file)).code == 0
        new = rig.directory / "new.toml"
        before = rig.policy.read_bytes()
        rig.write_policy(rule(**{"for": "2m"}))
        new.write_bytes(rig.policy.read_bytes())
        rig.policy.write_bytes(before)
        now = rig.ctl("policy", "test", str(new))
        assert now.code == 0, now
        rows = {row["pid"]: row for row in now.answer["rows"]}
        assert (rows[pid]["ruling"], rows[pid]["gpus"]) == ("reclaim", [GPU_A])
        assert rows[pid]["must_hold"] == "would hold now; must hold for 2m and over 2 readings"
        assert [one["stage"] for one in rows[pid]["stages"]] == ["sigterm", "sigkill"]
        assert (rows[small]["ruling"], rows[small]["rule"]) == ("watch", "")
        assert signals_in(path) == []
        for one in (pid, small):
            os.kill(one, signal.SIGKILL)
        again = rig.ctl("policy", "test", str(new), "--snapshot", str(file)).answer
        assert {row["pid"]: row["ruling"] for row in again["rows"]} == {pid: "reclaim", small: "watch"}
        assert rig.records("incident_opened") == []


def test_a_snapshot_without_a_daemon_masks_and_makes_nothing() -> None:
    """One fresh look; a command line's secret is masked, no environment is in it, no state is made."""
    with simulated_host() as rig:
        pid = rig.launch("--record-signals", str(rig.directory / "token=hunter2")).pid
        ran = rig.ctl("snapshot")
        assert ran.code == 0, ran
        assert "hunter2" not in ran.out
        assert "environ" not in ran.out
        seen = json.loads(ran.out)["snapshot"]["processes"]
        assert str(pid) in seen
        assert not rig.state.exists()
