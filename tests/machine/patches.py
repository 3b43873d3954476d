"""Put the simulated host in the places where the real wiring reaches for the real one.

Only names of the outermost edge are replaced: system calls, clocks, workers, the vendor's tool, units,
whoever is asked for drains, and log lines. All between them is the project's own code, as it is wired.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from reclaimerd.act import executor as executor_module
from reclaimerd.act import members as members_module
from reclaimerd.act import signals
from reclaimerd.daemon import (
    drain_asks,
    opening,
    service,
    wiring,
    wiring_drain,
    wiring_eyes,
    wiring_hands,
)
from reclaimerd.daemon.news import News
from reclaimerd.daemon.past import Reader
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import TargetOutcome
from reclaimerd.model.step import Step
from reclaimerd.observe import sampler as sampler_module
from reclaimerd.record import logs
from reclaimerd.record import recorder as recorder_module
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder, RecorderLimits
from reclaimerd.record.recorder_ports import Opened
from tests.machine.answers import SimDevices, SimExits, SimLog, SimResetEyes
from tests.machine.durable import bounded
from tests.machine.hands import STEP, SimClients, SimTool
from tests.machine.host import Host

LIMITS = 1000.0


class InlineQueue:
    """The recorder's queue: a job is done as it is put, so no thread and no real time is in the play."""

    def put(self, item: tuple[Callable[[], None], bool]) -> None:
        """Do the job."""
        item[0]()


async def _inline(_reader: Reader, work: Callable[[], Any], _what: str) -> Any:
    return work()


async def _nobody_writes(*_args: object, **_words: object) -> None:
    """Claim the store: there is never another writer here."""


class NoEvidence:
    """Collects nothing: evidence changes nothing that is judged here."""

    def __init__(self, _investigator: object) -> None:
        """Take whoever would investigate."""

    def start(self, _cycle: object) -> None:
        """Begin nothing."""

    async def finish(self, _seconds: float) -> None:
        """Have nothing to finish."""


def patch(host: Host, patches: pytest.MonkeyPatch) -> None:
    """Let whatever is wired from now on stand over this host; `patches` undoes it."""
    _patch_clocks_and_records(host, patches)
    _patch_eyes(host, patches)
    _patch_hands(host, patches)
    for name in ("event", "warning", "error"):
        patches.setattr(logs, name, _teller(host, name))


def _patch_clocks_and_records(host: Host, patches: pytest.MonkeyPatch) -> None:
    world = host.world
    clock = SimpleNamespace(monotonic=world.monotonic, time=world.time)
    for module in (wiring, wiring_eyes, wiring_hands, wiring_drain):
        patches.setattr(module, "time", clock)

    def opened(places: Places) -> Opened:
        return bounded(open_records(places), host.oracle, host.fuse, places.log)

    def recorder(opening: Callable[[], Opened]) -> Recorder:
        return Recorder(opening, RecorderLimits(LIMITS, world.time, world.monotonic))

    patches.setattr(recorder_module, "queue", SimpleNamespace(SimpleQueue=InlineQueue))
    no_thread = SimpleNamespace(Thread=lambda **_: SimpleNamespace(start=str))
    patches.setattr(recorder_module, "threading", no_thread)
    patches.setattr(wiring, "open_records", opened)
    patches.setattr(wiring, "Recorder", recorder)
    patches.setattr(wiring, "claim_writer", _nobody_writes)
    patches.setattr(wiring, "read_boot_id", lambda: world.boot_id)
    patches.setattr(wiring, "read_own_ref", lambda boot: ProcessRef(boot, 900, 90))
    patches.setattr(wiring, "read_ancestors", lambda _pid: frozenset())
    patches.setattr(wiring, "sees_host_pids", lambda: True)
    patches.setattr(opening, "secrets", SimpleNamespace(token_hex=host.token))
    patches.setattr(drain_asks, "random", SimpleNamespace(uniform=lambda _low, high: high))
    patches.setattr(Reader, "_read", _inline)


def _patch_eyes(host: Host, patches: pytest.MonkeyPatch) -> None:
    world = host.world

    def news(_paths: object, ledger: Any, boot_id: str) -> News:
        after = ledger.kernel_seq if ledger.kernel_boot == boot_id else None
        world.events.clear()  # nobody heard them
        return News(SimLog(world, after), SimDevices(world), world.time)

    patches.setattr(wiring, "ExitWatch", lambda _on_exit: SimExits(world))
    patches.setattr(wiring, "build_reset_eyes", lambda _paths, probes, *_: SimResetEyes(world, probes[0]))
    patches.setattr(wiring, "build_eyes", lambda sampler, *_args, **_words: sampler)
    patches.setattr(wiring, "build_news", news)
    patches.setattr(sampler_module, "read_children", host.children_of)
    patches.setattr(service, "AutoEvidence", NoEvidence)
    patches.setattr(service, "Investigator", lambda _engine: None)


def _patch_hands(host: Host, patches: pytest.MonkeyPatch) -> None:
    patches.setattr(signals, "os", host.kernel.as_os())
    patches.setattr(signals, "select", host.kernel.as_select())
    patches.setattr(signals, "signal", host.kernel.as_signal())
    for module in (executor_module, members_module):
        patches.setattr(module, "send", _named(signals.send))
    patches.setattr(
        wiring, "build_tool", lambda _parts: SimTool(host.world, host.oracle, host.fuse, host.marks)
    )
    patches.setattr(wiring_hands, "Clients", lambda *_: SimClients(host.world, host.fuse))
    scheduler = host.scheduler
    patches.setattr(wiring_drain.DrainHands, "_targets", lambda *_: {scheduler.name: scheduler})
    patches.setattr(wiring_drain.DrainHands, "_fleet", lambda *_: scheduler)


def _named(
    send: Callable[..., Awaitable[tuple[TargetOutcome, ...]]],
) -> Callable[..., Awaitable[tuple[TargetOutcome, ...]]]:
    """Return the sender that lets the oracle know for which step it sends."""

    async def sent(step: Step, refs: Sequence[ProcessRef], order: object, **words: Any) -> Any:
        token = STEP.set(step)
        try:
            return await send(step, refs, order, **words)
        finally:
            STEP.reset(token)

    return sent


def _teller(host: Host, level: str) -> Callable[..., None]:
    def tell(name: str, **fields: object) -> None:
        host.take_log(level, name, fields)

    return tell
