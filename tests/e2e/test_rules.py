"""What acts by rule really do to real processes, and what holds them back, each time on record once."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.rig import GPU_A, GPU_B, Rig, is_alive, moment, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process]

PATIENT = rule(grace="600s")
"""A rule whose SIGKILL never comes within a test."""


def assert_refused_once(rig: Rig, pid: int, kind: str, path: Path, *, passes: int = 4) -> None:
    """Assert that passes go by, nothing is sent, and exactly one refusal, of this kind, is on record."""
    refusal = rig.wait_record("refused", pid=pid)
    assert kind in [one["kind"] for one in refusal["refusals"]], refusal
    rig.passes(passes)
    assert signals_in(path) == []
    assert len(rig.records("refused", pid=pid)) == 1, rig.story()
    assert rig.records("intent", pid=pid) == []


def assert_asked_at_last(rig: Rig, pid: int, path: Path) -> None:
    """Assert that SIGTERM comes now, once."""
    rig.wait_record("outcome", pid=pid)
    wait_until(lambda: "SIGTERM" in signals_in(path), "SIGTERM arrives")
    rig.passes(3)
    assert signals_in(path).count("SIGTERM") == 1


def test_a_rule_climbs_to_sigkill_and_proves() -> None:
    """SIGTERM once, SIGKILL after the grace, RECLAIMED with its proof; who is under the cap lives."""
    with simulated_host(rule(grace="1s")) as rig:
        rig.start_daemon()
        quiet = rig.launch(size="1GiB").pid
        pid, path = rig.recorder()
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "reclaimed"
        assert ended["proof"]["kind"] == "shared"
        sigterm, sigkill = rig.records("intent", pid=pid)
        assert (sigterm["action"], sigkill["action"]) == ("sigterm", "sigkill")
        assert signals_in(path).count("SIGTERM") == 1
        assert not is_alive(pid)
        assert is_alive(quiet)
        assert rig.records(pid=quiet) == []
        assert rig.verify_audit().code == 0


@pytest.mark.slow
def test_a_rule_that_only_observes_sends_nothing() -> None:
    """Under the shipped mode a hog is told of (`ps`), refused(mode) once on record, and never signalled."""
    with simulated_host(rule(), tables={"daemon": {"mode": "observe"}}) as rig:
        rig.start_daemon()
        pid, path = rig.recorder()
        wait_until(lambda: rig.verdict(pid) == "reclaim", "the verdict is told")
        assert_refused_once(rig, pid, "mode", path)


@pytest.mark.slow
def test_a_rule_in_dry_run_records_its_plan_and_sends_nothing() -> None:
    """The plan is on record with what its gates say; enforced afterwards, the budget is untouched."""
    once = {"workloads_per_window": 1, "workloads_per_day": 1}
    with simulated_host(
        rule(mode="dry-run"), tables={"budgets": once, "gates": {"settling": "0s", "workload_cooldown": "1m"}}
    ) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "stood_down"
        assert [one["action"] for one in rig.records("planned", pid=pid)] == ["sigkill"]
        assert rig.records("outcome", pid=pid)[0]["outcome"]["kind"] == "dry_run"
        rig.passes(5)
        assert signals_in(path) == []
        rig.write_policy(PATIENT, budgets=once)
        daemon.send(signal.SIGHUP)
        wait_until(lambda: "SIGTERM" in signals_in(path), f"it is enforced now: {rig.story()}")


@pytest.mark.slow
def test_pause_holds_every_rule_and_resume_lets_them_go() -> None:
    """While paused nothing is sent, on record once; an operator's kill goes on; resume lifts it."""
    with simulated_host(PATIENT) as rig:
        rig.start_daemon()
        assert rig.ctl("pause", "--reason", "maintenance").code == 0
        pid, path = rig.recorder()
        assert_refused_once(rig, pid, "paused", path)
        assert "maintenance" in rig.records("refused", pid=pid)[0]["reason"]
        other = rig.launch(size="1GiB", gpu=GPU_B).pid
        assert rig.kill(other).code == 0
        assert rig.ctl("resume").code == 0
        assert_asked_at_last(rig, pid, path)
        assert [one["kind"] for one in rig.records() if one["kind"] in ("paused", "resumed")] == [
            "paused",
            "resumed",
        ]


@pytest.mark.slow
def test_a_hold_file_holds_every_rule() -> None:
    """While the file stands nothing is sent, on record once; `status` exits 10; removal lifts it."""
    with simulated_host(PATIENT) as rig:
        rig.start_daemon()
        assert rig.ctl("status").code == 0
        rig.hold.touch()
        pid, path = rig.recorder()
        assert_refused_once(rig, pid, "hold", path)
        assert str(rig.hold) in rig.records("refused", pid=pid)[0]["reason"]
        assert rig.ctl("status").code == 10
        rig.hold.unlink()
        assert_asked_at_last(rig, pid, path)


@pytest.mark.slow
def test_nothing_is_done_by_rule_while_settling() -> None:
    """In the settling time one refusal is on record, an operator is not bound, and its end lifts it."""
    with simulated_host(PATIENT, tables={"gates": {"settling": "4s"}}) as rig:
        pid, path = rig.recorder()
        rig.start_daemon()
        assert_refused_once(rig, pid, "settling", path, passes=2)
        assert rig.kill(rig.launch(size="1GiB", gpu=GPU_B).pid).code == 0
        assert_asked_at_last(rig, pid, path)
        started, asked = rig.records("started")[0], rig.records("intent", pid=pid)[0]
        assert moment(asked) - moment(started) >= 3.8  # the record is written a moment after the start


