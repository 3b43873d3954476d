"""reclaimerd: the daemon's command. Loads the policy, builds the engine, runs the loop, ends within 5 s."""

import argparse
import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd import __version__
from reclaimerd.config.load import DEFAULT_PATH, LoadedPolicy, load
from reclaimerd.daemon.api import Api
from reclaimerd.daemon.door import Door
from reclaimerd.daemon.engine import Choice, Paths
from reclaimerd.daemon.http_server import HttpServer
from reclaimerd.daemon.metrics_door import open_metrics
from reclaimerd.daemon.notify import notify
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.past import read_stored
from reclaimerd.daemon.reloading import Reload
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.this_host import on_this_host, sees_host_pids
from reclaimerd.daemon.wiring import build
from reclaimerd.errors import ConfigError, ExitCode, ReclaimerdError, UnsuitableHostError
from reclaimerd.model.policy import Policy
from reclaimerd.model.reset_run import ChangeState, ResetPhase, ResetRun
from reclaimerd.record import logs

STATE_DIRECTORY = Path("/var/lib/reclaimerd")
LOG_DIRECTORY = Path("/var/log/reclaimerd")
SOCKET = Path("/run/reclaimerd/reclaimerd.sock")
RESTORE_SECONDS = 12.0
"""How long --restore waits for what it asked for: TimeoutStopSec=20s ends it, and it must speak before."""
MOST_VERIFY_SECONDS = 5.0
"""How much of it a GPU may take to come back; the units that were stopped for it come after."""
PROMISED_SECONDS = 4.8
STOP_SECONDS = 2.5
"""SIGTERM promises 5 s in any state, an act under way has 2 of them; the rest is left to the kernel."""


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, read."""

    paths: Paths
    once: bool
    dry_run: bool
    restore: bool = False


def main() -> None:
    """Run the daemon, and leave with its exit code."""
    options = _options(sys.argv[1:])
    try:
        code = restore(options) if options.restore else run(options)
    except ConfigError as error:
        sys.stderr.write("\n".join(error.faults) + "\n")
        code = error.exit_code
    except ReclaimerdError as error:
        sys.stderr.write(f"reclaimerd: {error}\n")
        code = error.exit_code
    except KeyboardInterrupt:
        code = ExitCode.OK
    sys.stderr.flush()
    # A thread that hangs on a dead disk, or a stuck worker, must not keep the process from ending.
    os._exit(int(code))


def run(options: Options) -> ExitCode:
    """Run the daemon until it is asked to stop. Raises ReclaimerdError for whatever prevents a start."""
    if not sees_host_pids() and options.paths.simulate is None:
        raise UnsuitableHostError(
            "this is not the host's PID namespace, so NVML's pids mean nothing here",
            "run it on the host, or give the pod hostPID: true",
        )
    lines = logs.configure(journal=logs.journal_attached(sys.stderr))
    try:
        return asyncio.run(_serve(options))
    finally:
        lines.close()


def restore(options: Options) -> ExitCode:
    """Put back what a reset that was cut off had stopped, and end; for the service manager, after our end.

    A reset whose tool may be running is left to itself: the next start goes on with it.
    """
    state_dir = options.paths.state_dir
    if not any(not run.is_done for run in read_stored(state_dir).ledger.resets):
        return ExitCode.OK
    return asyncio.run(_restore(options))


async def _restore(options: Options) -> ExitCode:
    try:
        loaded = await asyncio.to_thread(_load, options)
    except ReclaimerdError as error:  # what was stopped must come back whatever the file says
        sys.stderr.write(f"reclaimerd: {error}\nreclaimerd: putting back by the built-in policy\n")
        loaded = LoadedPolicy(Policy())
    loaded = in_haste(loaded)
    pacing = Pacing(asyncio.get_running_loop().time)
    engine = await build(options.paths, Choice(foreground=True), loaded, pacing.wake)
    service = Service(engine, pacing)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(RESTORE_SECONDS):
                await engine.resets.put_back(engine.cycle.state.ledger)
        for run in engine.cycle.state.ledger.resets:
            if not run.is_done:
                sys.stderr.write(f"reclaimerd: reset {run.id}: {left_words(run)}\n")
    finally:
        await engine.close()
        await asyncio.to_thread(_release, service)
    return ExitCode.OK


def in_haste(loaded: LoadedPolicy) -> LoadedPolicy:
    """Return the policy for a process that the service manager ends soon."""
    reset = loaded.policy.reset
    reset = replace(reset, verify_seconds=min(reset.verify_seconds, MOST_VERIFY_SECONDS))
    return replace(loaded, policy=replace(loaded.policy, reset=reset))


def left_words(run: ResetRun) -> str:
    """Return what is still open of a reset, for the journal; the next start goes on with it."""
    if run.phase in (ResetPhase.RESET, ResetPhase.LEFT_ALONE):
        return "its tool may be running, so nothing is put back yet"
    left = ", ".join(one.name for one in run.changes if one.state is ChangeState.MADE)
    return (
        f"not seen to be put back in time: {left or 'nothing'}; "
        "see `systemctl status` of each unit, the next start of reclaimerd goes on with it"
    )


async def _serve(options: Options) -> ExitCode:
    loaded = await asyncio.to_thread(_load, options)
    for warning in loaded.warnings:
        logs.warning("policy_warning", text=warning)
    pacing = Pacing(asyncio.get_running_loop().time)
    engine = await build(options.paths, Choice(dry_run=options.dry_run), loaded, pacing.wake)
    service = Service(engine, pacing)
    door = Door(service)
    reload = Reload(service, lambda: _load(options), door.open_to)
    metrics: HttpServer | None = None
    try:
        await service.resume()
        _listen_to_signals(service, reload)
        if not options.once:
            await door.open(Api(service, reload))
            metrics = await open_metrics(loaded.policy.metrics.listen, engine.outlets.text)
        await service.run(once=options.once)
    finally:
        notify("STOPPING=1")
        logs.event("stopping")
        await _end(service, door, metrics)
    return ExitCode.OK


async def _end(service: Service, door: Door, metrics: HttpServer | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await door.close()
            if metrics is not None:
                await metrics.close()
            await service.stop()
    await asyncio.to_thread(_release, service)


def _release(service: Service) -> None:
    from reclaimerd.record.writer_claim import release  # noqa: PLC0415  # only at the end

    with suppress(ReclaimerdError, OSError):
        release(service.engine.paths.state_dir, service.engine.me)


def _listen_to_signals(service: Service, reload: Reload) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        service.pacing.stop()
        # A thread that hangs on a disk or a name service would hold up the loop's own end.
        last = threading.Timer(PROMISED_SECONDS, os._exit, (int(ExitCode.OK),))
        last.daemon = True
        last.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    tasks: set[asyncio.Task[None]] = set()

    def hang_up() -> None:
        task = loop.create_task(_reloaded(reload))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    loop.add_signal_handler(signal.SIGHUP, hang_up)


async def _reloaded(reload: Reload) -> None:
    """Take the policy file anew; why a bad one is refused is in the log and on record."""
    with suppress(ReclaimerdError):
        await reload.take()


def _load(options: Options) -> LoadedPolicy:
    return on_this_host(load(options.paths.config, enforce_ownership=True))


def option_parser() -> argparse.ArgumentParser:
    """Return what reads the command's options."""
    parser = argparse.ArgumentParser(
        prog="reclaimerd",
        description="Takes GPUs back from processes that will not give them up, one proven step at a time.",
        epilog="Exit codes: 0 stopped as asked, 2 usage, bad policy or unsuitable host, 3 another writer is "
        "alive, 11 corrupt store.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help=f"the policy (default {DEFAULT_PATH})")
    parser.add_argument("--once", action="store_true", help="make one pass and end")
    parser.add_argument(
        "--restore", action="store_true", help="put back what a reset that was cut off had stopped, and end"
    )
    parser.add_argument("--dry-run", action="store_true", help="act on nothing, for nobody")
    parser.add_argument("--simulate", type=Path, metavar="DIR", help="a simulated GPU host, not this one")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help=f"default {STATE_DIRECTORY}")
    parser.add_argument(
        "--log-dir", type=Path, metavar="DIR", help=f"the audit log's (default {LOG_DIRECTORY})"
    )
    parser.add_argument("--socket", type=Path, metavar="FILE", help=f"the control socket (default {SOCKET})")
    parser.add_argument("--version", action="version", version=f"reclaimerd {__version__}")
    return parser


def _options(words: list[str]) -> Options:
    given = option_parser().parse_args(words)
    simulate = given.simulate
    paths = Paths(
        state_dir=given.state_dir or (simulate / "state" if simulate else STATE_DIRECTORY),
        log_dir=given.log_dir or (simulate / "log" if simulate else LOG_DIRECTORY),
        socket=given.socket or (simulate / "reclaimerd.sock" if simulate else SOCKET),
        config=given.config,
        simulate=simulate,
    )
    return Options(paths, once=given.once, dry_run=given.dry_run, restore=given.restore)


if __name__ == "__main__":
    main()
