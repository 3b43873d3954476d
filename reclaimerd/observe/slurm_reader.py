"""Asks Slurm's own programs about this node and some jobs: by bounded children, one after another.

Changes nothing. `scontrol show job -d ID` is a small question of one job; lists of all jobs are never
asked for: they cost the controller, and other users' words would stand beside each other in one text.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from reclaimerd.host.child import OUTPUT_LIMIT_BYTES, Child, Finished, run_bounded
from reclaimerd.host.slurm_text import (
    UNKNOWN_JOB,
    GresMap,
    SlurmConfig,
    SlurmNode,
    parse_config,
    parse_gres,
    parse_job_here,
    parse_node,
)
from reclaimerd.model.allocation import SlurmJob, SlurmView
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.observe.slurm_host import SlurmDaemon, SlurmHost
from reclaimerd.observe.units import RunPort

ASK_SECONDS = 5.0
GRES_SECONDS = 20.0
"""slurmd waits so long itself for device files that are not there yet (gres.c, _my_stat)."""
AGAIN_SECONDS = 600.0
"""How long the settings stand; and how long `slurmd -G` is not started again after it failed."""
SLACK_SECONDS = 300.0
"""How far slurmd's start may lie from what its controller was told: it tells it once it is ready."""
MOST_JOBS = 64
_ENV = ("/usr/bin/env", "LC_ALL=C", "SLURM_TIME_FORMAT=%s")
"""Starts each program: it may lie on a network file system. Times are then seconds since 1970."""
_NO_ANSWER = "Slurm's controller does not answer"
_AWAY = frozenset({"DOWN", "UNKNOWN", "NOT_RESPONDING", "*", "FAIL", "ERROR", "FUTURE", "INVAL"})
"""Words of a node's state in which what its controller knows of it is old, or nothing (sinfo(1))."""


@dataclass(frozen=True, slots=True)
class _Settings:
    """What changes only with slurmd's own start, and when it was read (monotonic)."""

    daemon: SlurmDaemon
    node: str
    config: SlurmConfig
    gres: GresMap
    at: float


@dataclass(slots=True)
class _Asked:
    """What one reading has heard of jobs so far."""

    host: SlurmHost
    settings: _Settings
    ids: set[str] = field(default_factory=set)
    found: list[SlurmJob] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def given(self) -> frozenset[int]:
        """Return the indices that the jobs have which were heard of."""
        return frozenset(index for job in self.found for index in job.gpu_indices or ())


