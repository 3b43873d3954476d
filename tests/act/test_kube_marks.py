"""Claims about the marks on a Node object that need no server: what is whose, and what is sent."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.act import kube_bodies as bodies
from reclaimerd.act import kube_marks as marks
from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.model.drain_policy import FleetMark, KubernetesTarget, NodeMark
from tests.act.drain_builders import a_request

ABOUT = ("gpu-1", "d" * 64, 1_700_000_000.0)
ALL = KubernetesTarget(tuple(NodeMark))
OURS = {"key": marks.TAINT, "value": "stuck_exit", "effect": "NoSchedule"}
Json = dict[str, Any]


def a_node(*, notes: Json | None = None, **spec: Any) -> Json:
    """Return a node as the API has it."""
    about = {"name": "gpu-1", "resourceVersion": "7", "annotations": notes or {}}
    return {"metadata": about, "spec": spec, "status": {}}


def noted(settings: KubernetesTarget = ALL, **spec: Any) -> tuple[Json, marks.RequestNote]:
    """Return a node that carries our note for what stood there before, and the note."""
    note = marks.first_note(a_node(**spec), a_request(), settings, ABOUT)
    after = {**spec, "unschedulable": True, "taints": [OURS]}
    return a_node(notes={marks.REQUEST_NOTE: marks.note_text(note)}, **after), note


def test_a_note_is_read_back_whole() -> None:
    """As it was written."""
    node, note = noted()
    assert marks.request_note(node) == note
    slot = marks.SlotNote("inc-1", "gpu_lost", "gpu-1", 5.0)
    assert marks.slot_note(a_node(notes={marks.SLOT_NOTE: marks.note_text(slot)})) == slot


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"id": "inc-1"}', "[" * 100_000])
def test_a_damaged_note_is_nobodys_request_and_counts(text: str) -> None:
    """It is never taken for ours; and the node is never free because of it."""
    node = a_node(notes={marks.REQUEST_NOTE: text, marks.SLOT_NOTE: text})
    node["metadata"]["labels"] = {marks.LABEL: "gpu_lost"}
    assert marks.request_note(node) is None
    assert marks.anothers_request(node, a_request()) == "one that can't be read"
    assert marks.fleet_mark(node) == FleetMark("gpu-1", "gpu_lost", 0.0)


def test_cordon_and_taint_are_one_write_that_holds_for_what_was_read() -> None:
    """Others' taints stay in it."""
    theirs = {"key": "theirs", "effect": "NoExecute"}
    node = a_node(taints=[theirs])
    note = marks.first_note(node, a_request(), ALL, ABOUT)
    patch = marks.first_patch(node, note, ALL)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patch["metadata"]["labels"] == {marks.LABEL: "stuck_exit"}
    assert patch["spec"] == {"unschedulable": True, "taints": [theirs, OURS]}


def test_no_execute_only_where_it_was_asked_for() -> None:
    """The default never evicts."""
    node = a_node()
    for settings, effect in ((ALL, "NoSchedule"), (replace(ALL, no_execute=True), "NoExecute")):
        note = marks.first_note(node, a_request(), settings, ABOUT)
        (taint,) = marks.first_patch(node, note, settings)["spec"]["taints"]
        assert taint["effect"] == effect


def test_without_cordon_and_taint_the_spec_is_not_written() -> None:
    """Nor when it is taken back."""
    settings = KubernetesTarget((NodeMark.CONDITION,))
    node = a_node()
    note = marks.first_note(node, a_request(), settings, ABOUT)
    assert "spec" not in marks.first_patch(node, note, settings)
    assert "spec" not in marks.last_patch(a_node(unschedulable=True, taints=[OURS]), note)


def test_taking_back_removes_ours_alone() -> None:
    """The cordon only if it was ours; the taint only as we set it."""
    node, note = noted()
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    node["spec"]["taints"].append(theirs)
    assert marks.last_patch(node, note)["spec"] == {"unschedulable": None, "taints": [theirs]}
    node["spec"]["taints"] = [{**OURS, "value": "changed"}]
    assert marks.last_patch(node, note)["spec"] == {"unschedulable": None}


