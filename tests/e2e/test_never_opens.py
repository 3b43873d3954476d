"""What the main process never opens and never waits for: seen by strace in a real run, and read in the code.

Of other processes it may read only what can't hang; the driver's files are its workers' alone.
"""

import ast
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.rig import GPU_B, is_alive, rule, simulated_host
from tests.rigs import strace
from tests.rigs.simulated import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "reclaimerd"
ROOMS = ("daemon", "observe", "act", "record", "host", "judge")

DRIVER = re.compile(r"/dev/nvidia|/dev/dri/|/proc/driver/nvidia|/sys/module/nvidia|libnvidia-ml|/sys/bus/pci")
OF_A_PROCESS = re.compile(r"^/proc/(\d+)(?:/(.*))?$")
SAFE = re.compile(
    r"status|cgroup|comm|statm|schedstat|fdinfo/\d+|task/\d+/children|task|fd|task/\d+/(?:status|comm|schedstat)"
)
"""Of another process: these can't hang, whatever lock it holds (`stat`, `wchan`, `exe` and links can)."""
NAME_SERVICE = re.compile(r"/etc/(?:group|nsswitch\.conf|resolv\.conf|hosts)$|/nscd/|/libnss_|/sss/")
"""What libc asks for names. /etc/passwd itself is read as the plain local file that it is."""
PASSES = 20


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, list[strace.Call]]]:
    """Trace a daemon through 20 passes with holders, a rule's incident and an operator's kill."""
    log = tmp_path_factory.mktemp("trace") / "strace"
    with simulated_host(
        rule(grace="1s"), tables={"workers": {"answer_within": "30s", "hung_after": "60s"}}
    ) as rig:
        quiet = rig.launch(size="1GiB").pid
        asked = rig.launch("--threads", "3", size="2GiB", gpu=GPU_B).pid
        plain, rig.front = rig.front, strace.front(log)
        daemon = rig.start_daemon()
        rig.front = plain
        hog = rig.launch("--ignore-term").pid
        assert rig.wait_record("incident_ended", pid=hog, seconds=60.0)["end"] == "reclaimed"
        assert rig.kill(asked, options=["--force"]).code == 0
        assert rig.ctl("explain", "reset", "--gpu", GPU_B).code in {0, 3}
        assert rig.ctl("inspect", str(quiet)).code == 0
        rig.passes(PASSES)
        assert is_alive(quiet)
        assert daemon.stop() == 0
        wait_until(lambda: f"{daemon.pid} " in log.read_text(errors="replace"), "the trace is written")
        calls = strace.read_calls(log, daemon.pid)
        assert len(calls) > 1000, "too little was traced to show anything"
        yield daemon.pid, calls


needs_strace = pytest.mark.skipif(strace.why_unavailable() != "", reason=strace.why_unavailable() or "-")


def faults(calls: list[strace.Call], pattern: re.Pattern[str]) -> list[str]:
    """Return the calls that name a path of this kind."""
    return [str(call) for call in calls if any(pattern.search(path) for path in call.paths())]


