"""/proc itself hangs, hides, vanishes or is endless: one process is unreadable, and the pass goes on."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from reclaimerd.cli.http_socket import Reply, Request, ask_daemon
from reclaimerd.daemon.worker import command_for
from reclaimerd.host.wire import Decoder
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.process import (
    NodeHolding,
    ProcessLook,
    ScanResult,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe.probe import Answered, Gone, Probe, ProbeKind, UnreadableProcess
from reclaimerd.simulation.host import read_simulated_host
from tests.e2e.rig import GPU_A, GPU_B, is_alive, rule, simulated_host
from tests.rigs.many_processes import many_processes
from tests.rigs.many_processes import why_unavailable as why_no_crowd
from tests.rigs.proc_children import device, script
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import wait_until

T = TypeVar("T")

pytestmark = [pytest.mark.process]
on_fuse = [
    pytest.mark.root,
    pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}"),
]
LIMITS = WorkerSettings(answer_within_seconds=10.0, hung_after_seconds=60.0)
SCAN = Decoder(ScanResult)
CROWD = 32_000
PAUSE = "\nready()\nimport signal\nsignal.pause()\n"
STUCK_EXEC = (
    "import mmap, os, sys\n"
    "node = os.open(sys.argv[2], os.O_RDWR | os.O_NOCTTY)\n"
    "os.set_inheritable(node, True)\n"
    "mapped = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)\n"
    "mapped[0] = 1\n"
    "print('ready', os.getpid(), flush=True)\n"
    "os.execv('/bin/sleep', ['sleep', '600'])\n"
)
"""Its program change waits for its dirty mapping and holds the lock that readers of its /proc files need."""


@contextmanager
def a_probe(command: Callable[[int], list[str]] | None = None) -> Iterator[Probe]:
    """Have the parent's end of a real procfs worker; whoever runs it closes it."""
    yield Probe("procfs", command or command_for("procfs"), LIMITS)


def ask(work: Callable[[Probe], Awaitable[T]], command: Callable[[int], list[str]] | None = None) -> T:
    """Ask a real procfs worker of our own, and end it."""

    async def run() -> T:
        probe = Probe("procfs", command or command_for("procfs"), LIMITS)
        try:
            return await work(probe)
        finally:
            await probe.close()

    return asyncio.run(run())


async def scan_of(probe: Probe, root: int | None = None) -> ScanResult:
    """Return one full scan, below a process or of all."""
    answer = await probe.ask("scan", {"root": root, "deep": False})
    assert isinstance(answer, Answered), answer
    last = answer.parts[-1]
    return SCAN.from_object(last["scan"])


async def watch(probe: Probe, *devices: DeviceNumber) -> None:
    """Let the worker look for these devices."""
    args = {"devices": [[one.major, one.minor] for one in devices]}
    assert isinstance(await probe.ask("watch", args), Answered)


