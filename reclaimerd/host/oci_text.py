"""Pure parsers of what container runtimes and Slurm write down of a container or a job.

The runtime wrote these texts, but names, labels and job names in them are their owners' choice: all
that is returned is printable and bounded. Nothing here reads a file, and no text makes a parser raise.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reclaimerd.host.grant_text import grants_of_bundle, grants_of_docker
from reclaimerd.host.owner_text import SPARE_ANNOTATION, mark_of
from reclaimerd.host.proc_text import printable
from reclaimerd.model.process import WorkloadNames

MOST_LABELS = 16
MOST_NAME = 253
"""As long as a pod's or a namespace's name may be (Kubernetes, DNS subdomain names)."""
_MOST_KEY = 317
"""A label's key: a prefix of 253, a slash, a name of 63 (Kubernetes, labels and selectors)."""
_MOST_VALUE = 128
_MOST_IMAGE = 512
_MOST_LABEL_TEXT = 2048
"""All labels of one container together: they stand in every record of an incident."""

# Each runtime's own keys, by its own record alone: an image or a pod may carry a foreign one's keys.
_CRI = "io.kubernetes.cri."
"""containerd, pkg/cri/annotations."""
_CRIO_LABELS = "io.kubernetes.cri-o.Labels"
"""CRI-O: what kubelet told it of the container, as JSON."""
_CRIO_IMAGE = "io.kubernetes.cri-o.ImageName"
_KUBELETS_OWN = "io.kubernetes."
_NERDCTL_NAME = "nerdctl/name"
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_SLICE_PATH = re.compile(r"(?P<slice>[^:/]+\.slice):(?P<prefix>[^:/]*):(?P<name>[^:/]+)")
_STEPD = re.compile(r"slurmstepd: \[(?P<job>\d{1,10})\.[^\]\s]{1,32}\]")
_USER = re.compile(r"UserId=(?:(?P<value>[^\s(]{1,64})\(\d{1,10}\)(?!\S))?")
_PARTITION = re.compile(r"Partition=(?:(?P<value>\S{1,256})(?!\S))?")
_ACCOUNT = re.compile(r"(?<!\S)Account=(?:(?P<value>\S{1,256})(?!\S))?")
_HOSTS = re.compile(r"(?<!\S)NumNodes=(?:(?P<value>\d{1,6})(?!\S))?")
_NO_ACCOUNT = "(null)"
_HET = "HetJobId="
"""Part of a job of several parts: its hosts are those of this part alone."""


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """What one runtime's record says; `container_id` is "" where the form has none of its own.

    `cgroup_path` is where the runtime put the container: absolute, or "" where it does not say.
    """

    names: WorkloadNames
    container_id: str = ""
    cgroup_path: str = ""


@dataclass(frozen=True, slots=True)
class _Bundle:
    """An OCI bundle's annotations, where it puts the container, and how it lets it at GPUs."""

    notes: dict[str, str]
    place: str
    grants: tuple[str, ...]

    def record(self, names: WorkloadNames) -> ContainerRecord:
        """Return its record with these names, and with the pod's own mark where the runtime passes it on."""
        mark = mark_of(self.notes.get(SPARE_ANNOTATION))
        return ContainerRecord(replace(names, spare_mark=mark, grants=self.grants), cgroup_path=self.place)


@dataclass(frozen=True, slots=True)
class JobOwner:
    """Whose job it is, in which partition and account, on how many hosts; None where it is not plain."""

    user: str | None = None
    partition: str | None = None
    account: str | None = None
    hosts: int | None = None


def parse_containerd_config(text: str) -> ContainerRecord | None:
    """Return what an OCI bundle of containerd's says (runtime-spec, config.md); None when it is none."""
    bundle = _bundle(text)
    if bundle is None:
        return None
    notes = bundle.notes
    names = WorkloadNames(
        namespace=_name(notes.get(f"{_CRI}sandbox-namespace")),
        pod=_name(notes.get(f"{_CRI}sandbox-name")),
        pod_uid=_uid(notes.get(f"{_CRI}sandbox-uid")),
        container=_name(notes.get(f"{_CRI}container-name")) or _name(notes.get(_NERDCTL_NAME)),
        image=_name(notes.get(f"{_CRI}image-name"), _MOST_IMAGE),
    )
    return bundle.record(names)


def parse_crio_config(text: str) -> ContainerRecord | None:
    """Return what an OCI bundle of CRI-O's (or Podman's, which has no names) says; None when it is none."""
    bundle = _bundle(text)
    if bundle is None:
        return None
    labels = _texts(_object(bundle.notes.get(_CRIO_LABELS, "")))
    return bundle.record(names_of_labels(labels, _name(bundle.notes.get(_CRIO_IMAGE), _MOST_IMAGE)))


def parse_docker_config(text: str) -> ContainerRecord | None:
    """Return what Docker's config.v2.json says; None when it is none."""
    record = _object(text)
    if record is None or not isinstance(record.get("ID"), str):
        return None
    config = record.get("Config")
    config = config if isinstance(config, dict) else {}
    names = names_of_labels(_texts(config.get("Labels")), _name(config.get("Image"), _MOST_IMAGE))
    names = replace(names, grants=grants_of_docker(config))
    own = record.get("Name")
    if names.container is None and isinstance(own, str):
        names = replace(names, container=_name(own.removeprefix("/")))
    return ContainerRecord(names, container_id=str(record["ID"]))


