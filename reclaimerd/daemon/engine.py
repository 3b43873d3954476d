"""One engine, as `wiring` built it: its parts, where its things lie, and how it ends.

Builds nothing and decides nothing.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.drain_procedure import DrainProcedure
from reclaimerd.daemon.news import News
from reclaimerd.daemon.outlets import Outlets
from reclaimerd.daemon.released import DriverRelease
from reclaimerd.daemon.reset_tasks import ResetTasks
from reclaimerd.daemon.rule_counts import RuleCounts
from reclaimerd.judge.protections import program_globs
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy
from reclaimerd.observe.driver_grip import DriverGrip
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import Stored


@dataclass(frozen=True, slots=True)
class Paths:
    """Where this engine's things lie; `simulate` is a simulated host's directory, or None."""

    state_dir: Path
    log_dir: Path
    socket: Path
    config: Path | None = None
    simulate: Path | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """How the engine is used: in the foreground, only reading, dry run for everybody."""

    foreground: bool = False
    read_only: bool = False
    dry_run: bool = False
    takeover: bool = False


@dataclass(slots=True)
class Current:
    """The policy in force, as it was loaded: whoever judges asks here each time."""

    loaded: LoadedPolicy


ROLES = ("nvml", "procfs", "door", "kubelet", "cluster", "signs", "cri")
"""The workers by name; `door` starts with the first call on the control socket, the others where there is
whom to ask, and `signs` where a rule needs to know what programs are."""


@dataclass(slots=True)
class Engine:
    """One engine, built; `close` ends its workers within a bound."""

    paths: Paths
    choice: Choice
    current: Current
    cycle: Cycle
    sampler: Sampler
    recorder: Recorder | None
    probes: tuple[Probe, ...]
    """In the order of ROLES."""
    exits: ExitWatch
    me: ProcessRef
    resets: ResetTasks
    drains: DrainProcedure
    news: News
    grip: DriverGrip
    """Our hold on the driver: one for resets and for a person who works on it by hand."""
    release: DriverRelease
    outlets: Outlets
    """Metrics and notices."""
    rule_counts: RuleCounts = field(default_factory=RuleCounts)
    """What the rules said since the last record of it."""
    stored: Stored = field(default_factory=Stored)
    taken_from: ProcessRef | None = None
    """The living writer that was ended with SIGKILL so that we could write: not on record yet."""

    @property
    def nvml(self) -> Probe:
        """Return the nvml worker's probe."""
        return self.probes[0]

    @property
    def procfs(self) -> Probe:
        """Return the procfs worker's probe."""
        return self.probes[1]

    @property
    def door(self) -> Probe:
        """Return the probe that reads where callers come from: a search must not lock them out."""
        return self.probes[2]

    def take_policy(self, loaded: LoadedPolicy) -> None:
        """Let a new policy hold from the next pass on; open incidents keep their plans."""
        self.current.loaded = loaded
        self.cycle.policy = loaded.policy
        self.sampler.take_settings(sampler_settings(loaded.policy, self.me.boot_id))

    async def close(self) -> None:
        """End the workers, the watch and the records; bounded, also when a worker is stuck."""
        self.exits.close()
        self.release.stop()
        await self.resets.stop()
        await self.drains.stop()
        await self.cycle.joints.warnings.stop()
        await self.outlets.stop()
        self.news.close()
        await asyncio.gather(*(probe.close() for probe in self.probes))
        if self.recorder is not None:
            await self.recorder.close()


def sampler_settings(policy: Policy, boot_id: str) -> SamplerSettings:
    """Return what a policy means for the eyes."""
    return SamplerSettings(boot_id, program_globs(policy.protections), policy.full_scan_seconds)
