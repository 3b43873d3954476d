"""Records of containers as runtimes write them, below a root of the test's own."""

import json
from pathlib import Path
from typing import Any

CONTAINERD = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
CRIO = "run/containers/storage/overlay-containers"
PODMAN = "var/lib/containers/storage/overlay-containers"
DOCKER = "var/lib/docker/containers"


def containerd_config(pod_uid: str, **changes: str) -> dict[str, Any]:
    """Return an OCI bundle's config as containerd's CRI plugin writes it, in the parts that matter."""
    notes = {
        "io.kubernetes.cri.container-name": "train",
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.image-name": "registry.example/train:1",
        "io.kubernetes.cri.sandbox-id": "beef" * 16,
        "io.kubernetes.cri.sandbox-name": "train-0",
        "io.kubernetes.cri.sandbox-namespace": "ml",
        "io.kubernetes.cri.sandbox-uid": pod_uid,
    }
    return {
        "ociVersion": "1.1.0",
        "process": {"args": ["python"]},
        "annotations": notes | changes,
        "linux": {},
    }


def crio_config(pod_uid: str, **labels: str) -> dict[str, Any]:
    """Return an OCI bundle's config as CRI-O writes it."""
    kubelets = {
        "io.kubernetes.container.name": "train",
        "io.kubernetes.pod.name": "train-0",
        "io.kubernetes.pod.namespace": "ml",
        "io.kubernetes.pod.uid": pod_uid,
    }
    notes = {
        "io.container.manager": "cri-o",
        "io.kubernetes.cri-o.ImageName": "registry.example/train:1",
        "io.kubernetes.cri-o.Labels": json.dumps(kubelets | labels),
    }
    return {"ociVersion": "1.0.0", "annotations": notes}


def docker_config(container_id: str, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return Docker's config.v2.json, in the parts that matter."""
    config = {"Hostname": "h", "Image": "train:1", "Labels": labels or {}}
    return {"ID": container_id, "Name": f"/{name}", "Config": config, "Driver": "overlay2"}


def write_record(root: Path, folder: str, container_id: str, content: object) -> Path:
    """Write one container's record where its runtime keeps it, all folders root's alone."""
    inner, name = {
        CONTAINERD: ("", "config.json"),
        CRIO: ("userdata", "config.json"),
        PODMAN: ("userdata", "config.json"),
        DOCKER: ("", "config.v2.json"),
    }[folder]
    path = root / folder / container_id / inner / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