def test_anothers_cordon_is_never_ended() -> None:
    """It was there before us, or the server says that somebody else wrote the field last."""
    node, note = noted(unschedulable=True)
    assert note.was_unschedulable
    assert marks.last_patch(node, note)["spec"] == {"taints": []}
    assert "that stays theirs" in marks.standing_text(node, note)
    node, note = noted()
    owner = {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    node["metadata"]["managedFields"] = [owner]
    assert marks.last_patch(node, note)["spec"] == {"taints": []}
    node["metadata"]["managedFields"] = [{**owner, "manager": "reclaimerd"}, {"manager": "kubelet"}]
    assert marks.last_patch(node, note)["spec"] == {"unschedulable": None, "taints": []}


def test_the_label_stands_as_long_as_one_of_the_two_notes_does() -> None:
    """Whichever is taken back first."""
    node, note = noted()
    slot = marks.SlotNote("inc-1", "stuck_exit", "gpu-1", 5.0)
    node["metadata"]["annotations"][marks.SLOT_NOTE] = marks.note_text(slot)
    assert marks.last_patch(node, note)["metadata"]["labels"] == {marks.LABEL: "stuck_exit"}
    assert marks.no_slot_patch(node)["metadata"]["labels"] == {marks.LABEL: "stuck_exit"}
    del node["metadata"]["annotations"][marks.SLOT_NOTE]
    assert marks.last_patch(node, note)["metadata"]["labels"] == {marks.LABEL: None}


def test_a_condition_is_ours_by_the_whole_id() -> None:
    """inc-1 is not inc-10."""
    (condition,) = bodies.bad_condition(a_request("inc-10"))["status"]["conditions"]
    node = a_node()
    node["status"] = {"conditions": [{"type": "Ready", "status": "True"}, condition]}
    assert marks.condition_of(node, a_request("inc-1")) is None
    assert marks.condition_of(node, a_request("inc-10")) == condition


def test_a_message_fits_and_has_no_line_breaks() -> None:
    """Whatever the evidence is; the id is in it first of all."""
    request = a_request(evidence=("ä" * 5000,), reason="a\nb")
    message = bodies.message_of(request)
    assert len(message.encode()) <= 1024
    assert "\n" not in message
    assert "id=inc-1" in message
    assert "reboot the node" in message


def test_an_event_has_one_name_for_one_request_and_node() -> None:
    """So that it is written once."""
    names = {
        bodies.events_of(a_request(incident, pod=None), node)[0]["metadata"]["name"]
        for incident in ("inc-1", "inc-1", "inc-2")
        for node in ("gpu-1", "gpu-2")
    }
    assert len(names) == 4


def test_the_plan_has_every_write_and_no_other() -> None:
    """In order, each with its body; nothing is sent for it."""
    target = DrainKubernetes(KubeAccess("/nowhere", "gpu-1", "boot"), ALL)
    plan = target.plan(a_request()).split("\n\n")
    lines = [part.split("\n")[0] for part in plan[::2]]
    assert lines == [
        "PATCH /api/v1/nodes/gpu-1?fieldManager=reclaimerd",
        "PATCH /api/v1/nodes/gpu-1/status?fieldManager=reclaimerd",
        "POST /api/v1/namespaces/default/events?fieldManager=reclaimerd",
        "POST /api/v1/namespaces/team/events?fieldManager=reclaimerd",
        "POST /api/v1/namespaces/team/pods/train-0/eviction",
    ]
    first = json.loads(plan[1])
    assert first["spec"]["unschedulable"] is True
    assert first["metadata"]["resourceVersion"] == "<as read>"
    few = replace(target, settings=KubernetesTarget((NodeMark.TAINT,)))
    assert few.plan(a_request()).count("Content-Type") == 1


def test_a_request_is_anothers_by_its_id() -> None:
    """Ours is nobody else's; another's is named; where none stands there is none."""
    node, _ = noted()
    assert marks.anothers_request(node, a_request()) == ""
    assert marks.anothers_request(node, a_request("inc-2")) == "inc-1"
    assert marks.anothers_request(a_node(), a_request()) == ""


def test_a_whole_note_counts_by_its_own_code_and_time() -> None:
    """The place first, else the request; the label alone only where both are damaged."""
    slot = marks.SlotNote("inc-1", "gpu_lost", "gpu-1", 5.0)
    node = a_node(notes={marks.SLOT_NOTE: marks.note_text(slot)})
    node["metadata"]["labels"] = {marks.LABEL: "stuck_exit"}
    assert marks.fleet_mark(node) == FleetMark("gpu-1", "gpu_lost", 5.0)
    asked, note = noted()
    assert marks.fleet_mark(asked) == FleetMark("gpu-1", "stuck_exit", note.at)
    bare = a_node()
    assert marks.fleet_mark(bare) == FleetMark("gpu-1", "", 0.0)


@pytest.mark.parametrize(
    ("spec", "takes"),
    [
        ({}, True),
        ({"unschedulable": True}, False),
        ({"taints": [OURS]}, False),
        ({"taints": [{**OURS, "effect": "NoExecute"}]}, False),
        ({"taints": [{**OURS, "effect": "PreferNoSchedule"}]}, True),
        ({"taints": [{**OURS, "key": "theirs"}]}, True),
    ],
)
def test_when_a_pod_could_still_come(spec: Json, *, takes: bool) -> None:
    """A cordon or our own taint keeps pods off; a softer taint, or another's, is none of ours to count on."""
    assert marks.takes_pods(a_node(**spec)) is takes


def test_the_label_of_what_is_left_is_the_request_s_own_code() -> None:
    """With the place given back the request's note stands on; damaged, its code is not known."""
    asked, _ = noted()
    assert marks.no_slot_patch(asked)["metadata"]["labels"] == {marks.LABEL: "stuck_exit"}
    damaged = a_node(notes={marks.REQUEST_NOTE: "{"})
    assert marks.no_slot_patch(damaged)["metadata"]["labels"] == {marks.LABEL: "unknown"}


@pytest.mark.parametrize(
    ("condition", "ended"),
    [
        ({"type": marks.CONDITION, "reason": marks.VERIFIED, "message": "well id=inc-1"}, True),
        ({"type": marks.CONDITION, "reason": "StuckExit", "message": "stuck id=inc-1"}, False),
        ({"type": marks.CONDITION, "reason": marks.VERIFIED, "message": "well id=inc-2"}, False),
        ({"type": "Ready", "reason": marks.VERIFIED, "message": "well id=inc-1"}, False),
    ],
)
def test_only_our_own_word_of_a_boot_says_that_it_mended_this_request(
    condition: Json, *, ended: bool
) -> None:
    """Type, reason and id must all be ours."""
    node = a_node()
    node["status"] = {"conditions": [condition]}
    assert marks.ended_by_boot(node, a_request()) is ended


def test_what_somebody_took_away_is_said() -> None:
    """A mark that is gone is named and not set again; one that stands is not named as gone."""
    whole, note = noted()
    assert "took away" not in marks.standing_text(whole, note)
    bare = a_node(notes={marks.REQUEST_NOTE: marks.note_text(note)})
    assert marks.standing_text(bare, note).endswith("took away the cordon and the taint, which stays so")
    cordoned = a_node(unschedulable=True)
    assert marks.standing_text(cordoned, note).endswith("took away the taint, which stays so")


@pytest.mark.parametrize(
    ("told", "fault"), [("here", ""), ("", "has no boot id yet"), ("elsewhere", "is of another boot")]
)
def test_a_node_is_this_host_by_its_boot_id(told: str, fault: str) -> None:
    """Ours; one that no kubelet has told; another machine's or an earlier one."""
    node = a_node()
    node["status"] = {"nodeInfo": {"bootID": told}}
    text = marks.boot_fault(node, "here")
    assert bool(text) is bool(fault)
    assert fault in text
