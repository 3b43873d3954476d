"""`reclaimctl kill` by GPU, container and pod, from end to end: who is meant goes, and nobody else."""

import os
import pty
import secrets
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import reclaimerd.cli.kill_targets
import reclaimerd.cli.kill_text  # noqa: F401 - the user who can't read this checkout has it loaded
from reclaimerd.cli.main import run
from reclaimerd.simulation.host import read_simulated_host
from tests.daemon.test_roles_real import NAMES, UID
from tests.e2e.cgroups import cgroup, container, moved
from tests.e2e.rig import GPU_A, GPU_B, Rig, is_alive, rule, signals_in, simulated_host
from tests.e2e.test_names import pod_container
from tests.e2e.test_races import a_stranger, let_the_stranger_live
from tests.rigs.other_user import as_user
from tests.rigs.records import CONTAINERD, DOCKER, containerd_config, docker_config, write_record
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process, pytest.mark.root]
BOUND_SECONDS = 40.0
HOLD_AS = """
import os, signal, sys
fd, uid = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY), int(sys.argv[2])
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
print("ready", os.getpid(), flush=True)
signal.pause()
"""


@pytest.fixture(params=["daemon", "foreground"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Give a host with and without a daemon, on which /usr/bin/sleep is protected."""
    with simulated_host() as host:
        host.write_policy()
        keep = '[[protect]]\nname = "keep"\nexe = "/usr/bin/sleep"\n'
        host.policy.write_text(host.policy.read_text() + keep, encoding="utf-8")
        if request.param == "daemon":
            host.start_daemon()
        yield host


def ps_pids(rig: Rig) -> set[int]:
    """Return whom the daemon sees hold a GPU."""
    return {row["pid"] for row in rig.ask("/v1/ps")["rows"]}


def workloads(rig: Rig) -> dict[int, str]:
    """Return what the daemon calls the workload of each holder."""
    return {row["pid"]: row["workload"] for row in rig.ask("/v1/ps")["rows"]}


def test_all_holders_of_one_gpu_go_but_for_the_protected(rig: Rig) -> None:
    """Exit 3, because one is protected and lives; it hides nobody, and who holds the other GPU lives too."""
    first, second = rig.launch().pid, rig.launch(size="1GiB").pid
    kept, other = rig.launch("--become", "/usr/bin/sleep").pid, rig.launch(gpu=GPU_B).pid
    if rig.daemons:
        wait_until(lambda: {first, second, kept, other} <= ps_pids(rig), "all are seen", BOUND_SECONDS)
    assert rig.ctl("kill", "--gpu", GPU_A, "--force").code == 2
    assert rig.records("incident_opened") == []
    ran = rig.ctl("kill", "--gpu", "0", "--yes", "--reason", "asked by a test")
    assert ran.code == 3, ran
    ends = {target["pid"]: (target["exit_code"], target["end"]) for target in ran.answer["targets"]}
    assert ends[first] == ends[second] == (0, "reclaimed")
    assert ran.target(kept)["reasons"][0]["kind"] == "protected"
    assert sorted(ends) == sorted([first, second, kept])
    assert (is_alive(first), is_alive(second), is_alive(kept), is_alive(other)) == (False, False, True, True)
    assert {one["target"]["root"]["pid"] for one in rig.records("intent")} == {first, second}


def test_without_waiting_the_incident_goes_on_in_the_daemon() -> None:
    """Exit 0 while the target lives and holds; the daemon carries it to its end all the same."""
    with simulated_host() as rig:
        rig.start_daemon()
        pid, path = rig.recorder()
        ran = rig.ctl("kill", "--pid", str(pid), "--no-wait", "--timeout", "1s")
        assert ran.code == 0, ran
        target = ran.target(pid)
        assert (target["end"], target["exit_code"]) == ("", 0)
        ended = rig.wait_record("incident_ended", pid=pid)
        assert (ended["incident"], ended["end"]) == (target["incident"], "handed_over to operator")
        assert "SIGTERM" in signals_in(path)


def test_a_container_and_a_pod_are_meant_by_their_names() -> None:
    """By the name that Docker has, by the beginning of the id, by namespace and pod; others live."""
    scope_name, pod_uid, cid = container(), str(uuid.uuid4()), secrets.token_hex(32)
    docker_id = scope_name.removeprefix("docker-").removesuffix(".scope")
    with simulated_host() as rig, cgroup(scope_name) as folder, pod_container(pod_uid, cid) as scope:
        write_record(rig.host / "root", DOCKER, docker_id, docker_config(docker_id, "web"))
        write_record(rig.host / "root", CONTAINERD, cid, containerd_config(pod_uid))
        rig.start_daemon()
        try:
            outside = rig.launch(size="1GiB").pid
            one, two = moved(folder, rig.launch().pid), moved(folder, rig.launch(gpu=GPU_B).pid)
            podded = moved(scope, rig.launch(size="1GiB").pid)
            named = {two: "container web", podded: "ml/train-0/train"}
            wait_until(lambda: named.items() <= workloads(rig).items(), "they are named", BOUND_SECONDS)
            ran = rig.ctl("kill", "--container", docker_id[:12], "--gpu", "1", "--dry-run")
            assert sorted(target["pid"] for target in ran.answer["targets"]) == sorted([one, two])
            ran = rig.ctl("kill", "--container", "web", "--yes")
            assert ran.code == 0, ran
            assert (is_alive(one), is_alive(two), is_alive(podded)) == (False, False, True)
            ran = rig.ctl("kill", "--pod", "ml/train-0", "--yes")
            assert ran.code == 0, ran
            assert (is_alive(podded), is_alive(outside)) == (False, True)
        finally:
            rig.keeper.stop()


def test_an_owner_s_list_is_of_their_own_which_alone_go(tmp_path: Path) -> None:
    """Who else holds the GPU is not told, and lives; a pid of others' that is named is exit 4."""
    with simulated_host(tables={"access": {**NAMES, "owner_access": True}}) as rig:
        device = next(gpu.device for gpu in read_simulated_host(rig.host).gpus if gpu.uuid == GPU_A)
        hold = [sys.executable, "-I", "-S", "-c", HOLD_AS, device]
        started = rig.keeper.launch_commands([[*hold, str(UID)], [*hold, str(UID - 1)]])
        own, foreign = (one.pid for one in started)
        rig.directory.chmod(0o711)
        rig.host.chmod(0o711)
        rig.start_daemon()
        wait_until(lambda: {own, foreign} <= ps_pids(rig), "both are seen", BOUND_SECONDS)
        words = ["kill", "--gpu", "0", "--yes", "--force", "--grace", "1s", "--simulate", str(rig.host)]
        named = [*words, "--pid", str(foreign), "--dry-run"]
        code, out, err = as_user(tmp_path, UID, (UID,), lambda: run(named))
        assert code == 4, out + err
        assert f"pid {foreign}: no process of yours by all four uids is seen" in err
        code, out, err = as_user(tmp_path, UID, (UID,), lambda: run(words))
        assert code == 0, out + err
        assert str(foreign) not in out + err
        assert is_alive(foreign)
        assert not is_alive(own)
        assert {one["target"]["root"]["pid"] for one in rig.records("intent")} == {own}
        assert rig.records("intent")[0]["actor"]["role"] == "owner"


def test_whoever_has_the_pid_by_the_answer_is_not_who_was_shown() -> None:
    """In a PID namespace: the pid is used again while the question stands; exit 6, the stranger lives."""
    let_the_stranger_live("tests.e2e.test_kill_names")


def _reuse() -> None:
    """As the first of a PID namespace: do it, and print the end."""
    with simulated_host(rule(grace="600s")) as rig:
        rig.start_daemon()
        pid = rig.launch(size="1GiB").pid
        wait_until(lambda: pid in ps_pids(rig), "it is seen", BOUND_SECONDS)
        leader, follower = pty.openpty()
        words = ["kill", "--gpu", "0", "--force", "--grace", "1s", "--simulate", str(rig.host)]
        argv = [sys.executable, "-m", "reclaimerd.cli.main", *words]
        with subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower) as child:
            screen = _until(leader, b"[y/N]")
            assert str(pid).encode() in screen, screen
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), "it is reaped")
            stranger = a_stranger(rig, pid)
            os.write(leader, b"y\n")
            screen = _until(leader, b"there is no process")
            assert child.wait(BOUND_SECONDS) == 6, screen
        os.close(follower)
        os.close(leader)
        assert is_alive(stranger)
        assert signals_in(rig.directory / "stranger") == [], rig.story()
        assert rig.records("intent") == [], rig.story()
        print("the stranger lives", flush=True)  # noqa: T201 - the test outside reads it


def _until(leader: int, words: bytes) -> bytes:
    """Return what stands on the terminal once these words do."""
    screen, until = b"", time.monotonic() + BOUND_SECONDS
    while words not in screen and time.monotonic() < until:
        if select.select([leader], [], [], 0.1)[0]:
            screen += os.read(leader, 65536)
    assert words in screen, screen
    return screen


if __name__ == "__main__":
    _reuse()
