"""The GPU thief from end to end: a served kubelet's list, real processes in real cgroups, and one rule.

Whoever can't be convicted by all of it is not touched.
"""

import pytest

from tests.e2e.node import RULE, a_node
from tests.e2e.rig import GPU_A, GPU_B, Table, is_alive, signals_in
from tests.rigs.kubelet import Container, gpu
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root]


def test_the_thief_goes_and_its_neighbour_with_the_gpu_stays() -> None:
    """Three containers of one pod, one has a GPU: who takes another GPU goes, the owner and an idler live."""
    with a_node() as node:
        node.serve(Container("owner", [gpu(GPU_A)]), Container("thief"), Container("guest"))
        owner, guest = node.start("owner"), node.start("guest")
        node.wait_allocation(owner[0], "allowed")
        node.wait_allocation(guest[0], "allowed")
        thief, path = node.start("thief", on=GPU_B)
        ended = node.rig.wait_record("incident_ended", pid=thief)
        assert ended["end"] == "reclaimed"
        assert signals_in(path).count("SIGTERM") == 1
        opened = node.rig.records("incident_opened", pid=thief)[0]
        assert opened["reason"] == (
            f"container thief of pod team/train-0 was given no GPU, and it holds {GPU_B}"
        )
        assert "team/train-0/thief: no GPU" in opened["evidence"]
        assert f"team/train-0/owner: nvidia.com/gpu {GPU_A}" in opened["evidence"]
        node.assert_untouched(owner, guest)


@pytest.mark.slow
def test_within_a_pod_a_rule_may_go_by_the_container() -> None:
    """With `pod_shares = false` the guest on the owner's GPU is a thief too; the owner lives."""
    with a_node({**RULE, "pod_shares": False}) as node:
        node.serve(Container("owner", [gpu(GPU_A)]), Container("guest"))
        owner = node.start("owner")
        guest, _ = node.start("guest")
        assert node.rig.wait_record("incident_ended", pid=guest)["end"] == "reclaimed"
        node.assert_untouched(owner)


def test_a_thief_of_a_pod_that_nobody_knows_is_told_and_left_alone() -> None:
    """No cluster tells its labels: it may belong to a large job, so people are told and nothing is done."""
    with a_node({**RULE, "large_jobs": False}) as node:
        node.serve(Container("thief"))
        thief = node.start("thief")
        alarm = node.rig.wait_record("alarm")["reason"]
        assert alarm.startswith("rule thief holds for team/train-0/thief, and leaves it alone as a large")
        assert node.rig.verdict(thief[0]) == "watch"
        node.assert_untouched(thief)


@pytest.mark.slow
def test_inspect_tells_the_evidence() -> None:
    """The text and each line of evidence, for people too."""
    with a_node({**RULE, "mode": "observe"}) as node:
        node.serve(Container("thief"))
        pid, _ = node.start("thief")
        node.wait_allocation(pid, "unallocated")
        said = node.rig.begin("inspect", str(pid)).result(20)
        assert f"allocation of GPU {GPU_A}: unallocated: container thief" in said.out
        assert "  team/train-0/thief: no GPU" in said.out
        assert "ALLOC" in node.rig.begin("ps").result(20).out


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        ([Container("owner", claims=[("team", "gpus")]), Container("thief")], "resource claim team/gpus"),
        (
            [Container("owner", [gpu(f"{GPU_B}::1")]), Container("thief", [gpu(f"{GPU_B}::0")])],
            "shares of GPUs",
        ),
        ([Container("owner", [gpu("tegra")]), Container("thief")], "can't be told"),
        ([Container("owner")], "its pod was given no GPU"),
    ],
)
def test_what_the_list_does_not_tell_touches_nobody(containers: list[Container], words: str) -> None:
    """DRA, time-slicing, ids of no known form, a container that is not listed: UNKNOWN, and why."""
    with a_node() as node:
        node.serve(*containers)
        thief = node.start("thief")
        node.wait_why(thief[0], words)
        assert node.allocation(thief[0]) == "unknown"
        node.assert_untouched(thief)