class SlurmReader:
    """Reads Slurm's view of this node; `clocks` are monotonic and wall-clock seconds."""

    __slots__ = ("_left", "_others", "_run", "_settings", "_wall", "clock")

    def __init__(
        self, clocks: tuple[Callable[[], float], Callable[[], float]], run: RunPort = run_bounded
    ) -> None:
        self.clock, self._wall = clocks
        self._run = run
        self._settings: _Settings | None = None
        self._others: frozenset[str] = frozenset()
        """Jobs that have GPUs here, and of which no process was seen."""
        self._left: Child | None = None
        """A program that SIGKILL did not end: while it lives no other is started."""

    @property
    def folder(self) -> str:
        """Return where Slurm's configuration lies, "" while that is not known."""
        return "" if self._settings is None else self._settings.config.file.rpartition("/")[0]

    async def read(self, host: SlurmHost, jobs: Collection[str]) -> Reading[SlurmView]:
        """Return what Slurm says of these jobs here; the host must have one slurmd of its own."""
        at, wall = self.clock(), self._wall()
        settings = await self._current(host)
        if isinstance(settings, str):
            return Unreadable(settings)
        said = await self._ask([host.scontrol, "show", "node", settings.node, "-d"])
        node = None if said is None else parse_node(said.out, settings.node)
        if node is None:
            return Unreadable(_NO_ANSWER if said is None else f"Slurm does not know the node {settings.node}")
        asked = _Asked(host, settings)
        why = await self._ask_all(asked, jobs, node)
        if why == _NO_ANSWER:
            return Unreadable(why)
        unfit = why_unfit(host, node, wall)
        return Known(
            SlurmView(
                at,
                wall,
                tuple(asked.found),
                settings.gres.devices,
                settings.config.kill_wait_seconds,
                settings.config.unkillable_seconds,
                unfit or why_no_map(host, settings.gres, node) or why,
                tuple(asked.gone),
                unfit,
            )
        )

    async def _ask_all(self, asked: _Asked, jobs: Collection[str], node: SlurmNode) -> str:
        """Ask for the jobs that are seen and all others with GPUs here; return what is wrong, or "".

        Somebody may have been given a GPU by a job of which no process was seen: by salloc, and uses it by
        ssh. The node's own list of used GPUs shows whether there is such a job.
        """
        if not await self._ask_jobs(asked, {*jobs, *self._others}):
            return _NO_ANSWER
        if node.used is None or not node.used <= asked.given:
            said = await self._list(asked)
            listed = set() if said is None else set(said.out.split())
            if said is None or not all(job.isdecimal() for job in listed):
                return "GPUs of this node are given to jobs that squeue does not list"
            if not await self._ask_jobs(asked, listed):
                return _NO_ANSWER
        self._others = frozenset(job.id for job in asked.found if job.ended_at is None and job.id not in jobs)
        return "" if len(asked.ids) <= MOST_JOBS else f"more than {MOST_JOBS} jobs are on this node"

    async def _list(self, asked: _Asked) -> Finished | None:
        """Return the ids of the jobs on this node, and no word of their owners'."""
        if not asked.host.squeue:
            return None
        return await self._ask([asked.host.squeue, "-h", "-w", asked.settings.node, "-o", "%A"])

    async def _ask_jobs(self, asked: _Asked, jobs: Collection[str]) -> bool:
        """Ask for those that were not asked for yet, up to the bound; return whether somebody answered."""
        for job in sorted(set(jobs) - asked.ids):
            asked.ids.add(job)
            if len(asked.ids) > MOST_JOBS:
                return True
            said = await self._ask([asked.host.scontrol, "show", "job", "-d", job])
            if said is None:
                return False
            if said.code != 0:
                asked.gone.append(job)
            else:
                settings = asked.settings
                asked.found.append(parse_job_here(said.out, job, settings.node, settings.gres.sharers))
        return True

    async def _current(self, host: SlurmHost) -> _Settings | str:
        """Return the settings of the slurmd that runs, or why there are none; newly read where due."""
        daemon = host.daemons[0]
        kept = self._settings
        same = kept is not None and (kept.daemon.pid, kept.daemon.start_ticks) == (
            daemon.pid,
            daemon.start_ticks,
        )
        if kept is not None and same and self.clock() < kept.at + AGAIN_SECONDS:
            return kept
        node = daemon.node or await self._node_name(host.scontrol)
        if not node:
            return "which of Slurm's nodes this host is can't be told: slurmd has no -N, and no alias is one"
        said = await self._ask([host.scontrol, "show", "config"])
        config = None if said is None else parse_config(said.out)
        if config is None:
            return _NO_ANSWER if said is None else "scontrol show config does not tell Slurm's deadlines"
        # The map stands as long as slurmd does: each reading may open the driver (AutoDetect=nvml).
        good = kept is not None and same and not kept.gres.why
        gres = kept.gres if kept is not None and good else await self._gres(host.slurmd, node)
        self._settings = _Settings(daemon, node, config, gres, self.clock())
        return self._settings

    async def _node_name(self, scontrol: str) -> str:
        """Return the one node that Slurm's configuration has for this host's name, "" when it is not one."""
        said = await self._ask([scontrol, "show", "aliases"])
        names = said.out.split() if said is not None and said.code == 0 else []
        return names[0] if len(names) == 1 else ""

    async def _gres(self, slurmd: str, node: str) -> GresMap:
        if not slurmd:
            return GresMap(0, why="no slurmd that is root's alone was found: name it in [attribution] slurmd")
        said = await self._ask([slurmd, "-G", "-N", node], GRES_SECONDS)
        if said is None or said.code != 0:
            return GresMap(0, why="slurmd -G does not tell which GPU is which")
        return parse_gres(f"{said.out}\n{said.err}")

    async def _ask(self, words: Sequence[str], seconds: float = ASK_SECONDS) -> Finished | None:
        """Return what a program said, None when it said nothing in time or nobody answered it."""
        if self._left is not None and self._left.code is None:
            return None
        try:
            ended = await self._run([*_ENV, *words], deadline_seconds=seconds)
        except (OSError, ValueError):
            return None
        if not isinstance(ended, Finished):
            self._left = ended.child
            return None
        cut = max(len(ended.out), len(ended.err)) >= OUTPUT_LIMIT_BYTES
        unheard = ended.code != 0 and UNKNOWN_JOB not in ended.err
        return None if cut or unheard else ended


def why_unfit(host: SlurmHost, node: SlurmNode, wall: float) -> str:
    """Return why nobody may be judged by this view at all, "" when it is sound; pure.

    Above all the controller that answers must be the one that this slurmd belongs to: an old
    configuration, or another cluster's, knows none of its jobs.
    """
    started = wall - host.daemons[0].age_seconds
    away = sorted(node.states & _AWAY)
    faults = (
        (
            node.started_at is None or abs(started - node.started_at) > SLACK_SECONDS,
            "the controller knows another slurmd of this name, not the one that runs here",
        ),
        (
            bool(away) or not node.states,
            f"the controller does not reach this node: {' '.join(away) or 'no state'}",
        ),
        ("MAINT" in node.states, "the node is in maintenance"),
    )
    return next((text for is_so, text in faults if is_so), "")


def why_no_map(host: SlurmHost, gres: GresMap, node: SlurmNode) -> str:
    """Return why it can't be told which GPU is which of Slurm's, "" when it can; pure."""
    changed = host.gres_age_seconds
    faults = (
        (bool(gres.why), gres.why),
        (node.gpus != gres.count, f"slurmd has {gres.count} GPUs, and its controller {node.gpus}"),
        (
            changed is not None and changed + SLACK_SECONDS < host.daemons[0].age_seconds,
            "gres.conf was changed after slurmd was started: restart slurmd",
        ),
    )
    return next((text for is_so, text in faults if is_so), "")
