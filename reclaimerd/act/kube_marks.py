"""What our marks on a Node object are, and what a node's marks become by a request: pure decisions.

A mark is ours only by the annotation of this very request. What somebody else set is kept, and what
somebody took away again is not set a second time. Objects are the API's own JSON.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_policy import FleetMark, KubernetesTarget, NodeMark

Json = dict[str, Any]
REQUEST_NOTE = "reclaimerd.io/drain-request"
SLOT_NOTE = "reclaimerd.io/fleet-slot"
LABEL = "reclaimerd.io/drain"
"""Stands as long as either note does: a list by it finds every marked node, and no other."""
TAINT = "reclaimerd.io/gpu-stuck"
CONDITION = "GPUReclaimFailed"
VERIFIED = "RebootedAndVerified"
"""The condition's reason when a later boot has mended it."""
WRITER = "reclaimerd"
"""Our name as the owner of fields (managedFields)."""
_UNSCHEDULABLE = "f:unschedulable"


@dataclass(frozen=True, slots=True)
class RequestNote:
    """What the target's annotation says: whose marks stand, and which (`at`: wall-clock seconds).

    `was_unschedulable`: somebody had cordoned the node before us. `marks` are those that we have set.
    """

    id: str
    code: str
    node: str
    body_sha256: str
    at: float
    was_unschedulable: bool
    marks: tuple[str, ...]

    def has(self, mark: NodeMark) -> bool:
        """Tell whether we have set this mark."""
        return mark.value in self.marks


@dataclass(frozen=True, slots=True)
class SlotNote:
    """What the fleet's annotation says: for which request this node holds a place, and since when."""

    id: str
    code: str
    node: str
    at: float


def notes_on(node: Json) -> Mapping[str, str]:
    """Return the node's annotations."""
    return node["metadata"].get("annotations") or {}


def request_note(node: Json) -> RequestNote | None:
    """Return the request whose marks the node carries, None when there is none that can be read."""
    match _parsed(notes_on(node).get(REQUEST_NOTE)):
        case {
            "id": str(found),
            "code": str(code),
            "node": str(name),
            "body_sha256": str(digest),
            "at": int() | float() as at,
            "was_unschedulable": bool(before),
            "marks": [*marks],
        }:
            return RequestNote(found, code, name, digest, float(at), before, tuple(map(str, marks)))
        case _:
            return None


def slot_note(node: Json) -> SlotNote | None:
    """Return the request for which the node holds a place, None when there is none that can be read."""
    match _parsed(notes_on(node).get(SLOT_NOTE)):
        case {"id": str(found), "code": str(code), "node": str(name), "at": int() | float() as at}:
            return SlotNote(found, code, name, float(at))
        case _:
            return None


def note_text(note: RequestNote | SlotNote) -> str:
    """Return a note as the annotation has it."""
    return json.dumps(asdict(note), separators=(",", ":"))


def _parsed(text: str | None) -> object:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def fleet_mark(node: Json) -> FleetMark:
    """Return how a node with our label counts; what is damaged counts too, by its label alone."""
    name = str(node["metadata"]["name"])
    note = slot_note(node) or request_note(node)
    if note is None:
        return FleetMark(name, str((node["metadata"].get("labels") or {}).get(LABEL, "")), 0.0)
    return FleetMark(name, note.code, note.at)


def anothers_request(node: Json, request: DrainRequest) -> str:
    """Return the id of the other request that the node's annotation names, "" when there is none."""
    if REQUEST_NOTE not in notes_on(node):
        return ""
    note = request_note(node)
    if note is None:
        return "one that can't be read"
    return "" if note.id == request.id else note.id


def is_cordoned(node: Json) -> bool:
    """Tell whether the scheduler passes this node over."""
    return bool(node.get("spec", {}).get("unschedulable"))


def takes_pods(node: Json) -> bool:
    """Tell whether a pod without tolerations could still come to this node as far as we see to that."""
    taint = _our_taint(node) or {}
    return not is_cordoned(node) and taint.get("effect") not in ("NoSchedule", "NoExecute")


def effect_of(settings: KubernetesTarget) -> str:
    """Return the taint's effect."""
    return "NoExecute" if settings.no_execute else "NoSchedule"


def _taints(node: Json) -> list[Json]:
    return list(node.get("spec", {}).get("taints") or [])


def _our_taint(node: Json) -> Json | None:
    return next((taint for taint in _taints(node) if taint.get("key") == TAINT), None)


def first_note(
    node: Json, request: DrainRequest, settings: KubernetesTarget, about: tuple[str, str, float]
) -> RequestNote:
    """Return the note for a node that has none of this request; `about`: its name, the digest, the time."""
    name, digest, at = about
    cordoned = is_cordoned(node)
    marks = [NodeMark.CORDON] if NodeMark.CORDON in settings.marks and not cordoned else []
    if NodeMark.TAINT in settings.marks and _our_taint(node) is None:
        marks.append(NodeMark.TAINT)
    return RequestNote(
        request.id, request.code.value, name, digest, at, cordoned, tuple(mark.value for mark in marks)
    )


