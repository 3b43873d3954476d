"""`reclaimctl kill` over each case of the demo, through the daemon and in the foreground."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from reclaimerd.simulation.raw_fuse import RawFuse
from tests.e2e.rig import GPU_A, GPU_B, Rig, is_alive, signals_in, simulated_host
from tests.rigs.simulated import state_of, wait_until

pytestmark = [pytest.mark.process, pytest.mark.root]


@pytest.fixture
def daemon_rig() -> Iterator[Rig]:
    """Give a host with a daemon that has no rule, for what does not depend on who answers."""
    with simulated_host(reap=False) as host:
        host.start_daemon()
        yield host


@pytest.fixture(params=["daemon", pytest.param("foreground", marks=pytest.mark.slow)])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Give a host with a daemon that has no rule, and one without a daemon."""
    with simulated_host(reap=False) as host:
        if request.param == "daemon":
            host.start_daemon()
        yield host


def test_who_obeys_is_reclaimed_by_sigterm_alone(rig: Rig) -> None:
    """Exit 0: SIGTERM, the proof, and not one signal more."""
    pid = rig.launch().pid
    ran = rig.kill(pid, options=["--reason", "asked by a test"])
    assert ran.code == 0, ran
    assert ran.target(pid)["end"] == "reclaimed"
    assert [step["stage"] for step in ran.target(pid)["stages"]] == ["sigterm"]
    assert not is_alive(pid)
    assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm"]
    assert rig.records("incident_ended", pid=pid)[0]["proof"]["kind"] == "exclusive"


def test_who_ignores_sigterm_lives_without_force(rig: Rig) -> None:
    """Exit 5: the time is up, it lives and holds, the state of its tasks is told, and no SIGKILL was sent."""
    pid = rig.launch("--ignore-term").pid
    ran = rig.kill(pid, options=["--timeout", "1s"])
    assert ran.code == 5, ran
    target = ran.target(pid)
    assert target["end"] == "handed_over"
    assert [(process["pid"], process["tasks"][0]["tid"]) for process in target["tasks"]] == [(pid, pid)]
    assert "sleeping" in ran.err + str(target["tasks"])
    assert is_alive(pid)
    assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm"]


def test_force_ends_who_ignores_sigterm_after_its_grace(rig: Rig) -> None:
    """Exit 0: SIGTERM first, SIGKILL no earlier than the grace, then the proof."""
    pid = rig.launch("--ignore-term").pid
    ran = rig.kill(pid, options=["--force", "--grace", "700ms"])
    assert ran.code == 0, ran
    first, second = ran.target(pid)["stages"]
    assert (first["stage"], second["stage"]) == ("sigterm", "sigkill")
    waited = datetime.fromisoformat(second["at"]) - datetime.fromisoformat(first["at"])
    assert 0.7 <= waited.total_seconds() <= 1.7
    assert not is_alive(pid)


def test_a_stopped_process_is_continued_so_that_it_can_obey(rig: Rig) -> None:
    """Exit 0: SIGCONT follows SIGTERM, and no SIGKILL is needed."""
    pid = rig.launch("--stop-self").pid
    wait_until(lambda: state_of(pid) == "T", "it is stopped")
    ran = rig.kill(pid, options=["--force", "--grace", "5s"])
    assert ran.code == 0, ran
    assert [step["stage"] for step in ran.target(pid)["stages"]] == ["sigterm"]


def test_a_leader_that_is_gone_does_not_hide_its_threads(rig: Rig) -> None:
    """Exit 0: a process in state Z whose threads live is signalled, and proven gone with its last thread."""
    pid = rig.launch("--exit-leader", "--threads", "2").pid
    wait_until(lambda: state_of(pid) == "Z", "its leader is gone")
    assert is_alive(pid)
    ran = rig.kill(pid, options=["--force"])
    assert ran.code == 0, ran
    assert ran.target(pid)["end"] == "reclaimed"
    assert not is_alive(pid)


def test_a_dead_but_listed_parent_names_its_heir_and_a_command_that_works(rig: Rig) -> None:
    """C35: exit 6 for the dead parent; the command it prints reclaims the child that really holds."""
    pair = rig.launch("--fork-and-leave")
    child = pair.children[0]
    wait_until(lambda: not is_alive(pair.pid), "the parent is dead")
    ran = rig.kill(pair.pid)
    assert ran.code == 6, ran
    text = ran.target(pair.pid)["text"]
    assert f"{child}@" in text
    assert is_alive(child)
    words = text.partition("reclaimctl ")[2].split()
    again = rig.ctl(*words)
    assert again.code == 0, again
    assert again.target(child)["end"] == "reclaimed"
    assert not is_alive(child)


