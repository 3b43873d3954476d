"""What one value of `[drain]` and its tables may be; each takes what TOML gave and returns it typed."""

import re

from reclaimerd.config.units import BadValueError, format_duration, quoted
from reclaimerd.config.values import absolute_path_or_empty, positive_duration, shape_of
from reclaimerd.host.web_address import address_fault

MOST_CALL_SECONDS = 600.0
"""Whoever is asked beside it is not asked again before this one has answered."""
_ADDRESS_MEND = 'write the whole address, such as "https://fleet.example.org/drain"'
_TARGET_MEND = 'write the full name of a target of your own, such as "reclaimerd-drain.target"'
_TARGET = re.compile(r"[0-9A-Za-z][0-9A-Za-z:_.@\\-]{0,240}\.target")
_HOST_GOES_DOWN = frozenset(
    f"{name}.target"
    for name in (
        *("poweroff", "reboot", "halt", "kexec", "soft-reboot", "shutdown", "umount", "final", "exit"),
        *("rescue", "emergency", "initrd-switch-root", "ctrl-alt-del", "runlevel0", "runlevel1", "runlevel6"),
        *("sleep", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "factory-reset"),
    )
)
"""systemd.special(7): a start of one of these ends all work here at once, which a drain must not."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS label (Kubernetes, object names)."""
_SLURM_NODE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,252}")
"""One node: brackets, commas and ALL would name several."""


def call_limit(value: object) -> float:
    """Return seconds that one call may take, at most ten minutes."""
    seconds = positive_duration(value)
    if seconds > MOST_CALL_SECONDS:
        most = format_duration(MOST_CALL_SECONDS)
        raise BadValueError(f"{quoted(value)} is longer than {most}", f"give it at most {most}")
    return seconds


def web_address(value: object) -> str:
    """Return an address whose host can be asked; without TLS only by `plain_http`."""
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of an address", _ADDRESS_MEND)
    fault = address_fault(value)
    if fault:  # the address itself is not repeated: a secret may stand in it
        raise BadValueError(f"the address can't be used: {fault}", _ADDRESS_MEND)
    return value


def drain_target(value: object) -> str:
    """Return the name of a systemd target that takes the host nowhere by itself."""
    if not isinstance(value, str) or not _TARGET.fullmatch(value):
        raise BadValueError(f"{shape_of(value)} is no name of a target", _TARGET_MEND)
    if value in _HOST_GOES_DOWN:
        raise BadValueError(f"{quoted(value)} ends all work on this host at once", _TARGET_MEND)
    return value


def program_path(value: object) -> str:
    """Return the whole path of a program; it can't be left empty."""
    path = absolute_path_or_empty(value)
    if not path:
        raise BadValueError("it names no program", 'write its whole path, such as "/usr/local/sbin/drain"')
    return path


def namespace(value: object) -> str:
    """Return the name of a namespace of Kubernetes."""
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value):
        raise BadValueError(f"{shape_of(value)} is no namespace's name", "write it as `kubectl get ns` does")
    return value


def slurm_node(value: object) -> str:
    """Return the name of one node of Slurm; "" is the host's own."""
    if value == "":
        return ""
    if not isinstance(value, str) or not _SLURM_NODE.fullmatch(value) or value.upper() == "ALL":
        raise BadValueError(f"{shape_of(value)} is no name of one node", "write it as `sinfo -N` shows it")
    return value
