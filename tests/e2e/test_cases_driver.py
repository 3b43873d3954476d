"""Public incidents by their numbers, with the real daemon: silence, false listings, lost containers."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.model.snapshot import ContextKind
from reclaimerd.simulation.claims import Claim, take_claim
from tests.e2e.cgroups import cgroup, container, moved
from tests.e2e.hung_driver import WORKERS, drains, hung_host, nvml_workers, service_manager
from tests.e2e.rig import GPU_A, GPU_B, TWO_GPUS, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.raw_fuse import why_unavailable
from tests.rigs.simulated import GIB, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root]
needs_fuse = pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
LONG = {"driver_alarm": "2s", "driver_drain_after": "4s"}
QUICK = rule(grace="300ms", sigkill="300ms")
SLEEPER = ["/bin/sh", "-c", "echo ready $$; exec sleep 60"]


@needs_fuse
def test_c17_a_driver_that_is_silent_for_long_costs_no_healthy_holder_a_signal() -> None:
    """C17: both break an enforcing rule: one alarm, one drain asked, one probe; judged when it answers."""
    with hung_host(drain=LONG) as host:
        daemon = host.start()
        found = [host.rig.recorder(f"signals-{gpu}", gpu=gpu) for gpu in (GPU_A, GPU_B)]
        wait_until(lambda: all(host.rig.verdict(pid) != "no row" for pid, _ in found), "both are seen")
        worker = host.hang_until_abandoned(daemon)
        host.rig.write_policy(QUICK, drain=LONG, workers=WORKERS)
        daemon.send(signal.SIGHUP)
        host.rig.wait_record("alarm")
        wait_until(lambda: bool(drains(host.rig)), f"a drain is asked for: {host.rig.story()}")
        host.rig.passes(10)
        assert host.rig.records("policy_loaded")
        assert nvml_workers(daemon) == [worker], "one outstanding probe, however long"
        for pid, path in found:
            assert signals_in(path) == []
            assert host.rig.verdict(pid) == "undetermined"
            assert host.rig.records("incident_opened", pid=pid) == []
        assert len(drains(host.rig)) == 1
        assert [one["action"] for one in host.rig.records("intent")] == ["drain"]
        host.come_back()
        wait_until(lambda: all("SIGTERM" in signals_in(path) for _, path in found), "the rule was in force")


@needs_fuse
def test_c24_a_driver_that_never_answers_its_first_call_stops_no_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C24: READY is said, with "driver unresponsive" in the status; nobody is touched, then all is well."""
    with service_manager(monkeypatch) as manager, hung_host() as host:
        host.rig.write_policy(QUICK, workers=WORKERS)
        _, path = host.rig.recorder()
        host.hang()
        daemon = host.start("unresponsive")
        host.fuse.wait_withheld(timeout=15.0)
        for words in ("READY=1", "driver unresponsive"):
            wait_until(lambda words=words: any(words in text for _, text in manager.heard), words)  # type: ignore[misc]
        host.rig.passes(10)
        assert len(nvml_workers(daemon)) == 1
        assert host.rig.ctl("status").code == 10
        assert host.rig.records("intent") == []
        assert signals_in(path) == []
        host.come_back()
        host.wait_state("responsive")
        wait_until(lambda: "SIGTERM" in signals_in(path), "who holds is seen and judged at last")


@contextmanager
def leaked(rig: Rig, pid: int) -> Iterator[None]:
    """Let the driver list a pid with 10 GiB that no process of the host holds."""
    claim = Claim(GPU_A, pid, 1, 10 * GIB, ContextKind.COMPUTE)
    descriptor = take_claim(rig.host, claim, 80 * GIB)
    try:
        yield
    finally:
        os.close(descriptor)


def test_c26_a_listed_pid_without_a_process_is_never_reclaimed_and_never_acted_on() -> None:
    """C26: no such process is exit 6 and no success; memory stays told as held by nobody who is seen."""
    dead = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitpid(dead, 0)
    with simulated_host(QUICK) as rig, leaked(rig, dead):
        rig.start_daemon()
        rig.passes(6)
        (told,) = rig.ask("/v1/ps")["dead"]
        assert (told["pid"], told["holders"]) == (dead, [])
        ran = rig.kill(dead, options=["--force"])
        assert ran.code == 6, ran
        assert "nobody is seen to hold its context" in ran.target(dead)["text"]
        assert rig.records("intent") == []
        assert rig.records("incident_opened") == []