def test_a_protected_process_is_not_touched_by_force(rig: Rig) -> None:
    """Exit 3 with the reason, for a process that runs the host's own protected program."""
    rig.policy.write_text(
        rig.policy.read_text() + '\n[[protect]]\nname = "keep"\nexe = "/usr/bin/sleep"\n', encoding="utf-8"
    )
    for daemon in rig.daemons:
        daemon.send(signal.SIGHUP)
        rig.wait_record("policy_loaded")
    pid = rig.launch("--become", "/usr/bin/sleep").pid
    ran = rig.kill(pid, options=["--force"])
    assert ran.code == 3, ran
    assert "keep" in ran.err
    assert ran.target(pid)["reasons"][0]["kind"] == "protected"
    assert is_alive(pid)
    assert rig.records("intent") == []
    assert rig.records("refused", pid=pid)


def test_force_on_an_unkillable_process_says_so(rig: Rig) -> None:
    """Exit 5: SIGKILL was sent, the task still exits in the kernel, it is told, and no drain is asked for."""
    with RawFuse(withhold="flush") as fuse:
        pid = rig.launch("--stuck-on", str(fuse.path("stuck"))).pid
        ran = rig.kill(pid, options=["--force", "--grace", "500ms", "--timeout", "3s"])
        assert ran.code == 5, ran
        assert ran.target(pid)["end"] == "handed_over"
        assert any(task["exiting"] for process in ran.target(pid)["tasks"] for task in process["tasks"])
        assert is_alive(pid)
        assert not (rig.state / "drain").exists()
        fuse.release()
        wait_until(lambda: not is_alive(pid), "the release frees it")


def test_a_pid_without_a_process_is_no_target(rig: Rig) -> None:
    """Exit 6 for a pid that nobody has, and nothing was tried."""
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitpid(pid, 0)
    ran = rig.kill(pid)
    assert ran.code == 6, ran
    assert rig.records("intent") == []


def test_a_process_without_a_gpu_is_no_target(rig: Rig) -> None:
    """Exit 6 for a living process that holds no GPU; it goes on living."""
    pid = rig.keeper.launch_commands([["/bin/sh", "-c", "echo ready $$; exec sleep 60"]])[0].pid
    ran = rig.kill(pid, options=["--force"])
    assert ran.code == 6, ran
    assert "holds no GPU" in ran.err
    assert is_alive(pid)
    assert rig.records("intent") == []


def test_memory_that_cannot_be_read_is_unverified(rig: Rig) -> None:
    """Exit 8: it is gone, but nobody can say that the memory is back."""
    pid = rig.launch().pid
    rig.fail_calls(GPU_A, memory="driver says no")
    ran = rig.kill(pid)
    assert ran.code == 8, ran
    assert ran.target(pid)["end"] == "unverified"
    assert "driver says no" in ran.target(pid)["text"]
    assert not is_alive(pid)


def test_another_start_time_is_another_process(daemon_rig: Rig) -> None:
    """C05: exit 6 for PID@START, as an old log line names it, of who has that pid now; it lives."""
    pid, path = daemon_rig.recorder()
    ran = daemon_rig.ctl("kill", "--pid", f"{pid}@1", "--force")
    assert ran.code == 6, ran
    assert is_alive(pid)
    assert signals_in(path) == []


def test_another_user_than_expected_is_refused(daemon_rig: Rig) -> None:
    """Exit 3 with --expect-user for a process of root's; nothing is sent."""
    pid, path = daemon_rig.recorder()
    ran = daemon_rig.kill(pid, options=["--expect-user", "65534", "--force"])
    assert ran.code == 3, ran
    assert signals_in(path) == []