@needs_strace
@pytest.mark.process
class TestInARealRun:
    """One traced run serves all of these."""

    def test_it_never_touches_the_driver(self, traced: tuple[int, list[strace.Call]]) -> None:
        """No open, stat or link of a driver's node, /proc file, module folder or library."""
        assert faults(traced[1], DRIVER) == []

    def test_of_another_process_it_reads_only_what_cannot_hang(
        self, traced: tuple[int, list[strace.Call]]
    ) -> None:
        """Each path below /proc/PID of somebody else is in the short list; kcmp and ptrace are never used."""
        pid, calls = traced
        wrong, seen = [], set()
        for call in calls:
            for path in call.paths():
                named = OF_A_PROCESS.match(path)
                if named is None or int(named[1]) == pid:
                    continue
                seen.add(named[2])
                if named[2] is None or not SAFE.fullmatch(named[2]):
                    wrong.append(str(call))
        assert wrong == []
        assert seen, "it read of nobody: the trace shows nothing"
        assert [str(call) for call in calls if call.name in {"kcmp", "ptrace", "process_vm_readv"}] == []

    def test_it_never_waits_for_a_child_without_an_end(self, traced: tuple[int, list[strace.Call]]) -> None:
        """Every wait for a child has WNOHANG, in every thread of the main process."""
        waits = [call for call in traced[1] if call.name in {"wait4", "waitid"}]
        assert [str(call) for call in waits if "WNOHANG" not in call.args] == []
        assert waits, "no child was ever reaped: the trace shows nothing"

    def test_only_the_idle_loop_waits_without_a_time(self, traced: tuple[int, list[strace.Call]]) -> None:
        """Each poll and select has a time; epoll without one is the loop's own, which any event ends."""
        pid, calls = traced
        timed = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
        wrong = []
        for call in calls:
            place = timed.get(call.name)
            if place is not None and call.argument(place).startswith("-1"):
                wrong.append(call)
            elif call.name in {"select", "pselect6", "ppoll"}:
                place = 2 if call.name == "ppoll" else 4
                wrong += [call] if call.argument(place) == "NULL" else []
        assert [str(one) for one in wrong if not (one.name.startswith("epoll") and one.tid == pid)] == []

    def test_the_loop_s_thread_leaves_what_may_be_slow_to_others(
        self, traced: tuple[int, list[strace.Call]]
    ) -> None:
        """No fsync, no file lock and, once it serves, no name service in the thread that runs the loop."""
        pid, calls = traced
        mine = [call for call in calls if call.tid == pid]
        assert [str(one) for one in mine if one.name in {"fsync", "fdatasync", "flock"}] == []
        first = next(number for number, one in enumerate(mine) if one.name.startswith("epoll_"))
        assert faults(mine[first:], NAME_SERVICE) == []
        assert any(one.name in {"fsync", "fdatasync"} for one in calls), "nothing was made durable"

    def test_no_call_of_the_loop_s_thread_but_its_own_wait_takes_long(
        self, traced: tuple[int, list[strace.Call]]
    ) -> None:
        """Nothing but the loop's own wait keeps it a second, traced and on a busy machine."""
        pid, calls = traced
        mine = [call for call in calls if call.tid == pid and not call.name.startswith("epoll_")]
        assert [f"{call.seconds:.1f} s: {call}" for call in mine if call.seconds > 1.0] == []


class TestTheReader:
    """The rig itself: it must be able to see what it looks for."""

    def test_threads_are_ours_and_children_are_not(self, tmp_path: Path) -> None:
        """A call of a thread's thread counts, one of a child does not; calls cut in two are put together."""
        log = tmp_path / "log"
        log.write_text(
            '10 1.0 openat(AT_FDCWD</x>, "a, \\"b", O_RDONLY) = 3</x/a> <0.000010>\n'
            "10 1.1 clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x1}, 88 <unfinished ...>\n"
            '11 1.2 openat(9</proc/77>, "stat", O_RDONLY) = 3 <0.1>\n'
            "10 1.3 <... clone3 resumed>) = 11 <0.000100>\n"
            "11 1.4 clone3({flags=CLONE_VM|CLONE_VFORK}, 88) = 12 <0.2>\n"
            '12 1.5 openat(AT_FDCWD</x>, "/dev/nvidia0", O_RDWR) = 3 <0.2>\n'
            "10 1.6 waitid(P_PIDFD, 5<anon_inode:[pidfd]>, {}, WEXITED, NULL) = 0 <3.5>\n"
        )
        calls = strace.read_calls(log, 10)
        assert [call.tid for call in calls] == [10, 11, 10, 11, 10]
        assert calls[0].paths() == ('/x/a, \\"b',)
        assert calls[1].paths() == ("/proc/77/stat",)
        assert calls[4].seconds == 3.5
        assert calls[4].argument(3) == "WEXITED"

    @needs_strace
    @pytest.mark.process
    def test_it_sees_a_real_program_open_read_and_wait(self, tmp_path: Path) -> None:
        """What must never be done is seen when a program does it, also in a thread."""
        log = tmp_path / "log"
        code = (
            "import os, threading\n"
            "def bad():\n    open('/proc/1/stat').close()\n"
            "one = threading.Thread(target=bad); one.start(); one.join()\n"
            "os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)\n"
        )
        traced = subprocess.Popen([*strace.front(log), sys.executable, "-I", "-S", "-c", code])
        assert traced.wait(60) == 0
        wait_until(lambda: "wait4" in log.read_text(errors="replace"), "the trace is written")
        calls = strace.read_calls(log, traced.pid)
        opened = {call.tid for call in calls if "/proc/1/stat" in call.paths()}
        assert opened
        assert traced.pid not in opened
        assert [call for call in calls if call.name == "wait4" and "WNOHANG" not in call.args]


