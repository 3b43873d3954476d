"""What the cluster calls this host. It asks nobody, and says nothing about whether the name is one."""

import os
import socket

NODE_VARIABLE = "RECLAIMERD_NODE_NAME"
"""A pod is told its node's name there, and no file that all nodes share could (the downward API)."""


def node_name(given: str) -> str:
    """Return the given name, else the one that the pod was told, else as the kubelet makes it of the host."""
    return given or os.environ.get(NODE_VARIABLE, "") or socket.gethostname().strip().lower()
