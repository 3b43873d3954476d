"""Who calls, and what they may do: by the kernel's word on the peer alone, never by what it says.

A caller in another PID or user namespace, or in a container's cgroup, has no role, whatever its uid: a
container's root with /run mounted shows uid 0.
"""

import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from reclaimerd.model.incident import Actor, ActorKind
from reclaimerd.observe.probe import Answered, Probe

SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)
"""include/uapi/asm-generic/socket.h; Python 3.11 does not name it."""
_MOST_GROUPS = 256
"""Python's getsockopt returns 1024 bytes at most; who is in more groups than that counts by its gid alone."""


class Role(IntEnum):
    """What a caller may do; each includes the one before."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of the control socket, as it was when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class Caller:
    """A peer with its role and, where it has none, why."""

    role: Role
    actor: Actor
    why: str = ""


def read_peer(connection: socket.socket) -> Peer:
    """Return the peer's pid, uid and all its groups (unix(7), SO_PEERCRED and SO_PEERGROUPS)."""
    size = struct.calcsize("3i")
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        raw = b""
    groups = struct.unpack(f"{len(raw) // 4}I", raw)
    return Peer(pid, uid, frozenset((gid, *groups)))


async def caller_of(peer: Peer, procfs: Probe, group: int | None) -> Caller:
    """Return what the peer may do: root (or our own uid) acts, the group reads, nobody else anything."""
    answer = await procfs.ask("peer", {"pid": peer.pid})
    part = answer.parts[0] if isinstance(answer, Answered) else {}
    loginuid = part.get("loginuid")
    actor = Actor(
        ActorKind.OPERATOR,
        local_user_name(peer.uid),
        uid=peer.uid,
        loginuid=loginuid if isinstance(loginuid, int) else None,
        pid=peer.pid,
    )
    if "stranger" not in part:
        return Caller(Role.NONE, actor, "where you come from could not be read")
    if part["stranger"]:
        return Caller(Role.NONE, actor, f"you are not on the host itself: {part['stranger']}")
    if peer.uid in (0, os.geteuid()):
        return Caller(Role.OPERATOR, actor)
    if group is not None and group in peer.groups:
        return Caller(Role.VIEWER, actor)
    return Caller(Role.NONE, actor, "you are neither root nor a member of the group")


def local_user_name(uid: int) -> str:
    """Return the uid's name in /etc/passwd, else `uid N`: name services may hang, a file does not."""
    try:
        lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = (line.split(":") for line in lines)
    return next((words[0] for words in fields if words[2:3] == [str(uid)]), f"uid {uid}")
