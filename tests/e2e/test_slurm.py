"""A real Slurm, real processes in its jobs' cgroups, and the rules about who was given which GPU.

The node's gres.conf names its device nodes in the opposite order: Slurm's index 0 is /dev/nvidia1, which
is the second GPU of the simulation. Whoever takes Slurm's index for a minor convicts the wrong process.
"""

import os
import pwd
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from reclaimerd.observe.peers import cgroup_root
from tests.e2e.cgroups import moved
from tests.e2e.rig import GPU_A, GPU_B, Rig, Table, is_alive, signals_in, simulated_host
from tests.rigs.simulated import wait_until
from tests.rigs.slurm import NODE, Slurm, slurm, why_unavailable

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root, pytest.mark.slurm]

NOBODY = 65534
ORDINARY = 1000
RULE: Table = {
    "name": "thief",
    "kind": "unallocated",
    "outside_jobs": True,
    "large_jobs": True,
    "for": "400ms",
    "readings": 2,
    "mode": "enforce",
    "stages": ["sigterm", "sigkill"],
    "grace": "1s",
    "match.uid": ["0-4294967294"],
}
LINGERING: Table = {
    "name": "left-behind",
    "kind": "lingering",
    **{key: RULE[key] for key in ("for", "readings", "mode", "stages", "grace", "match.uid")},
}
_FREEZER = cgroup_root("freezer")


@dataclass(slots=True)
class Node:
    """A Slurm node with two GPUs, and the daemon on it."""

    rig: Rig
    slurm: Slurm

    def job(self, *options: str, uid: int = NOBODY) -> str:
        """Start a batch job and wait until it runs."""
        job = self.slurm.submit("exec sleep 600", *options, uid=uid)
        wait_until(lambda: bool(self.slurm.pids_of(job)), f"the job runs: {self.slurm.story()}", 30)
        return job

    def start_in(self, job: str, name: str, on: str, uid: int = NOBODY) -> tuple[int, Path]:
        """Start a workload and put it into a job's step, as pam_slurm_adopt does; its pid and signals."""
        pid, path = self.rig.recorder(name, gpu=on)
        step = _FREEZER / f"slurm_{NODE}" / f"uid_{uid}" / f"job_{job}" / "step_batch"
        return moved(step, pid), path

    def row(self, pid: int) -> Mapping[str, object]:
        """Return what `ps` says of one process."""
        rows = self.rig.ask("/v1/ps")["rows"]
        return next((row for row in rows if row["pid"] == pid), {"allocation": "no row"})

    def wait_allocation(self, pid: int, word: str, seconds: float = 20) -> str:
        """Wait until `ps` says this word, and return the daemon's sentence."""
        wait_until(
            lambda: self.row(pid)["allocation"] == word, f"pid {pid} is {word}: {self.why(pid)}", seconds
        )
        return self.why(pid)

    def why(self, pid: int) -> str:
        """Return the daemon's sentence on the first GPU of one process."""
        found = self.rig.ctl("inspect", str(pid)).answer["allocations"]
        return str(found[0]["text"]) if found else "-"

    def rule_text(self, pid: int) -> str:
        """Return what the thief's rule says of one process."""
        return str(self.rig.ctl("explain", "pid", str(pid)).answer["rules"][0]["text"])

    def assert_untouched(self, pid: int, path: Path | None = None) -> None:
        """Assert that passes go by and it is not signalled, nor is an incident opened."""
        self.rig.passes(6)
        assert is_alive(pid)
        assert path is None or signals_in(path) == []
        assert self.rig.records("incident_opened", pid=pid) == []


@pytest.fixture(scope="module")
def real_slurm() -> Iterator[Slurm]:
    """Give a running Slurm whose node has two GPUs."""
    if why := why_unavailable():
        pytest.skip(why)
    with slurm(gpus=2) as running:
        yield running


