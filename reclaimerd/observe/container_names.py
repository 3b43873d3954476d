"""What a container is called, by its runtime's own record on disk: it works while the runtime hangs.

Runs in the procfs worker. A record counts only if root alone could have written it, no link leads to
it, and it names this very container: for a pod its uid, or its cgroup. Nothing is asked of a daemon.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd.host.oci_text import (
    ContainerRecord,
    parse_containerd_config,
    parse_crio_config,
    parse_docker_config,
    parse_storage_list,
)
from reclaimerd.model.process import WorkloadNames

MOST_BYTES = 1 << 20
"""Of one record; a bundle with hundreds of mounts has some 100 KiB."""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_TASK = "io.containerd.runtime.v2.task"
_USERDATA = "containers/storage/overlay-containers"
_BUNDLES: tuple[tuple[str, Callable[[str], ContainerRecord | None]], ...] = (
    (f"run/containerd/{_TASK}/k8s.io/{{}}/config.json", parse_containerd_config),
    (f"run/k3s/containerd/{_TASK}/k8s.io/{{}}/config.json", parse_containerd_config),
    (f"var/snap/microk8s/common/run/containerd/{_TASK}/k8s.io/{{}}/config.json", parse_containerd_config),
    (f"run/{_USERDATA}/{{}}/userdata/config.json", parse_crio_config),
    (f"var/lib/{_USERDATA}/{{}}/userdata/config.json", parse_crio_config),
    ("var/lib/docker/containers/{}/config.v2.json", parse_docker_config),
    (f"run/containerd/{_TASK}/default/{{}}/config.json", parse_containerd_config),
)
"""Where containerd, k3s, MicroK8s, CRI-O, Podman, Docker and nerdctl keep a container's record."""
_STORAGE_LIST = f"var/lib/{_USERDATA}/containers.json"
"""Podman's names: its bundles have none."""


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """A container as its cgroup path proves it; `pod_uid` is "" where the path shows no pod.

    `path` is the cgroup directory of the outermost boundary: the pod's, or the container's own.
    """

    container_id: str
    path: str
    pod_uid: str = ""


def read_container_names(place: ContainerPlace, root: Path = Path("/")) -> WorkloadNames | None:
    """Return the names in the first record that is of this container, None when there is none.

    Never raises: a record that can't be read, or that somebody else could have written, is none.
    """
    for record in _read_records(place.container_id, root):
        names = names_of(record, place)
        if names is not None and (names.pod is not None or names.container is not None):
            return names
    return None


def names_of(record: ContainerRecord, place: ContainerPlace) -> WorkloadNames | None:
    """Return a record's names if it is of this container, else None; pure.

    A pod's uid must be the one in the path, or the record must put the container into this very
    directory. Where the path shows no pod, a record that claims one has only a container's name: an
    image can carry any label.
    """
    if record.container_id not in {"", place.container_id}:
        return None
    if not place.pod_uid:
        last = record.cgroup_path.rpartition("/")[2]
        if not record.container_id and place.container_id not in last:
            return None
        return replace(record.names, namespace=None, pod=None, pod_uid=None, spare_mark="")
    by_uid = record.names.pod_uid
    if by_uid is not None and by_uid != place.pod_uid:
        return None
    if by_uid is None and not _is_put_into(record.cgroup_path, place):
        return None
    return replace(record.names, pod_uid=place.pod_uid)


def _is_put_into(cgroup_path: str, place: ContainerPlace) -> bool:
    """Tell whether a record's directory is this container's, in or at the pod's directory."""
    above, _, last = cgroup_path.rpartition("/")
    return place.container_id in last and place.path in {cgroup_path, above}


def _read_records(container_id: str, root: Path) -> Iterator[ContainerRecord]:
    for form, parse in _BUNDLES:
        text = _read_roots_own(root, form.format(container_id))
        record = None if text is None else parse(text)
        if record is not None:
            yield record
    text = _read_roots_own(root, _STORAGE_LIST)
    record = None if text is None else parse_storage_list(text, container_id)
    if record is not None:
        yield record


def _read_roots_own(root: Path, name: str) -> str | None:
    """Return a file's text if it and every folder down to it are root's alone, else None."""
    opened = [-1]
    try:
        opened = [os.open(root, _OPEN | os.O_DIRECTORY)]
        *folders, last = name.split("/")
        for folder in folders:
            opened.append(os.open(folder, _OPEN | os.O_DIRECTORY, dir_fd=opened[-1]))
            _refuse_foreign(opened[-1])
        opened.append(os.open(last, _OPEN, dir_fd=opened[-1]))
        _refuse_foreign(opened[-1])
        return _read_bounded(opened[-1])
    except OSError:
        return None
    finally:
        for descriptor in opened:
            if descriptor >= 0:
                os.close(descriptor)


def _refuse_foreign(descriptor: int) -> None:
    """Raise PermissionError for what somebody other than root could have made or changed."""
    found = os.fstat(descriptor)
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_uid != 0 or (found.st_mode & _OTHERS_WRITE and not sticky):
        raise PermissionError(errno.EPERM, "it is not root's alone")
    if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
        raise OSError(errno.EINVAL, "it is no file")


def _read_bounded(descriptor: int) -> str:
    """Return the whole text; raises OSError (EFBIG) past the bound."""
    pieces: list[bytes] = []
    left = MOST_BYTES + 1
    while left > 0 and (piece := os.read(descriptor, left)):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise OSError(errno.EFBIG, "it is larger than a record may be")
    return b"".join(pieces).decode("utf-8", "replace")