class TestAnExecThatWaits:
    """C14, and a lock that even `stat` of the process waits for."""

    pytestmark = on_fuse

    def test_one_process_is_unreadable_and_all_others_are_read(self) -> None:
        """A hog beside it is judged and killed by rule; the scan and `status` name the one left out."""
        with RawFuse(withhold="write") as fuse, simulated_host(rule(grace="1s")) as rig:
            rig.start_daemon()
            node = next(gpu.device for gpu in read_simulated_host(rig.host).gpus if gpu.uuid == GPU_A)
            words = [sys.executable, "-I", "-S", "-c", STUCK_EXEC, str(fuse.path("a")), node]
            stuck = rig.keeper.launch_commands([words])[0].pid
            fuse.wait_withheld()
            assert not reads_in(f"/proc/{stuck}/stat", 1.0), "the rig does not hang a reader"
            rig.hold.touch()
            hog = rig.launch(gpu=GPU_B).pid
            explained = rig.ctl("explain", "reset", "--gpu", GPU_B)
            assert explained.code == 3, "a search with a gap permits no reset"
            skipped = rig.ask("/v1/status")["skipped"]
            assert [line for line in skipped if f"pid {stuck}:" in line], skipped
            began = time.monotonic()
            rig.passes(5)
            assert time.monotonic() - began < 10
            wait_until(lambda: rig.verdict(hog) == "reclaim", "the other is judged")
            rig.hold.unlink()
            assert rig.wait_record("incident_ended", pid=hog)["end"] == "reclaimed"
            assert is_alive(stuck)
            assert rig.records(pid=stuck) == []
            fuse.release()

    def test_it_can_be_ordered_killed_only_when_it_can_be_read(self) -> None:
        """Hands off what can't be read: `kill --force` is refused or finds nothing, and sends nothing."""
        with RawFuse(withhold="write") as fuse, simulated_host() as rig:
            rig.start_daemon()
            node = next(gpu.device for gpu in read_simulated_host(rig.host).gpus if gpu.uuid == GPU_A)
            words = [sys.executable, "-I", "-S", "-c", STUCK_EXEC, str(fuse.path("a")), node]
            stuck = rig.keeper.launch_commands([words])[0].pid
            fuse.wait_withheld()
            ran = rig.kill(stuck, options=["--force", "--timeout", "3s"])
            assert ran.code in {3, 6}, ran
            assert is_alive(stuck)
            assert rig.records("intent") == []
            fuse.release()

    def test_the_worker_is_replaced_and_never_left_behind(self) -> None:
        """Its reader is killable: a look costs 200 ms and a new worker, a scan names the pid and goes on."""
        with (
            RawFuse(withhold="write") as fuse,
            device() as (slave, path, number),
            script(PAUSE, keep=(slave,)) as holder,
            ExitStack() as stack,
        ):
            stuck = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", STUCK_EXEC, str(fuse.path("a")), path],
                stdout=subprocess.DEVNULL,
            )
            stack.callback(stuck.wait, 10)
            stack.callback(fuse.release)
            stack.callback(stuck.kill)
            fuse.wait_withheld()

            async def work(probe: Probe) -> None:
                await watch(probe, number)
                found = await probe.ask_each([holder, stuck.pid, os.getpid()])
                assert isinstance(found[stuck.pid], UnreadableProcess)
                seen = found[holder]
                assert isinstance(seen, ProcessLook)
                assert seen.nodes == Known((NodeHolding(number),))
                assert isinstance(found[os.getpid()], ProcessLook)
                assert probe.abandoned is None
                assert len(probe.worker_pids()) <= 1
                await watch(probe, number)
                result = await scan_of(probe, os.getpid())
                assert holder in [row.pid for row in result.rows]
                assert [line for line in result.skipped if f"pid {stuck.pid}:" in line], result.skipped
                assert probe.state().kind is ProbeKind.OK

            ask(work)


