"""Whose Slurm job a cgroup is: its job id by the step's own daemon, its user and partition by the controller.

`read_job_id` and `read_program` run in the procfs worker. `JobOwners` is the main process's: it asks by
a child with a deadline, beside the passes, and a controller that is away makes nobody wait.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.child import OUTPUT_LIMIT_BYTES, Child, Finished, run_bounded
from reclaimerd.host.files import refuse_unsafe
from reclaimerd.host.oci_text import JobOwner, parse_job, parse_stepd_job
from reclaimerd.host.proc_text import parse_status
from reclaimerd.observe.peers import cgroup_root
from reclaimerd.observe.recent import Recent
from reclaimerd.observe.units import RunPort

PROGRAMS = ("usr/bin/scontrol", "usr/local/bin/scontrol", "opt/slurm/bin/scontrol")
DAEMONS = ("usr/sbin/slurmd", "usr/local/sbin/slurmd", "opt/slurm/sbin/slurmd")
"""Where scontrol and slurmd are looked for, below the root."""
ASK_SECONDS = 5.0
AGAIN_SECONDS = 60.0
"""How long no answer stands, and how long an answer outlives the last sight of its job."""
_PROGRAM_SECONDS = 600.0
_MOST_ASKED = 16
_MOST_STEPS = 64
_MOST_PIDS = 16
_CMDLINE_BYTES = 4096
_ENV = "/usr/bin/env"
"""Starts scontrol: it may lie on a network file system, and only the child may wait for that."""


def read_job_id(path: str, base: Path | None = None, proc: Path = Path("/proc")) -> str | None:
    """Return the job id of a job's cgroup v2 directory, None when it can't be told.

    Each step's slurmstepd sits in `step_*/slurm` and titles itself with the job id (Slurm 26.05
    names the directory by SLUID alone). Only root's directories and root's processes count.
    """
    try:
        folder = (cgroup_root("") if base is None else base) / path.strip("/")
        steps = sorted(folder.glob("step_*"))[:_MOST_STEPS]
    except OSError:
        return None
    found = {job for step in steps for job in _read_step_jobs(step, proc)}
    return found.pop() if len(found) == 1 else None


def _read_step_jobs(step: Path, proc: Path) -> list[str]:
    found = []
    try:
        daemons = step / "slurm"
        if any(folder.lstat().st_uid != 0 for folder in (step, daemons)):
            return []
        pids = (daemons / "cgroup.procs").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
    for pid in pids[:_MOST_PIDS]:
        try:
            status = parse_status((proc / pid / "status").read_text(encoding="utf-8", errors="replace"))
            with (proc / pid / "cmdline").open("rb") as file:
                title = file.read(_CMDLINE_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            continue
        job = parse_stepd_job(title) if set(status.uids) == {0} else None
        if job is not None:
            found.append(job)
    return found


def read_program(root: Path = Path("/"), named: str = "", known: Sequence[str] = PROGRAMS) -> str:
    """Return the path of a program if it is root's alone, "" when there is none.

    `named` is the one that the policy names (absolute, below the root); then no other is looked for.
    """
    for name in (named.lstrip("/"),) if named else known:
        if refuse_unsafe(root / name) is None:
            return str(root / name)
    return ""


@dataclass(frozen=True, slots=True)
class _Kept:
    """One job's answer, and when it was got or last wanted (monotonic)."""

    owner: JobOwner
    at: float


class JobOwners:
    """Remembers whose a job is while the job is seen; asks for it once, in the background."""

    __slots__ = ("_clock", "_find", "_known", "_left", "_patience_seconds", "_program", "_run", "_task")

    def __init__(
        self,
        find_program: Callable[[], Awaitable[str]],
        clock: Callable[[], float],
        *,
        patience_seconds: float = 0.0,
        run: RunPort = run_bounded,
    ) -> None:
        self._find = find_program
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._run = run
        self._known: Recent[str, _Kept] = Recent(1024)
        self._program: tuple[str, float] | None = None
        self._task: asyncio.Task[None] | None = None
        self._left: Child | None = None
        """A scontrol that SIGKILL did not end: while it lives no other is started."""

    async def owners(self, job_ids: Collection[str]) -> Mapping[str, JobOwner]:
        """Return what is known of these jobs, and ask for the rest; waits `patience_seconds` at most."""
        due = [job for job in sorted(job_ids) if self._is_due(job)]
        if due and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._ask(due[:_MOST_ASKED]))
            if self._patience_seconds:
                await asyncio.wait({self._task}, timeout=self._patience_seconds)
        return self.known(job_ids)

    def known(self, job_ids: Collection[str]) -> Mapping[str, JobOwner]:
        """Return what is known of these jobs, and ask nobody."""
        kept = {job: self._known.get(job) for job in job_ids}
        return {job: one.owner for job, one in kept.items() if one is not None}

    def _is_due(self, job: str) -> bool:
        """Tell whether a job is to be asked for; a known one that is still seen is not."""
        kept = self._known.get(job)
        now = self._clock()
        if kept is None or now >= kept.at + AGAIN_SECONDS:
            return True
        if kept.owner.user is not None:
            self._known.put(job, _Kept(kept.owner, now))
        return False

    async def _ask(self, jobs: Sequence[str]) -> None:
        """Ask the controller for each; the first that gets no answer ends it for all."""
        program = await self._found_program()
        answers = bool(program)
        for job in jobs:
            owner = await self._owner(program, job) if answers else None
            answers = owner is not None
            self._known.put(job, _Kept(owner or JobOwner(), self._clock()))

    async def _found_program(self) -> str:
        now = self._clock()
        if self._program is None or now >= self._program[1] + _PROGRAM_SECONDS:
            self._program = (await self._find(), now)
        return self._program[0]

    async def _owner(self, program: str, job: str) -> JobOwner | None:
        """Return the controller's answer, None when there is none in time."""
        if self._left is not None and self._left.code is None:
            return None
        try:
            ended = await self._run([_ENV, program, "show", "job", job], deadline_seconds=ASK_SECONDS)
        except (OSError, ValueError):
            return None
        if not isinstance(ended, Finished):
            self._left = ended.child
            return None
        if ended.code != 0 or len(ended.out) >= OUTPUT_LIMIT_BYTES:
            return JobOwner()
        return parse_job(ended.out, job)
