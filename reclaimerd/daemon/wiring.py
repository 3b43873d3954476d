"""Give each port its implementation and join the rooms into one engine; the only place that knows all.

Builds, and decides nothing. The daemon and a command in the foreground are built alike; they differ
in who waits for whom, and a reader opens no store for writing.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.act.drain_hook import DrainFile, drain_request
from reclaimerd.act.executor import Executor
from reclaimerd.act.members import Admitted, NotAdmitted
from reclaimerd.act.reset import VendorReset, tool_fault
from reclaimerd.config.load import LoadedPolicy
from reclaimerd.config.user_patterns import compile_patterns
from reclaimerd.daemon.cycle import Cycle, Joints, State
from reclaimerd.daemon.groups import group_id
from reclaimerd.daemon.last_look import Judged, LastLooker
from reclaimerd.daemon.this_host import host_name, read_ancestors, read_boot_id, read_own_ref, sees_host_pids
from reclaimerd.daemon.writing import MadeNothing, claim_writer
from reclaimerd.errors import RecordError
from reclaimerd.host.child import Finished, Overran, run_bounded
from reclaimerd.host.files import ensure_directory
from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.exit_path import state_word
from reclaimerd.judge.protections import Ours, program_globs
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import RecorderPort
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import DrainRequest, Step
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from reclaimerd.record.opening import Places, open_records
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
class Engine:
    """One engine, built; `close` ends its workers within a bound."""

    paths: Paths
    choice: Choice
    loaded: LoadedPolicy
    cycle: Cycle
    sampler: Sampler
    recorder: Recorder | None
    probes: tuple[Probe, Probe]
    exits: ExitWatch
    me: ProcessRef
    names: Mapping[str, int] = field(default_factory=dict)
    stored: Stored = field(default_factory=Stored)

    @property
    def nvml(self) -> Probe:
        """Return the nvml worker's probe."""
        return self.probes[0]

    @property
    def procfs(self) -> Probe:
        """Return the procfs worker's probe."""
        return self.probes[1]

    def take_policy(self, loaded: LoadedPolicy) -> None:
        """Let a new policy hold from the next pass on; open incidents keep their plans."""
        self.loaded = loaded
        self.cycle.policy = loaded.policy
        self.sampler.take_settings(_sampler_settings(loaded.policy, self.me.boot_id))

    async def close(self) -> None:
        """End the workers, the watch and the records; bounded, also when a worker is stuck."""
        self.exits.close()
        for probe in self.probes:
            await probe.close()
        if self.recorder is not None:
            await self.recorder.close()


async def build(paths: Paths, choice: Choice, loaded: LoadedPolicy, wake: Callable[[], None]) -> Engine:
    """Return an engine, its records open and its memory loaded.

    `wake` asks for an early pass (a watched process ended). Raises WriterBusyError,
    CorruptStoreError, RecordError.
    """
    boot_id = read_boot_id()
    me = read_own_ref(boot_id)
    policy = loaded.policy
    nvml = Probe("nvml", _command("nvml", paths.simulate), policy.workers)
    procfs = Probe("procfs", _command("procfs", None), policy.workers)
    nvml.explain_by(procfs.read_stack)
    exits = ExitWatch(lambda _ref: wake())
    clocks = (time.monotonic, time.time)
    sampler = Sampler(nvml, procfs, _sampler_settings(policy, boot_id), exits, clocks)
    engine = _Unfinished(paths, choice, loaded, sampler, (nvml, procfs), exits, me)
    try:
        return await _finish(engine)
    except BaseException:
        exits.close()
        await nvml.close()
        await procfs.close()
        raise


@dataclass(frozen=True, slots=True)
class _Unfinished:
    paths: Paths
    choice: Choice
    loaded: LoadedPolicy
    sampler: Sampler
    probes: tuple[Probe, Probe]
    exits: ExitWatch
    me: ProcessRef


async def _finish(part: _Unfinished) -> Engine:
    recorder: Recorder | None = None
    recording: RecorderPort = MadeNothing()
    stored = Stored()
    if not part.choice.read_only:
        await claim_writer(part.paths.state_dir, part.me, part.probes[1], takeover=part.choice.takeover)
        recorder = Recorder(lambda: open_records(_places(part)))
        recording = recorder
        try:
            stored = await recorder.load()
        except BaseException:
            await recorder.close()
            raise
        part.sampler.recall(stored.remembered, stored.baselines)
        await _adopt(part, stored)
    holder: list[Cycle] = []
    looker = LastLooker(part.probes[1], lambda: _judged(holder[0]))
    joints = Joints(
        sampler=part.sampler,
        recorder=recording,
        executor=_executor(part, looker, recorder, holder),
        judge=_judge_of(part, holder),
        ours=_ours_of(part),
        hold_file=standing_hold_file,
        clock=time.monotonic,
        host_namespace=sees_host_pids(),
        foreground=part.choice.foreground,
        dry_run=part.choice.dry_run,
    )
    cycle = Cycle(part.loaded.policy, joints, State(ledger=stored.ledger))
    holder.append(cycle)
    return Engine(
        part.paths,
        part.choice,
        part.loaded,
        cycle,
        part.sampler,
        recorder,
        part.probes,
        part.exits,
        part.me,
        stored=stored,
    )


