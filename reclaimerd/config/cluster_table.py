"""The form of `[cluster]` in the policy file: who is asked about the pods of which node."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, with_config

from reclaimerd.config.daemon_tables import CLOSED
from reclaimerd.config.units import BadValueError, quoted
from reclaimerd.config.value_kinds import Interval, PositiveDuration
from reclaimerd.config.values import absolute_path
from reclaimerd.model.policy import Policy

_CLUSTER = Policy().cluster
_IN_CLUSTER = "in-cluster"
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A node's name is a DNS subdomain (Kubernetes, object names)."""
_NODE_MEND = "write it as `kubectl get nodes` shows it"


def credentials_path(value: object) -> str:
    """Return "", "in-cluster", or the path of a kubeconfig from the root."""
    if value in ("", _IN_CLUSTER):
        return str(value)
    if isinstance(value, str) and not value.startswith("/"):
        raise BadValueError(
            f"{quoted(value)} names no credentials", 'write "in-cluster", or the whole path of a kubeconfig'
        )
    return absolute_path(value)


def node_name(value: object) -> str:
    """Return the name of a node; "" is the host's own."""
    if value == "":
        return ""
    if not isinstance(value, str) or _NODE.fullmatch(value) is None:
        raise BadValueError(f"{quoted(str(value))} is no node's name", _NODE_MEND)
    return value


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """`[cluster]`: who tells how each pod of this node is, its labels, and until when it may take to end."""

    credentials: Annotated[
        str,
        BeforeValidator(credentials_path),
        Field(
            description='"" asks nobody; "in-cluster" is the account of the pod that the daemon runs in; '
            "else the whole path of a kubeconfig, root's."
        ),
    ] = _CLUSTER.credentials
    node: Annotated[
        str,
        BeforeValidator(node_name),
        Field(
            description='This host\'s name in the cluster; "" is what a pod was told (RECLAIMERD_NODE_NAME), '
            "else its host name in small letters."
        ),
    ] = _CLUSTER.node
    refresh_seconds: Annotated[
        Interval, Field(alias="refresh", description="How often the list of this node's pods is read.")
    ] = _CLUSTER.refresh_seconds
    seconds: Annotated[
        PositiveDuration, Field(alias="within", description="One reading of the whole list may take so long.")
    ] = _CLUSTER.seconds
