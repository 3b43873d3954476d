"""What a cluster says that we may do: SelfSubjectAccessReview, a question that changes nothing.

For children alone: it blocks, as long as the client's own limits let it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.host.kube_client import ClusterAccess, opened_cluster


@dataclass(frozen=True, slots=True)
class Deed:
    """One verb on one kind of thing; "" means all names, all namespaces, the core group."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Return it for people, such as `patch nodes/status`."""
        below = f"/{self.subresource}" if self.subresource else ""
        return " ".join(part for part in (self.verb, f"{self.resource}{below}", self.name) if part)


def denied(access: ClusterAccess, deeds: Sequence[Deed]) -> tuple[Deed, ...]:
    """Return those that the cluster does not permit us; raises ReclaimerdError when it can't be asked.

    Source: authorization.k8s.io/v1 SelfSubjectAccessReview, which every account may create.
    """
    with opened_cluster(access) as client:
        # Here and not above: an extra of the package, and opened_cluster says so when it is missing.
        from lightkube.models.authorization_v1 import (  # noqa: PLC0415
            ResourceAttributes,
            SelfSubjectAccessReviewSpec,
        )
        from lightkube.resources.authorization_v1 import SelfSubjectAccessReview  # noqa: PLC0415

        refused = []
        for deed in deeds:
            attributes = ResourceAttributes(
                verb=deed.verb,
                resource=deed.resource,
                group=deed.group or None,
                subresource=deed.subresource or None,
                namespace=deed.namespace or None,
                name=deed.name or None,
            )
            spec = SelfSubjectAccessReviewSpec(resourceAttributes=attributes)
            answer = client.create(SelfSubjectAccessReview(spec=spec))
            if answer.status is None or answer.status.allowed is not True:
                refused.append(deed)
    return tuple(refused)
