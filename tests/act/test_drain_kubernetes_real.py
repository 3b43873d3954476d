"""Claims about marks on a Node object, against a real API server, with the rights of our own manifests."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.kube_api import KubeApi
from reclaimerd.act.kube_order import KubeOp
from reclaimerd.host.kube_client import ClusterAccess
from reclaimerd.host.kube_review import Deed, denied
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import KubernetesTarget, NodeMark
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked
from tests.act.drain_builders import a_request
from tests.act.kube_rig import ALL, NODE, KubeRig, account_token, kube_rig
from tests.rigs.fake_cluster import make_certificate
from tests.rigs.kube_apiserver import REAL_CLUSTER

pytestmark = [*REAL_CLUSTER]
PODS = "/api/v1/namespaces/default/pods"
MARKS = KubernetesTarget(ALL)
A_BUDGET = {
    "apiVersion": "policy/v1beta1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "budget", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}},
}


@pytest.fixture(scope="module")
def served() -> Iterator[KubeRig]:
    """Return one API server for all tests of this file."""
    with kube_rig("rbac-drain.yaml", "rbac-drain-evict.yaml") as rig:
        yield rig


@pytest.fixture
def rig(served: KubeRig) -> KubeRig:
    """Return it with one fresh node, which has a taint of somebody else's."""
    served.forget()
    served.add_node(NODE, taints=[{"key": "other", "value": "1", "effect": "NoSchedule"}])
    return served


def a_pod(rig: KubeRig, **about: object) -> tuple[str, str, str]:
    """Make a pod of our node, and return how a request names it."""
    node = about.pop("node", NODE)
    made = rig.server.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "train-0", "namespace": "default", "labels": {"app": "train"}, **about},
            "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]},
        }
    )
    rig.server.call("PATCH", f"{PODS}/train-0/status", {"status": {"phase": "Running"}})
    return "default", "train-0", str(made["metadata"]["uid"])


def asked(rig: KubeRig, incident: str = "inc-1", **parts: Any) -> str:
    """Request a drain, which must be taken, and return its text."""
    answer = rig.do(KubeOp.REQUEST, incident=incident, **parts)
    assert isinstance(answer, Asked), answer
    return answer.text


