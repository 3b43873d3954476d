"""The real eyes and the real judge over whoever holds the GPU, look after look; nobody is touched."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.daemon.worker import command_for
from reclaimerd.judge.evaluate import Evaluation, JudgeContext, evaluate
from reclaimerd.judge.protections import Ours, program_globs
from reclaimerd.judge.series import Past, wants_freezers, wants_signs, wants_utilisation
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy, WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Reading
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import RuleReason, Sustained, Verdict
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.observe.sign_eyes import SignEyes

_PATIENT = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)


@dataclass(frozen=True, slots=True)
class Judged:
    """One look and what the rules say of it; `seconds` is how long the look took."""

    snapshot: Snapshot
    evaluation: Evaluation
    seconds: float

    def verdict(self, pid: int) -> Verdict | None:
        """Return the verdict on one process, None when it holds nothing."""
        return next((one for one in self.evaluation.verdicts if one.ref.pid == pid), None)

    def reason(self, pid: int, rule: str) -> RuleReason | None:
        """Return what one rule says of one process, None when it says nothing."""
        verdict = self.verdict(pid)
        reasons = () if verdict is None else verdict.reasons
        return next((one for one in reasons if one.rule == rule), None)

    def held_by(self, rule: str) -> set[int]:
        """Return the pids for whom a rule's condition holds, long enough or not."""
        return {kept.ref.pid for kept in self.evaluation.sustained if kept.rule == rule}

    def ref(self, pid: int) -> ProcessRef:
        """Return the identity of a process that was read in this look."""
        return self.snapshot.processes[pid].ref

    def used(self, pid: int) -> Reading[int]:
        """Return the bytes that the driver lists for a process on its first GPU."""
        return next(row.used_bytes for row in self.snapshot.holders if row.ref.pid == pid)


@dataclass(slots=True)
class _Mind:
    """What the judge remembers from look to look."""

    sustained: tuple[Sustained, ...] = ()
    past: Past = field(default_factory=Past)


class Watcher:
    """The workers, the sampler over them and the judge, all as the daemon joins them."""

    def __init__(self, policy: Policy, simulate: Path | None = None) -> None:
        self._policy = policy
        self.nvml = Probe("nvml", command_for("nvml", simulate), _PATIENT)
        self._procfs = Probe("procfs", command_for("procfs"), _PATIENT)
        self._signs = Probe("signs", command_for("procfs"), _PATIENT)
        self._exits = ExitWatch()
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        settings = SamplerSettings(boot_id, program_globs())
        clocks = (time.monotonic, time.time)
        sampler = Sampler(self.nvml, self._procfs, settings, self._exits, clocks)
        self._eyes = SignEyes(sampler, self._signs, time.monotonic)
        self._mind = _Mind()

    def wanted(self) -> Look:
        """Return what the policy's rules need of a look, as the daemon asks for it."""
        rules = self._policy
        return Look(
            utilisation=wants_utilisation(rules), freezers=wants_freezers(rules), signs=wants_signs(rules)
        )

    async def look(self) -> Judged:
        """Take one look and judge it."""
        began = time.monotonic()
        snapshot = await self._eyes.sample(self.wanted())
        seconds = time.monotonic() - began
        workers = (*self.nvml.worker_pids(), *self._procfs.worker_pids(), *self._signs.worker_pids())
        ours = Ours(os.getpid(), workers=frozenset(workers))
        context = JudgeContext(ours, lambda _pattern, _text: False, {})
        found = evaluate(snapshot, self._policy, self._mind.sustained, context, self._mind.past)
        self._mind = _Mind(found.sustained, found.past)
        return Judged(snapshot, found, seconds)

    async def close(self) -> None:
        """End the workers."""
        self._exits.close()
        for probe in (self.nvml, self._procfs, self._signs):
            await probe.close()


@asynccontextmanager
async def watcher(policy: Policy, simulate: Path | None = None) -> AsyncIterator[Watcher]:
    """Give a watcher, and end its workers."""
    one = Watcher(policy, simulate)
    try:
        yield one
    finally:
        await one.close()


def watched_until(
    true: Callable[[list[Judged]], bool], policy: Policy, most_seconds: float, simulate: Path | None = None
) -> list[Judged]:
    """Return all looks, one each interval, up to the one by which this is true; bounded."""

    async def run() -> list[Judged]:
        found: list[Judged] = []
        async with watcher(policy, simulate) as eyes:
            began = time.monotonic()
            while not found or not true(found):
                assert time.monotonic() < began + most_seconds, _last_words(found)
                pause = began + len(found) * policy.interval_seconds - time.monotonic()
                await asyncio.sleep(max(0.0, pause))
                found.append(await eyes.look())
        return found

    return asyncio.run(run())


def _last_words(found: list[Judged]) -> str:
    verdicts = found[-1].evaluation.verdicts if found else ()
    return f"not by then; the last look says: {list(_words(verdicts))}"


def _words(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    for verdict in verdicts:
        reasons = "; ".join(f"{one.rule or 'doubt'}: {one.text}" for one in verdict.reasons)
        yield f"pid {verdict.ref.pid} {verdict.ruling}: {reasons}"


def tell(case: str, **figures: object) -> None:
    """Print the figures of one case in one line."""
    sys.stdout.write(f"\nFIGURES {json.dumps({'case': case, **figures})}\n")