@pytest.mark.slow
def test_a_kubelet_with_an_empty_list_touches_nobody() -> None:
    """As in the first seconds after its start, or with its device plugins gone."""
    with a_node() as node:
        node.kubelet.serve()
        thief = node.start("thief")
        node.wait_why(thief[0], "list is empty")
        node.assert_untouched(thief)


@pytest.mark.slow
def test_a_kubelet_that_was_just_started_touches_nobody() -> None:
    """Within `steady` of its start, also when it was started while we looked."""
    with a_node(attribution={"steady": "10m"}) as node:
        node.serve(Container("thief"))
        thief = node.start("thief")
        node.wait_why(thief[0], "started")
        node.kubelet.stop()
        node.wait_why(thief[0], "is gone")
        node.kubelet.start()
        node.wait_why(thief[0], "started")
        node.assert_untouched(thief)


@pytest.mark.slow
def test_a_kubelet_that_hangs_touches_nobody_and_holds_up_no_pass() -> None:
    """Its last list goes stale, then its silence is the reason; passes go on at their pace."""
    with a_node({**RULE, "for": "1h"}) as node:
        node.serve(Container("thief"))
        thief = node.start("thief")
        node.wait_allocation(thief[0], "unallocated")
        node.kubelet.freeze()
        node.wait_allocation(thief[0], "unknown")
        assert "old" in node.why(thief[0]) or "DEADLINE" in node.why(thief[0])
        assert float(node.rig.ask("/v1/status")["last_pass"]["seconds"]) < 3
        node.assert_untouched(thief)


def test_a_kubelet_that_goes_away_after_sigterm_holds_back_sigkill() -> None:
    """The thief was asked to go; while nothing is known it is not killed, and the refusal is on record."""
    with a_node({**RULE, "grace": "4s"}) as node:
        node.serve(Container("thief"))
        pid, path = node.start("thief")
        wait_until(lambda: "SIGTERM" in signals_in(path), f"SIGTERM arrives: {node.rig.story()}")
        node.kubelet.stop()
        refused = node.rig.wait_record("refused", pid=pid)
        assert [one["kind"] for one in refused["refusals"]] == ["undetermined"]
        assert refused["action"] == "sigkill"
        node.rig.passes(4)
        assert is_alive(pid)
        node.kubelet.start()
        assert node.rig.wait_record("incident_ended", pid=pid)["end"] == "reclaimed"


@pytest.mark.slow
def test_without_a_kubelet_nobody_is_judged_and_memory_rules_leave_pods_alone() -> None:
    """No socket: the column is empty, and a memory cap does not touch a pod that may own its GPU."""
    cap: Table = {**RULE, "name": "over-cap", "kind": "memory", "above": "1GiB"}
    with a_node([RULE, cap], {"kubelet_socket": "/nowhere/kubelet.sock"}) as node:
        thief = node.start("thief")
        node.wait_allocation(thief[0], "-")
        node.rig.passes(2)
        assert node.rig.verdict(thief[0]) == "undetermined"
        node.assert_untouched(thief)


def test_a_memory_rule_leaves_the_owner_of_a_gpu_alone() -> None:
    """The owner fills its own GPU and lives; with `even_if_allocated` it goes."""
    cap: Table = {**RULE, "name": "over-cap", "kind": "memory", "above": "1GiB"}
    with a_node([cap]) as node:
        node.serve(Container("owner", [gpu(GPU_A)]))
        owner = node.start("owner")
        node.wait_allocation(owner[0], "allowed")
        node.assert_untouched(owner)
    with a_node([{**cap, "even_if_allocated": True}]) as node:
        node.serve(Container("owner", [gpu(GPU_A)]))
        pid, _ = node.start("owner")
        assert node.rig.wait_record("incident_ended", pid=pid)["end"] == "reclaimed"