@pytest.fixture
def node(real_slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Give the node; its jobs are cancelled before its processes are ended."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    with simulated_host() as rig:
        real_slurm.install(rig.host / "root")
        rig.write_policy(RULE, LINGERING, attribution={"refresh": "1s"})
        rig.start_daemon()
        try:
            yield Node(rig, real_slurm)
        finally:
            real_slurm.cancel_all()
            rig.keeper.stop()


def test_a_job_keeps_its_gpu_and_loses_another(node: Node) -> None:
    """Of two processes of one job the one on the job's GPU is allowed, the one on the other goes."""
    job = node.job("--gres=gpu:1")
    owner, signals = node.start_in(job, "owner", GPU_B)
    assert node.wait_allocation(owner, "allowed") == f"job {job} was given this GPU (/dev/nvidia1)"
    thief, _ = node.start_in(job, "thief", GPU_A)
    assert node.rig.wait_record("incident_ended", pid=thief)["end"] == "reclaimed"
    opened = node.rig.records("incident_opened", pid=thief)[0]
    assert f"job {job} was given the GPUs 0 of this node, not this one" in opened["reason"]
    node.assert_untouched(owner, signals)
    assert node.row(owner)["workload"] == f"job {job} (nobody)"
    rules = node.rig.ctl("explain", "pid", str(owner)).answer["rules"]
    assert [(rule["rule"], rule["standing"]) for rule in rules] == [
        ("thief", "does_not_hold"),
        ("left-behind", "does_not_hold"),
    ]


@contextmanager
def ssh_session(node: Node, gpu: str) -> Iterator[int]:
    """Start an ordinary user's process in a login session of its own; its pid."""
    script = node.rig.directory / "as-ordinary"
    script.write_text(
        f'#!/bin/sh\nexec setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups sleep "$1"\n'
    )
    script.chmod(0o755)
    scope = cgroup_root("") / "user.slice" / f"user-{ORDINARY}.slice" / f"session-x{os.getpid()}.scope"
    made = [folder for folder in (*reversed(scope.parents), scope) if not folder.exists()]
    for folder in made:
        folder.mkdir()
    with ExitStack() as stack:
        for folder in made:
            stack.callback(_remove, folder)
        pid = node.rig.launch("--become", str(script), gpu=gpu).pid
        wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "it is another program")
        try:
            yield moved(scope, pid)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _remove(folder: Path) -> None:
    wait_until(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")
    with suppress(OSError):  # somebody logged in meanwhile
        folder.rmdir()


def test_a_login_session_on_a_jobs_gpu_goes(node: Node) -> None:
    """A user without a job, by ssh, has no GPU: its process goes, and the job's stays."""
    job = node.job("--gres=gpu:1")
    owner, signals = node.start_in(job, "owner", GPU_B)
    node.wait_allocation(owner, "allowed")
    with ssh_session(node, GPU_A) as guest:
        assert node.rig.wait_record("incident_ended", pid=guest)["end"] == "reclaimed"
        assert "belongs to no Slurm job" in node.rig.records("incident_opened", pid=guest)[0]["reason"]
    node.assert_untouched(owner, signals)


def test_a_login_session_of_the_jobs_own_user_stays(node: Node) -> None:
    """Who was given the GPU by a job that uses it not yet, and uses it by ssh, is not a thief."""
    try:
        pwd.getpwuid(ORDINARY)
    except KeyError:
        pytest.skip(f"there is no user {ORDINARY}: Slurm starts no job of nobody's")
    job = node.job("--gres=gpu:1", uid=ORDINARY)
    with ssh_session(node, GPU_B) as guest:
        words = f"may have been given this GPU by job {job}"
        wait_until(lambda: words in node.rule_text(guest), f"the rule says {words}", 20)
        node.assert_untouched(guest)


@pytest.mark.slow
def test_a_controller_that_is_away_touches_nobody(node: Node) -> None:
    """The controller stands still: its last answer goes stale, and who has the wrong GPU is left alone."""
    job = node.job("--gres=gpu:1")
    owner, _ = node.start_in(job, "owner", GPU_B)
    node.wait_allocation(owner, "allowed")
    node.slurm.controller.send_signal(signal.SIGSTOP)
    try:
        node.wait_allocation(owner, "unknown", 30)
        thief, signals = node.start_in(job, "thief", GPU_A)
        node.assert_untouched(thief, signals)
    finally:
        node.slurm.controller.send_signal(signal.SIGCONT)
    assert node.rig.wait_record("incident_ended", pid=thief, seconds=40)["end"] == "reclaimed"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_an_ended_job_left_behind_goes_when_its_time_is_over(node: Node) -> None:
    """The step's daemon dies, the job is cancelled: its process is ending, and goes after Slurm's own time.

    That is KillWait and UnkillableStepTimeout (11 s here) and two minutes more.
    """
    job = node.job("--gres=gpu:1")
    left, signals = node.start_in(job, "left", GPU_B)
    node.wait_allocation(left, "allowed")
    node.slurm.lose_step(job)
    node.slurm.run("/usr/bin/scancel", job)
    other = node.job("--gres=gpu:1")
    neighbour, neighbours_signals = node.start_in(other, "neighbour", GPU_B)
    assert "are not over" in node.wait_allocation(left, "ending")
    node.assert_untouched(left, signals)
    ended = node.rig.wait_record("incident_ended", pid=left, seconds=300)  # a busy machine reads Slurm late
    assert ended["end"] == "reclaimed"
    opened = node.rig.records("incident_opened", pid=left)[0]
    assert "are over" in opened["reason"]
    assert f"job {job} ended" in opened["reason"]
    node.assert_untouched(neighbour, neighbours_signals)
