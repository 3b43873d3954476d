"""One reading at a time in a thread of its own, given up after a while: its file may be on a disk that hangs.

For the procfs worker: a container's record must not keep it from looking at processes. A thread that
hangs is left alone, and no further one is started until it comes back. Nothing is read here.
"""

from collections.abc import Callable
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class SideThread:
    """Runs readings that may hang on a disk; for one thread of callers."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread: Thread | None = None

    def call(self, read: Callable[[], T], seconds: float) -> T | None:
        """Return what `read` returns; None when it takes longer, or an earlier one has not come back."""
        if self._thread is not None and self._thread.is_alive():
            return None
        found: list[T] = []
        self._thread = Thread(target=lambda: found.append(read()), daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        return found[0] if found else None
