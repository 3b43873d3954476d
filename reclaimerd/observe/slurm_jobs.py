"""Joins Slurm's view of this node to each look, and never makes a look wait for its controller.

Asked beside the passes: at its interval, and early when a job that is not known yet holds a GPU. A view
stays while no newer one comes, and ages: how old it may be is the judge's to say. Without a slurmd of the
host's own, and without a job among the holders, nobody is asked anything but the disk, once in a while.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import asdict, replace

from reclaimerd.host.wire import Decoder
from reclaimerd.model.allocation import SlurmView
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.process import WorkloadKind
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.kernel_looks import why_not
from reclaimerd.observe.probe import Answered, Probe
from reclaimerd.observe.slurm_host import SlurmHost, SlurmPlaces
from reclaimerd.observe.slurm_reader import SlurmReader

EARLY_SECONDS = 5.0
"""A job that is not known makes Slurm be asked early, at most this often."""
FIRST_SECONDS = 2.0
"""How long the very first look waits, where Slurm's daemon runs, so that one command has something to say."""
ABSENT_SECONDS = 600.0
"""How often a host without Slurm is looked at again."""
KEPT_PERIODS = 2
"""An older view gives way to the reason why there is no newer one."""
NOWHERE = Absent("no Slurm node here")
_DOWN = Unreadable("slurmd ran on this host and does not now: what its jobs were given is not known")
_HOST: Decoder[SlurmHost] = Decoder(SlurmHost)


class SlurmEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with Slurm's view in it."""

    __slots__ = (
        "_asked", "_procfs", "_reader", "_reading", "_root", "_sampler", "_settings", "_task", "_was_here",
    )  # fmt: skip

    def __init__(
        self,
        sampler: SamplerPort,
        procfs: Probe,
        reader: SlurmReader,
        settings: Callable[[], AttributionSettings],
        root: str = "/",
    ) -> None:
        self._sampler = sampler
        self._procfs = procfs
        self._reader = reader
        self._settings = settings
        self._root = root
        self._reading: Reading[SlurmView] | None = None
        self._asked: tuple[float, frozenset[str]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._was_here = False
        """Slurm answered once since our start: a slurmd that is down since then makes this no other host."""

    async def sample(self, look: Look) -> Snapshot:
        """Return the look with the newest view there is; raises what the sampler raises.

        Before a reset nothing is begun: slurmd's own list of its GPUs may open the driver.
        """
        snapshot = await self._sampler.sample(look)
        jobs = jobs_of(snapshot)
        in_haste = look.reset or look.without_driver
        if not in_haste and self._task is None and self._is_due(jobs):
            self._asked = (self._reader.clock(), jobs)
            self._task = asyncio.ensure_future(self._refresh(jobs))
        if self._task is not None and self._reading is None:
            await asyncio.wait({self._task}, timeout=FIRST_SECONDS)
        nothing_yet = Unreadable("Slurm has not answered yet")
        return replace(snapshot, slurm=nothing_yet if self._reading is None else self._reading)

    def _is_due(self, jobs: frozenset[str]) -> bool:
        if self._asked is None:
            return True
        asked_at, asked_for = self._asked
        every = self._settings().refresh_seconds
        if self._reading == NOWHERE and not jobs:
            every = max(every, ABSENT_SECONDS)
        if not jobs <= asked_for:
            every = min(every, EARLY_SECONDS)
        return self._reader.clock() >= asked_at + every

    async def _refresh(self, jobs: frozenset[str]) -> None:
        try:
            found = await self._read(jobs)
            if not (isinstance(found, Unreadable) and self._still_stands()):
                self._reading = found
        finally:
            self._task = None

    def _still_stands(self) -> bool:
        """Tell whether the last view is young enough to be shown on, while there is no newer one."""
        most = KEPT_PERIODS * self._settings().refresh_seconds
        return isinstance(self._reading, Known) and self._reader.clock() <= self._reading.value.read_at + most

    async def _read(self, jobs: frozenset[str]) -> Reading[SlurmView]:
        settings = self._settings()
        places = SlurmPlaces(self._root, settings.scontrol, settings.slurmd, self._reader.folder)
        answer = await self._procfs.ask("slurm", asdict(places))
        match answer:
            case Answered(parts=({"slurm": dict(told)}, *_)):
                host = _HOST.from_object(told)
            case Answered():
                return Unreadable("the disk that Slurm's programs lie on does not answer")
            case _:
                return Unreadable(why_not(answer))
        why = why_nobody_asked(host, jobs)
        if why is not None:
            return _DOWN if why is NOWHERE and self._was_here else why
        found = await self._reader.read(host, jobs)
        self._was_here = self._was_here or isinstance(found, Known)
        return found


def why_nobody_asked(host: SlurmHost, jobs: Collection[str]) -> Absent | Unreadable | None:
    """Return why Slurm can't be asked about this host, None when it can; pure."""
    if len(host.daemons) == 1:
        return None
    if host.daemons:
        return Unreadable("several slurmd run here: which node a job belongs to can't be told")
    if not jobs:
        return NOWHERE
    if not host.scontrol:
        return Unreadable("no scontrol that is root's alone was found: name it in [attribution] scontrol")
    return Unreadable("no slurmd runs on this host, and a Slurm job does")


def jobs_of(snapshot: Snapshot) -> frozenset[str]:
    """Return the ids of the Slurm jobs whose processes were seen."""
    workloads = (reading.workload for reading in snapshot.processes.values())
    names = [one.names for one in workloads if one.kind is WorkloadKind.SLURM_JOB and one.trusted]
    ids = {one.job_id for one in names if one is not None}
    return frozenset(job for job in ids if job is not None and job.isdecimal())