def test_every_mark_is_set_once_and_taken_back(rig: KubeRig) -> None:
    """By the child itself, as the daemon asks; a second asking changes no byte of the node."""
    target = DrainKubernetes(rig.access(), replace(MARKS, marks=ALL[:4]))
    request = a_request(host=NODE, pod=("default", "train-0", "u-1"))
    answer = asyncio.run(target.request(request))
    assert answer == Asked("node gpu-1: cordon, taint, condition, event set", NODE)
    node = rig.node()
    assert node["spec"]["unschedulable"] is True
    assert rig.taints()["reclaimerd.io/gpu-stuck"] == ("stuck_exit", "NoSchedule")
    condition = rig.condition()
    assert (condition["status"], condition["reason"]) == ("True", "StuckExit")
    assert condition["message"].startswith("reclaimerd: stuck_exit id=inc-1 ")
    assert "pid 41: stuck in uvm_release" in condition["message"]
    note = json.loads(rig.notes()["reclaimerd.io/drain-request"])
    assert note["marks"] == ["cordon", "taint", "condition", "event"]
    assert (note["id"], note["node"], len(note["body_sha256"])) == ("inc-1", NODE, 64)
    kinds = sorted(
        (event["involvedObject"]["kind"], event["involvedObject"]["name"]) for event in rig.events()
    )
    assert kinds == [("Node", NODE), ("Pod", "train-0")]
    assert asyncio.run(target.request(request)) == answer
    assert rig.node()["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
    assert len(rig.events()) == 2
    assert asyncio.run(target.status(request)) == replace(answer, place="")

    back = asyncio.run(target.withdraw(request))
    assert isinstance(back, Asked), back
    after = rig.node()
    assert "unschedulable" not in after["spec"]
    assert rig.taints() == {"other": ("1", "NoSchedule"), "node.kubernetes.io/not-ready": ("", "NoSchedule")}
    assert (rig.condition()["status"], rig.condition()["reason"]) == ("False", "GPUReclaimed")
    assert "annotations" not in after["metadata"]
    assert "labels" not in after["metadata"]
    assert asyncio.run(target.withdraw(request)) == Asked("nothing of ours stands on node gpu-1")
    assert asyncio.run(target.status(request)) == NotAsked("nothing of ours stands on node gpu-1")


def test_somebody_elses_cordon_is_kept(rig: KubeRig) -> None:
    """It was there before us: it is told, and stays when all of ours is taken back."""
    rig.patch({"spec": {"unschedulable": True}})
    assert "somebody else had cordoned it before" in asked(rig)
    assert "cordon" not in json.loads(rig.notes()["reclaimerd.io/drain-request"])["marks"]
    answer = rig.do(KubeOp.WITHDRAW)
    assert isinstance(answer, Asked)
    assert "it stays cordoned, which is not ours to end" in answer.text
    assert rig.node()["spec"]["unschedulable"] is True
    assert "reclaimerd.io/gpu-stuck" not in rig.taints()


def test_with_nothing_but_a_cordon_to_set_anothers_is_foreign(rig: KubeRig) -> None:
    """Then nothing is written at all."""
    rig.patch({"spec": {"unschedulable": True}})
    before = rig.node()
    answer = rig.do(KubeOp.REQUEST, target=KubernetesTarget((NodeMark.CORDON,)))
    assert answer == Foreign("kept as it is: somebody else has cordoned node gpu-1")
    assert rig.node() == before


def test_what_somebody_took_away_is_not_set_again(rig: KubeRig) -> None:
    """A person uncordons our node: the same request leaves it so, and says it."""
    asked(rig)
    rig.patch({"spec": {"unschedulable": None, "taints": []}})
    assert "somebody took away the cordon and the taint, which stays so" in asked(rig)
    assert "unschedulable" not in rig.node()["spec"]
    assert isinstance(rig.do(KubeOp.WITHDRAW), Asked)


def test_another_request_of_ours_is_foreign(rig: KubeRig) -> None:
    """Of a store that was lost, say: its marks stay, and only its own id takes them back."""
    asked(rig, "inc-0")
    before = rig.node()
    answer = rig.do(KubeOp.REQUEST)
    assert isinstance(answer, Foreign)
    assert "inc-0" in answer.text
    assert rig.do(KubeOp.WITHDRAW) == Asked("nothing of ours stands on node gpu-1")
    assert rig.node() == before


@pytest.mark.parametrize("boot", ["another", ""])
def test_a_node_of_another_boot_is_not_marked(rig: KubeRig, boot: str) -> None:
    """A policy that was copied with its node's name would mark one node for many hosts."""
    rig.boot(NODE, boot)
    before = rig.node()
    for op in (KubeOp.REQUEST, KubeOp.TAKE):
        answer = rig.do(op)
        assert "boot" in answer.text, answer
        assert not isinstance(answer, Asked)
    assert rig.node() == before


def test_a_verified_boot_ends_the_condition_alone(rig: KubeRig) -> None:
    """Cordon, taint and note stay: a person or the policy takes them back."""
    asked(rig)
    assert isinstance(rig.do(KubeOp.VERIFIED, incident="inc-2"), Asked)
    assert rig.condition()["status"] == "True"
    assert isinstance(rig.do(KubeOp.VERIFIED), Asked)
    assert (rig.condition()["status"], rig.condition()["reason"]) == ("False", "RebootedAndVerified")
    assert rig.node()["spec"]["unschedulable"] is True
    assert "reclaimerd.io/gpu-stuck" in rig.taints()


def test_a_gpu_that_is_stuck_again_in_that_boot_is_told_again(rig: KubeRig) -> None:
    """Its condition must not go on to say that the boot mended it; one that a person ended stays ended."""
    asked(rig)
    rig.do(KubeOp.VERIFIED)
    asked(rig)
    assert (rig.condition()["status"], rig.condition()["reason"]) == ("True", "StuckExit")
    theirs = rig.condition() | {"status": "False", "reason": "SeenByAnn"}
    rig.server.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [theirs]}})
    asked(rig)
    assert rig.condition()["reason"] == "SeenByAnn"


def test_marks_on_a_node_that_the_policy_named_before_are_taken_back(rig: KubeRig) -> None:
    """Its place in the fleet too; another request's marks there stay, and an unknown name ends nothing."""
    request = a_request(host=NODE, pod=None)
    rig.do(KubeOp.TAKE, request=request)
    answer = asyncio.run(DrainKubernetes(rig.access(), MARKS).request(request))
    assert isinstance(answer, Asked)
    renamed = DrainKubernetes(rig.access("gpu-typo"), MARKS, earlier=lambda: answer.place)
    other = a_request("inc-2", host=NODE, pod=None)
    asyncio.run(renamed.withdraw(other))
    assert rig.node()["spec"]["unschedulable"] is True
    assert isinstance(asyncio.run(renamed.withdraw(request)), Asked)
    assert "unschedulable" not in rig.node()["spec"]
    assert "annotations" not in rig.node()["metadata"]


