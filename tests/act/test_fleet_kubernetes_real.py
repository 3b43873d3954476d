"""Claims about the fleet's limit, with a real API server and many nodes that ask it at once."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from reclaimerd.act import kube_fleet
from reclaimerd.act.fleet_kubernetes import KubernetesFleet
from reclaimerd.act.kube_api import KubeApi
from reclaimerd.act.kube_fleet import KubeFleet
from reclaimerd.act.kube_order import KubeAnswer, KubeOp
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.drain_policy import FleetSettings
from reclaimerd.model.drain_ports import Asked, SlotTaken, SlotWaits
from tests.act.drain_builders import a_request
from tests.act.kube_rig import LEASE, KubeRig, kube_rig
from tests.rigs.kube_apiserver import REAL_CLUSTER

pytestmark = [*REAL_CLUSTER]
NODES = tuple(f"node-{number}" for number in range(20))
LIMIT = 3
FLEET = FleetSettings(nodes=LIMIT, percent=100.0, same_code_nodes=100)


@pytest.fixture(scope="module")
def served() -> Iterator[KubeRig]:
    """Return one API server for all tests of this file."""
    with kube_rig("rbac-drain.yaml") as rig:
        yield rig


@pytest.fixture
def rig(served: KubeRig) -> KubeRig:
    """Return it with twenty nodes."""
    served.forget()
    for name in NODES:
        served.add_node(name)
    return served


def take(rig: KubeRig, node: str, incident: str = "", fleet: FleetSettings = FLEET) -> KubeAnswer:
    """Ask for a place for one node as its child does."""
    return rig.do(KubeOp.TAKE, node, incident or f"inc-{node}", fleet=fleet, seconds=60.0)


def release(rig: KubeRig, node: str) -> KubeAnswer:
    """Give its place back."""
    return rig.do(KubeOp.RELEASE, node, f"inc-{node}", fleet=FLEET)


def marked(rig: KubeRig) -> set[str]:
    """Return the nodes that hold a place, as an administrator reads them."""
    found = rig.server.call("GET", "/api/v1/nodes")["items"]
    return {
        node["metadata"]["name"]
        for node in found
        if "reclaimerd.io/fleet-slot" in node["metadata"].get("annotations", {})
    }


def dies(*_: object) -> Any:
    """End the child in mid-turn, as a crash does."""
    raise RuntimeError("a crash")


@dataclass(slots=True)
class Watching:
    """Reads the marked nodes all the time; `most` is the largest number of them ever seen."""

    rig: KubeRig
    most: int = 0
    looks: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Look until it is told to end."""
        while not self.ended.is_set():
            self.most = max(self.most, len(marked(self.rig)))
            self.looks += 1


def at_once(
    rig: KubeRig, call: Callable[[str], Any], names: tuple[str, ...]
) -> tuple[dict[str, Any], Watching]:
    """Do it for many nodes at once, with somebody who watches the marks."""
    watching = Watching(rig)
    watcher = threading.Thread(target=watching.look)
    watcher.start()
    try:
        with ThreadPoolExecutor(len(names)) as pool:
            answers = dict(zip(names, pool.map(call, names), strict=True))
    finally:
        watching.ended.set()
        watcher.join(30)
    return answers, watching


def test_twenty_nodes_at_once_are_never_more_than_the_limit(rig: KubeRig) -> None:
    """Places that are given back are used again, until every node has had one."""
    take(rig, NODES[0]), release(rig, NODES[0])  # the library makes its classes once, and not in threads
    left = NODES
    rounds = 0
    while left:
        answers, watching = at_once(rig, lambda name: take(rig, name), left)
        taken = {name for name, answer in answers.items() if isinstance(answer, SlotTaken)}
        assert marked(rig) == taken
        assert watching.looks
        assert watching.most <= LIMIT
        assert len(taken) == min(LIMIT, len(left)), answers
        rest = [answer for name, answer in answers.items() if name not in taken]
        assert all(isinstance(answer, SlotWaits) for answer in rest)
        for name in taken:
            assert release(rig, name) == Asked(f"node {name} gave its place back")
        left = tuple(name for name in left if name not in taken)
        rounds += 1
        assert rounds <= len(NODES)
    assert marked(rig) == set()
    assert not any("labels" in rig.node(name)["metadata"] for name in NODES)


