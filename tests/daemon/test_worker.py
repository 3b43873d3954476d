"""The real workers, started as the daemon starts them: what they answer, and that they end with us."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_desks import Heartbeat, NvmlDesk
from reclaimerd.host.wire import Decoder, to_wire
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.process import (
    NodeHolding,
    ProcessLook,
    ScanResult,
)
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_facts import GpuFacts
from reclaimerd.model.snapshot import HostGpus
from reclaimerd.observe.answers import Answered, Failed, Gone, Silent, SilentCause
from reclaimerd.observe.probe import Probe
from reclaimerd.simulation.claims import CLAIMS
from reclaimerd.simulation.host import SimulatedGpu, SimulatedHost, write_simulated_host

pytestmark = pytest.mark.process

_LIMITS = WorkerSettings(answer_within_seconds=30)
_NULL = Path("/dev/null").stat().st_rdev
_UUID = "GPU-11111111-0000-0000-0000-000000000000"


class _Worker:
    """One worker on a plain socket, spoken to by hand."""

    def __init__(self, role: str, simulate: Path | None = None) -> None:
        self._sock, theirs = socket.socketpair()
        self._sock.settimeout(30)
        fd = theirs.fileno()
        self.process = subprocess.Popen(
            command_for(role, simulate)(fd), pass_fds=(fd,), start_new_session=True
        )
        theirs.close()
        self._lines = self._sock.makefile("rb")

    def tell(self, line: bytes) -> None:
        self._sock.sendall(line + b"\n")

    def hear(self) -> Any:
        return json.loads(self._lines.readline())

    def answer(self, op: str, **args: object) -> list[Any]:
        """Return all messages of one answer."""
        self.tell(json.dumps({"id": 5, "op": op, "args": args}).encode())
        heard = [self.hear()]
        while not ("done" in heard[-1] or "error" in heard[-1]):
            heard.append(self.hear())
        return heard

    def hang_up(self) -> None:
        self._lines.close()
        self._sock.close()


@contextmanager
def _worker(role: str, simulate: Path | None = None) -> Iterator[_Worker]:
    worker = _Worker(role, simulate)
    try:
        yield worker
    finally:
        worker.hang_up()
        try:
            worker.process.wait(10)
        finally:
            worker.process.kill()
            worker.process.wait(10)


@contextmanager
def _sleeper() -> Iterator[int]:
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait(10)


def _simulated_host(directory: Path, **overrides: Any) -> None:
    (directory / CLAIMS).mkdir()
    gpu = SimulatedGpu(_UUID, "Simulated", 1 << 34, pci="0000:01:00.0", device="/dev/null")
    write_simulated_host(directory, SimulatedHost((gpu,), all_processes=True, **overrides))


def _ask(probe: Probe, *ops: tuple[str, dict[str, object]]) -> list[Any]:
    """Ask one question after the other, then close."""

    async def run() -> list[Any]:
        try:
            return [await probe.ask(op, args) for op, args in ops]
        finally:
            await probe.close()

    return asyncio.run(run())


def _procfs() -> Probe:
    return Probe("procfs", command_for("procfs"), _LIMITS)


def test_it_says_who_it_is_first() -> None:
    """The hello holds the worker's identity, which the parent may not read itself."""
    with _worker("procfs") as worker:
        hello = worker.hear()["hello"]
        stat = Path(f"/proc/{worker.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        assert hello["pid"] == worker.process.pid
        assert hello["start_ticks"] == int(stat[19])
        assert hello["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def test_an_unknown_question_is_an_error_and_the_worker_goes_on() -> None:
    """Neither an unknown operation nor wrong arguments end the worker."""
    with _worker("procfs") as worker:
        worker.hear()
        (unknown,) = worker.answer("reboot")
        assert unknown["error"] == {
            "kind": "failed",
            "message": "ValueError: the procfs worker knows no 'reboot'",
            "mend": "",
        }
        (wrong,) = worker.answer("look", pids="all")
        assert wrong["error"]["message"] == "ValueError: `whole` must be a list"
        (wrong,) = worker.answer("watch", devices=[[1]])
        assert "pairs of major and minor" in wrong["error"]["message"]
        assert worker.answer("descendants", pid=worker.process.pid)[-1]["done"] is True


def test_ctrl_c_does_not_end_it() -> None:
    """SIGINT of a terminal is for whoever started us."""
    with _worker("procfs") as worker:
        worker.hear()
        worker.process.send_signal(signal.SIGINT)
        assert worker.answer("start_of", pid=os.getpid())[-1]["done"] is True


def test_it_ends_at_once_when_its_parent_hangs_up_even_in_mid_call(tmp_path: Path) -> None:
    """The socket's end ends it, also while the driver hangs."""
    _simulated_host(tmp_path, hang=True)
    with _worker("nvml", tmp_path) as worker:
        worker.hear()
        worker.tell(b'{"id":1,"op":"host","args":{}}')
        time.sleep(0.3)  # into the call: it shows nothing to wait for
        assert worker.process.poll() is None
        worker.hang_up()
        assert worker.process.wait(10) == 0


def test_it_does_not_outlive_a_parent_that_is_killed() -> None:
    """A daemon ended by SIGKILL leaves no worker behind."""
    script = (
        "import asyncio, os, sys, signal\n"
        "from reclaimerd.observe.probe import Probe\n"
        "from reclaimerd.daemon.worker import command_for\n"
        "from reclaimerd.model.policy import WorkerSettings\n"
        "async def run():\n"
        "    probe = Probe('procfs', command_for('procfs'), WorkerSettings())\n"
        "    await probe.ask('descendants', {'pid': 1})\n"
        "    print(probe.worker_pids()[0], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(run())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    said, _ = parent.communicate(timeout=30)
    assert parent.returncode == -signal.SIGKILL
    try:
        pidfd = os.pidfd_open(int(said))
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(10_000), "the worker outlived its parent"
    os.close(pidfd)


@pytest.mark.parametrize("words", [[], ["--role", "kernel", "--fd", "0"], ["--role", "nvml", "--fd", "x"]])
def test_wrong_usage_is_one_line(words: list[str]) -> None:
    """No traceback for a wrong start."""
    done = subprocess.run(
        [sys.executable, "-m", "reclaimerd.daemon.worker", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "usage: worker --role nvml|procfs|kubelet|cluster|cri --fd N [--simulate DIR]\n"


def test_a_descriptor_that_is_no_socket_is_one_line() -> None:
    """A descriptor that was not handed over is named."""
    done = subprocess.run(
        [sys.executable, "-m", "reclaimerd.daemon.worker", "--role", "procfs", "--fd", "77"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("--fd 77: not a socket that we inherited:")


def test_it_does_not_import_what_costs_megabytes() -> None:
    """Neither role loads pydantic, structlog, rich or click."""
    script = (
        "import sys, reclaimerd.daemon.worker, reclaimerd.observe.processes, reclaimerd.observe.holders,"
        " reclaimerd.observe.nvml, reclaimerd.simulation.nvml\n"
        "print([name for name in ('pydantic', 'structlog', 'rich', 'click', 'asyncio', 'tenacity')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_looks_come_back_typed_and_in_order() -> None:
    """A living process, a gone one and a holder, each as what it is, with the watched device it holds."""
    holder = subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL)
    gone = subprocess.Popen(["/bin/true"])
    gone.wait(10)

    async def run(pid: int) -> None:
        probe = _procfs()
        try:
            null = [os.major(_NULL), os.minor(_NULL)]
            assert isinstance(await probe.ask("watch", {"devices": [null]}), Answered)
            found = await probe.ask_each([pid, gone.pid, holder.pid], whole=[pid])
        finally:
            await probe.close()
        first, last = found[pid], found[holder.pid]
        assert isinstance(first, ProcessLook)
        assert first.reading.ref.pid == pid
        assert first.reading.whole
        assert found[gone.pid] == Gone()
        assert isinstance(last, ProcessLook)
        assert last.nodes == Known((NodeHolding(DeviceNumber(1, 3)),))

    try:
        with _sleeper() as pid:
            asyncio.run(run(pid))
    finally:
        holder.kill()
        holder.wait(10)


def test_the_full_scan_finds_the_holder() -> None:
    """The scan finds a child that has the watched device open, and one left out is named."""
    null = [os.major(_NULL), os.minor(_NULL)]
    child = subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL)
    try:
        answers = _ask(
            _procfs(),
            ("watch", {"devices": [null]}),
            ("scan", {"root": os.getpid(), "deep": False}),
            ("scan", {"root": None, "deep": False}),
        )
    finally:
        child.kill()
        child.wait(10)
    for answer in answers[1:]:
        assert isinstance(answer, Answered)
        scan = Decoder(ScanResult).from_object(answer.parts[-1]["scan"])
        assert child.pid in {row.pid for row in scan.rows}
        assert scan.looked_at >= 1


def test_the_other_questions_of_procfs() -> None:
    """Descendants, start ticks, host files and a kernel stack."""
    with _sleeper() as pid:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        gone = subprocess.Popen(["/bin/true"])
        gone.wait(10)
        answers = _ask(
            _procfs(),
            ("descendants", {"pid": os.getpid()}),
            ("start_of", {"pid": pid}),
            ("start_of", {"pid": gone.pid}),
            ("host_files", {"globs": ["/bin/sh", "/nonexistent/*"]}),
            ("stack", {"pid": pid}),
        )
    assert all(isinstance(answer, Answered) for answer in answers)
    family, start, no_start, files, stack = (answer.parts[0] for answer in answers)
    assert pid in family["pids"]
    assert start == {"start_ticks": int(stat[19]), "all_exiting": False}
    assert no_start == {"gone": True, "all_exiting": True}
    assert isinstance(files["files"], list)
    assert f"task {pid}: " in stack["stack"]


def test_freezers_are_read_for_each_cgroup() -> None:
    """Our own cgroup is not frozen, one that is not there is unreadable; both in the order asked."""
    own = Path("/proc/self/cgroup").read_text(encoding="ascii").rstrip("\n")
    (answer,) = _ask(_procfs(), ("freezers", {"cgroups": [own, "0::/no-such-cgroup"]}))
    assert isinstance(answer, Answered)
    ours, nobodys = answer.parts[0]["frozen"]
    assert ours in ({"value": False, "kind": "known"}, {**ours, "kind": "absent"})
    assert nobodys["kind"] in ("unreadable", "absent")


def test_a_zombie_is_all_exiting() -> None:
    """A process that waits for its parent holds nothing: a dead writer may be taken over."""
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    (answer,) = _ask(_procfs(), ("start_of", {"pid": child.pid}))
    child.wait(10)
    assert isinstance(answer, Answered)
    assert answer.parts[0]["all_exiting"] is True


def test_the_simulated_driver_answers(tmp_path: Path) -> None:
    """One reading for host, two for host_twice, none for close, after which it opens again."""
    _simulated_host(tmp_path)
    once, twice, closed, again = _ask(
        Probe("nvml", command_for("nvml", tmp_path), _LIMITS),
        ("host", {}),
        ("host_twice", {"apart_ms": 50}),
        ("close", {}),
        ("host", {}),
    )
    assert [len(answer.parts) for answer in (once, twice, closed, again)] == [1, 2, 0, 1]
    host = Decoder(HostGpus).from_object(once.parts[0])
    assert host.simulated
    assert [gpu.uuid for gpu in host.gpus] == [_UUID]
    assert twice.answered_at - twice.sent_at >= 0.05


def test_a_host_without_driver_or_simulation_is_said_so(tmp_path: Path) -> None:
    """A faulty simulation is unsuitable, with its mend; the kind decides what the daemon says."""
    (answer,) = _ask(Probe("nvml", command_for("nvml", tmp_path / "none"), _LIMITS), ("host", {}))
    assert isinstance(answer, Failed)
    assert answer.kind in {"unsuitable", "driver_absent"}
    assert str(tmp_path) in answer.message


def test_a_hanging_driver_is_silence_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The real worker in a simulated hang: Silent for the driver's sake, ended by close."""
    _simulated_host(tmp_path, hang=True)

    async def run() -> None:
        probe = Probe("nvml", command_for("nvml", tmp_path), _LIMITS)
        silent = await probe.ask("host", answer_within=2)
        (pid,) = probe.worker_pids()
        assert isinstance(silent, Silent)
        assert silent.cause is SilentCause.UNRESPONSIVE
        began = time.monotonic()
        await probe.close()
        assert time.monotonic() - began < 5
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(run())


def test_the_driver_is_opened_once_and_let_go_on_close() -> None:
    """An NVML client is a holder: `close` lets go, the next question opens anew."""
    opened: list[str] = []

    class Port:
        def read_host(self, *, utilisation: bool = False) -> HostGpus:
            return HostGpus("1", (), (), failures=("asked",) if utilisation else ())

        def read_reset_facts(self) -> tuple[GpuFacts, ...]:
            return ()

        def close(self) -> None:
            opened.append("closed")

    def open_port() -> Port:
        opened.append("opened")
        return Port()

    parts: list[object] = []
    desk = NvmlDesk(open_port)
    for op in ("close", "host", "host", "close", "host"):
        desk.answer(op, {}, parts.append)
    assert opened == ["opened", "closed", "opened"]
    assert parts == [to_wire(HostGpus("1", (), ()))] * 3
    desk.answer("host", {"utilisation": True}, parts.append)
    assert parts[3:] == [to_wire(HostGpus("1", (), (), failures=("asked",)))]


def test_a_search_says_where_it_stands_while_it_is_stuck() -> None:
    """The heartbeat comes from its own thread and repeats the process at which the search stands."""
    heard: list[object] = []
    with Heartbeat(heard.append) as beat:
        beat.at(7)
        end = time.monotonic() + 20
        while len(heard) < 2 and time.monotonic() < end:
            time.sleep(0.02)
    assert heard[:2] == [{"progress": 7}, {"progress": 7}]