def standing_hold_file(policy: Policy) -> str:
    """Return the first HOLD file that stands, or ""; one that can't be looked for counts as standing."""
    for name in policy.gates.hold_files:
        try:
            Path(name).lstat()
        except FileNotFoundError:
            continue
        except OSError:
            return name
        return name
    return ""


def reset_fault(engine: Engine) -> str:
    """Return why the vendor's reset tool can't be run here, or ""."""
    simulate = engine.paths.simulate
    if simulate is not None:
        return tool_fault(str(simulate / "nvidia-smi"), any_owner=True)
    fault = tool_fault(engine.cycle.policy.nvidia_smi)
    return fault or "the tool can't be placed outside our cgroup yet, so no reset is run on a real host"


def _places(part: _Unfinished) -> Places:
    return Places(
        state=part.paths.state_dir,
        log=part.paths.log_dir,
        boot_id=part.me.boot_id,
        settings=part.loaded.policy.audit,
        gid=group_id(part.loaded.policy.access.group),
    )


def _sampler_settings(policy: Policy, boot_id: str) -> SamplerSettings:
    return SamplerSettings(boot_id, program_globs(policy.protections), policy.full_scan_seconds)


async def _adopt(part: _Unfinished, stored: Stored) -> None:
    roles = dict(zip(("nvml", "procfs"), part.probes, strict=True))
    for kept in stored.abandoned:
        if kept.ref.boot_id == part.me.boot_id and kept.role in roles:
            await roles[kept.role].adopt_abandoned(kept.ref)


def _command(role: str, simulate: Path | None) -> Callable[[int], list[str]]:
    def argv(fd: int) -> list[str]:
        words = [sys.executable, "-m", "reclaimerd.daemon.worker", "--role", role, "--fd", str(fd)]
        return words if simulate is None else [*words, "--simulate", str(simulate)]

    return argv


def _ours_of(part: _Unfinished) -> Callable[[], Ours]:
    ancestors = read_ancestors(part.me.pid)

    def ours() -> Ours:
        workers = frozenset(pid for probe in part.probes for pid in probe.worker_pids())
        return Ours(part.me.pid, ancestors, workers)

    return ours


def _judge_of(part: _Unfinished, holder: list[Cycle]) -> Callable[[], JudgeContext]:
    ours = _ours_of(part)
    compiled: dict[str, Callable[[str, str], bool]] = {}
    users = part.loaded.user_ids

    def judge() -> JudgeContext:
        policy = holder[0].policy if holder else part.loaded.policy
        if policy.digest not in compiled:
            compiled.clear()
            compiled[policy.digest] = compile_patterns(policy) if policy.rules else _no_pattern
        return JudgeContext(ours=ours(), patterns=compiled[policy.digest], user_ids=users)

    return judge


def _no_pattern(_pattern: str, _text: str) -> bool:
    return False


def _judged(cycle: Cycle) -> Judged:
    if cycle.state.snapshot is None:
        raise RuntimeError("a last look before the first look")
    hold = standing_hold_file(cycle.policy)
    return Judged(cycle.policy, cycle.state.snapshot, cycle.joints.ours(), hold)


def _executor(
    part: _Unfinished, looker: LastLooker, recorder: Recorder | None, holder: list[Cycle]
) -> Executor:
    policy = part.loaded.policy
    simulated = part.paths.simulate is not None
    tool = policy.nvidia_smi if part.paths.simulate is None else str(part.paths.simulate / "nvidia-smi")

    async def members(step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
        found = await looker.members(step, pids)
        return NotAdmitted(found) if isinstance(found, str) else Admitted(found)

    async def run(
        argv: Sequence[str], *, deadline_seconds: float, kill_at_deadline: bool
    ) -> Finished | Overran:
        return await run_bounded(argv, deadline_seconds=deadline_seconds, kill_at_deadline=kill_at_deadline)

    async def write(path: Path, content: bytes) -> None:
        if recorder is None:
            raise RecordError("this engine only reads and writes no request")
        await recorder.off_loop(lambda: ensure_directory(path.parent, 0o700), "making the drain directory")
        await recorder.write_file(path, content)

    directory = Path(policy.drain.directory) if policy.drain.directory else part.paths.state_dir / "drain"
    return Executor(
        look_again=looker,
        judge_members=members,
        reset=VendorReset(tool, policy.ladder.reset_seconds, run, placed_outside=False, simulated=simulated),
        drain=DrainFile(directory, write),
        describe=lambda step: _describe(step, holder[0].state.snapshot),
        boot_id=part.me.boot_id,
    )


def _describe(step: Step, snapshot: Snapshot | None) -> DrainRequest:
    evidence = []
    for ref in step.targets:
        reading = snapshot.process(ref) if snapshot is not None else None
        if reading is not None:
            evidence.append(f"pid {ref.pid}: {state_word(reading)}")
    return drain_request(step, host=host_name(), asked_at=time.time(), evidence=tuple(evidence))
