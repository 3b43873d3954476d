"""The bytes of CRI v1: what a runtime sends is read whole, and nothing that is cut is guessed."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, strategies

from reclaimerd.errors import ReclaimerdError
from reclaimerd.observe.cri_wire import CriContainer, CriSandbox, containers_of, request_for, sandboxes_of
from tests.rigs.cri import SANDBOX, Served, container, kubelets_labels, sandbox
from tests.rigs.proto_text import message

CID = "c1d" * 21 + "0"
ROW: dict[str, Any] = asdict(
    Served(CID, "u1", labels={"app": "llm", "empty": ""}, annotations={"reclaimerd.io/spare": "yes"})
)
CONTAINER = message(1, container(ROW))
POD = message(1, sandbox(ROW))


def test_a_container_is_read() -> None:
    """Its id, its sandbox, its name and its labels; fields that are newer than we are are passed over."""
    labels = kubelets_labels(ROW, "u1") | {"io.kubernetes.container.name": "main"}
    assert containers_of(CONTAINER * 2) == (CriContainer(CID, SANDBOX, "main", labels),) * 2


def test_a_sandbox_is_read() -> None:
    """Names and uid of the metadata, each label (an empty value too) and each annotation."""
    labels = {"app": "llm", "empty": ""} | kubelets_labels(ROW, "u1")
    assert sandboxes_of(POD) == (
        CriSandbox(SANDBOX, "train-0", "u1", "team", labels, {"reclaimerd.io/spare": "yes"}),
    )


def test_empty_answers_have_no_rows() -> None:
    """As proto3 has it: no bytes, no rows; a row without fields is one that says nothing."""
    assert containers_of(b"") == ()
    assert sandboxes_of(b"") == ()
    assert containers_of(b"\x0a\x00") == (CriContainer("", "", "", {}),)
    assert sandboxes_of(b"\x0a\x02\x2a\x00") == (CriSandbox("", "", "", "", {"": ""}, {}),)


def test_a_request_has_the_id_in_its_filter() -> None:
    """Field 1 of field 1; an id of more than 127 bytes has a length of two bytes."""
    assert request_for("abc") == b"\x0a\x05\x0a\x03abc"
    assert request_for("a" * 300) == b"\x0a\xaf\x02\x0a\xac\x02" + b"a" * 300


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"\x0a\x7f", "middle of a field"),
        (b"\x08\x01", "place of a message"),
        (b"\x0a\x02\x08\x01", "place of a message"),
        (b"\x0a\x03\x0a\x01\xff", "utf-8"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_what_is_not_well_formed_is_refused(payload: bytes, what: str) -> None:
    """Cut, of the wrong kind, or no text: one error that says whose answer it was."""
    with pytest.raises(ReclaimerdError, match=rf"list of containers can't be read: .*{what}"):
        containers_of(payload)
    with pytest.raises(ReclaimerdError, match=rf"list of pods can't be read: .*{what}"):
        sandboxes_of(payload)


@given(strategies.binary(max_size=300))
def test_no_bytes_raise_anything_else(payload: bytes) -> None:
    """Whatever comes over the socket, it is rows or a ReclaimerdError."""
    for wrapped in (payload, message(1, payload), message(1, message(5, payload))):
        for read in (containers_of, sandboxes_of):
            with suppress(ReclaimerdError):
                read(wrapped)


@given(strategies.integers(0, len(POD) - 1))
def test_a_cut_answer_is_none(cut: int) -> None:
    """No cut of a pod is read as a pod with fewer labels."""
    if cut == 0:
        assert sandboxes_of(b"") == ()
        return
    with pytest.raises(ReclaimerdError):
        sandboxes_of(POD[:cut])
