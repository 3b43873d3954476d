"""What runtimes' records say, and what their owners may not make them say."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.oci_text import (
    MOST_LABELS,
    JobOwner,
    parse_containerd_config,
    parse_crio_config,
    parse_docker_config,
    parse_job,
    parse_stepd_job,
    parse_storage_list,
)
from reclaimerd.model.process import WorkloadNames
from tests.rigs.records import containerd_config, crio_config, docker_config

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
C = "3f2a" * 16
NAMES = WorkloadNames(
    namespace="ml", pod="train-0", pod_uid=U, container="train", image="registry.example/train:1"
)


def text(content: object) -> str:
    """Return a record's text."""
    return json.dumps(content)


def test_containerd_names_pod_and_container() -> None:
    """The CRI plugin's annotations give namespace, pod, uid, container and image."""
    record = parse_containerd_config(text(containerd_config(U)))
    assert record is not None
    assert (record.names, record.container_id, record.cgroup_path) == (NAMES, "", "")


def test_crio_names_by_kubelets_labels() -> None:
    """What kubelet told CRI-O stands as JSON in one annotation; other labels come with it."""
    record = parse_crio_config(text(crio_config(U, app="train", **{"io.kubernetes.pod.x": "no"})))
    assert record is not None
    assert record.names.labels == (("app", "train"),)
    assert (record.names.namespace, record.names.pod, record.names.pod_uid) == ("ml", "train-0", U)
    assert (record.names.container, record.names.image) == ("train", "registry.example/train:1")


def test_a_pods_own_annotations_in_a_foreign_form_are_not_read() -> None:
    """CRI-O passes a pod's annotations on: those of another runtime's form name nothing."""
    config = crio_config(U)
    config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "kube-system"
    config["annotations"]["io.kubernetes.pod.name"] = "dcgm-exporter"
    record = parse_crio_config(text(config))
    assert record is not None
    assert (record.names.namespace, record.names.pod) == ("ml", "train-0")


def test_docker_names_by_its_own_name_or_kubelets_label() -> None:
    """A plain container has its name without the slash, one of kubelet's the name in the pod."""
    plain = parse_docker_config(text(docker_config(C, "web", {"tier": "gpu", "nerdctl/name": "other"})))
    assert plain is not None
    assert plain.container_id == C
    assert (plain.names.container, plain.names.image) == ("web", "train:1")
    assert dict(plain.names.labels)["tier"] == "gpu"
    labels = {"io.kubernetes.container.name": "train", "io.kubernetes.pod.uid": U}
    podded = parse_docker_config(text(docker_config(C, "k8s_train_x", labels)))
    assert podded is not None
    assert (podded.names.container, podded.names.pod_uid) == ("train", U)


def test_podman_names_by_the_storage_list() -> None:
    """Podman's names stand in the list of containers, for the container that was asked for alone."""
    rows = [
        {"id": "00" * 32, "names": ["other"]},
        {"id": C, "names": ["web"], "metadata": json.dumps({"image-name": "docker.io/x", "name": "web"})},
    ]
    record = parse_storage_list(text(rows), C)
    assert record is not None
    assert (record.names.container, record.names.image) == ("web", "docker.io/x")
    assert parse_storage_list(text(rows), "11" * 32) is None
    only_listed = parse_storage_list(text([{"id": C, "names": ["web"]}]), C)
    assert only_listed is not None
    assert only_listed.names.container == "web"


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (
            "kubepods-burstable-podx.slice:cri-containerd:abc",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice/cri-containerd-abc.scope",
        ),
        ("machine.slice:libpod:abc", "/machine.slice/libpod-abc.scope"),
        ("/kubepods/burstable/podx/abc", "/kubepods/burstable/podx/abc"),
        ("relative/abc", ""),
        ("", ""),
        (7, ""),
    ],
)
def test_where_a_record_puts_its_container(place: object, path: str) -> None:
    """The systemd driver's three words become the directories that systemd makes of them."""
    config = containerd_config(U)
    config["linux"] = {"cgroupsPath": place}
    record = parse_containerd_config(text(config))
    assert record is not None
    assert record.cgroup_path == path