def test_a_pod_whose_namespace_is_ending_stops_no_mark(rig: KubeRig) -> None:
    """A stuck pod keeps it from ending, and no event can be made there: the rest is done all the same."""
    rig.server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ending"}})
    rig.server.call("DELETE", "/api/v1/namespaces/ending")
    for namespace in ("ending", "gone"):
        request = a_request(f"inc-{namespace}", host=NODE, pod=(namespace, "train-0", "u-1"))
        assert "condition, event" in asked(rig, request=request)
        assert rig.events(namespace) == []
        rig.do(KubeOp.WITHDRAW, request=request)


def test_a_second_writer_costs_nothing(rig: KubeRig) -> None:
    """Somebody writes the node between our look and our write, again and again: both stand at the end."""
    real = KubeApi.patch_node
    races = iter(range(3))

    def raced(self: KubeApi, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        if (race := next(races, None)) is not None:
            rig.patch({"metadata": {"annotations": {f"theirs-{race}": "1"}}})
        return real(self, name, patch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KubeApi, "patch_node", raced)
        asked(rig)
    assert next(races, None) is None
    assert {f"theirs-{race}" for race in range(3)} <= set(rig.notes())
    assert json.loads(rig.notes()["reclaimerd.io/drain-request"])["marks"] == [
        "cordon", "taint", "condition", "event"
    ]  # fmt: skip
    assert "other" in rig.taints()


def test_two_of_us_at_once_are_one_request(rig: KubeRig) -> None:
    """After a death of ours the old call may still be under way."""
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(rig.do(KubeOp.REQUEST))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [type(answer) for answer in answers] == [Asked] * 6, answers
    assert len(rig.events()) == 1
    assert isinstance(rig.do(KubeOp.WITHDRAW), Asked)
    assert "unschedulable" not in rig.node()["spec"]


def test_the_offending_pod_is_evicted_and_no_other(rig: KubeRig) -> None:
    """By the version of the API that this server knows; it is Terminating, not gone by force."""
    pod = a_pod(rig)
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": "default"}}
    rig.server.apply({**other, "spec": {"nodeName": NODE, "containers": [{"name": "m", "image": "i"}]}})
    assert asked(rig, request=a_request(pod=pod)).endswith("; pod default/train-0 is being evicted")
    assert "deletionTimestamp" in rig.server.call("GET", f"{PODS}/train-0")["metadata"]
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/other")["metadata"]


def test_a_pod_of_the_same_name_that_came_later_stays(rig: KubeRig) -> None:
    """The uid decides, here and at the server."""
    namespace, name, _ = a_pod(rig)
    assert "train-0 is gone" in asked(rig, request=a_request(pod=(namespace, name, "u-1")))
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/train-0")["metadata"]
    with rig.api() as api, pytest.raises(Exception, match="HTTP 409"):
        api.evict((namespace, name, "u-1"))
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/train-0")["metadata"]


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"node": "gpu-2"}, "it is not on this node"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "it is a static pod"),
        (
            {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
            ]},
            "its DaemonSet would start it again",
        ),
    ],
)  # fmt: skip
def test_pods_that_are_not_evicted(rig: KubeRig, about: dict[str, Any], why: str) -> None:
    """What an eviction would not move, or is none of ours."""
    pod = a_pod(rig, **about)
    assert f"pod default/train-0 is not evicted: {why}" in asked(rig, request=a_request(pod=pod))
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/train-0")["metadata"]


def test_no_pod_leaves_a_node_that_would_take_the_next(rig: KubeRig) -> None:
    """Without a cordon or a taint the GPU would be given to another pod."""
    pod = a_pod(rig)
    text = asked(rig, request=a_request(pod=pod), target=KubernetesTarget((NodeMark.EVENT, NodeMark.EVICT)))
    assert "the node takes pods" in text
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/train-0")["metadata"]


def test_a_disruption_budget_is_waited_for_and_then_told(rig: KubeRig) -> None:
    """All other marks stand meanwhile; the pod is never deleted instead (C96)."""
    pod = a_pod(rig)
    rig.server.apply(A_BUDGET)
    request = a_request(pod=pod)
    answer = rig.do(KubeOp.REQUEST, request=request)
    assert isinstance(answer, NotAsked), answer
    assert not answer.lasting
    assert "refused by a disruption budget (HTTP 429)" in answer.text
    assert rig.condition()["status"] == "True"
    assert rig.node()["spec"]["unschedulable"] is True
    assert len(rig.events()) == 2

    answer = rig.do(KubeOp.REQUEST, request=request, target=replace(MARKS, evict_seconds=0.0))
    assert isinstance(answer, Asked)
    assert "was not evicted within 0 s: refused by a disruption budget (HTTP 429)" in answer.text
    assert "deletionTimestamp" not in rig.server.call("GET", f"{PODS}/train-0")["metadata"]


