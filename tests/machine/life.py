"""One life of the daemon on the simulated host: the real wiring, store, audit log, passes and procedures.

Its loop's clock is the host's: nothing ever waits for real time, and a turn ends when nothing is left to do.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon import wiring
from reclaimerd.daemon.engine import ROLES, Choice, Engine, Paths
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.reloading import Reload
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ConfigError, RecordError
from reclaimerd.model.access import AccessSettings
from reclaimerd.model.policy import Policy
from reclaimerd.observe.probe import Probe
from tests.machine.answers import SimProbe
from tests.machine.hands import Fuse, Killed
from tests.machine.host import Host

T = TypeVar("T")
MOST_AT_ONCE = 12
MOST_TURNS = 4000
"""Turns of the loop in which everything comes to rest; more is a busy wait."""


@dataclass(slots=True)
class Life:
    """The daemon between one start and its death."""

    host: Host
    loop: asyncio.AbstractEventLoop
    service: Service
    reload: Reload
    wanted: list[Policy]
    """What the policy file says now; empty: it has faults."""

    @property
    def engine(self) -> Engine:
        """Return its engine."""
        return self.service.engine

    def make_pass(self) -> int:
        """Make a pass, and those that are due at once after it; return how many.

        Whatever goes on beside the passes comes to rest with each.
        """
        now = self.host.world.mono
        for count in range(MOST_AT_ONCE):
            if self.run(self.service._one_pass(now)) > now:
                return count + 1
        raise AssertionError(f"after {MOST_AT_ONCE} passes another is due at once: a busy wait")

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what this comes to. Raises Killed when the life ended meanwhile."""
        result = run_on(self.loop, work, self.host.fuse)
        if self.host.fuse.is_blown:
            raise Killed(self.host.fuse.where)
        return result

    def end(self) -> None:
        """Let go of everything in memory, as a death does; nothing of it reaches the host any more."""
        self.host.fuse.is_blown = True
        bury(self.loop)
        recorder = self.engine.recorder
        if recorder is not None and recorder._opened is not None:
            recorder._close()


def born(host: Host) -> Life:
    """Return a new life over what the last one left on the disk. Raises Killed, RecordError."""
    host.fuse.is_blown = False
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_told)
    loop.time = host.world.monotonic  # type: ignore[method-assign]  # the host's clock, not this machine's
    try:
        return run_on(loop, _begin(host, loop), host.fuse)
    except (Killed, RecordError):
        host.fuse.is_blown = True
        bury(loop)
        raise


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of tasks that the death of their life ended."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


async def _begin(host: Host, loop: asyncio.AbstractEventLoop) -> Life:
    world, oracle = host.world, host.oracle
    services: list[Service] = []

    def is_look() -> bool:
        return bool(services) and services[0].cycle.looking

    probes = tuple(SimProbe(role, world, oracle, is_look) for role in ROLES)
    oracle.started, oracle.driver_is_closed = world.mono, lambda: bool(probes[0].shut_why)
    oracle.started_wall, oracle.policy = world.time(), host.policy
    paths = Paths(host.folder / "state", host.log_dir, host.folder / "socket")
    loaded = LoadedPolicy(host.policy)
    engine = await wiring.build(paths, Choice(), loaded, lambda: None, cast("tuple[Probe, ...]", probes))
    service = Service(engine, Pacing(world.monotonic), world.time)
    services.append(service)
    wanted = [host.policy]

    def read() -> LoadedPolicy:
        if not wanted:
            raise ConfigError(("line 1: it is bad",))
        return LoadedPolicy(wanted[0])

    async def open_to(_access: AccessSettings) -> None:
        """Open the door to nobody."""

    life = Life(host, loop, service, Reload(service, read, open_to), wanted)
    await service.resume()
    return life


def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], fuse: Fuse) -> T:
    """Return what the work comes to, when nothing else is left to be done at this instant."""

    async def whole() -> T:
        task = asyncio.ensure_future(work)
        turns = 0
        while not task.done() or (loop._ready and not fuse.is_blown):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            turns += 1
            if turns > MOST_TURNS:
                task.cancel()
                raise AssertionError(f"nothing came to rest within {MOST_TURNS} turns of the loop")
        return task.result()

    return loop.run_until_complete(whole())


def bury(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop with all that is under way on it."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
