"""Know when a process's last thread is gone, by its pidfd; never by asking whether a pid exists.

A pidfd becomes readable only when the last thread is gone, and also for a dead process that nobody
has reaped (measured on Linux 6.18). Opening and polling one reads nothing of the other process.
"""

import asyncio
import os
import resource
import select
from collections.abc import Callable, Iterable
from itertools import islice

from reclaimerd.model.identity import ProcessRef

MOST_PIDFDS = 4096


def _most_pidfds() -> int:
    """Return half of what we may open: whoever forks with a node open must not use up our descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_PIDFDS if soft == resource.RLIM_INFINITY else min(MOST_PIDFDS, soft // 2)


class ExitWatch:
    """Pidfds of the processes that matter, and a call when one of them is gone.

    A pid may have been given to a stranger between its first look and our open. Then a readable
    pidfd still means that ours is gone; an unreadable one says nothing, and the next look, which
    compares start ticks, decides.
    """

    __slots__ = ("_fds", "_gone", "_loop", "_most", "_on_exit")

    def __init__(self, on_exit: Callable[[ProcessRef], None] | None = None) -> None:
        self._fds: dict[ProcessRef, int] = {}
        self._gone: set[ProcessRef] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_exit = on_exit
        self._most = _most_pidfds()

    @property
    def count(self) -> int:
        """Return how many pidfds are open."""
        return len(self._fds)

    def watch(self, refs: Iterable[ProcessRef]) -> None:
        """Open a pidfd for each process that has none yet, as many as we may; the first named come first.

        The end of all others is for the looks to see.
        """
        wanted = dict.fromkeys(islice(dict.fromkeys(refs), self._most))
        for ref in wanted:
            if ref in self._fds or ref in self._gone:
                continue
            if len(self._fds) >= self._most:
                self._close(next(other for other in self._fds if other not in wanted))
            try:
                descriptor = os.pidfd_open(ref.pid)
            except ProcessLookupError:
                self._gone.add(ref)
                continue
            except OSError:
                continue
            self._fds[ref] = descriptor
            self._listen(ref, descriptor)

    def forget_others(self, refs: Iterable[ProcessRef]) -> None:
        """Close the pidfds of all processes but these."""
        kept = set(refs)
        for ref in [ref for ref in self._fds if ref not in kept]:
            self._close(ref)
        self._gone &= kept

    def gone(self) -> frozenset[ProcessRef]:
        """Return the watched processes whose last thread is gone."""
        poller = select.poll()
        by_fd = {descriptor: ref for ref, descriptor in self._fds.items()}
        for descriptor in by_fd:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(0):
            self._gone.add(by_fd[descriptor])
        return frozenset(self._gone)

    def close(self) -> None:
        """Close everything."""
        for ref in list(self._fds):
            self._close(ref)

    def _listen(self, ref: ProcessRef, descriptor: int) -> None:
        if self._on_exit is None:
            return
        loop = asyncio.get_running_loop()
        self._loop = loop
        loop.add_reader(descriptor, self._saw_exit, ref)

    def _saw_exit(self, ref: ProcessRef) -> None:
        self._gone.add(ref)
        self._close(ref)
        if self._on_exit is not None:
            self._on_exit(ref)

    def _close(self, ref: ProcessRef) -> None:
        descriptor = self._fds.pop(ref, None)
        if descriptor is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(descriptor)
        os.close(descriptor)
