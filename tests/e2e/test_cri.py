"""A pod's labels by its runtime, from end to end: they tell whether it is one host's, and nothing more."""

import pytest

from tests.e2e.node import RULE, Node, a_node
from tests.e2e.rig import GPU_A, GPU_B, Table, signals_in
from tests.rigs.kubelet import Container, gpu
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root]

CAP: Table = {
    **RULE,
    "name": "over-cap",
    "kind": "memory",
    "above": "1GiB",
    "even_if_allocated": True,
    "large_jobs": False,
}


def wait_alarm(node: Node, words: str) -> None:
    """Wait until people were told so; an earlier alarm may know less: a runtime is asked beside the looks."""

    def is_told() -> bool:
        return any(words in str(one.get("reason")) for one in node.rig.records("alarm"))

    wait_until(is_told, f"an alarm with: {words}")


def test_with_labels_by_its_runtime_a_small_pod_may_be_acted_on() -> None:
    """Nothing in its labels says that it is spread, and it has one GPU: the rule does its work."""
    with a_node(CAP, cri=True) as node:
        node.labels = {"app": "llm"}
        node.serve(Container("owner", [gpu(GPU_A)]))
        pid, path = node.start("owner")
        assert node.rig.wait_record("incident_ended", pid=pid)["end"] == "reclaimed"
        assert signals_in(path).count("SIGTERM") == 1
        assert node.cri is not None
        assert len(node.cri.calls()) == 2, "asked once"


def test_a_pod_of_a_job_over_several_hosts_is_left_alone() -> None:
    """As its runtime tells by a controller's label: people are told, and nobody is signalled."""
    with a_node(CAP, cri=True) as node:
        node.labels = {"leaderworkerset.sigs.k8s.io/name": "big"}
        node.serve(Container("owner", [gpu(GPU_A)]))
        owner = node.start("owner")
        wait_alarm(node, "its job spans several hosts")
        assert node.rig.verdict(owner[0]) == "watch"
        node.assert_untouched(owner)


@pytest.mark.slow
def test_a_rule_that_asks_for_a_label_does_not_go_by_what_the_runtime_tells() -> None:
    """The label may have been changed since the pod was made: the rule does not know, and does nothing."""
    with a_node({**CAP, "match.labels": ["app=llm"]}, cri=True) as node:
        node.labels = {"app": "llm"}
        node.serve(Container("owner", [gpu(GPU_A)]))
        owner = node.start("owner")
        node.wait_allocation(owner[0], "allowed")
        node.assert_untouched(owner)
        assert node.rig.verdict(owner[0]) == "undetermined"


def test_a_runtime_that_hangs_touches_nobody_and_holds_up_nothing() -> None:
    """Names stay those of the record, the kubelet's list is read all the same, and passes go on."""
    with a_node(CAP, cri=True) as node:
        assert node.cri is not None
        node.cri.freeze()
        node.serve(Container("owner", [gpu(GPU_A)]), Container("guest", [gpu(GPU_B)]))
        owner = node.start("owner")
        node.wait_allocation(owner[0], "allowed")
        wait_alarm(node, "its labels are not known")
        guest = node.start("guest", on=GPU_B)
        node.wait_allocation(guest[0], "allowed")
        assert float(node.rig.ask("/v1/status")["last_pass"]["seconds"]) < 2
        names = next(row["names"] for row in node.rig.ask("/v1/ps")["rows"] if row["pid"] == owner[0])
        assert (names["namespace"], names["container"]) == ("team", "owner")
        assert "labels" not in names
        node.assert_untouched(owner, guest)
