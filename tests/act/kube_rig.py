"""A real API server with our manifests, nodes of this boot, and orders to the code that the child runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from reclaimerd.act.kube_api import KubeApi, conversation
from reclaimerd.act.kube_child import answer_to
from reclaimerd.act.kube_order import KubeAccess, KubeAnswer, KubeOp, KubeOrder
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetSettings, KubernetesTarget, NodeMark
from tests.act.drain_builders import a_request
from tests.rigs.kube_apiserver import ApiServer, kube_apiserver
from tests.rigs.simulated import wait_until

ROOT = Path(__file__).resolve().parents[2]
BOOT = "11111111-2222-3333-4444-555555555555"
NODE = "gpu-1"
ALL = tuple(NodeMark)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/reclaimerd/leases/reclaimerd-fleet"
Json = dict[str, Any]


def manifests(name: str) -> list[Json]:
    """Return the objects of one of the manifests that we ship."""
    text = (ROOT / "deploy" / "kubernetes" / name).read_text(encoding="utf-8")
    return [msgspec.yaml.decode(part) for part in text.split("\n---\n")]


@dataclass(slots=True)
class KubeRig:
    """One server, and `credentials` of our own account there."""

    server: ApiServer
    credentials: Path
    requests: dict[str, DrainRequest] = field(default_factory=dict)

    def access(self, node: str = NODE) -> KubeAccess:
        """Return how our account asks about a node of this boot."""
        return KubeAccess(str(self.credentials), node, BOOT)

    def order(self, op: KubeOp, node: str, request: DrainRequest, **parts: Any) -> KubeOrder:
        """Return one order; `parts` are fields of it."""
        target = KubernetesTarget(ALL)
        order = KubeOrder(op, self.access(node), request, 20.0, target, FleetSettings())
        return replace(order, **parts)

    def do(self, op: KubeOp, node: str = NODE, incident: str = "inc-1", **parts: Any) -> KubeAnswer:
        """Do one order as the child does."""
        request = parts.pop("request", None) or a_request(incident, host=node, pod=None)
        return answer_to(self.order(op, node, request, **parts))

    @contextmanager
    def api(self) -> Iterator[KubeApi]:
        """Return the child's own calls."""
        with conversation(self.access(), 20.0) as api:
            yield api

    def add_node(self, name: str, **spec: object) -> Json:
        """Make a node whose kubelet has told this boot."""
        made = self.server.apply(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        )
        self.boot(name, BOOT)
        return made

    def boot(self, name: str, boot_id: str) -> None:
        """Tell a boot as a kubelet does."""
        status = {"status": {"nodeInfo": {"bootID": boot_id}}}
        self.server.call("PATCH", f"/api/v1/nodes/{name}/status", status)

    def node(self, name: str = NODE) -> Json:
        """Return a node as it stands."""
        return self.server.call("GET", f"/api/v1/nodes/{name}")

    def patch(self, patch: Json, name: str = NODE) -> None:
        """Write a node as somebody else does."""
        self.server.call("PATCH", f"/api/v1/nodes/{name}", patch)

    def notes(self, name: str = NODE) -> Mapping[str, str]:
        """Return a node's annotations."""
        found: Mapping[str, str] = self.node(name)["metadata"].get("annotations", {})
        return found

    def condition(self, name: str = NODE) -> Json:
        """Return our condition, {} when there is none."""
        conditions = self.node(name)["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "GPUReclaimFailed"), {})

    def taints(self, name: str = NODE) -> dict[str, tuple[str, str]]:
        """Return value and effect of each taint."""
        found = self.node(name)["spec"].get("taints", [])
        return {taint["key"]: (taint.get("value", ""), taint["effect"]) for taint in found}

    def events(self, namespace: str = "default") -> list[Json]:
        """Return the events of a namespace."""
        found: list[Json] = self.server.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return found

    def start_again(self) -> None:
        """Start the killed server, and wait until it has read its roles too."""
        self.server.start()
        wait_until(
            lambda: "HTTP 403" not in self.do(KubeOp.STATUS, incident="none").text, "our roles are read", 30
        )

    def forget(self) -> None:
        """Delete all nodes, pods, events and budgets: the next test begins anew."""
        for path in (
            "/api/v1/nodes",
            "/api/v1/namespaces/default/pods?gracePeriodSeconds=0",
            "/api/v1/namespaces/default/events",
            "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets",
        ):
            self.server.call("DELETE", path)
        lease = self.server.call("GET", LEASE)
        lease["spec"] = {}
        self.server.call("PUT", LEASE, lease)


@contextmanager
def kube_rig(*names: str) -> Iterator[KubeRig]:
    """Run a server with these manifests of ours, and our account's token, as a pod of ours has it."""
    with kube_apiserver({f"system:node:{NODE}": ["system:nodes"], "nobody": ["people"]}) as server:
        for name in names:
            for manifest in manifests(name):
                server.apply(manifest)
        token = account_token(server)
        yield KubeRig(server, server.kubeconfig("account", token=token))


def account_token(server: ApiServer) -> str:
    """Return a token of our service account, as the kubelet gets one for a pod."""
    path = "/api/v1/namespaces/reclaimerd/serviceaccounts/reclaimerd/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(server.call("POST", path, request)["status"]["token"])
