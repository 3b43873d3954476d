"""Bytes of a container runtime's CRI, ListContainers and ListPodSandbox of v1: a filter out, rows back.

Made by hand from the field numbers of `runtime/v1/api.proto` (kubernetes/cri-api), as the kubelet's list
is. Pure: what is not well-formed raises ReclaimerdError, unknown fields are passed over.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from reclaimerd.errors import ReclaimerdError
from reclaimerd.observe.protobuf import field, fields_of, message_of, text_of

CONTAINERS_METHOD = "/runtime.v1.RuntimeService/ListContainers"
SANDBOXES_METHOD = "/runtime.v1.RuntimeService/ListPodSandbox"
_FILTER, _FILTER_ID = 1, 1
"""ListContainersRequest and ListPodSandboxRequest: 1 filter. ContainerFilter and PodSandboxFilter: 1 id."""
_ROWS = 1
"""ListContainersResponse: 1 containers. ListPodSandboxResponse: 1 items."""
_ID = 1
_CONTAINER_SANDBOX, _CONTAINER_METADATA, _CONTAINER_LABELS = 2, 3, 8
"""Container: 1 id, 2 pod_sandbox_id, 3 metadata, 8 labels."""
_SANDBOX_METADATA, _SANDBOX_LABELS, _SANDBOX_ANNOTATIONS = 2, 5, 6
"""PodSandbox: 1 id, 2 metadata, 5 labels, 6 annotations."""
_NAME, _UID, _NAMESPACE = 1, 2, 3
"""ContainerMetadata: 1 name, 2 attempt (a number). PodSandboxMetadata: 1 name, 2 uid, 3 namespace."""
_KEY, _VALUE = 1, 2
"""An entry of a map: 1 key, 2 value."""


@dataclass(frozen=True, slots=True)
class CriContainer:
    """One container as its runtime lists it; "" is what it does not say."""

    id: str
    sandbox_id: str
    name: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class CriSandbox:
    """One pod's sandbox as its runtime lists it, with what the kubelet told of the pod when it was made."""

    id: str
    name: str
    uid: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]


def request_for(row_id: str) -> bytes:
    """Return ListContainersRequest or ListPodSandboxRequest for one id: their bytes are the same."""
    return field(_FILTER, field(_FILTER_ID, row_id.encode()))


def containers_of(payload: bytes) -> tuple[CriContainer, ...]:
    """Return the containers of ListContainersResponse. Raises ReclaimerdError."""
    try:
        return tuple(map(_container, _rows(payload)))
    except ValueError as error:
        raise ReclaimerdError(f"a container runtime's list of containers can't be read: {error}") from None


def sandboxes_of(payload: bytes) -> tuple[CriSandbox, ...]:
    """Return the sandboxes of ListPodSandboxResponse. Raises ReclaimerdError."""
    try:
        return tuple(map(_sandbox, _rows(payload)))
    except ValueError as error:
        raise ReclaimerdError(f"a container runtime's list of pods can't be read: {error}") from None


def _rows(payload: bytes) -> Iterator[bytes]:
    return (message_of(message) for number, message in fields_of(payload) if number == _ROWS)


def _container(message: bytes) -> CriContainer:
    row_id = sandbox = name = ""
    labels: dict[str, str] = {}
    for number, value in fields_of(message):
        if number == _ID:
            row_id = text_of(value)
        elif number == _CONTAINER_SANDBOX:
            sandbox = text_of(value)
        elif number == _CONTAINER_METADATA:
            name = _texts(message_of(value), _NAME).get(_NAME, "")
        elif number == _CONTAINER_LABELS:
            labels |= _entry(message_of(value))
    return CriContainer(row_id, sandbox, name, labels)


def _sandbox(message: bytes) -> CriSandbox:
    row_id = ""
    told: dict[int, str] = {}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for number, value in fields_of(message):
        if number == _ID:
            row_id = text_of(value)
        elif number == _SANDBOX_METADATA:
            told = _texts(message_of(value), _NAME, _UID, _NAMESPACE)
        elif number == _SANDBOX_LABELS:
            labels |= _entry(message_of(value))
        elif number == _SANDBOX_ANNOTATIONS:
            annotations |= _entry(message_of(value))
    name, uid, namespace = (told.get(number, "") for number in (_NAME, _UID, _NAMESPACE))
    return CriSandbox(row_id, name, uid, namespace, labels, annotations)


def _entry(message: bytes) -> dict[str, str]:
    found = _texts(message, _KEY, _VALUE)
    return {found.get(_KEY, ""): found.get(_VALUE, "")}


def _texts(message: bytes, *numbers: int) -> dict[int, str]:
    """Return these fields of a message, all of them texts."""
    return {number: text_of(value) for number, value in fields_of(message) if number in numbers}