def test_a_budget_that_gives_way_in_time_lets_the_pod_go(rig: KubeRig) -> None:
    """The same request, asked again."""
    pod = a_pod(rig)
    made = rig.server.apply(A_BUDGET)
    assert isinstance(rig.do(KubeOp.REQUEST, request=a_request(pod=pod)), NotAsked)
    made["status"] = {
        "observedGeneration": made["metadata"]["generation"],
        "disruptionsAllowed": 1,
        "currentHealthy": 2,
        "desiredHealthy": 1,
        "expectedPods": 2,
    }
    path = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/budget/status"
    rig.server.call("PUT", path, made)
    assert "is being evicted" in asked(rig, request=a_request(pod=pod))


def broken(rig: KubeRig, kind: str) -> DrainKubernetes:
    """Return a target with one thing wrong."""
    server, access = rig.server, rig.access()
    make_certificate(server.folder, "other")
    credentials: dict[str, Callable[[], object]] = {
        "401": lambda: server.kubeconfig("stranger", token="x" * 32),
        "403": lambda: server.kubeconfig("nobody", token=server.tokens["nobody"]),
        "404": lambda: rig.credentials,
        "certificate": lambda: server.kubeconfig(
            "wrong", **{"certificate-authority": f"{server.folder}/other.crt"}
        ),
        "name": lambda: rig.credentials,
        "away": lambda: server.kubeconfig("away", server="https://127.0.0.1:1"),
    }
    node = {"404": "gpu-9", "name": "no node"}.get(kind, NODE)
    return DrainKubernetes(replace(access, credentials=str(credentials[kind]()), node=node), MARKS)


@pytest.mark.parametrize(
    ("kind", "words", "lasting"),
    [
        ("401", "renew the token", True),
        ("403", "apply deploy/kubernetes/rbac-drain.yaml", True),
        ("404", "name this node in [cluster] node", True),
        ("certificate", "nothing was sent to it", True),
        ("name", "'no node' is no node's name", True),
        ("away", "can't be asked", False),
    ],
)
def test_each_refusal_says_what_mends_it(rig: KubeRig, kind: str, words: str, lasting: bool) -> None:  # noqa: FBT001
    """And nothing is written."""
    before = rig.node()
    answer = asyncio.run(broken(rig, kind).request(a_request(pod=None)))
    assert isinstance(answer, NotAsked), answer
    assert words in answer.text
    assert answer.lasting is lasting
    assert rig.node() == before


def test_a_server_that_dies_in_mid_request_is_asked_again_with_one_effect(rig: KubeRig) -> None:
    """It dies after each of our writes in turn; when it is back, the same request goes on where it was."""
    request = a_request(pod=None)
    for step in ("patch_node", "patch_status", "create_event"):
        real = getattr(KubeApi, step)

        def dies(self: KubeApi, *words: Any, real: Any = real) -> Any:
            done = real(self, *words)
            rig.server.kill()
            return done

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(KubeApi, step, dies)
            answer = rig.do(KubeOp.REQUEST, request=request)
        assert isinstance(answer, NotAsked), (step, answer)
        assert not answer.lasting
        rig.start_again()
    assert asked(rig, request=request) == asked(rig, request=request)
    assert len(rig.events()) == 1
    assert list(rig.taints()).count("reclaimerd.io/gpu-stuck") == 1
    assert isinstance(rig.do(KubeOp.WITHDRAW, request=request), Asked)
    assert "unschedulable" not in rig.node()["spec"]


def test_the_kubelets_own_credentials_can_cordon_but_not_taint(rig: KubeRig) -> None:
    """NodeRestriction: with a taint in the policy nothing at all is set, and the answer says so."""
    server = rig.server
    credentials = str(server.kubeconfig("kubelet", token=server.tokens[f"system:node:{NODE}"]))
    access = replace(rig.access(), credentials=credentials)
    before = rig.node()
    answer = rig.do(KubeOp.REQUEST, access=access)
    assert isinstance(answer, NotAsked)
    assert "not allowed to modify taints" in answer.text
    assert rig.node() == before
    few = KubernetesTarget((NodeMark.CORDON, NodeMark.CONDITION, NodeMark.EVENT))
    assert isinstance(rig.do(KubeOp.REQUEST, access=access, target=few), Asked)
    assert rig.node()["spec"]["unschedulable"] is True
    took = rig.do(KubeOp.TAKE, incident="inc-2", access=access)
    assert "HTTP 403" in took.text


