"""Pure parsers of what owners say of their own workloads: asked to be spared, spread over hosts.

An owner's words are data: printable and bounded here, and whose of them count is policy.
"""

import shlex
from collections.abc import Iterable

from reclaimerd.host.proc_text import printable

SPARE_ANNOTATION = "reclaimerd.io/spare"
"""A pod's own annotation."""
SPARE_VARIABLE = "RECLAIMERD_SPARE"
"""A variable in the environment that a unit's file sets."""
MOST_MARK = 128
_NO = frozenset({"", "0", "false", "no", "off"})

SPREADING_KEYS = frozenset({
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/jobset-name",
    "kueue.x-k8s.io/pod-group-name",
    "leaderworkerset.sigs.k8s.io/name",
    "mpi-job-name",
    "pod-group.scheduling.sigs.k8s.io",
    "pytorch-job-name",
    "ray.io/cluster",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "scheduling.x-k8s.io/pod-group",
    "tf-job-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
})  # fmt: skip
"""Labels and annotations of pods that belong together, as their controllers and schedulers set them.

Those without a prefix are deprecated ones of Kubeflow's operators: a runtime tells no owner of a pod."""
_SPREADING_OWNERS = frozenset({
    "JAXJob", "JobSet", "LeaderWorkerSet", "MPIJob", "PaddleJob", "PyTorchJob", "RayCluster", "RayJob",
    "TFJob", "TrainJob", "XGBoostJob",
})  # fmt: skip
MORE_THAN_ONE = 2
"""Hosts of a job that is, or may be, spread: how many more is not told."""


def mark_of(value: object) -> str:
    """Return an owner's mark as it may be shown; "" where there is none, or it says no."""
    if not isinstance(value, str) or value.strip().lower() in _NO:
        return ""
    return printable(value.strip()[:MOST_MARK])


def mark_in_environment(text: str) -> str:
    """Return the mark in a unit's Environment= as `systemctl show` prints it, and nothing else of it.

    Variables stand side by side, each quoted as for a shell where it has to be; of one that is set twice
    the last counts (systemd.exec(5)). A text that can't be read has no mark.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return ""
    found = ""
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name == SPARE_VARIABLE:
            found = value
    return mark_of(found)


def hosts_of(keys: Iterable[str], owner: str) -> int | None:
    """Return over how many hosts a pod's job may be spread, by its labels', annotations' and owner's names.

    None: nothing says that it is. `owner` is kind and name, as `Job/train`.
    """
    spread = not SPREADING_KEYS.isdisjoint(keys) or owner.partition("/")[0] in _SPREADING_OWNERS
    return MORE_THAN_ONE if spread else None
