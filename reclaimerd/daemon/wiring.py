"""Give each port its implementation and join the rooms into one engine; the only place that knows all.

Builds, and decides nothing. The daemon and a command in the foreground are built alike; they differ
in who waits for whom, and a reader opens no store for writing.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.config.user_patterns import compile_patterns
from reclaimerd.config.xids import load_xids
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.drain_procedure import DrainProcedure
from reclaimerd.daemon.drain_tending import why_held
from reclaimerd.daemon.driver_watch import taken_up
from reclaimerd.daemon.engine import ROLES, Choice, Current, Engine, Paths, sampler_settings
from reclaimerd.daemon.groups import group_id
from reclaimerd.daemon.joints import Joints
from reclaimerd.daemon.last_look import Judged, LastLooker
from reclaimerd.daemon.looking import OneAtATime
from reclaimerd.daemon.past import read_stored
from reclaimerd.daemon.patience import settings_by_policy
from reclaimerd.daemon.recording import LoggedRecorder, RecordingPort
from reclaimerd.daemon.released import DriverRelease
from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.daemon.reset_tasks import ResetTasks
from reclaimerd.daemon.state import State
from reclaimerd.daemon.this_host import (
    host_name,
    read_ancestors,
    read_boot_id,
    read_own_ref,
    sees_host_pids,
)
from reclaimerd.daemon.warning_tasks import WarningTasks
from reclaimerd.daemon.wiring_drain import DrainHands, build_drain
from reclaimerd.daemon.wiring_eyes import (
    build_eyes,
    build_news,
    build_reset_eyes,
    starting_anew,
)
from reclaimerd.daemon.wiring_hands import HandParts, build_executor, build_reset, build_tool, sweep
from reclaimerd.daemon.wiring_outlets import build_outlets
from reclaimerd.daemon.wiring_workers import Probes, start_workers
from reclaimerd.daemon.writing import MadeNothing, claim_writer, has_living_writer
from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.protections import Ours
from reclaimerd.model.drain import NodeDrain
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Policy
from reclaimerd.observe.driver_grip import DriverGrip
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.sampler import Sampler
from reclaimerd.record.opening import Places, open_records
from reclaimerd.record.recorder import Recorder
from reclaimerd.record.store import Stored


async def build(
    paths: Paths, choice: Choice, loaded: LoadedPolicy, wake: Callable[[], None], probes: Probes | None = None
) -> Engine:
    """Return an engine, its records open and its memory loaded.

    `wake` asks for an early pass (a watched process ended). `probes` are those of `start_workers`, if
    it was called before; they are closed when this fails. Raises WriterBusyError, CorruptStoreError,
    RecordError.
    """
    boot_id = read_boot_id()
    me = read_own_ref(boot_id)
    policy = loaded.policy
    probes = await start_workers(paths) if probes is None else probes
    nvml, procfs, _door, *others = probes
    # The door keeps its own patience: a short limit for readings must not lock operators out.
    for probe in (nvml, procfs, *others):
        probe.take_limits(policy.workers)
    exits = ExitWatch(lambda _ref: wake())
    clocks = (time.monotonic, time.time)
    sampler = Sampler(nvml, procfs, sampler_settings(policy, boot_id), exits, clocks)
    engine = _Unfinished(paths, choice, Current(loaded), sampler, probes, exits, me, wake)
    try:
        return await _finish(engine)
    except BaseException:
        exits.close()
        for probe in probes:
            await probe.close()
        raise


@dataclass(frozen=True, slots=True)
class _Unfinished:
    paths: Paths
    choice: Choice
    current: Current
    sampler: Sampler
    probes: Probes
    exits: ExitWatch
    me: ProcessRef
    wake: Callable[[], None]


async def _finish(part: _Unfinished) -> Engine:
    recorder: Recorder | None = None
    recording: RecordingPort = MadeNothing()
    stored = Stored()
    taken_from: ProcessRef | None = None
    if not part.choice.read_only:
        taken_from = await claim_writer(
            part.paths.state_dir, part.me, part.probes[1], takeover=part.choice.takeover
        )
        recorder = Recorder(lambda: open_records(_places(part)))
        recording = recorder if part.choice.foreground else LoggedRecorder(recorder)
        try:
            stored = await recorder.load()
        except BaseException:
            await recorder.close()
            raise
        part.sampler.recall(stored.remembered, stored.baselines)
        await _adopt(part, stored)
    else:
        stored = await asyncio.to_thread(read_stored, part.paths.state_dir)
        if stored.abandoned and not await has_living_writer(part.paths.state_dir, part.probes[1]):
            await _adopt(part, stored)
    holder: list[Cycle] = []
    tasks: list[ResetTasks] = []
    drains: list[DrainProcedure] = []
    looker = LastLooker(part.probes[1], lambda: _judged(holder[0]))
    hands = _hands_of(part, recorder, holder)
    drain_hands = DrainHands(hands)
    executor = build_executor(hands, looker, drain_hands.plan)
    tool = build_tool(hands)
    if not part.choice.read_only:
        await sweep(tool, stored.ledger)
    part.sampler.use_reset_eyes(build_reset_eyes(part.paths, part.probes, hands.policy, tool.fault))
    eyes = build_eyes(part.sampler, part.paths, part.probes, hands.policy, foreground=part.choice.foreground)
    sampler = OneAtATime(eyes)
    news = build_news(part.paths, stored.ledger, part.me.boot_id)
    outlets, recording = build_outlets(hands, part.probes, part.choice, recording)
    joints = Joints(
        sampler=sampler,
        news=news,
        xids=load_xids(),
        driver_changed=starting_anew(part.probes[0]),
        begin_reset=lambda run: tasks[0].begin(run),  # noqa: PLW0108  # it is built after this
        recorder=recording,
        executor=executor,
        judge=_judge_of(part),
        ours=_ours_of(part),
        hold_file=standing_hold_file,
        clock=time.monotonic,
        plight_settings=settings_by_policy(),
        forget=executor.sights.forget,
        warnings=WarningTasks(executor, part.wake),
        look_after_drain=lambda: None if part.choice.read_only else drains[0].look_after(),
        drain_targets=lambda: tuple(drain_hands.targets()),
        host=host_name(),
        host_namespace=sees_host_pids(),
        foreground=part.choice.foreground,
        dry_run=part.choice.dry_run,
    )
    watch = taken_up(stored.abandoned, part.probes[0].abandoned)
    cycle = Cycle(
        part.current.loaded.policy,
        joints,
        State(ledger=stored.ledger, driver_watch=watch, last_acted=stored.last_acted),
    )
    holder.append(cycle)
    tasks.append(ResetTasks(ResetProcedure(build_reset(hands, tool, sampler, news)), part.wake))
    drains.append(build_drain(hands, drain_hands, lambda drain: _drain_held(drain, cycle), part.wake))
    return Engine(
        part.paths,
        part.choice,
        part.current,
        cycle,
        part.sampler,
        recorder,
        part.probes,
        part.exits,
        part.me,
        tasks[0],
        drains[0],
        news,
        hands.grip,
        DriverRelease(hands.grip),
        outlets,
        stored=stored,
        taken_from=taken_from,
    )


def _drain_held(drain: NodeDrain, cycle: Cycle) -> str:
    """Return why nothing of a drain request may leave this host now, or ""."""
    nobody_acts = "we run with --dry-run" if cycle.joints.dry_run else ""
    return why_held(drain, cycle.state, cycle.policy, (nobody_acts, standing_hold_file(cycle.policy)))


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


def _hands_of(part: _Unfinished, recorder: Recorder | None, holder: list[Cycle]) -> HandParts:
    return HandParts(
        paths=part.paths,
        boot_id=part.me.boot_id,
        policy=lambda: part.current.loaded.policy,
        cycle=lambda: holder[0],
        grip=DriverGrip(part.probes[0]),
        procfs=part.probes[1],
        recorder=recorder,
    )


def _places(part: _Unfinished) -> Places:
    return Places(
        state=part.paths.state_dir,
        log=part.paths.log_dir,
        boot_id=part.me.boot_id,
        settings=part.current.loaded.policy.audit,
        gid=group_id(part.current.loaded.policy.access.group),
    )


async def _adopt(part: _Unfinished, stored: Stored) -> None:
    roles = dict(zip(ROLES, part.probes, strict=True))
    for kept in stored.abandoned:
        if kept.ref.boot_id == part.me.boot_id and kept.role in roles:
            await roles[kept.role].adopt_abandoned(kept.ref, kept.silent_since)


def _ours_of(part: _Unfinished) -> Callable[[], Ours]:
    ancestors = read_ancestors(part.me.pid)

    def ours() -> Ours:
        workers = frozenset(pid for probe in part.probes for pid in probe.worker_pids())
        return Ours(part.me.pid, ancestors, workers)

    return ours


def _judge_of(part: _Unfinished) -> Callable[[], JudgeContext]:
    ours = _ours_of(part)
    compiled: dict[str, Callable[[str, str], bool]] = {}

    def judge() -> JudgeContext:
        loaded = part.current.loaded
        policy = loaded.policy
        if policy.digest not in compiled:
            compiled.clear()
            compiled[policy.digest] = compile_patterns(policy) if policy.rules else _no_pattern
        return JudgeContext(ours(), compiled[policy.digest], loaded.user_ids, loaded.group_ids)

    return judge


def _no_pattern(_pattern: str, _text: str) -> bool:
    return False


def _judged(cycle: Cycle) -> Judged:
    if cycle.state.snapshot is None:
        raise RuntimeError("a last look before the first look")
    hold = standing_hold_file(cycle.policy)
    return Judged(cycle.policy, cycle.state.snapshot, cycle.joints.judge(), hold)
