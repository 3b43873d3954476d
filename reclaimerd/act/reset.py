"""Make the vendor's reset tool ready, give it the word once, wait for it with a bound, and find it again.

It may not judge whether a reset is due, stop clients, try twice, or signal the tool: a reset that is
cut in the middle leaves the GPU in a state nobody can name. At its deadline the tool is left alone.
"""

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.act.placement import Place, Placed
from reclaimerd.act.programs import program_fault
from reclaimerd.act.reset_files import Claim, Trace, Word, give_word, read_trace, run_fault, take_claim
from reclaimerd.act.reset_runner import WORD_SECONDS
from reclaimerd.act.reset_sweep import swept
from reclaimerd.host import child as children
from reclaimerd.host.files import ensure_directory
from reclaimerd.model.identity import AttemptId, GpuUuid, ProcessRef
from reclaimerd.model.ports import (
    ToolEnded,
    ToolNeverRan,
    ToolRuns,
    ToolState,
    ToolUnknown,
    ToolVanished,
    ToolWaits,
)

READY_SECONDS = 10.0
"""How long a runner may need to stand ready; past that we claim the run, and it never will."""
TAKE_SECONDS = 0.05
"""How long after its time is up a word that was taken in time may need to show as claimed."""
BEGIN_SECONDS = 10.0
"""How long a runner that has claimed the run may need to tell when the tool began."""
POLL_SECONDS = 0.05
_BEGIN_POLL_SECONDS = 0.01
_UUID = re.compile(r"GPU-[0-9A-Za-z][0-9A-Za-z-]*")
_NEVER = "the tool did not start, and never will"
_WITHDRAWN = "it was made ready and not given the word; nothing was reset"


