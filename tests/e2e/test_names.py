"""Workloads by name, from end to end: real cgroups with kubelet's names, runtimes' records, a real Slurm."""

import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from reclaimerd.observe.peers import cgroup_root
from tests.e2e.cgroups import cgroup, container, moved
from tests.e2e.rig import Rig, simulated_host
from tests.rigs.records import CONTAINERD, DOCKER, containerd_config, docker_config, write_record
from tests.rigs.simulated import wait_until
from tests.rigs.slurm import Slurm, slurm, why_unavailable

pytestmark = [pytest.mark.process, pytest.mark.root]
NOBODY = 65534


@pytest.fixture(params=["daemon", "foreground"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Give a host with and without a daemon."""
    with simulated_host() as host:
        host.write_policy()
        if request.param == "daemon":
            host.start_daemon()
        yield host


@contextmanager
def pod_container(uid: str, container_id: str) -> Iterator[Path]:
    """Make a pod's cgroup v2 with one container in it, as kubelet and containerd name them."""
    top = cgroup_root("") / "kubepods.slice"
    pod = top / f"kubepods-pod{uid.replace('-', '_')}.slice"
    scope = pod / f"cri-containerd-{container_id}.scope"
    try:
        scope.mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup v2 can be made here: {error}")
    try:
        yield scope
    finally:
        wait_until(lambda: not (scope / "cgroup.procs").read_text(), f"{scope} is empty")
        scope.rmdir()
        pod.rmdir()
        with suppress(OSError):  # another test may have its pods there
            top.rmdir()


def shown_workload(rig: Rig, pid: int) -> str:
    """Return what `ps` calls the workload of one holder."""
    rows = rig.ctl("ps").answer["rows"]
    return next((str(row["workload"]) for row in rows if row["pid"] == pid), "no row")


def test_a_pods_container_is_named_by_its_runtimes_record(rig: Rig) -> None:
    """`ps` says namespace/pod/container, `inspect` all names, and the record of a kill has them."""
    uid, cid = str(uuid.uuid4()), secrets.token_hex(32)
    write_record(rig.host / "root", CONTAINERD, cid, containerd_config(uid))
    with pod_container(uid, cid) as scope:
        pid = moved(scope, rig.launch().pid)
        wait_until(lambda: shown_workload(rig, pid) == "ml/train-0/train", "the pod is named", 20)
        process = rig.ctl("inspect", str(pid)).answer["process"]
        assert process["names"] == {
            "namespace": "ml",
            "pod": "train-0",
            "pod_uid": uid,
            "container": "train",
            "image": "registry.example/train:1",
        }
        assert rig.kill(pid).code == 0
        names = rig.records("incident_opened", pid=pid)[0]["target"]["workload"]["names"]
        assert (names["namespace"], names["pod"], names["container"]) == ("ml", "train-0", "train")


@pytest.mark.slow
def test_a_record_of_another_pod_names_nothing(rig: Rig) -> None:
    """A container whose record has another pod's uid keeps the plain name of the pod that its path shows."""
    uid, cid = str(uuid.uuid4()), secrets.token_hex(32)
    write_record(rig.host / "root", CONTAINERD, cid, containerd_config(str(uuid.uuid4())))
    with pod_container(uid, cid) as scope:
        pid = moved(scope, rig.launch().pid)
        wait_until(lambda: shown_workload(rig, pid) == f"pod {uid[:8]}…", "the pod is seen", 20)
        names = rig.ctl("inspect", str(pid)).answer["process"]["names"]
        assert names == {"pod_uid": uid}
        rig.keeper.stop()


@pytest.mark.slow
def test_a_docker_container_has_its_own_name(rig: Rig) -> None:
    """A plain container is shown by the name that Docker has for it."""
    name = container()
    cid = name.removeprefix("docker-").removesuffix(".scope")
    write_record(rig.host / "root", DOCKER, cid, docker_config(cid, "web"))
    with cgroup(name) as folder:
        pid = moved(folder, rig.launch().pid)
        wait_until(lambda: shown_workload(rig, pid) == "container web", "the container is named", 20)
        rig.keeper.stop()


@pytest.fixture(scope="module")
def real_slurm() -> Iterator[Slurm]:
    """Give a running Slurm."""
    if why := why_unavailable():
        pytest.skip(why)
    with slurm() as running:
        yield running


@pytest.mark.slow
@pytest.mark.slurm
def test_a_jobs_process_is_named_by_job_and_user(
    real_slurm: Slurm, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a real batch job is `job N (user)`, with its partition, by the real scontrol."""
    real_slurm.install(rig.host / "root")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    job = real_slurm.submit("exec sleep 600", uid=NOBODY)
    wait_until(lambda: bool(real_slurm.pids_of(job)), f"the job runs: {real_slurm.story()}", 30)
    pid = next(one for one in real_slurm.pids_of(job) if Path(f"/proc/{one}").stat().st_uid == NOBODY)

    def process() -> dict[str, object]:
        return dict(rig.ctl("inspect", str(pid)).answer["process"])

    wait_until(lambda: process()["workload"] == f"job {job} (nobody)", f"the job is named: {process()}", 20)
    assert process()["names"] == {"job_id": job, "user": "nobody", "partition": "short", "hosts": 1}
    real_slurm.run("/usr/bin/scancel", job)
