"""What the cluster's worker answers: which pods this node has. Runs in `daemon.worker` alone."""

import time
from collections.abc import Callable, Mapping

from reclaimerd.host.kube_client import ClusterAccess
from reclaimerd.host.wire import to_wire
from reclaimerd.model.allocation import ClusterAnswer
from reclaimerd.observe.cluster import read_pods, this_node


class ClusterDesk:
    """Role cluster: one question, asked anew over a connection and with credentials of its own each time."""

    __slots__ = ()

    def answer(self, op: str, args: Mapping[str, object], emit: Callable[[object], None]) -> None:
        """Answer `pods` (credentials, node, seconds); raises ReclaimerdError without a whole list."""
        match op, args:
            case "pods", {
                "credentials": str(credentials),
                "node": str(node),
                "seconds": int() | float() as seconds,
            }:
                # Before the question: what the list says was true no earlier than this.
                began = time.time()
                pods = read_pods(ClusterAccess(credentials, float(seconds)), this_node(node))
                emit({"cluster": to_wire(ClusterAnswer(began, pods))})
            case "pods", _:
                raise ValueError("`pods` takes credentials, node and seconds")
            case _:
                raise ValueError(f"the cluster worker knows no {op!r}")