def test_doctor_is_told_what_our_account_may_do(rig: KubeRig) -> None:
    """A real server's reviews: what rbac-drain.yaml gives is permitted, the pods' list and others are not."""
    access = ClusterAccess(str(rig.credentials), 20.0)
    lease = Deed("update", "leases", "coordination.k8s.io", "", "reclaimerd", "reclaimerd-fleet")
    given = [
        Deed("patch", "nodes", name=NODE),
        Deed("patch", "nodes", subresource="status", name=NODE),
        lease,
    ]
    kept = [Deed("list", "pods"), Deed("delete", "nodes", name=NODE)]
    before = rig.node()
    assert denied(access, [*given, *kept]) == tuple(kept)
    assert rig.node() == before


def test_our_account_can_do_no_more(rig: KubeRig) -> None:
    """What the manifests allow, asked of the server itself, and each thing that they must not."""
    token = account_token(rig.server)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "reclaimerd"},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    told = rig.server.call("POST", path, review, token=token)["status"]["resourceRules"]
    ours = {
        (group, resource, tuple(rule.get("resourceNames", ()))): tuple(rule["verbs"])
        for rule in told
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if group != "authorization.k8s.io"
    }
    assert ours == {
        ("", "nodes", ()): ("get", "list", "patch"),
        ("", "nodes/status", ()): ("patch",),
        ("", "events", ()): ("create",),
        ("", "pods", ()): ("get",),
        ("", "pods/eviction", ()): ("create",),
        ("coordination.k8s.io", "leases", ("reclaimerd-fleet",)): ("get", "update"),
    }
    a_pod(rig)
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}}
    pod = rig.server.call("GET", f"{PODS}/train-0")
    for method, path, body in (
        ("DELETE", f"{PODS}/train-0", None),
        ("PATCH", f"{PODS}/train-0", {"metadata": {"labels": {"a": "b"}}}),
        ("GET", PODS, None),
        ("POST", PODS, pod),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/namespaces/reclaimerd/secrets", None),
        ("DELETE", f"/api/v1/nodes/{NODE}", None),
        ("PUT", f"/api/v1/nodes/{NODE}", rig.node()),
        ("GET", "/api/v1/namespaces/default/events", None),
        ("POST", f"{leases}/reclaimerd/leases", lease),
        ("DELETE", f"{leases}/reclaimerd/leases/reclaimerd-fleet", None),
        ("GET", f"{leases}/kube-node-lease/leases", None),
        ("GET", "/api/v1/configmaps", None),
    ):
        assert rig.server.refusal(method, path, body, token=token) == 403, (method, path)
    assert rig.server.call("GET", f"{PODS}/train-0")["metadata"]["resourceVersion"]


def test_less_rights_stop_at_what_they_lack(rig: KubeRig) -> None:
    """Without the right to events the node is marked, the answer is lasting, and asking again goes on."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/reclaimerd-drain"
    role = rig.server.call("GET", path)
    less = [rule for rule in role["rules"] if rule["resources"] != ["events"]]
    rig.server.call("PATCH", path, {"rules": less})
    try:
        until = time.monotonic() + 20
        while not isinstance(answer := rig.do(KubeOp.REQUEST), NotAsked):
            assert time.monotonic() < until, "the server's cache of rights is renewed"
            rig.do(KubeOp.WITHDRAW)
            rig.server.call("DELETE", "/api/v1/namespaces/default/events")
        assert answer.lasting
        assert "events is forbidden" in answer.text
        assert rig.condition()["status"] == "True"
    finally:
        rig.server.call("PATCH", path, {"rules": role["rules"]})
    until = time.monotonic() + 20
    while not isinstance(rig.do(KubeOp.REQUEST), Asked):
        assert time.monotonic() < until, "the right is back"
    assert len(rig.events()) == 1


def test_a_pod_of_names_that_no_pod_has_is_left_out(rig: KubeRig) -> None:
    """They would stand in a path."""
    request: DrainRequest = a_request(pod=("..", "../../nodes/x", "u"))
    assert "no pod is named" in asked(rig, request=request)
    assert len(rig.events()) == 1