def first_patch(node: Json, note: RequestNote, settings: KubernetesTarget) -> Json:
    """Return the one write that notes the request, cordons and taints: all of it happens, or nothing."""
    spec: Json = {}
    if note.has(NodeMark.CORDON):
        spec["unschedulable"] = True
    if note.has(NodeMark.TAINT):
        spec["taints"] = [
            *_taints(node), {"key": TAINT, "value": note.code, "effect": effect_of(settings)}
        ]  # fmt: skip
    patch = _patch(node, {REQUEST_NOTE: note_text(note)}, note.code)
    return {**patch, "spec": spec} if spec else patch


def noted_patch(node: Json, note: RequestNote, marks: Collection[NodeMark]) -> tuple[Json, RequestNote]:
    """Return the write that notes further marks as set, and the note after it."""
    added = (mark.value for mark in marks if not note.has(mark))
    after = replace(note, marks=(*note.marks, *added))
    return _patch(node, {REQUEST_NOTE: note_text(after)}, note.code), after


def last_patch(node: Json, note: RequestNote) -> Json:
    """Return the write that takes back what the note says is ours."""
    spec: Json = {}
    if note.has(NodeMark.CORDON) and is_cordoned(node) and not _others_cordon(node):
        spec["unschedulable"] = None
    ours = _our_taint(node)
    if note.has(NodeMark.TAINT) and ours is not None and ours.get("value") == note.code:
        spec["taints"] = [taint for taint in _taints(node) if taint != ours]
    holds = SLOT_NOTE in notes_on(node)
    patch = _patch(node, {REQUEST_NOTE: None}, _code(slot_note(node)) if holds else None)
    return {**patch, "spec": spec} if spec else patch


def slot_patch(node: Json, note: SlotNote) -> Json:
    """Return the write that marks the node as one that holds a place."""
    return _patch(node, {SLOT_NOTE: note_text(note)}, note.code)


def no_slot_patch(node: Json) -> Json:
    """Return the write that gives the place back."""
    stands = REQUEST_NOTE in notes_on(node)
    return _patch(node, {SLOT_NOTE: None}, _code(request_note(node)) if stands else None)


def _code(note: RequestNote | SlotNote | None) -> str:
    return "unknown" if note is None else note.code


def _patch(node: Json, notes: Mapping[str, str | None], label: str | None) -> Json:
    """Return a merge patch (RFC 7386) that holds only for the node as it was read."""
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": notes, "labels": {LABEL: label}}}


def _others_cordon(node: Json) -> bool:
    """Tell whether the server says that somebody else set `unschedulable` last, or set it too."""
    owners = {
        str(entry.get("manager", ""))
        for entry in node["metadata"].get("managedFields") or ()
        if _UNSCHEDULABLE in (entry.get("fieldsV1") or {}).get("f:spec", {})
    }
    return bool(owners - {WRITER})


def condition_of(node: Json, request: DrainRequest) -> Json | None:
    """Return our condition where it stands as True for this request."""
    found = [
        one for one in node.get("status", {}).get("conditions") or () if one.get("type") == CONDITION
    ]  # fmt: skip
    ours = [one for one in found if one.get("status") == "True" and _names(one, request)]
    return ours[0] if ours else None


def ended_by_boot(node: Json, request: DrainRequest) -> bool:
    """Tell whether we said of this request that a boot had mended it: then it may be said to be bad again."""
    return any(
        one.get("type") == CONDITION and one.get("reason") == VERIFIED and _names(one, request)
        for one in node.get("status", {}).get("conditions") or ()
    )


def _names(condition: Json, request: DrainRequest) -> bool:
    return f"id={request.id}" in str(condition.get("message", "")).split()


def standing_text(node: Json, note: RequestNote) -> str:
    """Return which of our marks stand on the node, and which somebody took away."""
    gone = []
    if note.has(NodeMark.CORDON) and not is_cordoned(node):
        gone.append("the cordon")
    if note.has(NodeMark.TAINT) and _our_taint(node) is None:
        gone.append("the taint")
    marks = ", ".join(note.marks) or "nothing but the note"
    text = f"node {note.node}: {marks} set"
    if note.was_unschedulable:
        text += "; somebody else had cordoned it before, and that stays theirs"
    return text + (f"; somebody took away {' and '.join(gone)}, which stays so" if gone else "")


def boot_fault(node: Json, boot_id: str) -> str:
    """Return why this Node can't be taken for this host in this boot, "" when it can.

    The kubelet tells its boot id (NodeSystemInfo.bootID); one policy copied to many hosts must not mark
    one node for all of them.
    """
    told = node.get("status", {}).get("nodeInfo", {}).get("bootID", "")
    if told == boot_id:
        return ""
    name = node["metadata"]["name"]
    if not told:
        return f"node {name} has no boot id yet: no kubelet has told one"
    return (
        f"node {name} is of another boot than this host ({told}): its kubelet has not told the new one yet, "
        "or it is another machine's; see [cluster] node"
    )
