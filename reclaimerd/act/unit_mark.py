"""The note of ours that a systemd unit was started for a drain request: systemd itself keeps no such thing.

Without it a target that somebody else started would be stopped when our request is taken back. It is good
for the boot in which it was written: no unit outlives that.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.files import opened_directory, read_bounded

_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Mark:
    """Which unit was started, for which request."""

    unit: str
    request: str


@dataclass(frozen=True, slots=True)
class UnitMark:
    """One file below the state directory; `write` makes it durable, off the loop."""

    path: Path
    boot_id: str
    write: Callable[[Path, bytes], Awaitable[None]]

    async def read(self) -> Mark | None:
        """Return the note of this boot, None where there is none. Raises OSError."""
        return await asyncio.to_thread(self._read)

    async def set(self, mark: Mark) -> None:
        """Write the note, durably. Raises OSError or ReclaimerdError."""
        content = {"unit": mark.unit, "request": mark.request, "boot": self.boot_id}
        await self.write(self.path, (json.dumps(content) + "\n").encode())

    async def clear(self) -> None:
        """Take the note away, durably. Raises OSError."""
        await asyncio.to_thread(self._remove)

    def _read(self) -> Mark | None:
        try:
            with opened_directory(self.path.parent) as directory:
                content = json.loads(read_bounded(directory, self.path.name, _MOST_BYTES))
        except (FileNotFoundError, ValueError):
            return None
        match content:
            case {"unit": str(unit), "request": str(request), "boot": self.boot_id}:
                return Mark(unit, request)
            case _:
                return None

    def _remove(self) -> None:
        try:
            with opened_directory(self.path.parent) as directory:
                os.unlink(self.path.name, dir_fd=directory)
                os.fsync(directory)
        except FileNotFoundError:
            return
