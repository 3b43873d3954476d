"""Warn the owner of a pod by an event on it, where the cluster may be asked: `kubectl describe pod` shows it.

The HTTP client lives and dies with a child. Only our own text leaves the host.
"""

from collections.abc import Callable
from dataclasses import dataclass

from reclaimerd.act.kube_order import KubeAccess, answer_of_child
from reclaimerd.act.warn import Notice, NotTold, Told
from reclaimerd.host.wire import to_json
from reclaimerd.model.drain_ports import Asked

EVENT_SECONDS = 5.0
REASON = "GPUWillBeReclaimed"


@dataclass(frozen=True, slots=True)
class EventOrder:
    """One event on exactly one pod; `id` is the same for the same warning, so that it stands there once."""

    access: KubeAccess
    namespace: str
    pod: str
    uid: str
    id: str
    text: str
    at: float
    seconds: float = EVENT_SECONDS


@dataclass(frozen=True, slots=True)
class PodEvents:
    """Implements `act.warn.PodEventPort`; `access` is that of the policy in force."""

    access: Callable[[], KubeAccess]

    async def warn(self, notice: Notice) -> Told | NotTold:
        """Have the event made; a pod that is not known by namespace, name and uid gets none."""
        access = self.access()
        names = notice.workload.names
        if not access.credentials:
            return NotTold("nobody of the cluster may be asked: [cluster] credentials is empty")
        if names is None or not (names.namespace and names.pod and names.pod_uid):
            return NotTold("which pod it is in is not known by namespace, name and uid")
        text = " ".join(notice.said.lines)
        name = f"{notice.step.incident}-{notice.step.target.root.pid}"
        order = EventOrder(access, names.namespace, names.pod, names.pod_uid, name, text, notice.at)
        answer = await answer_of_child("reclaimerd.act.pod_event_child", to_json(order), order.seconds)
        where = f"{names.namespace}/{names.pod}"
        return Told(f"event on {where}") if isinstance(answer, Asked) else NotTold(f"{where}: {answer.text}")
