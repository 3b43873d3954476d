"""A simulated GPU host with the real daemon, the real command line and real children on it.

Everything a test starts here is ended, and everything it makes is removed, when its block is left.
"""

import json
import os
import select
import shutil
import socket as socketlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from reclaimerd.simulation.host import SimulatedGpu, read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper, LaunchedWorkload
from tests.e2e.policies import Table, policy_text, rule
from tests.e2e.programs import CTL_SECONDS, Asked, Daemon, Json, Ran
from tests.rigs.simulated import GIB, wait_until

__all__ = ["Daemon", "Json", "Ran", "Table", "rule"]


GPU_A = "GPU-00000000-0000-4000-8000-00000000000a"
GPU_B = "GPU-00000000-0000-4000-8000-00000000000b"
TWO_GPUS = (SimulatedGpu(GPU_A, "First", 80 * GIB), SimulatedGpu(GPU_B, "Second", 80 * GIB))
OVER_CAP = "5GiB"
BOUND_SECONDS = 15.0


@dataclass(slots=True)
class Rig:
    """One simulated host, what runs on it, and where its things lie."""

    directory: Path
    keeper: Keeper
    stack: ExitStack
    daemons: list[Daemon] = field(default_factory=list)
    front: tuple[str, ...] = ()
    _read: list[Json] = field(default_factory=list)
    _read_bytes: int = 0

    @property
    def host(self) -> Path:
        """Return the simulated host's directory."""
        return self.directory / "host"

    @property
    def policy(self) -> Path:
        """Return the policy file's path."""
        return self.directory / "policy.toml"

    @property
    def hold(self) -> Path:
        """Return the path of this host's own HOLD file."""
        return self.directory / "HOLD"

    @property
    def state(self) -> Path:
        """Return the state directory."""
        return self.host / "state"

    @property
    def socket(self) -> Path:
        """Return the daemon's control socket."""
        return self.host / "reclaimerd.sock"

    def write_policy(self, *rules: Table, **tables: Table) -> None:
        """Write the policy: the open one, with these rules and these keys changed."""
        gates = {"hold_files": [str(self.hold)], **tables.get("gates", {})}
        self.policy.write_text(policy_text(rules, {**tables, "gates": gates}), encoding="utf-8")

    def launch(self, *options: str, gpu: str = GPU_A, size: str = OVER_CAP) -> LaunchedWorkload:
        """Start one workload on a GPU and wait until it holds it."""
        return self.keeper.launch("--gpu", gpu, "--bytes", size, *options)

    def recorder(self, name: str = "signals", *options: str, gpu: str = GPU_A) -> tuple[int, Path]:
        """Start a workload that lives on at every signal it can, and writes each down; its pid and file."""
        path = self.directory / name
        return self.launch("--record-signals", str(path), *options, gpu=gpu).pid, path

    def start_daemon(self, *options: str) -> Daemon:
        """Start the daemon and wait until it listens."""
        daemon = self.begin_daemon(*options)
        socket = Path(options[options.index("--socket") + 1]) if "--socket" in options else self.socket
        wait_until(lambda: _listens(socket) or daemon.process.poll() is not None, "the daemon listens", 60)
        assert daemon.process.poll() is None, f"the daemon ended at once: {daemon.words()}"
        return daemon

    def begin_daemon(self, *options: str) -> Daemon:
        """Start the daemon without waiting."""
        log = self.directory / f"daemon-{len(self.daemons)}.log"
        words = ["-m", "reclaimerd.daemon.main", "--config", str(self.policy), "--simulate", str(self.host)]
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*self.front, sys.executable, *words, *options],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        daemon = Daemon(process, log)
        self.daemons.append(daemon)
        self.stack.callback(daemon.stop)
        return daemon

    def begin(self, *words: str) -> Asked:
        """Start one reclaimctl command and return without waiting."""
        argv = [*self.front, sys.executable, "-m", "reclaimerd.cli.main", *words]
        argv += ["--simulate", str(self.host), "--config", str(self.policy)]
        asked = Asked(
            subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ),
        )
        self.stack.callback(asked.end)
        return asked

    def ctl(self, *words: str, seconds: float = CTL_SECONDS) -> Ran:
        """Run one reclaimctl command with --json to its end."""
        return self.begin(*words, "--json").result(seconds)

    def kill(self, *pids: int, options: Sequence[str] = ()) -> Ran:
        """Run `reclaimctl kill` over these pids to its end."""
        several = ["--yes"] if len(pids) > 1 else []
        return self.ctl("kill", *(word for pid in pids for word in ("--pid", str(pid))), *several, *options)

    def records(self, kind: str = "", *, pid: int | None = None) -> list[Json]:
        """Return the audit log's whole lines, oldest first, of one kind or about one root process."""
        path = self.host / "log" / "audit.jsonl"
        size = path.stat().st_size if path.exists() else 0
        if size != self._read_bytes:  # whoever polls must not eat the machine that the daemon needs
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1].splitlines()
            self._read = [dict(json.loads(line)) for line in whole]
            self._read_bytes = size
        return [
            one
            for one in self._read
            if kind in ("", one["kind"])
            and (pid is None or ((one.get("target") or {}).get("root") or {}).get("pid") == pid)
        ]

    def wait_record(self, kind: str, *, pid: int | None = None, seconds: float = BOUND_SECONDS) -> Json:
        """Wait for the first record of a kind (about one process) and return it."""
        wait_until(
            lambda: bool(self.records(kind, pid=pid)), f"record {kind} of {pid}: {self.story()}", seconds
        )
        return self.records(kind, pid=pid)[0]

    def story(self) -> str:
        """Return the audit log in short, for a failing test's message."""
        words = ("seq", "kind", "action", "end", "reason")
        return "\n".join(" ".join(str(one.get(word) or "-") for word in words) for one in self.records())

    def ask(self, path: str) -> Json:
        """Return the daemon's answer to one GET, without the cost of a command."""
        reply = ask_daemon(self.socket, Request("GET", path), None)
        assert not isinstance(reply, NoAnswer), f"the daemon did not answer: {reply}"
        assert reply.status == 200, reply.body
        return reply.body

    def verdict(self, pid: int) -> str:
        """Return what the daemon's last look says of one holder."""
        rows = self.ask("/v1/ps")["rows"]
        return next((str(row["verdict"]) for row in rows if row["pid"] == pid), "no row")

    def passes(self, count: int = 4) -> None:
        """Wait until the daemon has made so many more passes."""
        seen = {self._last_pass()}

        def enough() -> bool:
            seen.add(self._last_pass())
            return len(seen) > count

        wait_until(enough, f"{count} passes of the daemon")

    def _last_pass(self) -> float:
        return float(self.ask("/v1/status")["last_pass"]["at"] or 0.0)

    def fail_calls(self, gpu: str, **calls: str) -> None:
        """Make these NVML calls fail on one GPU from now on, and no others."""
        host = read_simulated_host(self.host)
        write_simulated_host(self.host, replace(host, fail={gpu: calls}))

    def verify_audit(self) -> Ran:
        """Run `reclaimctl audit verify`."""
        return self.ctl("audit", "verify")


