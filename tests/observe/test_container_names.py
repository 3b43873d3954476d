"""Names from runtimes' records: only root's own, only of this very container."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.host.oci_text import ContainerRecord
from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe.container_names import MOST_BYTES, ContainerPlace, names_of, read_container_names
from tests.rigs.records import (
    CONTAINERD,
    CRIO,
    DOCKER,
    PODMAN,
    containerd_config,
    crio_config,
    docker_config,
    write_record,
)

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
OTHER = "11111111-2222-3333-4444-555555555555"
C = "3f2a" * 16
POD = f"/kubepods.slice/kubepods-pod{U.replace('-', '_')}.slice"
IN_POD = ContainerPlace(C, POD, U)
PLAIN = ContainerPlace(C, f"/system.slice/docker-{C}.scope")


def shown(names: WorkloadNames | None) -> tuple[str | None, str | None, str | None] | None:
    """Return namespace, pod and container."""
    return None if names is None else (names.namespace, names.pod, names.container)


@pytest.mark.root
@pytest.mark.parametrize(
    ("folder", "content"),
    [
        (CONTAINERD, containerd_config(U)),
        (CRIO, crio_config(U)),
        (PODMAN, crio_config(U)),
        (
            DOCKER,
            docker_config(
                C,
                "k8s_train",
                {
                    "io.kubernetes.pod.uid": U,
                    "io.kubernetes.pod.name": "train-0",
                    "io.kubernetes.pod.namespace": "ml",
                    "io.kubernetes.container.name": "train",
                },
            ),
        ),
    ],
)
def test_each_runtimes_record_names_pod_and_container(tmp_path: Path, folder: str, content: object) -> None:
    """Where the record's pod uid is the path's, the names are known; of a container unknown to all, none."""
    write_record(tmp_path, folder, C, content)
    assert shown(read_container_names(IN_POD, tmp_path)) == ("ml", "train-0", "train")
    assert read_container_names(ContainerPlace("00" * 32, POD, U), tmp_path) is None


@pytest.mark.root
@pytest.mark.parametrize(("folder", "config"), [(CONTAINERD, containerd_config(U)), (CRIO, crio_config(U))])
def test_a_pods_own_mark_and_how_it_came_by_a_gpu_are_told(
    tmp_path: Path, folder: str, config: dict[str, Any]
) -> None:
    """The annotation where the runtime passes it on; of the environment only what NVIDIA's toolkit reads."""
    config["annotations"]["reclaimerd.io/spare"] = "till friday"
    config["process"] = {"env": ["NVIDIA_VISIBLE_DEVICES=all", "API_TOKEN=hush"]}
    write_record(tmp_path, folder, C, config)
    names = read_container_names(IN_POD, tmp_path)
    assert names is not None
    assert (names.spare_mark, names.grants) == ("till friday", ("NVIDIA_VISIBLE_DEVICES=all",))
    assert "hush" not in repr(names)


def test_a_container_in_no_pod_bears_no_pods_mark() -> None:
    """Any image may carry an annotation."""
    record = ContainerRecord(WorkloadNames(container="web", spare_mark="yes", grants=("x",)), C)
    names = names_of(record, PLAIN)
    assert names is not None
    assert (names.spare_mark, names.grants) == ("", ("x",))


@pytest.mark.root
def test_plain_containers_have_their_own_name_alone(tmp_path: Path) -> None:
    """An image's labels may claim a pod: a container outside of a pod gets no pod's names."""
    labels = {
        "io.kubernetes.pod.namespace": "kube-system",
        "io.kubernetes.pod.name": "x",
        "io.kubernetes.pod.uid": U,
    }
    write_record(tmp_path, DOCKER, C, docker_config(C, "web", labels))
    assert shown(read_container_names(PLAIN, tmp_path)) == (None, None, "web")
    podman = tmp_path / "podman"
    bundle = {"ociVersion": "1.0.0", "linux": {"cgroupsPath": f"machine.slice:libpod:{C}"}}
    path = write_record(podman, PODMAN, C, bundle)
    path.parents[2].joinpath("containers.json").write_text(json.dumps([{"id": C, "names": ["job"]}]))
    place = ContainerPlace(C, f"/machine.slice/libpod-{C}.scope")
    assert shown(read_container_names(place, podman)) == (None, None, "job")


@pytest.mark.root
def test_a_record_of_another_pod_or_container_names_nothing(tmp_path: Path) -> None:
    """A container id that was forged into a path joins no pod: its record says another uid."""
    write_record(tmp_path, CONTAINERD, C, containerd_config(OTHER))
    write_record(tmp_path, DOCKER, C, docker_config("00" * 32, "web"))
    assert read_container_names(IN_POD, tmp_path) is None
    assert read_container_names(PLAIN, tmp_path) is None


def test_without_a_uid_the_record_must_name_this_very_directory() -> None:
    """A record without a pod's uid joins by the cgroup that it names, in the pod's own directory."""
    names = WorkloadNames(namespace="ml", pod="train-0", container="train")
    there = ContainerRecord(names, cgroup_path=f"{POD}/cri-containerd-{C}.scope")
    assert names_of(there, IN_POD) == WorkloadNames(
        namespace="ml", pod="train-0", pod_uid=U, container="train"
    )
    for elsewhere in ("", f"/other/cri-containerd-{C}.scope", f"{POD}/{'00' * 32}", f"{POD}/a/{C}", POD):
        assert names_of(ContainerRecord(names, cgroup_path=elsewhere), IN_POD) is None


@pytest.mark.root
@pytest.mark.parametrize(
    "wrong", ["owner", "writable", "folder", "link", "folder link", "fifo", "large", "broken"]
)
def test_a_record_that_others_could_have_written_is_none(tmp_path: Path, wrong: str) -> None:
    """A foreign, writable, linked, special, oversized or broken record names nothing, and nothing hangs."""
    path = write_record(tmp_path, CONTAINERD, C, containerd_config(U))
    assert read_container_names(IN_POD, tmp_path) is not None
    match wrong:
        case "owner":
            os.chown(path, 1234, 1234)
        case "writable":
            path.chmod(0o666)
        case "folder":
            os.chown(path.parent, 1234, 1234)
        case "link":
            path.rename(path.with_suffix(".real"))
            path.symlink_to(path.with_suffix(".real"))
        case "folder link":
            path.parent.rename(path.parent.with_suffix(".real"))
            path.parent.symlink_to(path.parent.with_suffix(".real"))
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "large":
            path.write_text(path.read_text() + " " * MOST_BYTES)
        case _:
            path.write_text("{")
    assert read_container_names(IN_POD, tmp_path) is None


def test_without_any_record_there_are_no_names(tmp_path: Path) -> None:
    """No runtime, no root: None, and nothing is raised."""
    assert read_container_names(IN_POD, tmp_path) is None
    assert read_container_names(IN_POD, tmp_path / "gone") is None
