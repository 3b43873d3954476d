"""The bytes of pod-resources v1: what a kubelet sends is read whole, and nothing that is cut is guessed."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies

from reclaimerd.model.allocation import AllocatedDevice, ContainerAllocation
from reclaimerd.observe.kubelet_wire import list_request, list_response
from tests.rigs.kubelet import encoded

POD = {
    "name": "train-0",
    "namespace": "team",
    "containers": [
        {"name": "main", "devices": [("nvidia.com/gpu", ["GPU-1", "GPU-2"])], "claims": []},
        {"name": "bare", "devices": [], "claims": [("team", "gpus"), ("team", "more")]},
    ],
}
MAIN = ContainerAllocation(
    "team",
    "train-0",
    "main",
    (AllocatedDevice("nvidia.com/gpu", "GPU-1"), AllocatedDevice("nvidia.com/gpu", "GPU-2")),
)
BARE = ContainerAllocation("team", "train-0", "bare", (), ("team/gpus", "team/more"))


def test_a_list_is_read_whole() -> None:
    """Every container with its devices and claims; fields that are newer than we are passed over."""
    assert list_response(encoded([POD])) == (MAIN, BARE)


def test_a_request_and_an_empty_answer_have_no_bytes() -> None:
    """As proto3 has it for messages without fields."""
    assert list_request() == b""
    assert list_response(b"") == ()


def test_names_may_stand_behind_what_they_name() -> None:
    """The order of fields is free: a pod's name after its containers is still theirs."""
    container = b"\x1a\x06\x0a\x04main"
    assert list_response(b"\x0a" + bytes([len(container) + 5]) + container + b"\x0a\x03pod") == (
        ContainerAllocation("", "pod", "main"),
    )


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"\x0a\x7f", "middle of a field"),
        (b"\x0a", "middle of a number"),
        (b"\x00\x00", "number 0"),
        (b"\x0b", "wire type 3"),
        (b"\x08\x01", "place of a message"),
        (b"\xff" * 10 + b"\x01", "longer than 64 bits"),
        (b"\x0a\x03\x0a\x01\xff", "utf-8"),
        (b"\x09\x01", "middle of a field"),
    ],
)
def test_what_is_not_well_formed_is_refused(payload: bytes, what: str) -> None:
    """Cut, of an old wire type, of the wrong kind, or no text: one ValueError that says it."""
    with pytest.raises(ValueError, match=what):
        list_response(payload)


@given(strategies.binary(max_size=200))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    """Whatever comes over the socket, it is a list or a ValueError."""
    with suppress(ValueError):
        list_response(payload)


@given(strategies.integers(0, 200))
def test_a_cut_list_is_never_a_whole_one(cut: int) -> None:
    """No cut of a list names more than the list, or one of its containers with fewer devices."""
    payload = encoded([POD])
    try:
        found = list_response(payload[: min(cut, len(payload))])
    except ValueError:
        return
    assert found in ((), (MAIN, BARE))
