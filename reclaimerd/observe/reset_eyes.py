"""What a reset must know of its host, joined: NVML's, the kernel's, systemd's, each with its own failure.

Asks the nvml and the procfs worker and a bounded child, side by side. It reads and judges nothing; what
could not be read is Unreadable and never left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd.host.wire import Decoder
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.reset_facts import BusyThread, GpuFacts, KernelFacts, ResetFacts, UnitFacts
from reclaimerd.observe.driver_grip import CLOSED_WHY
from reclaimerd.observe.kernel_facts import KernelAnswer
from reclaimerd.observe.kernel_looks import why_not
from reclaimerd.observe.probe import Answered, Probe
from reclaimerd.observe.units import NoSystemd, UnitReader

THREAD_LOOKS = 3
LOOKS_APART_SECONDS = 0.2
"""A kernel thread is busy when three looks, 200 ms apart, find it in the driver."""
KERNEL_SECONDS = 6.0

_GPU: Decoder[GpuFacts] = Decoder(GpuFacts)
_KERNEL: Decoder[KernelAnswer] = Decoder(KernelAnswer)
_BUSY: Decoder[tuple[BusyThread, ...]] = Decoder(tuple[BusyThread, ...])


@dataclass(frozen=True, slots=True)
class Scope:
    """The host as the sampler knows it: where its GPUs are, the driver's nodes, a simulation's keeper."""

    addresses: tuple[str, ...]
    devices: tuple[DeviceNumber, ...]
    simulated_root: int | None = None
    without_driver: bool = False


@dataclass(frozen=True, slots=True)
class HostHands:
    """What `wiring` knows: our own pids, the units of the policy, why the tool can't run, a simulation."""

    ours: Callable[[], Sequence[int]]
    stop_units: Callable[[], Sequence[str]]
    tool_fault: Callable[[], str]
    simulate: Path | None = None


class ResetEyes:
    """Reads `ResetFacts` for every GPU of the host."""

    __slots__ = ("_hands", "_nvml", "_procfs", "_sleep", "_units")

    def __init__(
        self,
        nvml: Probe,
        procfs: Probe,
        units: UnitReader,
        hands: HostHands,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._nvml = nvml
        self._procfs = procfs
        self._units = units
        self._hands = hands
        self._sleep = sleep

    async def read(self, now: float, scope: Scope) -> ResetFacts:
        """Return the facts, begun at `now` (monotonic seconds); never raises for what can't be read."""
        gpus, found, units = await asyncio.gather(
            self._read_gpus(scope), self._read_kernel(scope), self._units.read(self._hands.stop_units())
        )
        kernel = found if isinstance(found, Unreadable) else Known(found.facts)
        notes = () if isinstance(found, Unreadable) else found.notes
        if isinstance(units, NoSystemd):
            notes = (*notes, "there is no systemd here: nothing is a unit")
            units = _without_systemd(found)
        elif isinstance(units, Known) and not isinstance(found, Unreadable):
            # An agent may run in a container, or under a unit of another name.
            schedulers = units.value.schedulers or found.agents
            units = Known(replace(units.value, schedulers=schedulers))
        return ResetFacts(now, gpus, kernel, units, self._hands.tool_fault(), notes)

    async def _read_gpus(self, scope: Scope) -> Reading[tuple[GpuFacts, ...]]:
        if scope.without_driver:
            return Unreadable(CLOSED_WHY)
        answer = await self._nvml.ask("reset_facts")
        if not isinstance(answer, Answered):
            return Unreadable(why_not(answer))
        try:
            return Known(tuple(_GPU.from_object(part) for part in answer.parts))
        except ValueError as error:
            return Unreadable(str(error))

    async def _read_kernel(self, scope: Scope) -> KernelAnswer | Unreadable:
        """Return the procfs worker's look, the kernel's threads looked at three times."""
        answer = await self._procfs.ask("kernel_facts", self._question(scope), answer_within=KERNEL_SECONDS)
        match answer:
            case Answered(parts=({"kernel_facts": told}, *_)):
                try:
                    found = _KERNEL.from_object(told)
                except ValueError as error:
                    return Unreadable(str(error))
            case _:
                return Unreadable(why_not(answer))
        facts = found.facts
        for _ in range(THREAD_LOOKS - 1):
            if not facts.busy_threads:
                break
            await self._sleep(LOOKS_APART_SECONDS)
            facts = await self._look_again(facts)
        return replace(found, facts=facts)

    async def _look_again(self, facts: KernelFacts) -> KernelFacts:
        """Return the facts with only those threads that are busy now too; unseen ones stay busy."""
        pids = [thread.pid for thread in facts.busy_threads]
        answer = await self._procfs.ask("kernel_threads", {"pids": pids})
        match answer:
            case Answered(parts=({"busy": busy, "skipped": [*skipped]}, *_)):
                try:
                    again = _BUSY.from_object(busy)
                except ValueError as error:
                    return replace(facts, skipped=(*facts.skipped, str(error)))
                told = tuple(str(one) for one in skipped)
                return replace(facts, busy_threads=again, skipped=(*facts.skipped, *told))
            case _:
                return replace(facts, skipped=(*facts.skipped, f"kernel threads: {why_not(answer)}"))

    def _question(self, scope: Scope) -> Mapping[str, object]:
        return {
            "addresses": list(scope.addresses),
            "devices": [[device.major, device.minor] for device in scope.devices],
            "ours": list(self._hands.ours()),
            "root": scope.simulated_root,
            "sys_root": self._sys_root(),
        }

    def _sys_root(self) -> str | None:
        """Return where sysfs is: a simulated host never answers for this machine's own devices."""
        if self._hands.simulate is None:
            return "/sys"
        simulated = self._hands.simulate / "sys"
        return str(simulated) if simulated.is_dir() else None


def _without_systemd(found: KernelAnswer | Unreadable) -> Reading[UnitFacts]:
    """Return what is known of units where there are none: whether a scheduler's agent runs."""
    if isinstance(found, Unreadable):
        return Unreadable(f"no systemd to ask for a scheduler, and its processes were not read: {found.why}")
    return Known(UnitFacts((), schedulers=found.agents))