def parse_storage_list(text: str, container_id: str) -> ContainerRecord | None:
    """Return what containers/storage's containers.json says of one container (Podman's names)."""
    rows = _parsed(text)
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or row.get("id") != container_id:
            continue
        inner = row.get("metadata")
        metadata = _texts(_object(inner)) if isinstance(inner, str) else {}
        listed = row.get("names")
        names = WorkloadNames(
            container=_name(metadata.get("name"))
            or _name(next(iter(listed), None) if isinstance(listed, list) else None),
            image=_name(metadata.get("image-name"), _MOST_IMAGE),
        )
        return ContainerRecord(names, container_id=container_id)
    return None


def parse_stepd_job(cmdline: str) -> str | None:
    """Return the job id in the title that slurmstepd gives itself (`slurmstepd: [3385.0]`), else None."""
    found = _STEPD.fullmatch(cmdline.rstrip("\0 "))
    return None if found is None else found["job"]


def parse_job(text: str, job_id: str) -> JobOwner:
    """Return whose job it is from `scontrol show job ID`.

    A job's name and comment are its owner's words and stand in the same text, with line ends if he
    likes: a field that shows two values, or one in another form, is not known.
    """
    if f"JobId={job_id} " not in f"{text} ":
        return JobOwner()
    account, hosts = only_value(_ACCOUNT, text), only_value(_HOSTS, text)
    return JobOwner(
        only_value(_USER, text),
        only_value(_PARTITION, text),
        None if account == _NO_ACCOUNT else account,
        None if hosts is None or _HET in text else int(hosts),
    )


def only_value(field: re.Pattern[str], text: str) -> str | None:
    """Return a field's value (the group `value`) if every place that looks like the field has this one."""
    values = {found["value"] for found in field.finditer(text)}
    value = values.pop() if len(values) == 1 else None
    return None if value is None else printable(value)


def _cgroup_path(text: str) -> str:
    """Return a record's cgroupsPath as a directory: `SLICE:PREFIX:NAME` as systemd's driver makes it."""
    found = _SLICE_PATH.fullmatch(text)
    if found is None:
        return text if text.startswith("/") else ""
    scope = f"{found['prefix']}-{found['name']}.scope" if found["prefix"] else f"{found['name']}.scope"
    return "/" + "/".join((*_slices(found["slice"]), scope))


def _slices(name: str) -> Iterator[str]:
    """Yield a slice's directories from the root down (systemd.slice(5)): a-b.slice lies in a.slice."""
    parts = name.removesuffix(".slice").split("-")
    for depth in range(1, len(parts) + 1):
        yield "-".join(parts[:depth]) + ".slice"


def _bundle(text: str) -> _Bundle | None:
    """Return what an OCI bundle's config says in any runtime's words; None when it is no bundle."""
    config = _object(text)
    if config is None or not isinstance(config.get("ociVersion"), str):
        return None
    linux = config.get("linux")
    place = linux.get("cgroupsPath") if isinstance(linux, dict) else None
    path = _cgroup_path(place) if isinstance(place, str) else ""
    return _Bundle(_texts(config.get("annotations")), path, grants_of_bundle(config))


def _name(value: object, most: int = MOST_NAME) -> str | None:
    """Return a name of a sane length, printable, else None."""
    return printable(value) if isinstance(value, str) and 0 < len(value) <= most else None


def _uid(value: object) -> str | None:
    return value if isinstance(value, str) and _UID.fullmatch(value) else None


def names_of_labels(labels: Mapping[str, str], image: str | None = None) -> WorkloadNames:
    """Return the names in the labels that kubelet gives a container, and all other labels."""
    return WorkloadNames(
        namespace=_name(labels.get("io.kubernetes.pod.namespace")),
        pod=_name(labels.get("io.kubernetes.pod.name")),
        pod_uid=_uid(labels.get("io.kubernetes.pod.uid")),
        container=_name(labels.get("io.kubernetes.container.name")),
        image=image,
        labels=bounded_labels(labels),
    )


def bounded_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels by key, without kubelet's own and those that are too long or past the bound."""
    kept: list[tuple[str, str]] = []
    left = _MOST_LABEL_TEXT
    for key, value in sorted(labels.items()):
        if key.startswith(_KUBELETS_OWN) or not key or len(key) > _MOST_KEY or len(value) > _MOST_VALUE:
            continue
        row = (printable(key), printable(value))
        left -= len(row[0]) + len(row[1])
        if left < 0 or len(kept) == MOST_LABELS:
            break
        kept.append(row)
    return tuple(kept)


def _texts(value: object) -> dict[str, str]:
    """Return the entries of an object that are text."""
    if not isinstance(value, dict):
        return {}
    return {key: inner for key, inner in value.items() if isinstance(inner, str)}


def _object(text: str) -> dict[str, object] | None:
    parsed = _parsed(text)
    return parsed if isinstance(parsed, dict) else None


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