def test_wrong_usage_is_two_and_touches_nothing(daemon_rig: Rig) -> None:
    """Exit 2 for words that make no order, and for more processes than were allowed."""
    pid, path = daemon_rig.recorder()
    pids = [str(pid + number) for number in range(9)]
    for words in (
        ["kill"],
        ["kill", "--pid", "x"],
        ["kill", "--pid", str(pid), "--grace", "soon"],
        ["kill", "--pid", str(pid), "--scope", "host"],
        ["kill", "--pid", str(pid), "--pid", pids[1]],
        ["kill", "--yes", *(word for each in pids for word in ("--pid", each))],
    ):
        ran = daemon_rig.ctl(*words)
        assert ran.code == 2, (words, ran)
        assert "Traceback" not in ran.err
    assert signals_in(path) == []


def test_several_targets_end_with_the_gravest_code(daemon_rig: Rig) -> None:
    """One obeys, one ignores, one holds nothing: exit 5, and each has its own code in the JSON."""
    obeys, ignores = daemon_rig.launch().pid, daemon_rig.launch("--ignore-term", gpu=GPU_B).pid
    nobody = daemon_rig.keeper.launch_commands([["/bin/sh", "-c", "echo ready $$; exec sleep 60"]])[0].pid
    ran = daemon_rig.kill(obeys, ignores, nobody, options=["--timeout", "1500ms"])
    assert ran.code == 5, ran
    codes = {one["pid"]: one["exit_code"] for one in ran.answer["targets"]}
    assert codes == {obeys: 0, ignores: 5, nobody: 6}


def test_dry_run_of_an_operator_changes_nothing(rig: Rig) -> None:
    """Exit 0: the whole plan is on record with what its gates say, and not one signal was sent."""
    pid, path = rig.recorder()
    ran = rig.kill(pid, options=["--force", "--dry-run"])
    assert ran.code == 0, ran
    assert signals_in(path) == []
    planned = rig.records("planned", pid=pid)
    assert [one["action"] for one in planned] == ["sigkill"]
    assert planned[0]["gates"]
    assert rig.records("outcome", pid=pid)[0]["outcome"]["kind"] == "dry_run"


def test_dry_run_of_what_would_be_refused_is_refused(daemon_rig: Rig) -> None:
    """Exit 3 in a dry run over a protected process, with the reason."""
    daemon_rig.policy.write_text(
        daemon_rig.policy.read_text() + '\n[[protect]]\nname = "keep"\nexe = "/usr/bin/sleep"\n',
        encoding="utf-8",
    )
    for daemon in daemon_rig.daemons:
        daemon.send(signal.SIGHUP)
        daemon_rig.wait_record("policy_loaded")
    pid = daemon_rig.launch("--become", "/usr/bin/sleep").pid
    ran = daemon_rig.kill(pid, options=["--dry-run"])
    assert ran.code == 3, ran
    assert "keep" in ran.err
    assert is_alive(pid)


def test_every_record_of_a_kill_is_in_an_intact_chain(rig: Rig) -> None:
    """After acts and refusals `audit verify` says intact, and `audit list` and `incidents` tell the story."""
    obeys, ignores = rig.launch().pid, rig.launch("--ignore-term").pid
    rig.kill(obeys, ignores, options=["--force", "--grace", "300ms"])
    assert rig.kill(obeys).code == 6
    verified = rig.ctl("audit", "verify")
    assert verified.code == 0, verified
    assert verified.answer["ok"]
    assert verified.answer["unanchored"] == ""
    listed = rig.ctl("audit", "list").answer["records"]
    assert [one["seq"] for one in listed] == [one["seq"] for one in rig.records()]
    incidents = rig.ctl("incidents", "list").answer["incidents"]
    assert {one["pid"] for one in incidents} == {obeys, ignores}
    shown = rig.ctl("incidents", "show", incidents[0]["id"])
    assert shown.code == 0, shown
    kinds = [step["kind"] for step in shown.answer["timeline"]]
    assert kinds[0] == "incident_opened"
    assert kinds[-1] == "incident_ended"


def test_progress_is_printed_as_it_happens(daemon_rig: Rig) -> None:
    """Without --json each step is a line before the end, and the end says reclaimed."""
    pid = daemon_rig.launch("--ignore-term").pid
    began = time.monotonic()
    ran = daemon_rig.begin("kill", "--pid", str(pid), "--force", "--grace", "300ms").result()
    assert ran.code == 0, ran
    assert time.monotonic() - began < 10
    order = [ran.out.find(word) for word in ("SIGTERM sent", "SIGKILL sent", "reclaimed")]
    assert order == sorted(order), ran.out
    assert -1 not in order, ran.out
