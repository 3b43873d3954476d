"""One look at the host: ask the workers, join their answers, return a frozen Snapshot.

The sampler never calls NVML and never reads another process itself, but for two listings that
can't hang: `/proc/PID/task/PID/children` of known holders, and its own pidfds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.host.wire import Decoder
from reclaimerd.model.identity import DeviceNumber, FileIdentity, ProcessRef
from reclaimerd.model.memory import Baseline, RememberedHolder
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessLook, ScanResult
from reclaimerd.model.reset_facts import ResetFacts
from reclaimerd.model.snapshot import (
    DriverReading,
    DriverState,
    GpuReading,
    HostGpus,
    ScanCoverage,
    Snapshot,
    unreadable_gpu,
)
from reclaimerd.observe import sightings
from reclaimerd.observe.baselines import Baselines
from reclaimerd.observe.driver_grip import CLOSED_WHY
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.freezers import ask_freezers
from reclaimerd.observe.holder_memory import Memory, Seen, joined
from reclaimerd.observe.kernel_looks import ask_with_kin, why_not
from reclaimerd.observe.probe import Answered, Failed, Gone, Probe, Silent, SilentCause, UnreadableProcess
from reclaimerd.observe.reset_eyes import ResetEyes, Scope
from reclaimerd.observe.scan_trigger import ScanTrigger, unexplained_bytes
from reclaimerd.observe.sightings import listed_pids, read_children

_HOST = Decoder(HostGpus)
_SCAN = Decoder(ScanResult)
WHOLE_EVERY_SECONDS = 30.0
"""A healthy holder is read by its leader; this often every thread of every holder is read."""
HOST_FILES_EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """What the sampler is told once: how often to search, which program files to know, whose boot."""

    boot_id: str
    program_globs: tuple[str, ...]
    full_scan_seconds: float = 60.0


@dataclass(slots=True)
class _Past:
    """What one look leaves for the next."""

    memory: Memory = field(default_factory=dict)
    baselines: Baselines = field(default_factory=Baselines)
    gpus: tuple[GpuReading, ...] = ()
    host: HostGpus | None = None
    watched: tuple[DeviceNumber, ...] = ()
    procfs_pid: int | None = None
    found: frozenset[int] = frozenset()
    skipped: tuple[str, ...] = ()
    whole_at: float | None = None
    files: Mapping[FileIdentity, str] = field(default_factory=dict)
    files_at: float | None = None
    leaving: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    gone_at: dict[ProcessRef, float] = field(default_factory=dict)
    asked_at: float = 0.0
    told: bool = True


class Sampler:
    """Eyes: implements `model.ports.SamplerPort` over the nvml and the procfs worker."""

    __slots__ = (
        "_clock", "_exits", "_nvml", "_past", "_procfs", "_reset_eyes", "_settings", "_trigger", "_wall",
    )  # fmt: skip

    def __init__(
        self,
        nvml: Probe,
        procfs: Probe,
        settings: SamplerSettings,
        exits: ExitWatch,
        clocks: tuple[Callable[[], float], Callable[[], float]],
    ) -> None:
        self._nvml = nvml
        self._procfs = procfs
        self._settings = settings
        self._exits = exits
        self._clock, self._wall = clocks
        self._past = _Past()
        self._trigger = ScanTrigger(settings.full_scan_seconds)
        self._reset_eyes: ResetEyes | None = None

    def use_reset_eyes(self, eyes: ResetEyes) -> None:
        """Read by these what a reset needs to know, when a look asks for it."""
        self._reset_eyes = eyes

    def recall(self, remembered: Iterable[RememberedHolder], baselines: Iterable[Baseline]) -> None:
        """Take what the store kept of this boot; another boot's memory means nothing."""
        ours = self._settings.boot_id
        self._past.memory = {(kept.ref, kept.gpu): kept for kept in remembered if kept.ref.boot_id == ours}
        held = {gpu for _, gpu in self._past.memory}
        self._past.baselines.recall((kept for kept in baselines if kept.key.startswith(ours)), held)

    def take_settings(self, settings: SamplerSettings) -> None:
        """Take a new policy's settings."""
        self._settings = settings
        self._trigger.take_interval(settings.full_scan_seconds)
        self._past.files_at = None

    def memory(self) -> tuple[tuple[RememberedHolder, ...], tuple[Baseline, ...]]:
        """Return what is worth keeping across a restart."""
        return tuple(self._past.memory.values()), self._past.baselines.all()

    async def sample(self, look: Look) -> Snapshot:
        """Return one look at the host; what could not be read is named in it, never left out.

        Our own nvml worker has the nodes open and is no holder: it is closed before a reset.
        Raises UnsuitableHostError when the driver or its library can't be worked with at all.
        """
        self._note_gone(self._exits.gone())
        driver, host = self._closed() if look.without_driver else await self._read_driver(look)
        blind = (unreadable_gpu(gpu, driver.why or "driver unresponsive") for gpu in self._past.gpus)
        gpus = host.gpus if host is not None else tuple(blind)
        facts = await self._read_reset_facts(look, gpus)
        coverage = await self._scan(look, gpus, host)
        pids = self._candidates(look, gpus)
        self._exits.watch((*look.watch, *(ref for ref, _ in self._past.memory)))
        looks, unreadable, gone = await self._read_processes(look, pids)
        shared = frozenset(self._past.host.shared_devices) if self._past.host is not None else frozenset()
        ours = set(self._nvml.worker_pids())
        others = {pid: one for pid, one in looks.items() if pid not in ours}
        now = joined(Seen(gpus, shared, others, unreadable), self._past.memory)
        self._past.memory = now.memory
        self._past.leaving = frozenset(pid for pid, one in looks.items() if one.reading.is_leaving)
        self._past.dead = frozenset(listing.pid for listing in now.dead_listings)
        watched = {*look.watch, *(ref for ref, _ in now.memory)}
        exited = self._gone_before_reading(watched, host)
        self._note_gone(sightings.exited_in(watched, looks, gone))
        self._exits.watch((*look.watch, *watched))
        self._exits.forget_others(watched)
        if host is not None:
            held = {holder.gpu for holder in now.holders}
            may_begin = not look.watch and self._trigger.full_at is not None
            self._past.baselines.learn(self._settings.boot_id, host, held, may_begin=may_begin)
        await self._read_host_files()
        wanted = sightings.stacks_wanted(look, others, gone)
        kernel = await ask_with_kin(self._procfs, wanted) if wanted else {}
        holding = {holder.ref.pid for holder in now.holders if holder.ref.pid in looks}
        asked = [looks[pid].reading for pid in holding] if look.freezers else []
        return Snapshot(
            taken_at=self._wall(),
            at=self._clock(),
            boot_id=self._settings.boot_id,
            driver=driver,
            gpus=gpus,
            processes={pid: one.reading for pid, one in looks.items()},
            unreadable=unreadable,
            holders=now.holders,
            dead_listings=now.dead_listings,
            scan=coverage,
            exited=exited,
            baselines=self._past.baselines.used_bytes(),
            host_files=self._past.files,
            kernel=kernel,
            frozen=await ask_freezers(self._procfs, asked),
            simulated=self._past.host is not None and self._past.host.simulated,
            reset_facts=facts,
        )

    def _note_gone(self, refs: Iterable[ProcessRef]) -> None:
        now = self._clock()
        for ref in refs:
            self._past.gone_at.setdefault(ref, now)

    def _gone_before_reading(self, watched: set[ProcessRef], host: HostGpus | None) -> frozenset[ProcessRef]:
        """Return the watched processes that were gone before NVML was asked.

        A memory figure read while a process still lived proves nothing of it: one that went since is
        named in the next look, which its pidfd asks for at once.
        """
        kept = {ref: at for ref, at in self._past.gone_at.items() if ref in watched}
        self._past.gone_at = kept
        if host is None:
            return frozenset(kept)
        return frozenset(ref for ref, at in kept.items() if at <= self._past.asked_at)

    async def _read_driver(self, look: Look) -> tuple[DriverReading, HostGpus | None]:
        answer = await self._nvml.ask("host", {"utilisation": True} if look.utilisation else None)
        now, version = self._clock(), sightings.version_of(self._past.host)
        match answer:
            case Answered(parts=parts, sent_at=sent_at):
                self._past.asked_at = sent_at
                host = _HOST.from_object(parts[0])
                slow = self._nvml.state().kind == "slow"
                self._past.host, self._past.gpus = host, host.gpus
                state = DriverState.SLOW if slow else DriverState.RESPONSIVE
                return DriverReading(state, now, "; ".join(host.failures), sightings.version_of(host)), host
            case Silent(why=why, since=since, evidence=evidence, cause=cause):
                hung = cause is SilentCause.UNRESPONSIVE
                state = DriverState.UNRESPONSIVE if hung else DriverState.UNKNOWN
                return DriverReading(state, since, why, version, evidence), None
            case Failed(kind="unsuitable", message=message, mend=mend):
                raise UnsuitableHostError(message, mend)
            case Failed(kind="driver_absent", message=message):
                self._past.gpus = ()
                return DriverReading(DriverState.ABSENT, now, message), None
            case Failed(message=message):
                return DriverReading(DriverState.UNKNOWN, now, message, version), None
            case _:
                assert_never(answer)

    def _closed(self) -> tuple[DriverReading, None]:
        """Return that the driver was not asked: our own worker must not be started before a reset."""
        return DriverReading(
            DriverState.UNKNOWN, self._clock(), CLOSED_WHY, sightings.version_of(self._past.host)
        ), None

    async def _read_reset_facts(self, look: Look, gpus: tuple[GpuReading, ...]) -> ResetFacts | None:
        """Return them where asked for; before the search, so that the search is the newest of all."""
        if not look.reset or self._reset_eyes is None:
            return None
        past = self._past.host
        scope = Scope(
            addresses=tuple(gpu.pci_address for gpu in gpus),
            devices=(*(gpu.device for gpu in gpus), *(() if past is None else past.shared_devices)),
            simulated_root=None if past is None else past.simulated_root,
            without_driver=look.without_driver,
        )
        return await self._reset_eyes.read(self._clock(), scope)

    async def _scan(self, look: Look, gpus: tuple[GpuReading, ...], host: HostGpus | None) -> ScanCoverage:
        now = self._clock()
        await self._watch_devices(gpus)
        dead = listed_pids(gpus) & ({ref.pid for ref in self._exits.gone()} | self._past.dead)
        why = self._trigger.due(now, dead, unexplained_bytes(gpus), asked=look.full_scan)
        if not why or not gpus:
            return ScanCoverage(self._trigger.full_at, full_now=False, skipped=self._past.skipped)
        root = self._past.host.simulated_root if self._past.host is not None else None
        asked = {"root": root, "deep": look.deep}
        answer = await self._procfs.ask("scan", asked) if self._past.told else sightings.NOT_ASKED
        if not isinstance(answer, Answered):
            skipped = (f"full scan: {why_not(answer)}",)
            return ScanCoverage(self._trigger.full_at, full_now=False, skipped=skipped)
        result = _SCAN.from_object(sightings.last_scan(answer))
        self._past.found = frozenset(row.pid for row in result.rows)
        self._past.skipped = result.skipped + (host.failures if host is not None else ())
        self._trigger.done(self._clock(), dead, unexplained_bytes(gpus))
        return ScanCoverage(self._trigger.full_at, full_now=True, skipped=self._past.skipped)

    async def _watch_devices(self, gpus: tuple[GpuReading, ...]) -> None:
        """Tell the worker which devices to look for: one that does not know them finds nobody."""
        shared = self._past.host.shared_devices if self._past.host is not None else ()
        devices = tuple(sorted({gpu.device for gpu in gpus} | set(shared)))
        worker = self._procfs.state().pid
        self._past.told = not devices or (devices, worker) == (self._past.watched, self._past.procfs_pid)
        if self._past.told:
            return
        wire = [[device.major, device.minor] for device in devices]
        answer = await self._procfs.ask("watch", {"devices": wire})
        self._past.told = isinstance(answer, Answered)
        if self._past.told:
            self._past.watched, self._past.procfs_pid = devices, self._procfs.state().pid

    def _candidates(self, look: Look, gpus: tuple[GpuReading, ...]) -> list[int]:
        held = {ref.pid for ref, _ in self._past.memory}
        asked = {ref.pid for ref in look.watch} | set(look.pids)
        pids = listed_pids(gpus) | held | self._past.found | asked
        children = {child for pid in held for child in read_children(pid)}
        return sorted(pids | children)

    async def _read_processes(
        self, look: Look, pids: list[int]
    ) -> tuple[dict[int, ProcessLook], dict[int, str], frozenset[int]]:
        now = self._clock()
        whole = {ref.pid for ref in look.watch} | set(look.pids) | set(self._past.leaving)
        if look.full_scan or self._past.whole_at is None or now >= self._past.whole_at + WHOLE_EVERY_SECONDS:
            whole |= set(pids)
            self._past.whole_at = now
        answers = await self._procfs.ask_each(pids, sorted(whole))
        looks = {pid: one for pid, one in answers.items() if isinstance(one, ProcessLook)}
        looks = looks if self._past.told else sightings.without_nodes(looks)
        unreadable = {pid: one.why for pid, one in answers.items() if isinstance(one, UnreadableProcess)}
        return looks, unreadable, frozenset(pid for pid, one in answers.items() if isinstance(one, Gone))

    async def _read_host_files(self) -> None:
        now = self._clock()
        if self._past.files_at is not None and now < self._past.files_at + HOST_FILES_EVERY_SECONDS:
            return
        answer = await self._procfs.ask("host_files", {"globs": list(self._settings.program_globs)})
        if isinstance(answer, Answered):
            self._past.files = sightings.files_of(answer.parts[0])
            self._past.files_at = now