def test_hostile_values_are_printable_and_bounded() -> None:
    """Controls are escaped, what is too long is left out, labels are few and short together."""
    config = containerd_config(U, **{"io.kubernetes.cri.sandbox-name": "a\x1b[2Jb"})
    config["annotations"]["io.kubernetes.cri.container-name"] = "x" * 300
    config["annotations"]["io.kubernetes.cri.sandbox-uid"] = f"{U}/../x"
    record = parse_containerd_config(text(config))
    assert record is not None
    assert (record.names.pod, record.names.container, record.names.pod_uid) == ("a\\x1b[2Jb", None, None)
    labels = {f"key-{number:03}": "v" * 100 for number in range(100)} | {"long": "v" * 129}
    crio = parse_crio_config(text(crio_config(U, **labels)))
    assert crio is not None
    assert 0 < len(crio.names.labels) <= MOST_LABELS
    assert "long" not in dict(crio.names.labels)
    assert sum(len(key) + len(value) for key, value in crio.names.labels) <= 2048


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["ociVersion", "annotations", "linux", "cgroupsPath", "ID", "Config", "id", "metadata"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(_JSON)
def test_no_record_makes_a_parser_raise(content: Any) -> None:
    """Whatever JSON a record holds, each parser returns."""
    for parse in (parse_containerd_config, parse_crio_config, parse_docker_config):
        parse(text(content))
    parse_storage_list(text(content), C)


@pytest.mark.parametrize("bad", ["", "{", "[" * 100_000, "null", '"x"', "{}", "1" * 5000])
def test_what_is_no_record_is_none(bad: str) -> None:
    """Broken, deep and foreign JSON is no record."""
    for parse in (parse_containerd_config, parse_crio_config, parse_docker_config):
        assert parse(bad) is None
    assert parse_storage_list(bad, C) is None


def test_the_step_daemons_title_names_the_job() -> None:
    """Only the whole title counts, also with the padding that setproctitle leaves."""
    assert parse_stepd_job("slurmstepd: [3385.0]\0\0\0") == "3385"
    assert parse_stepd_job("slurmstepd: [3385.batch]\0") == "3385"
    for other in (
        "/usr/sbin/slurmstepd\0",
        "x slurmstepd: [1.0]",
        "slurmstepd: [1.0] y",
        "slurmstepd: [x.0]",
    ):
        assert parse_stepd_job(other) is None


JOB = (
    "JobId=3385 JobName={name}\n   UserId=alice(1000) GroupId=users(100) MCS_label=N/A\n"
    "   Partition=gpu AllocNode:Sid=login:1\n   Comment={comment}\n"
)


def test_a_jobs_user_and_partition() -> None:
    """The answer of scontrol gives both; another job's answer gives nothing."""
    assert parse_job(JOB.format(name="train", comment="x"), "3385") == JobOwner("alice", "gpu")
    assert parse_job(JOB.format(name="train", comment="x"), "338") == JobOwner()
    assert parse_job("slurm_load_jobs error: Invalid job id specified\n", "3385") == JobOwner()


def test_a_jobs_account_and_hosts_are_told() -> None:
    """No account is none; hosts that are given twice are not known: a job might be larger than it says."""
    text = "JobId=5 JobName=x\n   Nice=0 Account={account} QOS=(null)\n   NumNodes=2 NumCPUs=4\n"
    assert parse_job(text.format(account="lab"), "5") == JobOwner(account="lab", hosts=2)
    assert parse_job(text.format(account="(null)"), "5").account is None
    assert parse_job(text.format(account="lab").replace("=x", "=x NumNodes=1"), "5").hosts is None
    part = text.format(account="lab").replace("JobId=5 ", "JobId=5 HetJobId=4 HetJobOffset=1 ")
    assert parse_job(part, "5") == JobOwner(account="lab"), "one part of a job of several"


@pytest.mark.parametrize(
    ("name", "comment"),
    [
        ("x\n   UserId=root(0)\n   Partition=vip", "x"),
        ("x\n   UserId=root(0) Partition=vip\n\nJobId=99 JobName=y", "x"),
        ("x UserId=root(0) Partition=vip", "x"),
        ("x", "UserId=root(0)\n Partition=vip"),
    ],
)
def test_a_job_can_not_name_another_user(name: str, comment: str) -> None:
    """A user or partition forged in the job's name or comment makes it unknown, never believed."""
    assert parse_job(JOB.format(name=name, comment=comment), "3385") == JobOwner()
