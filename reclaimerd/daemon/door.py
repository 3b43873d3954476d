"""The control socket: who may connect to it at all, and what each caller may do there.

The file's mode keeps out whoever has no right, by one owning group and an access control list for the
other groups; who comes through is judged by the kernel's word on the peer, call by call.
"""

import asyncio
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.daemon.access import Rights, caller_of
from reclaimerd.daemon.api import Api
from reclaimerd.daemon.groups import group_id, missing_groups, read_rights
from reclaimerd.daemon.http_server import Answer, Call, HttpServer, listen
from reclaimerd.daemon.limits import Limits
from reclaimerd.daemon.notify import given_listener
from reclaimerd.daemon.service import Service
from reclaimerd.model.policy import AccessSettings
from reclaimerd.record import logs

_ACL = "system.posix_acl_access"
_USER_OBJ, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x04, 0x08, 0x10, 0x20
"""Tags of an entry (linux/posix_acl.h); its form is in linux/posix_acl_xattr.h."""
_NO_ID = 0xFFFFFFFF
_READ_WRITE = 6


@dataclass(slots=True)
class Door:
    """The open socket, and the rights of the policy in force."""

    service: Service
    rights: Rights = field(default_factory=Rights)
    _server: HttpServer | None = None
    _given: bool = False
    """The service manager made the socket, and keeps it beyond our end."""

    async def open(self, api: Api) -> None:
        """Listen, first for root alone and then for whom the policy names."""
        limits = Limits(self.service.cycle.joints.clock, lambda: self.rights.groups)
        server = HttpServer(lambda call: self._answer(api, call), limits)
        path = self.service.engine.paths.socket
        given = given_listener(path)
        await server.start(listen(path, 0o600, None) if given is None else given)
        self._given = given is not None
        self._server = server
        await self.open_to(self.service.cycle.policy.access)

    async def open_to(self, access: AccessSettings) -> None:
        """Let in whom these settings name, from the next call on; groups are looked up in a thread."""
        self.rights = await asyncio.to_thread(read_rights, access)
        for name in await asyncio.to_thread(missing_groups, access):
            logs.warning("group_missing", group=name, effect="nobody has a right by it")
        if self._server is not None:
            try:
                await asyncio.to_thread(set_modes, self.service.engine.paths.socket, access, self.rights)
            except OSError as error:
                logs.error("socket_rights_not_set", error=str(error), effect="groups may be kept out")

    async def close(self) -> None:
        """Stop serving, and take the socket away unless the service manager keeps it."""
        if self._server is not None:
            await self._server.close()
            if not self._given:
                with suppress(OSError):
                    self.service.engine.paths.socket.unlink()

    async def _answer(self, api: Api, call: Call) -> Answer:
        return await api.answer(call, await caller_of(call.peer, self.service.engine.door, self.rights))


def set_modes(path: Path, access: AccessSettings, rights: Rights) -> None:
    """Give the socket its group, its mode, and an entry for each other group. Raises OSError."""
    gid = group_id(access.group)
    if os.geteuid() == 0:
        os.chown(path, 0, 0 if gid is None else gid)
    with suppress(OSError):  # there was none, or this file system knows none
        os.removexattr(path, _ACL)
    path.chmod(0o666 if access.owner_access else 0o660)
    others = rights.groups - {gid}
    if others and not access.owner_access:
        os.setxattr(path, _ACL, access_list(others))


def access_list(gids: Iterable[int]) -> bytes:
    """Return a list by which owner, owning group and these groups read and write, and nobody else."""
    rows = [(_USER_OBJ, _READ_WRITE, _NO_ID), (_GROUP_OBJ, _READ_WRITE, _NO_ID)]
    rows += [(_GROUP, _READ_WRITE, gid) for gid in sorted(gids)]
    rows += [(_MASK, _READ_WRITE, _NO_ID), (_OTHER, 0, _NO_ID)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
