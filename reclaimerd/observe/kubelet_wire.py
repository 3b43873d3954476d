"""Bytes of the kubelet's pod-resources service, method List of v1: a request out, containers back.

Made by hand from the field numbers of `podresources/v1/api.proto` (kubernetes/kubelet): six messages,
of which we need names, devices and claims. No generated code, which would tie us to one protobuf
version. Pure: what is not well-formed raises ValueError, unknown fields are passed over.
"""

from collections.abc import Iterator

from reclaimerd.model.allocation import AllocatedDevice, ContainerAllocation

LIST_METHOD = "/v1.PodResourcesLister/List"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MOST_VARINT_BITS = 64
_PODS = 1
"""ListPodResourcesResponse: 1 pod_resources."""
_POD_NAME, _POD_NAMESPACE, _POD_CONTAINERS = 1, 2, 3
"""PodResources: 1 name, 2 namespace, 3 containers."""
_CONTAINER_NAME, _CONTAINER_DEVICES, _CONTAINER_CLAIMS = 1, 2, 5
"""ContainerResources: 1 name, 2 devices, 5 dynamic_resources."""
_RESOURCE_NAME, _DEVICE_IDS = 1, 2
"""ContainerDevices: 1 resource_name, 2 device_ids."""
_CLAIM_NAME, _CLAIM_NAMESPACE = 2, 3
"""DynamicResource: 2 claim_name, 3 claim_namespace; 1 is a tombstone."""
_CLAIM = frozenset({_CLAIM_NAME, _CLAIM_NAMESPACE})


def list_request(_request: object = None) -> bytes:
    """Return ListPodResourcesRequest, which has no fields."""
    return b""


def list_response(payload: bytes) -> tuple[ContainerAllocation, ...]:
    """Return every container of ListPodResourcesResponse with all its devices. Raises ValueError."""
    pods = (_of(message) for number, message in _fields(payload) if number == _PODS)
    return tuple(container for pod in pods for container in _containers(pod))


def _containers(pod: bytes) -> Iterator[ContainerAllocation]:
    name = namespace = ""
    containers: list[bytes] = []
    for number, value in _fields(pod):
        if number == _POD_NAME:
            name = _text(value)
        elif number == _POD_NAMESPACE:
            namespace = _text(value)
        elif number == _POD_CONTAINERS:
            containers.append(_of(value))
    for container in containers:
        yield _container(container, namespace, name)


def _container(message: bytes, namespace: str, pod: str) -> ContainerAllocation:
    name = ""
    devices: list[AllocatedDevice] = []
    claims: list[str] = []
    for number, value in _fields(message):
        if number == _CONTAINER_NAME:
            name = _text(value)
        elif number == _CONTAINER_DEVICES:
            devices += _devices(_of(value))
        elif number == _CONTAINER_CLAIMS:
            claims.append(_claim(_of(value)))
    return ContainerAllocation(namespace, pod, name, tuple(devices), tuple(claims))


def _devices(message: bytes) -> Iterator[AllocatedDevice]:
    resource = ""
    ids: list[str] = []
    for number, value in _fields(message):
        if number == _RESOURCE_NAME:
            resource = _text(value)
        elif number == _DEVICE_IDS:
            ids.append(_text(value))
    for one in ids:
        yield AllocatedDevice(resource, one)


def _claim(message: bytes) -> str:
    found = {number: _text(value) for number, value in _fields(message) if number in _CLAIM}
    return f"{found.get(_CLAIM_NAMESPACE, '')}/{found.get(_CLAIM_NAME, '')}"


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield each field's number and value, in the order of the wire."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value: bytes | int
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind == _BYTES:
            size, at = _varint(message, at)
            value, at = _piece(message, at, size)
        elif kind in _FIXED:
            value, at = _piece(message, at, _FIXED[kind])
        else:
            raise ValueError(f"field {number} is of wire type {kind}, which is not known")
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _MOST_VARINT_BITS:
        if at >= len(message):
            raise ValueError("the message ends in the middle of a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is longer than 64 bits")


def _piece(message: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(message):
        raise ValueError("the message ends in the middle of a field")
    return message[at : at + size], at + size


def _of(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands in the place of a message")  # noqa: TRY004  # one kind of error for the border
    return value


def _text(value: bytes | int) -> str:
    return _of(value).decode("utf-8")