@pytest.mark.slow
def test_the_breaker_trips_before_anything_is_done() -> None:
    """Two workloads newly due in one pass: neither is touched until a person says so; then both are."""
    with simulated_host(PATIENT, tables={"breaker": {"workloads_per_pass": 1}}) as rig:
        (one, first), (two, second) = rig.recorder("one"), rig.recorder("two", gpu=GPU_B)
        rig.start_daemon()
        tripped = rig.wait_record("breaker_tripped")
        assert "2 workloads" in tripped["reason"]
        assert_refused_once(rig, one, "breaker", first)
        assert_refused_once(rig, two, "breaker", second)
        assert rig.ctl("status").code == 10
        assert rig.ctl("resume").code == 0
        rig.wait_record("breaker_closed")
        assert_asked_at_last(rig, one, first)
        assert_asked_at_last(rig, two, second)
        assert len(rig.records("breaker_tripped")) == 1


@pytest.mark.slow
def test_a_spent_budget_holds_the_next_workload() -> None:
    """One workload a window: the second is refused once, and asked when the window is over."""
    budgets = {"workloads_per_window": 1, "window": "6s"}
    with simulated_host(PATIENT, tables={"budgets": budgets}) as rig:
        rig.start_daemon()
        one, first = rig.recorder("one")
        assert_asked_at_last(rig, one, first)
        two, second = rig.recorder("two", gpu=GPU_B)
        assert_refused_once(rig, two, "budget", second, passes=2)
        assert_asked_at_last(rig, two, second)


@pytest.mark.slow
def test_the_budget_outlives_the_daemon() -> None:
    """After a restart what was spent is still spent."""
    budgets = {"workloads_per_window": 1, "window": "10m"}
    with simulated_host(PATIENT, tables={"budgets": budgets}) as rig:
        daemon = rig.start_daemon()
        one, first = rig.recorder("one")
        assert_asked_at_last(rig, one, first)
        daemon.kill_now()
        rig.start_daemon()
        two, second = rig.recorder("two", gpu=GPU_B)
        assert_refused_once(rig, two, "budget", second)
        assert signals_in(first).count("SIGTERM") == 1


@pytest.mark.slow
def test_the_exempt_and_the_protected_are_spared() -> None:
    """Who is exempt or protected is over the cap, lives, and has no incident."""
    spared = rule(**{"exempt.cmdline": ["--label exempt"]})
    with simulated_host(spared) as rig:
        rig.policy.write_text(rig.policy.read_text() + '[[protect]]\nname = "keep"\nexe = "/usr/bin/sleep"\n')
        rig.start_daemon()
        exempt = rig.launch("--label", "exempt").pid
        protected = rig.launch("--become", "/usr/bin/sleep").pid
        target = rig.launch().pid
        rig.wait_record("incident_ended", pid=target)
        rig.passes(4)
        assert rig.verdict(protected) == "spare"
        assert rig.verdict(exempt) == "watch"
        assert is_alive(exempt)
        assert is_alive(protected)
        assert rig.records(pid=exempt) == rig.records(pid=protected) == []


@pytest.mark.slow
def test_a_target_that_comes_down_in_time_is_let_go() -> None:
    """A target that ends by itself before our signal stands down, and no intent is on record."""
    with simulated_host(PATIENT) as rig:
        rig.start_daemon()
        rig.hold.touch()
        pid, path = rig.recorder()
        assert_refused_once(rig, pid, "hold", path)
        os.kill(pid, signal.SIGKILL)
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "stood_down"
        assert rig.records("intent", pid=pid) == []


@pytest.mark.slow
def test_sixty_four_stubborn_targets_by_rule() -> None:
    """With budget and breaker raised, 64 that ignore SIGTERM are proven gone in the grace and two seconds."""
    many = rule(above="500MiB", grace="3s")
    with simulated_host(many) as rig:
        rig.hold.touch()
        rig.start_daemon()
        command = ["--gpu", GPU_A, "--bytes", "1GiB", "--ignore-term"]
        pids = [one.pid for one in rig.keeper.launch_all([command] * 64)]
        wait_until(lambda: len(rig.records("refused")) == 64, "all are due")
        rig.hold.unlink()
        wait_until(lambda: len(rig.records("incident_ended")) == 64, f"all end: {rig.story()[-2000:]}", 20)
        assert {one["end"] for one in rig.records("incident_ended")} == {"reclaimed"}
        first = min(map(moment, rig.records("intent")))
        took = max(map(moment, rig.records("incident_ended"))) - first
        assert took <= 3 + 2, took
        assert not any(is_alive(pid) for pid in pids)


@pytest.mark.slow
def test_sixty_four_stubborn_targets_by_one_kill() -> None:
    """One `kill --force` over 64 pids proves all of them gone in the grace and two seconds."""
    with simulated_host() as rig:
        rig.start_daemon()
        command = ["--gpu", GPU_A, "--bytes", "1GiB", "--ignore-term"]
        pids = [one.pid for one in rig.keeper.launch_all([command] * 64)]
        ran = rig.kill(*pids, options=["--force", "--grace", "3s", "--max-targets", "64"])
        assert ran.code == 0, ran.err[-2000:]
        assert {one["end"] for one in ran.answer["targets"]} == {"reclaimed"}
        first = min(map(moment, rig.records("incident_opened")))
        took = max(map(moment, rig.records("incident_ended"))) - first
        assert took <= 3 + 2, took
        assert not any(is_alive(pid) for pid in pids)
