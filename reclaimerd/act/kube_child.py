"""The child that speaks to a cluster: `python -m reclaimerd.act.kube_child`, an order on its stdin.

The HTTP client, TLS and the look-up of names may hang, and end with this process. It does one order and
prints one answer.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NoReturn

from reclaimerd.act.kube_api import conversation
from reclaimerd.act.kube_fleet import KubeFleet
from reclaimerd.act.kube_order import KubeAnswer, KubeOp, KubeOrder, answer_one
from reclaimerd.act.kube_target import KubeTarget
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_client import ClusterRefusalError
from reclaimerd.model.drain_ports import NotAsked, SlotWaits

_MENDS: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "renew the token or the certificate of [cluster] credentials",
    HTTPStatus.FORBIDDEN: "apply deploy/kubernetes/rbac-drain.yaml for [cluster] credentials",
    HTTPStatus.NOT_FOUND: "name this node in [cluster] node as `kubectl get nodes` does",
    HTTPStatus.BAD_REQUEST: "",
    HTTPStatus.METHOD_NOT_ALLOWED: "",
    HTTPStatus.UNPROCESSABLE_ENTITY: "",
}
"""Refusals that asking again does not change, and what does."""


def main() -> NoReturn:
    """Read the order, do it, and print the answer as one JSON object."""
    answer_one(KubeOrder, answer_to)


def answer_to(order: KubeOrder) -> KubeAnswer:
    """Return the answer to an order; what goes wrong is an answer too."""
    try:
        return _done(order)
    except ClusterRefusalError as error:
        mend = _MENDS.get(error.code)
        text = f"{error.message}; {mend}" if mend else error.message
        # A server that starts has not read its roles yet, and says that a role is "not found".
        starting = error.code == HTTPStatus.FORBIDDEN and "not found" in error.said
        return _no(order, text, lasting=mend is not None and not starting)
    except ReclaimerdError as error:
        # What names a mend is a person's to mend: credentials, certificates, a package.
        return _no(order, str(error), lasting=bool(error.mend))


def _done(order: KubeOrder) -> KubeAnswer:
    with conversation(order.access, order.seconds) as api:
        match order.op:
            case KubeOp.REQUEST:
                return KubeTarget(api, order).request()
            case KubeOp.WITHDRAW:
                return KubeTarget(api, order).withdraw()
            case KubeOp.STATUS:
                return KubeTarget(api, order).status()
            case KubeOp.VERIFIED:
                return KubeTarget(api, order).verified()
            case KubeOp.TAKE:
                return KubeFleet(api, order).take()
            case KubeOp.RELEASE:
                return KubeFleet(api, order).release()


def _no(order: KubeOrder, text: str, *, lasting: bool) -> KubeAnswer:
    if order.op is KubeOp.TAKE:
        return SlotWaits(f"the drained nodes can't be counted: {text}")
    return NotAsked(text, lasting=lasting)


if __name__ == "__main__":
    main()