def test_a_place_never_expires(rig: KubeRig) -> None:
    """All who hold one are dead, every duration is long past: there is still no room, until a mark goes."""
    for name in NODES[:LIMIT]:
        assert isinstance(take(rig, name), SlotTaken)
    for name in NODES[:LIMIT]:
        note = json.loads(rig.notes(name)["reclaimerd.io/fleet-slot"])
        old = json.dumps({**note, "at": time.time() - 400 * 86400})
        rig.patch({"metadata": {"annotations": {"reclaimerd.io/fleet-slot": old}}}, name)
    lease = rig.server.call("GET", LEASE)
    lease["spec"] = {**lease["spec"], "renewTime": "2001-01-01T00:00:00.000000Z"}
    rig.server.call("PUT", LEASE, lease)
    answers, watching = at_once(rig, lambda name: take(rig, name), NODES[LIMIT:])
    assert all(isinstance(answer, SlotWaits) for answer in answers.values()), answers
    assert (
        "3 of 3 nodes are drained by us (node-0, node-1, node-2), and the limit is 3"
        in answers[NODES[-1]].text
    )
    assert watching.most == LIMIT
    # A person takes one back: everything of ours on that node.
    gone = {"annotations": {"reclaimerd.io/fleet-slot": None}, "labels": {"reclaimerd.io/drain": None}}
    rig.patch({"metadata": gone}, NODES[0])
    assert isinstance(take(rig, NODES[-1]), SlotTaken)


def test_a_node_that_is_marked_by_a_request_counts_without_a_place(rig: KubeRig) -> None:
    """And so does one whose note is damaged: its label alone counts."""
    rig.do(KubeOp.REQUEST, NODES[0])
    rig.patch({"metadata": {"labels": {"reclaimerd.io/drain": "gpu_lost"}}}, NODES[1])
    rig.patch(
        {
            "metadata": {
                "labels": {"reclaimerd.io/drain": "gpu_lost"},
                "annotations": {"reclaimerd.io/fleet-slot": "{"},
            }
        },
        NODES[2],
    )
    answer = take(rig, NODES[3])
    assert isinstance(answer, SlotWaits)
    assert "node-0, node-1, node-2" in answer.text
    assert isinstance(take(rig, NODES[0], "inc-1"), SlotTaken), "its own marks stand already"


def test_the_share_is_of_all_nodes_and_at_least_one(rig: KubeRig) -> None:
    """10 % of 20 are two, 1 % is none, and then it is one."""
    tenth = FleetSettings(percent=10.0)
    assert [type(take(rig, name, fleet=tenth)) for name in NODES[:3]] == [SlotTaken, SlotTaken, SlotWaits]
    for name in NODES[:2]:
        release(rig, name)
    assert [type(take(rig, name, fleet=FleetSettings())) for name in NODES[:2]] == [SlotTaken, SlotWaits]


def test_the_same_reason_on_many_nodes_stops_further_ones(rig: KubeRig) -> None:
    """Until a person takes one of them back; another reason still gets a place."""
    fleet = FleetSettings(percent=100.0, same_code_nodes=2)
    assert [type(take(rig, name, fleet=fleet)) for name in NODES[:3]] == [SlotTaken, SlotTaken, SlotWaits]
    assert "a person looks first" in take(rig, NODES[2], fleet=fleet).text
    release(rig, NODES[0])
    assert isinstance(take(rig, NODES[2], fleet=fleet), SlotTaken)


def test_asking_again_keeps_the_place_and_its_time(rig: KubeRig) -> None:
    """By the child itself; another request's release leaves it alone."""
    fleet = KubernetesFleet(rig.access(NODES[0]), FLEET)
    request = a_request(host=NODES[0])
    assert isinstance(asyncio.run(fleet.take(request)), SlotTaken)
    note = rig.notes(NODES[0])
    assert isinstance(asyncio.run(fleet.take(request)), SlotTaken)
    assert rig.notes(NODES[0]) == note
    other = asyncio.run(fleet.release(a_request("inc-2")))
    assert other == Asked("node node-0 held no place of this request")
    assert rig.notes(NODES[0]) == note
    assert asyncio.run(fleet.release(request)) == Asked("node node-0 gave its place back")


def test_a_dead_holder_of_the_lease_locks_nobody_out(rig: KubeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Lease is taken over when nobody has seen it change for its time, whatever its own clock said."""
    monkeypatch.setattr(kube_fleet, "LEASE_SECONDS", 2)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KubeFleet, "_mark", dies)
        with pytest.raises(RuntimeError, match="a crash"):
            take(rig, NODES[0])
    lease = rig.server.call("GET", LEASE)
    assert lease["spec"]["holderIdentity"].startswith("node-0/")
    lease["spec"]["renewTime"] = "2999-01-01T00:00:00.000000Z"
    rig.server.call("PUT", LEASE, lease)
    began = time.monotonic()
    assert isinstance(take(rig, NODES[1]), SlotTaken)
    assert 2.0 <= time.monotonic() - began < 20.0
    assert marked(rig) == {NODES[1]}


def test_a_node_that_may_not_be_marked_frees_the_lease(rig: KubeRig) -> None:
    """An error of its own must not keep the others waiting for the Lease's whole time."""

    def fails(*_: object) -> None:
        raise ReclaimerdError("not allowed")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KubeFleet, "_mark", fails)
        assert "not allowed" in take(rig, NODES[0]).text
    assert rig.server.call("GET", LEASE)["spec"].get("holderIdentity", "") == ""
    assert marked(rig) == set()