def _listens(path: Path) -> bool:
    """Tell whether somebody takes calls on this socket: its file is there a moment earlier."""
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as channel:
        return channel.connect_ex(str(path)) == 0


def signals_in(path: Path) -> list[str]:
    """Return the names of the signals that a recording workload got."""
    return path.read_text(encoding="utf-8").split()


def moment(record: Json) -> float:
    """Return when a record was written (wall clock)."""
    return datetime.fromisoformat(record["at"]).timestamp()


def is_alive(pid: int) -> bool:
    """Tell whether a process has a thread that lives."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([pidfd], [], [], 0)[0]
    finally:
        os.close(pidfd)


@contextmanager
def simulated_host(
    *rules: Table,
    gpus: Sequence[SimulatedGpu] = TWO_GPUS,
    reap: bool = True,
    front: Sequence[str] = (),
    tables: Mapping[str, Table] | None = None,
) -> Iterator[Rig]:
    """Set up a simulated host with a policy; all that runs on it is ended and removed at the end.

    `front` is put before every daemon and command (`setpriv ...`).
    """
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="e-"))
        stack.callback(shutil.rmtree, directory)
        keeper = stack.enter_context(Keeper(directory / "host", gpus, reap=reap))
        rig = stack.enter_context(ExitStack())
        host = Rig(directory, keeper, rig, front=tuple(front))
        host.write_policy(*rules, **(tables or {}))
        yield host