BLOCKING = {"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
BLOCKING_OS = {"wait", "wait3", "system", "popen", "spawnv", "spawnl"}


def calls_in(path: Path) -> Iterator[ast.Call]:
    """Yield every call in a module."""
    return (
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))
        if isinstance(node, ast.Call)
    )


def unbounded_waits(path: Path) -> list[str]:
    """Return each call in a module that may wait for a process without a bound."""
    return [
        f"{path.name}:{call.lineno}: {ast.unparse(call)}" for call in calls_in(path) if _is_unbounded(call)
    ]


def _is_unbounded(call: ast.Call) -> bool:
    found = False
    match call.func:
        case ast.Attribute(value=ast.Name(id="subprocess"), attr=name):
            found = name in BLOCKING
        case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in BLOCKING_OS:
            found = True
        case ast.Attribute(value=ast.Name(id="os"), attr="waitpid" | "waitid" | "wait4"):
            found = "WNOHANG" not in ast.unparse(call)
        case ast.Attribute(value=ast.Name(id="asyncio" | "os")):
            pass
        case ast.Attribute(attr="communicate"):
            found = not _has_time(call)
        case ast.Attribute(value=owner, attr="wait"):
            found = not _has_time(call) and _is_process(owner)
        case _:
            pass
    return found


def _has_time(call: ast.Call) -> bool:
    return bool(call.args) or any(word.arg in {"timeout", "seconds"} for word in call.keywords)


def _is_process(owner: ast.expr) -> bool:
    """Tell whether this is a process by its name: `wait()` of an event is the idle loop's own."""
    return bool(re.search(r"proc|popen|child|server|worker", ast.unparse(owner), re.IGNORECASE))


RUNNER = "reset_runner.py"
"""A program of its own, outside our unit: it must wait for the vendor's tool as long as that takes."""


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_waits_for_a_process_without_a_bound(room: str) -> None:
    """No subprocess.run or call, no wait, waitpid or communicate without a time in the code of the daemon."""
    modules = [path for path in sorted((PACKAGE / room).rglob("*.py")) if path.name != RUNNER]
    assert modules
    assert [fault for path in modules for fault in unbounded_waits(path)] == []


@pytest.mark.parametrize(
    "code",
    [
        "subprocess.run(['x'], timeout=1)",
        "subprocess.check_output(['x'])",
        "process.wait()",
        "self._child.communicate()",
        "os.waitpid(pid, 0)",
        "os.waitid(os.P_PIDFD, fd, os.WEXITED)",
        "os.system('x')",
    ],
)
def test_the_walk_sees_what_it_forbids(tmp_path: Path, code: str) -> None:
    """Each forbidden form is found (run with a timeout too: it waits for an unkillable child after it)."""
    path = tmp_path / "module.py"
    path.write_text(code)
    assert unbounded_waits(path)


@pytest.mark.parametrize(
    "code",
    [
        "process.wait(5)",
        "os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG)",
        "stopped.wait()",
        "wait(child, 1)",
    ],
)
def test_the_walk_lets_bounded_waits_pass(tmp_path: Path, code: str) -> None:
    """A bound, WNOHANG, or no process at all is no fault."""
    path = tmp_path / "module.py"
    path.write_text(code)
    assert unbounded_waits(path) == []


def test_only_the_host_room_starts_programs() -> None:
    """Popen stands in one place alone, and in the runner's own program; asyncio's subprocesses nowhere."""
    found = {
        str(path.relative_to(PACKAGE))
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for call in calls_in(path)
        if ast.unparse(call.func) in {"subprocess.Popen", "asyncio.create_subprocess_exec", "Popen"}
    }
    assert found == {"host/child.py", f"act/{RUNNER}"}


def test_the_import_contracts_hold() -> None:
    """Vendors' libraries, and the hands, have one door each: import-linter says so."""
    checker = Path(sys.executable).with_name("lint-imports")
    if not checker.exists():
        pytest.skip("no import-linter")
    ran = subprocess.run(
        [checker, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_signals_to_a_number_are_never_sent() -> None:
    """In the daemon's rooms every signal goes through a pidfd: no os.kill, os.killpg anywhere."""
    found = [
        f"{path.name}:{call.lineno}"
        for room in ROOMS
        for path in (PACKAGE / room).rglob("*.py")
        for call in calls_in(path)
        if ast.unparse(call.func) in {"os.kill", "os.killpg", "signal.pthread_kill"}
    ]
    assert found == []
    assert signal.SIGKILL
