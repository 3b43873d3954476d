"""Bytes of the kubelet's pod-resources service, method List of v1: a request out, containers back.

Made by hand from the field numbers of `podresources/v1/api.proto` (kubernetes/kubelet): six messages,
of which we need names, devices and claims. Pure: what is not well-formed raises ValueError, unknown
fields are passed over.
"""

from collections.abc import Iterator

from reclaimerd.model.allocation import AllocatedDevice, ContainerAllocation
from reclaimerd.observe.protobuf import fields_of, message_of, text_of

LIST_METHOD = "/v1.PodResourcesLister/List"
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


def list_request() -> bytes:
    """Return ListPodResourcesRequest, which has no fields."""
    return b""


def list_response(payload: bytes) -> tuple[ContainerAllocation, ...]:
    """Return every container of ListPodResourcesResponse with all its devices. Raises ValueError."""
    pods = (message_of(message) for number, message in fields_of(payload) if number == _PODS)
    return tuple(container for pod in pods for container in _containers(pod))


def _containers(pod: bytes) -> Iterator[ContainerAllocation]:
    name = namespace = ""
    containers: list[bytes] = []
    for number, value in fields_of(pod):
        if number == _POD_NAME:
            name = text_of(value)
        elif number == _POD_NAMESPACE:
            namespace = text_of(value)
        elif number == _POD_CONTAINERS:
            containers.append(message_of(value))
    for container in containers:
        yield _container(container, namespace, name)


def _container(message: bytes, namespace: str, pod: str) -> ContainerAllocation:
    name = ""
    devices: list[AllocatedDevice] = []
    claims: list[str] = []
    for number, value in fields_of(message):
        if number == _CONTAINER_NAME:
            name = text_of(value)
        elif number == _CONTAINER_DEVICES:
            devices += _devices(message_of(value))
        elif number == _CONTAINER_CLAIMS:
            claims.append(_claim(message_of(value)))
    return ContainerAllocation(namespace, pod, name, tuple(devices), tuple(claims))


def _devices(message: bytes) -> Iterator[AllocatedDevice]:
    resource = ""
    ids: list[str] = []
    for number, value in fields_of(message):
        if number == _RESOURCE_NAME:
            resource = text_of(value)
        elif number == _DEVICE_IDS:
            ids.append(text_of(value))
    for one in ids:
        yield AllocatedDevice(resource, one)


def _claim(message: bytes) -> str:
    found = {number: text_of(value) for number, value in fields_of(message) if number in _CLAIM}
    return f"{found.get(_CLAIM_NAMESPACE, '')}/{found.get(_CLAIM_NAME, '')}"
