"""From a workload to its names: pod and container by the runtime's record, the job and its user by Slurm.

Around the sampler: each look leaves with what is known by then. What may hang is asked of the procfs
worker (once for a container) or of a child beside the passes; an unknown name delays nothing. A process
that exits keeps the workload it had while it was healthy: its cgroup may be gone before it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from reclaimerd.host.oci_text import JobOwner
from reclaimerd.host.wire import Decoder
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.process import (
    ProcessReading,
    Workload,
    WorkloadKind,
    WorkloadNames,
)
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answered
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.recent import Recent
from reclaimerd.observe.slurm_places import JobOwners

AGAIN_SECONDS = 30.0
"""How long a container without a record is not asked for again."""
MOST_ASKED = 64
"""New workloads of one look; the rest are asked for in the next."""
_ANSWER_SECONDS = 1.0
_MOST_REMEMBERED = 4096
_NAMES = Decoder(WorkloadNames)
_OWNERS = ("user", "partition", "account", "hosts")
"""Names that a job's controller tells."""

_Key = tuple[str, str, str]
"""A workload: hierarchy, cgroup directory, container."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found for one workload (None: nothing), and when it was asked for (monotonic)."""

    names: WorkloadNames | None
    at: float


class Places:
    """Names workloads, and remembers them; `root` is where the runtimes' records lie.

    `scontrol` is the path that the policy names, "" where it names none.
    """

    __slots__ = ("_clock", "_known", "_lives", "_owners", "_procfs", "_root", "_scontrol")

    def __init__(
        self,
        procfs: Probe,
        clock: Callable[[], float],
        root: Path = Path("/"),
        *,
        patience_seconds: float = 0.0,
        scontrol: Callable[[], str] = str,
    ) -> None:
        self._procfs = procfs
        self._scontrol = scontrol
        self._clock = clock
        self._root = root
        self._owners = JobOwners(self._find_scontrol, clock, patience_seconds=patience_seconds)
        self._known: Recent[_Key, _Known] = Recent(_MOST_REMEMBERED)
        self._lives: Recent[ProcessRef, Workload] = Recent(_MOST_REMEMBERED)

    async def named(
        self, processes: Mapping[int, ProcessReading], *, ask: bool = True
    ) -> dict[int, ProcessReading]:
        """Return the same processes, their workloads with what is known of their names.

        With `ask=False` nobody is asked: what is remembered must do.
        """
        bases = {pid: self._base(reading) for pid, reading in processes.items()}
        workloads = set(bases.values())
        if ask:
            await self._read([one for one in workloads if self._is_due(one)][:MOST_ASKED])
        named = {one: self._with_record(one) for one in workloads}
        jobs = {one.names.job_id for one in named.values() if one.names is not None}
        ids = {job for job in jobs if job is not None}
        owners = await self._owners.owners(ids) if ask else self._owners.known(ids)
        found = {}
        for pid, reading in processes.items():
            workload = _with_owner(named[bases[pid]], owners)
            self._lives.put(reading.ref, workload)
            found[pid] = reading if workload == reading.workload else replace(reading, workload=workload)
        return found

    def _base(self, reading: ProcessReading) -> Workload:
        """Return a process's workload; of one that exits, or is dead, what it was while it was healthy."""
        kept = self._lives.get(reading.ref) if reading.is_leaving or reading.is_released else None
        return reading.workload if kept is None else kept

    def _is_due(self, workload: Workload) -> bool:
        """Tell whether this workload has names that must be asked for, and may be asked for now."""
        if not workload.trusted:
            return False
        match workload.kind:
            case WorkloadKind.POD | WorkloadKind.CONTAINER:
                wanted = workload.container_id != ""
            case WorkloadKind.SLURM_JOB:
                wanted = workload.names is None
            case _:
                wanted = False
        known = self._known.get(_key(workload))
        is_new = known is None or (known.names is None and self._clock() >= known.at + AGAIN_SECONDS)
        return wanted and is_new

    async def _read(self, workloads: Sequence[Workload]) -> None:
        """Ask the worker for these workloads' records, and remember what it says, or that it says nothing."""
        if not workloads:
            return
        asked = [
            [one.container_id, one.path, (one.names.pod_uid or "") if one.names is not None else ""]
            for one in workloads
        ]
        args = {"root": str(self._root), "asked": asked}
        answer = await self._procfs.ask("names", args, answer_within=_ANSWER_SECONDS)
        parts = answer.parts if isinstance(answer, Answered) else ()
        now = self._clock()
        for one, part in zip_longest(workloads, parts[: len(workloads)]):
            told = part.get("names") if isinstance(part, dict) else None
            self._known.put(_key(one), _Known(None if told is None else _NAMES.from_object(told), now))

    def _with_record(self, workload: Workload) -> Workload:
        """Return a workload with the names that its record has, if one was found."""
        known = self._known.get(_key(workload)) if workload.trusted else None
        if known is None or known.names is None:
            return workload
        before = workload.names or WorkloadNames()
        owner = {name: getattr(before, name) for name in _OWNERS}
        return replace(workload, names=replace(known.names, **owner))

    async def _find_scontrol(self) -> str:
        """Return the path of a scontrol that is root's alone, "" when there is none."""
        args = {"root": str(self._root), "named": self._scontrol()}
        answer = await self._procfs.ask("scontrol", args, answer_within=_ANSWER_SECONDS)
        match answer:
            case Answered(parts=({"program": str(program)}, *_)):
                return program
            case _:
                return ""


class NamedSampler:
    """The sampler, its workloads named: implements `model.ports.SamplerPort`."""

    __slots__ = ("_places", "_sampler")

    def __init__(self, sampler: SamplerPort, places: Places) -> None:
        self._sampler = sampler
        self._places = places

    async def sample(self, look: Look) -> Snapshot:
        """Return one look at the host; before a reset nobody is asked for names: the look must stay fresh."""
        snapshot = await self._sampler.sample(look)
        in_haste = look.reset or look.without_driver
        named = await self._places.named(snapshot.processes, ask=not in_haste)
        return replace(snapshot, processes=named)


def _key(workload: Workload) -> _Key:
    return (workload.controller, workload.path, workload.container_id)


def _with_owner(workload: Workload, owners: Mapping[str, JobOwner]) -> Workload:
    """Return a job's workload with its user, partition, account and hosts, if they are known."""
    names = workload.names
    owner = owners.get(names.job_id or "") if names is not None else None
    if names is None or owner is None or owner.user is None:
        return workload
    told = {name: getattr(owner, name) for name in _OWNERS}
    return replace(workload, names=replace(names, **told))