@dataclass(frozen=True, slots=True)
class ResetTool:
    """`nvidia-smi --gpu-reset -i UUID[,UUID]`, the vendor's only supported door (`ResetToolPort`).

    `start_ticks_of` returns a live pid's start ticks (None: gone or not to be read), `stack_of` its kernel
    stack (""), both the procfs worker's. `any_owner`: the tool is the simulation's. A runner that stands
    ready leaves after `word_within` seconds without the word.
    """

    tool: str
    directory: Path
    place: Place
    boot_id: str
    start_ticks_of: Callable[[int], Awaitable[int | None]]
    stack_of: Callable[[int], Awaitable[str]]
    any_owner: bool = False
    word_within: float = WORD_SECONDS

    def fault(self) -> str:
        """Return why it can't be run here, or ""."""
        return tool_fault(self.tool, any_owner=self.any_owner) or self.place.fault()

    async def prepare(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> str:
        """Have a runner stand ready for these GPUs, or return why none does, and none ever will."""
        why = self._refusal(run, gpus)
        if why:
            return why
        try:
            if await self._trace(run) != Trace():
                return f"run {run} was made ready before"
            await asyncio.to_thread(ensure_directory, self.directory, 0o700)
        except (OSError, ValueError) as error:
            return f"{self.directory} can't be used ({error})"
        placed = await self.place.start(run, self._command(run, gpus))
        why = placed.why or await self._ready(run, placed)
        if why:
            await self._wait(run, 0.0, why)
        return why

    async def start(self, run: AttemptId, not_after: float) -> ToolState | ToolWaits:
        """Give the word, good until `not_after` (monotonic seconds), and see whether it is taken."""
        try:
            await asyncio.to_thread(give_word, self.directory, run, Word(time.monotonic(), not_after))
        except OSError as error:
            # It may stand there for all that: only a claim tells.
            return ToolWaits(f"the word could not be given: {self.directory}: {error.strerror}")
        return await self._begun(run, not_after)

    async def withdraw(self, run: AttemptId) -> ToolState:
        """Claim the run: what stands ready leaves. ToolNeverRan, unless it has taken the word already."""
        return await self._wait(run, 0.0, _WITHDRAWN)

    async def wait(self, run: AttemptId, seconds: float) -> ToolState:
        """Return what became of it, waiting at most so long for its end; claims one that never ran."""
        return await self._wait(run, seconds, _NEVER)

    async def sweep(self, keep: Collection[AttemptId]) -> str:
        """Remove what old runs have left; return why something stays that should not, or ""."""
        return await asyncio.to_thread(swept, self.directory, keep)

    def _refusal(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> str:
        """Return why the tool is not made ready, or ""."""
        bad = [gpu for gpu in gpus if not _UUID.fullmatch(gpu)]
        if bad:
            return f"{bad[0]!r} is no UUID of a whole GPU"
        if not gpus or len(set(gpus)) < len(gpus):
            return "a reset names each of its GPUs once"
        return run_fault(run) or self.fault()

    def _command(self, run: AttemptId, gpus: tuple[GpuUuid, ...]) -> tuple[str, ...]:
        """Return the runner's command line, as isolated from the environment as we are ourselves."""
        isolation = "-I" if sys.flags.isolated else "-P"
        head = (sys.executable, isolation, "-m", "reclaimerd.act.reset_runner")
        where = ("--dir", str(self.directory), "--run", run, f"--outside-of={self.place.outside_of}")
        when = (f"--word-within={self.word_within:g}",)
        return (*head, *where, *when, "--", self.tool, "--gpu-reset", "-i", ",".join(gpus))

    async def _ready(self, run: AttemptId, placed: Placed) -> str:
        """Wait until the runner stands ready; return why it does not, or ""."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            gone = placed.child is not None and children.reap(placed.child) is not None
            try:
                trace = await self._trace(run)
            except (OSError, ValueError) as error:
                return f"what stands of run {run} in {self.directory} can't be read ({error})"
            if trace.ended is not None:
                return trace.ended.why
            if trace.claim is None and trace.ready is not None and not gone:
                return ""
            if gone:
                return "the runner of the reset tool ended before it stood ready"
            await asyncio.sleep(_BEGIN_POLL_SECONDS)
        return f"the runner of the reset tool did not stand ready within {READY_SECONDS:g} s"

    async def _begun(self, run: AttemptId, not_after: float) -> ToolState | ToolWaits:
        """Wait until the tool has begun, or the word was not taken in its time."""
        trace = Trace()
        while time.monotonic() <= not_after + BEGIN_SECONDS:
            now = time.monotonic()
            with suppress(OSError, ValueError):
                trace = await self._trace(run)
                if trace.claim is None and now > not_after + TAKE_SECONDS:
                    return ToolWaits("the word was not taken in its time")
            if trace.claim is not None and trace.claim.runner is not None and trace.started is not None:
                return ToolRuns(trace.claim.runner, began_at=trace.started.began_at)
            if trace.ended is not None or (trace.claim is not None and trace.claim.runner is None):
                break
            await asyncio.sleep(_BEGIN_POLL_SECONDS)
        return await self._wait(run, 0.0, _NEVER)

    async def _wait(self, run: AttemptId, seconds: float, why: str) -> ToolState:
        """Do as `wait` says; `why` is said of a run that never ran."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                state = await self._look(run, left, why)
            except (OSError, ValueError) as error:
                state = ToolUnknown(f"what stands of run {run} in {self.directory} can't be read ({error})")
                if left > 0:
                    await asyncio.sleep(min(POLL_SECONDS, left))
                    continue
            if state is not None and (left <= 0 or not isinstance(state, ToolRuns)):
                return state

    async def _look(self, run: AttemptId, left: float, why: str) -> ToolState | None:
        """Return the state after at most `left` seconds; None when somebody else has just claimed it."""
        trace = await self._trace(run)
        if trace.claim is None:
            claimed = await asyncio.to_thread(self._claim, run, why)
            return ToolNeverRan(why) if claimed else None
        runner = trace.claim.runner
        if trace.ended is not None or runner is None:
            return _end_of(trace)
        if await self._is_gone(runner, left):
            return _end_of(await self._trace(run))
        evidence = "" if left > 0 else await self._evidence(trace)
        return ToolRuns(runner, evidence)

    def _claim(self, run: AttemptId, why: str) -> bool:
        """Take the run for ourselves: from then on no tool runs under its name. Raises OSError."""
        ensure_directory(self.directory, 0o700)
        return take_claim(self.directory, run, Claim(None, why))

    async def _trace(self, run: AttemptId) -> Trace:
        """Read what stands of the run, off the loop."""
        return await asyncio.to_thread(read_trace, self.directory, run)

    async def _is_gone(self, runner: ProcessRef, seconds: float) -> bool:
        """Tell whether the runner is gone, waiting at most so long; what can't be told is not gone."""
        if runner.boot_id != self.boot_id:
            return True
        seen = children.adopt(runner.pid)
        if seen is None:
            # No descriptor to be had is no sign of a death: only a missing process is.
            if not _has_process(runner.pid):
                return True
            await asyncio.sleep(min(POLL_SECONDS, seconds))
            return False
        try:
            ticks = await self.start_ticks_of(runner.pid)
            if ticks is not None and ticks != runner.start_ticks:
                return True
            return await children.wait(seen, seconds) is not None
        finally:
            children.let_go(seen)

    async def _evidence(self, trace: Trace) -> str:
        """Return the tool's kernel stack, where that can be read."""
        if trace.started is None:
            return ""
        pid = trace.started.tool_pid
        stack = await self.stack_of(pid)
        return f"pid {pid}: {stack}" if stack else ""


def _has_process(pid: int) -> bool:
    """Tell whether any process has this pid (a look at /proc's own listing, which never waits on it)."""
    return Path(f"/proc/{pid}").exists()


def _end_of(trace: Trace) -> ToolState:
    """Return the state of a run whose runner is gone, never was, or left its end.

    A runner that is gone without an end may have run the tool: it claims right before that.
    """
    match trace:
        case Trace(ended=ended) if ended is not None:
            return ToolNeverRan(ended.why) if ended.code is None else ToolEnded(ended.code, ended.text)
        case Trace(claim=claim) if claim is not None and claim.runner is None:
            return ToolNeverRan(claim.why or _NEVER)
        case Trace(claim=claim):
            who = "nobody" if claim is None else claim.runner
            return ToolVanished(f"the runner of the reset tool ({who}) is gone and left no end")


def tool_fault(tool: str, *, any_owner: bool = False) -> str:
    """Return why the vendor's tool may not be run as root, or ""."""
    fault = program_fault(tool, any_owner=any_owner)
    return f"{fault}; set nvidia_smi to the vendor's tool, as root's alone" if fault else ""
