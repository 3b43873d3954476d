"""Ask for a drain by leaving one file per request; agents of this host that move work away watch for it.

It may not drain, cordon, or call anything. Taken back, the file is removed.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.act.drain_body import request_bytes
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.drain_ports import Asked, NotAsked, TargetAnswer

_FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class DrainFile:
    """Drain requests as JSON files in one directory; `write` makes a file durable, off the loop."""

    directory: Path
    write: Callable[[Path, bytes], Awaitable[None]]
    earlier: Callable[[], str] = field(default=str, compare=False)
    """Tells in which directory the request stands, which the policy may have changed since; "" for none."""
    name: str = "file"

    async def request(self, request: DrainRequest) -> TargetAnswer:
        """Leave the request once; a file of this request that stands already is enough."""
        if not _FILE_NAME.fullmatch(request.id):
            return NotAsked(f"request {request.id!r} can't name a file", lasting=True)
        path = self._path(request)
        try:
            standing = await asyncio.to_thread(_request_in, self.directory, path.name)
            if standing is None:
                await self.write(path, request_bytes(request))
        except (OSError, ReclaimerdError) as error:
            return NotAsked(f"the drain request could not be written to {path}: {error}")
        if standing not in (None, request.id):
            return self._standing(standing, request)
        if fault := await self._leave_earlier(path.name, request):
            return fault
        if standing is None:
            return Asked(f"drain request written to {path}", str(self.directory))
        return self._standing(standing, request)

    async def withdraw(self, request: DrainRequest) -> TargetAnswer:
        """Remove the request's own file, and no other."""
        path = self._path(request)
        if fault := await self._leave_earlier(path.name, request):
            return fault
        try:
            standing = await asyncio.to_thread(_take_away, self.directory, path.name, request.id)
        except OSError as error:
            return NotAsked(f"{path} could not be removed: {error}")
        if standing is None:
            return Asked(f"{path} is not there (any more)")
        return Asked(f"{path} removed") if standing == request.id else self._standing(standing, request)

    async def status(self, request: DrainRequest) -> TargetAnswer:
        """Return whether the request's file is there."""
        path = self._path(request)
        try:
            standing = await asyncio.to_thread(_request_in, self.directory, path.name)
        except OSError as error:
            return NotAsked(f"{path} can't be read: {error}")
        return NotAsked(f"{path} is not there") if standing is None else self._standing(standing, request)

    def plan(self, request: DrainRequest) -> str:
        """Return the file that would be written."""
        return f"{self._path(request)}:\n{request_bytes(request).decode()}"

    async def _leave_earlier(self, name: str, request: DrainRequest) -> NotAsked | None:
        """Remove the request's own file from a directory that the policy has no more; return why not."""
        earlier = self.earlier()
        if earlier in ("", str(self.directory)):
            return None
        try:
            await asyncio.to_thread(_take_away, Path(earlier), name, request.id)
        except OSError as error:
            return NotAsked(f"{earlier}/{name}, of an earlier policy, could not be removed: {error}")
        return None

    def _path(self, request: DrainRequest) -> Path:
        return self.directory / f"{request.id}.json"

    def _standing(self, standing: str, request: DrainRequest) -> TargetAnswer:
        path = self._path(request)
        if standing == request.id:
            return Asked(f"drain request stands in {path}", str(self.directory))
        return NotAsked(f"{path} is not this request's; move it away", lasting=True)


def _take_away(directory: Path, name: str, own: str) -> str | None:
    """Remove the file where it is this request's; return whose it was, as `_request_in`. Raises OSError."""
    standing = _request_in(directory, name)
    if standing == own:
        _remove(directory, name)
    return standing


def _remove(directory: Path, name: str) -> None:
    """Remove a file below the directory, durably; never through a link. Raises OSError."""
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.unlink(name, dir_fd=directory_fd)
        os.fsync(directory_fd)
    finally:
        os.close(directory_fd)


def _request_in(directory: Path, name: str) -> str | None:
    """Return the request that stands in the file, "" for anything else, None for no file.

    Opened below the directory and never through a link. Raises OSError.
    """
    try:
        directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        file_fd = os.open(
            name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd
        )
    except FileNotFoundError:
        return None
    finally:
        os.close(directory_fd)
    with os.fdopen(file_fd, "rb") as stream:
        if not stat.S_ISREG(os.fstat(file_fd).st_mode):
            return ""
        return _id_of(stream.read(_MAX_BYTES))


def _id_of(content: bytes) -> str:
    """Return the request that a file's bytes name, or ""."""
    try:
        request = json.loads(content)
    except ValueError:
        return ""
    found = request.get("incident") if isinstance(request, dict) else None
    return found if isinstance(found, str) else ""
