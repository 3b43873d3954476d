"""Joins what the cluster's API says of this node's pods to the processes in them: labels, marks, spread.

Pure: readings and a view come in, readings go out. A pod is found by the UID in a cgroup path that root's
directories prove, never by a name.
"""

from collections.abc import Mapping
from dataclasses import replace

from reclaimerd.host.oci_text import bounded_labels
from reclaimerd.host.owner_text import SPARE_ANNOTATION, hosts_of, mark_of
from reclaimerd.model.allocation import ClusterView, PodState
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames

STALE_SECONDS = 120.0
"""Labels and marks change: an older view does not tell of them. A mark that it has stays: it only spares."""


def with_cluster(
    processes: Mapping[int, ProcessReading], view: ClusterView, now: float
) -> dict[int, ProcessReading]:
    """Return the same processes, those in pods with what the view says of their pods (`now` is monotonic)."""
    is_fresh = now - view.read_at <= STALE_SECONDS
    pods = {uid: pod for pod in view.pods for uid in (pod.uid, pod.mirror) if uid}
    found = {}
    for pid, reading in processes.items():
        pod = _pod_of(reading.workload, pods)
        names = reading.workload.names
        if pod is None or names is None:
            found[pid] = reading
            continue
        workload = replace(reading.workload, names=_named(names, pod, is_fresh=is_fresh))
        found[pid] = replace(reading, workload=workload)
    return found


def _pod_of(workload: Workload, pods: Mapping[str, PodState]) -> PodState | None:
    if workload.kind is not WorkloadKind.POD or not workload.trusted or workload.names is None:
        return None
    return pods.get(workload.names.pod_uid or "")


def _named(names: WorkloadNames, pod: PodState, *, is_fresh: bool) -> WorkloadNames:
    """Return a pod's names with what the cluster says of it; what its runtime's record says stays."""
    annotations = dict(pod.annotations)
    keys = (*annotations, *(key for key, _ in pod.labels))
    labels = bounded_labels(dict(pod.labels)) if is_fresh else names.labels
    return replace(
        names,
        namespace=names.namespace or pod.namespace,
        pod=names.pod or pod.name,
        labels=labels,
        labels_whole=is_fresh and len(labels) == len(pod.labels),
        hosts=names.hosts or hosts_of(keys, pod.owner),
        spare_mark=mark_of(annotations.get(SPARE_ANNOTATION)) or names.spare_mark,
        mark_known=is_fresh,
    )