def test_a_holder_that_slept_through_its_time_gets_no_place(
    rig: KubeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took over and got the last place: the sleeper's mark goes again, and its answer is no."""
    monkeypatch.setattr(kube_fleet, "LEASE_SECONDS", 2)
    one = FleetSettings(nodes=1, percent=100.0)
    real = KubeFleet._mark
    answers: list[KubeAnswer] = []

    def sleeps(self: KubeFleet) -> None:
        if self.order.access.node == NODES[0]:
            answers.append(take(rig, NODES[1], fleet=one))  # meanwhile, by another node
        real(self)

    monkeypatch.setattr(KubeFleet, "_mark", sleeps)
    late = take(rig, NODES[0], fleet=one)
    assert isinstance(answers[0], SlotTaken)
    assert isinstance(late, SlotWaits)
    assert "took the Lease over" in late.text
    assert marked(rig) == {NODES[1]}


def test_a_mark_whose_turn_broke_off_is_counted_again(rig: KubeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """We die between the mark and the free Lease: asked again, it stays only where there is room."""
    monkeypatch.setattr(kube_fleet, "LEASE_SECONDS", 2)
    one = FleetSettings(nodes=1, percent=100.0)

    for name in NODES[:2]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(KubeFleet, "_let_go", dies)
            patched.setattr(KubeFleet, "_why_full", lambda *_: "")
            with pytest.raises(RuntimeError, match="a crash"):
                take(rig, name, fleet=one)
    assert marked(rig) == set(NODES[:2])
    assert isinstance(take(rig, NODES[0], fleet=one), SlotWaits)
    assert marked(rig) == {NODES[1]}
    assert isinstance(take(rig, NODES[1], fleet=one), SlotTaken)


def test_a_busy_lease_is_waited_for_no_longer_than_that(rig: KubeRig) -> None:
    """Then there is no place yet, and nothing was marked."""
    lease = rig.server.call("GET", LEASE)
    lease["spec"] = {"holderIdentity": "node-9/x", "leaseDurationSeconds": 15}
    rig.server.call("PUT", LEASE, lease)
    request = a_request(host=NODES[0])
    with rig.api() as api:
        order = rig.order(KubeOp.TAKE, NODES[0], request, fleet=FLEET)
        answer = KubeFleet(api, order, wait_seconds=1.0).take()
    assert answer == SlotWaits("other nodes are counting: the Lease was not free in time")
    assert marked(rig) == set()


def test_a_node_that_is_gone_holds_no_place(rig: KubeRig) -> None:
    """Its object was deleted, and our marks with it: taking them back is done."""
    rig.server.call("DELETE", f"/api/v1/nodes/{NODES[0]}")
    gone = Asked("there is no node node-0 any more")
    assert release(rig, NODES[0]) == gone
    assert rig.do(KubeOp.WITHDRAW, NODES[0]) == gone
    assert isinstance(take(rig, NODES[0]), SlotWaits)


def test_no_cluster_is_no_place(rig: KubeRig) -> None:
    """Neither without a server, nor without the Lease of our manifest, nor when it dies in between."""
    lease = rig.server.call("GET", LEASE)
    rig.server.call("DELETE", LEASE)
    answer = take(rig, NODES[0])
    assert isinstance(answer, SlotWaits)
    assert "apply deploy/kubernetes/rbac-drain.yaml" in answer.text
    del lease["metadata"]["resourceVersion"], lease["metadata"]["uid"]
    rig.server.apply(lease)

    real = KubeApi.replace_lease

    def dies_after(self: KubeApi, lease: dict[str, Any]) -> dict[str, Any]:
        done = real(self, lease)
        rig.server.kill()
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KubeApi, "replace_lease", dies_after)
        answer = take(rig, NODES[0])
    assert isinstance(answer, SlotWaits), answer
    fleet = KubernetesFleet(rig.access(NODES[0]), FLEET)
    answer = asyncio.run(fleet.take(a_request()))
    assert isinstance(answer, SlotWaits)
    assert "can't be counted" in answer.text
    rig.start_again()
    assert marked(rig) == set()
