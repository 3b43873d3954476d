"""From a task that can't be ended to its node's drain in a real Slurm, and back; and Slurm's own call."""

import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.observe.peers import cgroup_root
from reclaimerd.simulation.kernel_log import write_xid
from reclaimerd.simulation.raw_fuse import RawFuse, why_unavailable
from tests.e2e.cgroups import moved
from tests.e2e.rig import Rig, Table, is_alive, rule, simulated_host
from tests.rigs.simulated import wait_until
from tests.rigs.slurm import NODE, SINFO, Slurm, slurm
from tests.rigs.slurm import why_unavailable as why_no_slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.slurm,
    pytest.mark.skipif(bool(why_unavailable()), reason=f"no raw FUSE: {why_unavailable()}"),
    pytest.mark.skipif(bool(why_no_slurm()), reason=f"no Slurm: {why_no_slurm()}"),
]

NOBODY = 65534
CLIMBING = rule(stages=["sigterm", "sigkill", "drain"], grace="500ms", sigkill="500ms")
TABLES: Mapping[str, Table] = {
    "ladder": {"sigterm": "500ms", "sigkill": "500ms", "exit_grace": "1s", "proof": "1s"},
    "drain": {"fault_domains": ["driver", "hardware", "workload", "unknown"]},
    "drain.slurm": {"within": "5s"},
    "drain.fleet": {"arbiter": "slurm"},
}
REPOSITORY = Path(__file__).resolve().parents[2]


@contextmanager
def the_host(real: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """Set up a simulated host that is this Slurm's node."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    with simulated_host(CLIMBING, tables=TABLES) as rig:
        real.install(rig.host / "root")
        yield rig


def reason_of(real: Slurm) -> str:
    """Return the node's reason in Slurm."""
    return real.run(SINFO, "-h", "-R", "-n", NODE, "-o", "%E").strip()


def drain_texts(rig: Rig) -> str:
    """Return what the daemon says of its drain request, target by target."""
    drain = rig.ask("/v1/status")["drain"] or {}
    return "; ".join(f"{one['name']} {one['state']}: {one['text']}" for one in drain.get("targets", ()))


def test_a_stuck_task_drains_the_node_and_undrain_gives_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason has incident, GPU and pids; `undrain` gives the node back, and another's drain stays."""
    with slurm() as real, RawFuse(withhold="flush") as fuse, the_host(real, monkeypatch) as rig:
        try:
            pid = rig.launch("--stuck-on", str(fuse.path("stuck"))).pid
            rig.start_daemon()
            ended = rig.wait_record("incident_ended", pid=pid, seconds=30)
            assert ended["end"] == "handed_over to scheduler", f"{rig.story()}\n{drain_texts(rig)}"
            incident = ended["incident"]
            assert reason_of(real).startswith(
                f"reclaimerd: stuck_exit id={incident} gpu=GPU-00000000 pids={pid}"
            )
            asked = [one["reason"] for one in rig.records("drain_step")]
            assert asked.count("asking slurm") == 1, rig.story()
            assert rig.ctl("undrain", "--incident", incident).code == 0
            assert reason_of(real) == ""
        finally:
            fuse.release()
            real.undrain_all()


def _program(rig: Rig, seen: Path) -> Path:
    """Write the program that slurm.conf names: it writes down its environment, and calls ours."""
    path = rig.directory / "unkillable"
    words = f"{sys.executable} -m reclaimerd.cli.main slurm-unkillable --socket {rig.socket}"
    path.write_text(
        f"#!/bin/sh\n/usr/bin/env > {seen}.part\n"
        f"cd / && PYTHONPATH={REPOSITORY} PYTHONDONTWRITEBYTECODE=1 {words} >> {seen}.part 2>&1\n"
        f'echo "exit $?" >> {seen}.part\n/bin/mv {seen}.part {seen}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_slurms_own_daemon_tells_of_a_step_that_it_can_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slurmstepd runs the program when SIGKILL ended nothing; the daemon looks, and Slurm drains."""
    with RawFuse(withhold="flush") as fuse, simulated_host(CLIMBING, tables=TABLES) as rig:
        monkeypatch.delenv("SLURM_CONF", raising=False)
        seen = rig.directory / "seen"
        program = _program(rig, seen)
        with slurm(settings=f"UnkillableStepProgram={program}") as real:
            real.install(rig.host / "root")
            rig.start_daemon()
            job = real.submit("exec sleep 600", uid=NOBODY)
            wait_until(lambda: bool(real.pids_of(job)), f"the job runs: {real.story()}", 30)
            pid = rig.launch("--stuck-on", str(fuse.path("stuck")), size="1GiB").pid
            step = cgroup_root("freezer") / f"slurm_{NODE}" / f"uid_{NOBODY}" / f"job_{job}" / "step_batch"
            moved(step, pid)
            wait_until(lambda: f"job {job}" in _workload(rig, pid), "the daemon has seen it in its job")
            try:
                real.run("/usr/bin/scancel", job)
                wait_until(seen.exists, f"slurmstepd runs the program: {real.story()}", 60)
                told = seen.read_text()
                assert "PATH=/usr" not in told.partition("step")[0]
                assert f"SLURM_JOB_ID={job}\n" in told
                assert f"step batch of job {job}: the daemon looked; pid {pid}" in told, told
                assert told.endswith("exit 0\n")
                note = next(one for one in rig.records("note") if "can't be killed" in one["reason"])
                assert f"step batch of job {job}" in note["reason"]
                assert is_alive(pid)
                wait_until(lambda: "Kill task failed" in reason_of(real), "Slurm drains by itself", 30)
            finally:
                fuse.release()
                wait_until(lambda: not is_alive(pid), "it goes when it can", 20)
                real.undrain_all()


LOST: Table = {
    "name": "gpu-lost",
    "kind": "fault",
    "xid_class": ["lost"],
    "for": "400ms",
    "mode": "enforce",
    "action": "reclaim",
    "stages": ["drain"],
}


def test_dry_run_writes_down_the_command_and_drains_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is on record as scontrol would get it; the node stays idle."""
    with slurm() as real, the_host(real, monkeypatch) as rig:
        rig.write_policy(LOST, **{**TABLES, "drain.slurm": {"node": NODE}})
        rig.start_daemon("--dry-run")
        rig.passes(2)
        write_xid(rig.host, "0000:01:00.0", 79, "GPU has fallen off the bus.")
        plan = str(rig.wait_record("outcome")["reason"])
        assert f"nodename={NODE} state=drain 'reason=reclaimerd: gpu_lost id=inc-" in plan, rig.story()
        assert real.run(SINFO, "-h", "-o", "%T").strip() == "idle"
        assert "update_node" not in (real.folder / "slurmctld.log").read_text()


def _workload(rig: Rig, pid: int) -> str:
    rows = rig.ask("/v1/ps")["rows"]
    return next((str(row["workload"]) for row in rows if row["pid"] == pid), "")
