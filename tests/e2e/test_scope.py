"""A kill that takes a whole tree, or a whole workload in a real cgroup v2."""

import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cgroups import cgroup, container, moved
from tests.e2e.rig import GPU_B, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root]
_STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.getpid(), flush=True)
signal.pause()
"""
STUBBORN = (sys.executable, "-c", _STUBBORN)
"""A member that holds no GPU and ignores SIGTERM."""


@pytest.fixture(params=["daemon", "foreground"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Give a host with and without a daemon."""
    with simulated_host() as host:
        host.write_policy()
        host.policy.write_text(
            host.policy.read_text() + '[[protect]]\nname = "keep"\nexe = "/usr/bin/sleep"\n'
        )
        if request.param == "daemon":
            host.start_daemon()
        yield host


def test_a_whole_workload_goes(rig: Rig) -> None:
    """Every member of the container goes with the one that was named; who is outside lives."""
    with cgroup(container()) as folder:
        outside = rig.launch(size="1GiB").pid
        try:
            holder = moved(folder, rig.launch("--ignore-term").pid)
            (plain,) = rig.keeper.launch_commands([STUBBORN])
            moved(folder, plain.pid)
            ran = rig.kill(holder, options=["--scope", "workload", "--force", "--grace", "500ms"])
            assert ran.code == 0, ran
            assert ran.target(holder)["end"] == "reclaimed"
            assert not is_alive(holder)
            assert not is_alive(plain.pid)
            assert is_alive(outside)
        finally:
            rig.keeper.stop()


def test_who_goes_along_is_told_and_bound_by_max_targets(rig: Rig) -> None:
    """Real members by pid, user and program; one more than agreed to refuses it, and nobody is signalled."""
    with cgroup(container()) as folder:
        try:
            pid, path = rig.recorder()
            moved(folder, pid)
            (plain,) = rig.keeper.launch_commands([STUBBORN])
            moved(folder, plain.pid)
            if rig.daemons:
                told = rig.ask(f"/v1/reclaims/candidates?pids={pid}&scope=workload")["along"]
                found = [(row["pid"], row["uid"], row["of"]) for row in told["rows"]]
                assert (told["processes"], found) == (2, [(plain.pid, 0, pid)])
                assert told["rows"][0]["comm"].startswith("python")
            ran = rig.kill(pid, options=["--scope", "workload", "--max-targets", "1"])
            assert ran.code == 3, ran
            assert "2 processes would be signalled, more than 1; nothing was done" in ran.err
            assert signals_in(path) == []
            assert is_alive(plain.pid)
            assert rig.records("intent") == []
        finally:
            rig.keeper.stop()


def test_one_protected_member_saves_the_whole_workload(rig: Rig) -> None:
    """Exit 3 that names the member; none of the workload is touched."""
    with cgroup(container()) as folder:
        try:
            pid, path = rig.recorder()
            moved(folder, pid)
            (keep,) = rig.keeper.launch_commands([["/bin/sh", "-c", "echo ready $$; exec /usr/bin/sleep 60"]])
            moved(folder, keep.pid)
            wait_until(lambda: Path(f"/proc/{keep.pid}/comm").read_text() == "sleep\n", "it is the program")
            ran = rig.kill(pid, options=["--scope", "workload", "--force", "--grace", "300ms"])
            assert ran.code == 3, ran
            assert f"pid {keep.pid} is protected" in ran.err
            assert signals_in(path) == []
            assert is_alive(pid)
            assert is_alive(keep.pid)
            assert rig.records("intent") == []
        finally:
            rig.keeper.stop()


def test_a_tree_goes_with_its_children(rig: Rig) -> None:
    """Parent and forked child, both holding: one kill of the tree ends both."""
    leave = rig.directory / "never"
    pair = rig.launch("--fork-and-leave", "--leave-on", str(leave))
    child = pair.children[0]
    ran = rig.kill(pair.pid, options=["--scope", "tree", "--force"])
    assert ran.code == 0, ran
    assert not is_alive(pair.pid)
    assert not is_alive(child)


def test_the_scope_process_leaves_the_child_and_says_that_it_holds(rig: Rig) -> None:
    """Without a scope only the parent is signalled; its child still holds, so nothing is proven."""
    leave = rig.directory / "never"
    pair = rig.launch("--fork-and-leave", "--leave-on", str(leave))
    child = pair.children[0]
    ran = rig.kill(pair.pid, options=["--force", "--timeout", "3s"])
    assert ran.code == 5, ran
    assert f"{child}@" in ran.target(pair.pid)["text"]
    assert is_alive(child)


def test_a_unit_cools_down_after_its_incident() -> None:
    """A second process of the same unit is refused once while the cool-down runs, and asked after it."""
    cooling = {"settling": "0s", "workload_cooldown": "4s"}
    with (
        cgroup(f"e2e-{secrets.token_hex(4)}.service") as folder,
        simulated_host(rule(grace="600s"), tables={"gates": cooling}) as rig,
    ):
        rig.hold.touch()
        rig.start_daemon()
        first = moved(folder, rig.launch().pid)
        rig.wait_record("refused", pid=first)
        rig.hold.unlink()
        rig.wait_record("incident_ended", pid=first)
        ended = time.monotonic()
        rig.hold.touch()
        pid, path = rig.recorder(gpu=GPU_B)
        moved(folder, pid)
        rig.hold.unlink()
        wait_until(
            lambda: "cool_down" in str(rig.records("refused", pid=pid)), f"it is refused: {rig.story()}"
        )
        assert signals_in(path) == []
        wait_until(lambda: "SIGTERM" in signals_in(path), "the cool-down ends")
        assert time.monotonic() - ended >= 3.5
        assert str(rig.records("refused", pid=pid)).count("'kind': 'cool_down'") == 1
        rig.keeper.stop()
