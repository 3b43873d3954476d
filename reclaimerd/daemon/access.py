"""Who calls, and what they may do: by the kernel's word on the peer alone, never by what it says.

A caller in another PID or user namespace, or in a container's cgroup, has no role, whatever its uid: a
container's root with /run mounted shows uid 0. Which group means what is looked up by `daemon.groups`.
"""

import errno
import os
import select
import socket
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path

from reclaimerd.model.incident import Actor, ActorKind, ActorRole
from reclaimerd.observe.probe import Answered, Probe

SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)
"""include/uapi/asm-generic/socket.h; Python 3.11 does not name it."""
SO_PEERPIDFD = getattr(socket, "SO_PEERPIDFD", 77)
"""The same, since Linux 6.5."""
_MOST_GROUPS = 256
"""Python's getsockopt returns 1024 bytes at most; who is in more groups than that counts by its gid alone."""


class Role(IntEnum):
    """What a caller may do; each includes the one before."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """Return it as answers and pages write it."""
        return self.name.lower()


_RIGHT_OF = {Role.OPERATOR: ActorRole.OPERATOR, Role.ADMIN: ActorRole.ADMIN}


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of the control socket, as it was when it connected.

    `pidfd` is None where the kernel has none to give; who made the peer closes it. `gone`: it had ended
    before we asked for one, so its pid may be anybody's.
    """

    pid: int
    uid: int
    groups: frozenset[int]
    pidfd: int | None = field(default=None, compare=False)
    gone: bool = field(default=False, compare=False)

    def close(self) -> None:
        """Let go of the pidfd."""
        if self.pidfd is not None:
            os.close(self.pidfd)


@dataclass(frozen=True, slots=True)
class Rights:
    """Which groups have which role, by gid, and whether everybody may ask for their own processes."""

    viewers: frozenset[int] = frozenset()
    operators: frozenset[int] = frozenset()
    admins: frozenset[int] = frozenset()
    owner_access: bool = False

    @property
    def groups(self) -> frozenset[int]:
        """Return every group that has a role."""
        return self.viewers | self.operators | self.admins


@dataclass(frozen=True, slots=True)
class Caller:
    """A peer with its role and, where it has none, why; an owner may order a kill of their own processes.

    `unknown`: it can't be told at the moment (the worker that reads it is being replaced), so no role holds.
    """

    role: Role
    actor: Actor
    why: str = ""
    may_own: bool = False
    unknown: bool = False

    def as_owner(self) -> "Caller":
        """Return the same caller, who asks by the right of an owner and by no other."""
        return replace(self, actor=replace(self.actor, role=ActorRole.OWNER))


def read_peer(connection: socket.socket) -> Peer:
    """Return the peer's pid, uid and all its groups (unix(7), SO_PEERCRED and SO_PEERGROUPS)."""
    size = struct.calcsize("3i")
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        raw = b""
    groups = struct.unpack(f"{len(raw) // 4}I", raw)
    pidfd, gone = _pidfd_of(connection, pid)
    return Peer(pid, uid & 0xFFFFFFFF, frozenset((gid, *groups)), pidfd, gone)


def _pidfd_of(connection: socket.socket, pid: int) -> tuple[int | None, bool]:
    """Return a pidfd of the peer, and whether it has ended already."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD), False
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):  # pidfd_prepare (kernel/fork.c): it was reaped
            return None, True
    try:  # Before Linux 6.5: by its number, which is held from here on.
        return os.pidfd_open(pid), False
    except OSError as error:
        return None, error.errno == errno.ESRCH


async def caller_of(peer: Peer, procfs: Probe, rights: Rights) -> Caller:
    """Return what the peer may do, where it is on the host itself and still lives."""
    answer = await procfs.ask("peer", {"pid": peer.pid})
    part = answer.parts[0] if isinstance(answer, Answered) else {}
    role = role_of(peer, rights)
    actor = _actor_of(peer, part, role)
    if _has_ended(peer):  # its pid may be another's by now, and so may be what was read
        return Caller(Role.NONE, actor, "the process that connected has ended")
    if "stranger" not in part:
        return Caller(Role.NONE, actor, "where you come from could not be read", unknown=True)
    if part["stranger"]:
        return Caller(Role.NONE, actor, f"you are not on the host itself: {part['stranger']}")
    why = "" if role is not Role.NONE else "you are neither root nor a member of a group that may"
    return Caller(role, actor, why, may_own=rights.owner_access)


def role_of(peer: Peer, rights: Rights) -> Role:
    """Return the highest role that uid and groups give: root (or our own uid) is an administrator."""
    if peer.uid in (0, os.geteuid()):
        return Role.ADMIN
    by_group = (
        (Role.ADMIN, rights.admins),
        (Role.OPERATOR, rights.operators),
        (Role.VIEWER, rights.viewers),
    )
    return next((role for role, gids in by_group if gids & peer.groups), Role.NONE)


def _actor_of(peer: Peer, part: dict[str, object], role: Role) -> Actor:
    loginuid, comm = part.get("loginuid"), part.get("comm")
    login = loginuid if isinstance(loginuid, int) else None
    return Actor(
        ActorKind.OPERATOR,
        local_user_name(peer.uid),
        uid=peer.uid,
        loginuid=login,
        pid=peer.pid,
        comm=comm if isinstance(comm, str) else "",
        login=login_name(peer.uid, login),
        role=_RIGHT_OF.get(role),
    )


def _has_ended(peer: Peer) -> bool:
    """Tell whether the process that connected is gone; False where the kernel can't tell."""
    if peer.gone or peer.pidfd is None:
        return peer.gone
    poller = select.poll()  # select() itself takes no descriptor from 1,024 on
    poller.register(peer.pidfd, select.POLLIN)
    return bool(poller.poll(0))


def login_name(uid: int, loginuid: int | None) -> str:
    """Return the name of who logged in, where that is another than who acts (sudo, su); else ""."""
    return "" if loginuid is None or loginuid == uid else local_user_name(loginuid)


def local_user_name(uid: int) -> str:
    """Return the uid's name in /etc/passwd, else `uid N`: name services may hang, a file does not."""
    try:
        lines = Path("/etc/passwd").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    fields = (line.split(":") for line in lines)
    return next((words[0] for words in fields if words[2:3] == [str(uid)]), f"uid {uid}")