def reads_in(path: str, seconds: float) -> bool:
    """Tell whether a file can be read within a time, by a child that is ended after it."""
    child = subprocess.Popen(["/bin/cat", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(10)
        return False
    return True


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_dead_mount_among_foreign_descriptors_hangs_nobody() -> None:
    """A file whose server answers no more: who asks it hangs; our look and our scan do not ask it."""
    body = "\nfile = os.open(sys.argv[1], os.O_RDONLY)\n" + PAUSE
    with (
        RawFuse(withhold="write") as fuse,
        device() as (slave, _path, number),
        script(body, str(fuse.path("a")), keep=(slave,)) as holder,
    ):
        place = next(one for one in Path(f"/proc/{holder}/fd").iterdir() if one.readlink() == fuse.path("a"))
        with frozen(fuse):
            asks = [sys.executable, "-I", "-S", "-c", FORCED_STATX, str(place)]
            asking = subprocess.Popen(asks)
            with pytest.raises(subprocess.TimeoutExpired):
                asking.wait(1.0)

            async def work(probe: Probe) -> None:
                await watch(probe, number)
                began = time.monotonic()
                found = (await probe.ask_each([holder]))[holder]
                assert isinstance(found, ProcessLook)
                assert found.nodes == Known((NodeHolding(number),))
                result = await scan_of(probe, os.getpid())
                assert holder in [row.pid for row in result.rows]
                assert [line for line in result.skipped if f"pid {holder}:" in line] == []
                assert time.monotonic() - began < 5

            ask(work)
            asking.kill()
        asking.wait(10)


FORCED_STATX = (
    "import ctypes, os, sys\n"
    "AT_FDCWD, AT_STATX_FORCE_SYNC, BASIC = -100, 0x2000, 0x7ff\n"
    "room = ctypes.create_string_buffer(256)\n"
    "ctypes.CDLL(None).statx(AT_FDCWD, os.fsencode(sys.argv[1]), AT_STATX_FORCE_SYNC, BASIC, room)\n"
)
"""Ask the file's own server, as stat does when what the kernel knows is too old."""


@contextmanager
def frozen(fuse: RawFuse) -> Iterator[None]:
    """Let a file system's server answer nothing meanwhile."""
    server = fuse._server  # a dead server is no part of the rig's own offer
    assert server is not None
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


HIDING = (
    "mount --make-rprivate / && mount -t proc -o hidepid=2 proc /proc && "
    'exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
)


@pytest.mark.root
@pytest.mark.skipif(
    shutil.which("unshare") is None or shutil.which("setpriv") is None, reason="no util-linux"
)
def test_a_proc_that_hides_is_said_and_is_not_fatal(tmp_path: Path) -> None:
    """hidepid=2, not root: a living process is unreadable, never gone; the scan says what it can't see."""
    tmp_path.chmod(0o755)

    def command(fd: int) -> list[str]:
        return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", HIDING, "sh", *command_for("procfs")(fd)]

    async def work(probe: Probe) -> None:
        await probe.ask_each([os.getpid()])
        (worker,) = probe.worker_pids()
        found = await probe.ask_each([os.getpid(), worker, dead_pid()])
        hidden = found[os.getpid()]
        assert isinstance(hidden, UnreadableProcess), hidden
        assert "hid" in hidden.why
        assert isinstance(found[worker], ProcessLook), "what is its own it still reads"
        assert any(isinstance(one, Gone) for one in found.values()), "a dead one is gone all the same"
        result = await scan_of(probe)
        assert any("hidepid" in line for line in result.skipped), result

    ask(work, command)


def dead_pid() -> int:
    """Return the pid of a child that was and is no more."""
    pid = os.posix_spawn("/bin/true", ["true"], os.environ)
    os.waitpid(pid, 0)
    return pid


CHURN = (
    "import os, sys\nready()\n"
    "while True:\n"
    "    pid = os.fork()\n"
    "    if pid == 0:\n"
    "        os._exit(0)\n"
    "    os.waitpid(pid, 0)\n"
)


def test_what_vanishes_between_two_reads_is_gone_and_nothing_else() -> None:
    """200 looks and 5 scans in a churn of children: each a look, or gone; no error, no gap, no new worker."""
    with device() as (slave, _path, number), ExitStack() as stack:
        churns = [stack.enter_context(script(CHURN, keep=(slave,))) for _ in range(3)]

        async def work(probe: Probe) -> None:
            await watch(probe, number)
            first = probe.worker_pids()
            seen: list[object] = []
            for _ in range(200):
                pids = [child for parent in churns for child in children_of(parent)]
                seen += (await probe.ask_each([*pids, *churns], pids)).values()
            assert {type(one) for one in seen} <= {ProcessLook, Gone}, seen
            assert any(isinstance(one, Gone) for one in seen), "nothing vanished: the test shows nothing"
            for _ in range(5):
                result = await scan_of(probe, os.getpid())
                assert {*churns} <= {row.pid for row in result.rows}
                assert result.skipped == ()
            assert probe.worker_pids() == first

        ask(work)


def children_of(pid: int) -> list[int]:
    """Return the children of a process of ours."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(why_no_crowd(CROWD) != "", reason=why_no_crowd(CROWD))
def test_a_process_table_of_32000_entries(tmp_path: Path) -> None:
    """The whole table is searched: passes go on, calls are answered, a holder is found and killed."""
    with simulated_host(tables={"daemon": {"mode": "enforce", "interval": "1s"}}) as rig:
        text = (rig.host / "host.toml").read_text()
        (rig.host / "host.toml").write_text(
            "all_processes = true\n" + text.replace("all_processes = false\n", "")
        )
        assert read_simulated_host(rig.host).all_processes
        hog = rig.launch(gpu=GPU_A).pid
        with many_processes(tmp_path, CROWD) as crowd:
            assert crowd == CROWD
            rig.start_daemon()
            first = Request("GET", "/v1/status")
            wait_until(lambda: isinstance(ask_daemon(rig.socket, first, None), Reply), "it answers", 60.0)
            wait_until(lambda: rig.ask("/v1/status")["last_pass"]["at"] is not None, "the first pass", 60.0)
            wait_until(lambda: rig.verdict(hog) != "no row", "the holder is seen", 60.0)
            began = time.monotonic()
            rig.ask("/v1/status")
            assert time.monotonic() - began < 2.0
            rig.passes(3)
            told = rig.ask("/v1/status")
            assert told["last_error"] == ""
            ran = rig.kill(hog, options=["--force"])
            assert ran.code == 0, ran
            assert not is_alive(hog)


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(why_no_crowd(CROWD) != "", reason=why_no_crowd(CROWD))
def test_a_search_through_32000_entries_misses_nobody(tmp_path: Path) -> None:
    """A real worker searches them all, within a bound, finds the one holder and says that it saw all."""
    with (
        device() as (slave, _path, number),
        script(PAUSE, keep=(slave,)) as holder,
        many_processes(tmp_path, CROWD) as crowd,
    ):

        async def work(probe: Probe) -> tuple[ScanResult, float]:
            await watch(probe, number)
            began = time.monotonic()
            answer = await probe.ask("scan", {"root": None, "deep": False}, answer_within=60.0)
            assert isinstance(answer, Answered), answer
            return SCAN.from_object(answer.parts[-1]["scan"]), time.monotonic() - began

        result, took = ask(work)
        assert result.looked_at >= crowd
        assert holder in [row.pid for row in result.rows]
        assert took < 60
