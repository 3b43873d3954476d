"""A file that only takes up room, so that an operator's acts stay on record when the disk is full.

It promises nothing: whoever else writes to the same disk may take the room that was freed.
"""

import os
from contextlib import suppress
from pathlib import Path

from reclaimerd.host.files import open_below, opened_directory

RESERVE_NAME = "audit.reserve"
_TRY_AGAIN_SECONDS = 60.0
_ROOM_FACTOR = 4
"""The reserve is made again only when this many times its size is free: never what filled the disk."""


class Reserve:
    """The reserve of one directory; no reserve (no room, no support) is no error."""

    __slots__ = ("_bytes", "_directory", "_made", "_spent", "_tried_at")

    def __init__(self, directory: Path, size_bytes: int) -> None:
        self._directory = directory
        self._bytes = size_bytes
        self._made = False
        self._spent = False
        self._tried_at = float("-inf")

    def make(self) -> None:
        """Allocate the file, or leave none at all."""
        with suppress(OSError), opened_directory(self._directory) as folder:
            descriptor = open_below(folder, RESERVE_NAME, os.O_WRONLY | os.O_CREAT)
            try:
                os.posix_fallocate(descriptor, 0, self._bytes)
                self._made, self._spent = True, False
            except OSError:
                os.unlink(RESERVE_NAME, dir_fd=folder)
            finally:
                os.close(descriptor)

    def spend(self) -> bool:
        """Free the room; tell whether there was any."""
        if not self._made:
            return False
        self._made, self._spent = False, True
        try:
            (self._directory / RESERVE_NAME).unlink()
        except OSError:
            return False
        return True

    def is_spent(self, mono: float) -> bool:
        """Tell whether the room was given up and can't be had again yet."""
        self.restore(mono)
        return self._spent

    def restore(self, mono: float) -> None:
        """Allocate it again when it was spent and the disk has ample room; at most once a minute."""
        if self._made or mono - self._tried_at < _TRY_AGAIN_SECONDS:
            return
        self._tried_at = mono
        with suppress(OSError):
            disk = os.statvfs(self._directory)
            if disk.f_bavail * disk.f_frsize >= _ROOM_FACTOR * self._bytes:
                self.make()