def test_c26_whoever_got_the_listed_pid_is_not_killed_for_it() -> None:
    """C26: a bystander under that pid holds no node: it is watched, and lives through an enforcing rule."""
    with simulated_host(QUICK) as rig:
        (bystander,) = rig.keeper.launch_commands([SLEEPER])
        with leaked(rig, bystander.pid):
            rig.start_daemon()
            wait_until(lambda: rig.verdict(bystander.pid) != "no row", "it is listed")
            rig.passes(6)
            assert rig.verdict(bystander.pid) == "watch"
            assert is_alive(bystander.pid)
            assert rig.records("intent") == []


def test_c27_a_latched_counter_is_no_reason_for_anything() -> None:
    """C27: 100 % with nobody on it: seen, and neither incident nor alarm; a kill's record speaks of it."""
    busy = (replace(TWO_GPUS[0], utilisation_percent=100), TWO_GPUS[1])
    stages = ["sigterm", "sigkill", "reset", "drain"]
    with simulated_host(rule(stages=stages), gpus=busy) as rig:
        rig.start_daemon()
        rig.passes(8)
        status = rig.ctl("status")
        assert (status.code, status.answer["gpus"][0]["utilisation_percent"]) == (0, 100)
        assert {one["kind"] for one in rig.records()} <= {"started", "policy_loaded"}
        pid = rig.launch(size="1GiB").pid
        assert rig.kill(pid).code == 0
        ended = rig.wait_record("incident_ended", pid=pid)
        assert ended["end"] == "reclaimed"
        assert "no cause for a reset" in ended["proof"]["text"]


def test_c29_the_number_that_a_container_gives_is_nobodys_here() -> None:
    """C29: an order by the inner pid touches nobody; both numbers are shown and on record."""
    with simulated_host() as rig:
        rig.start_daemon()
        words = ["-m", "reclaimerd.simulation.workload", "--dir", str(rig.host), "--gpu", GPU_A]
        unshare = ["/usr/bin/unshare", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", '"$@"; true', "sh"]
        rig.keeper.launch_commands([[*unshare, sys.executable, *words, "--bytes", "1GiB"]])
        wait_until(lambda: bool(rig.ask("/v1/ps")["rows"]), "it is listed")
        (row,) = rig.ask("/v1/ps")["rows"]
        pid = row["pid"]
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        inner = int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])
        assert inner != pid, "it has a number of its own"
        ran = rig.kill(inner, options=["--force"])
        assert ran.code in {3, 6}, ran
        assert is_alive(pid)
        assert rig.records("intent") == []
        shown = rig.begin("inspect", str(pid)).result()
        assert f"{pid} {inner}" in shown.out, shown
        assert rig.kill(pid).code == 0
        opened = rig.wait_record("incident_opened", pid=pid)
        assert opened["evidence"] == [f"pid {inner} in a pid namespace of its own"]


def test_c31_workers_whose_container_is_gone_are_seen_and_reclaimed() -> None:
    """C31: no runtime knows the container; they are named by it all the same, and the kill is proven."""
    name = container()
    with cgroup(name) as folder, simulated_host() as rig:
        rig.start_daemon()
        pids = [moved(folder, rig.launch(size="11GiB").pid) for _ in range(2)]
        cid = name.removeprefix("docker-").removesuffix(".scope")

        def named() -> list[str]:
            return [str(row["workload"]) for row in rig.ask("/v1/ps")["rows"] if row["pid"] in pids]

        wait_until(lambda: named() == [f"container {cid[:12]}…"] * 2, "both are named by their container")
        assert cid in rig.ctl("inspect", str(pids[0])).answer["process"]["cgroup"]
        ran = rig.kill(*pids)
        assert ran.code == 0, ran
        assert not any(is_alive(pid) for pid in pids)
        ends = [rig.wait_record("incident_ended", pid=pid) for pid in pids]
        assert {end["end"] for end in ends} == {"reclaimed"}
        assert all(end["proof"]["kind"] in {"exclusive", "shared"} for end in ends)
        rig.keeper.stop()
