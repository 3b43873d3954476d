"""The hand that starts and stops a simulated host: the demo's and the tests' end of the keeper.

The keeper itself is a child process (`keeper_process`); if we die, it sees the end of its pipe and
takes the whole simulation along.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from reclaimerd.errors import ReclaimerdError
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.units import SimulatedUnit, workload_argv, write_units

ANSWER_WITHIN_SECONDS = 20.0
"""Above the keeper's own limits for a launch (15 s) and for an end (3 s)."""


@dataclass(frozen=True, slots=True)
class LaunchedWorkload:
    """A workload that said "ready": its pid, and the child that inherited (with --fork-and-leave)."""

    pid: int
    children: tuple[int, ...] = ()


class Keeper:
    """One simulated host while it stands; use it as a context manager.

    With `reap=False` a dead workload stays a zombie until `reap()` or `stop()`.
    """

    def __init__(self, directory: Path, gpus: Sequence[SimulatedGpu], *, reap: bool = True) -> None:
        self.directory = directory
        self._setup = {"gpus": [asdict(gpu) for gpu in gpus], "reap": reap}
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Return the keeper's pid."""
        return self._running().pid

    @property
    def smi(self) -> Path:
        """Return the path of the simulation's own nvidia-smi."""
        return self.directory / "nvidia-smi"

    @property
    def systemctl(self) -> Path:
        """Return the path of the simulation's own systemctl."""
        return self.directory / "systemctl"

    def start(self) -> None:
        """Start the keeper and wait until its host stands; raises ReclaimerdError if it can't."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "reclaimerd.simulation.keeper_process", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in our terminal is ours; the keeper goes by its pipe
        )
        try:
            self._ask(self._setup)
        except BaseException:  # a Ctrl-C too: nobody else knows of the keeper yet
            self._finish()
            raise

    def launch(self, *args: str) -> LaunchedWorkload:
        """Start one workload with these options and wait until it is ready."""
        return self.launch_all([args])[0]

    def launch_all(self, many: Sequence[Sequence[str]]) -> tuple[LaunchedWorkload, ...]:
        """Start many workloads side by side and wait until all are ready."""
        return self.launch_commands([workload_argv(self.directory, args) for args in many])

    def place_units(self, *units: SimulatedUnit) -> None:
        """Give the host these systemd units, and start the processes of the active ones."""
        running = [
            unit.running(self.launch(*unit.workload).pid if unit.workload else 0) if unit.active else unit
            for unit in units
        ]
        write_units(self.directory, running)

    def launch_commands(self, argvs: Sequence[Sequence[str]]) -> tuple[LaunchedWorkload, ...]:
        """Start any commands that print "ready PID" below the keeper (argv[0] absolute)."""
        launched = self._ask({"op": "launch", "argvs": [list(argv) for argv in argvs]})["launched"]
        assert isinstance(launched, list)  # noqa: S101 - our own protocol, and mypy must know
        faults = [str(each["error"]) for each in launched if "error" in each]
        if faults:
            raise ReclaimerdError(f"a workload did not start: {'; '.join(faults)}")
        return tuple(LaunchedWorkload(each["pid"], tuple(each["children"])) for each in launched)

    def reap(self) -> tuple[int, ...]:
        """Reap every dead child of the keeper; return their pids."""
        reaped = self._ask({"op": "reap"})["reaped"]
        assert isinstance(reaped, list)  # noqa: S101 - our own protocol, and mypy must know
        return tuple(reaped)

    def stop(self) -> tuple[int, ...]:
        """End every process of the simulation and remove it; return the pids that would not go."""
        if self._process is None:
            return ()
        try:
            left = self._ask({"op": "stop"})["left"]
        except ReclaimerdError:
            left = []
        self._finish()
        assert isinstance(left, list)  # noqa: S101 - our own protocol, and mypy must know
        return tuple(left)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ReclaimerdError("the simulation is not running", "call start() first")
        return self._process

    def _finish(self) -> None:
        process = self._running()
        self._process = None
        assert process.stdin is not None  # noqa: S101 - both are pipes, and mypy must know
        assert process.stdout is not None  # noqa: S101 - the same
        process.stdin.close()
        try:
            process.wait(ANSWER_WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(1.0)
        process.stdout.close()

    def _ask(self, request: Mapping[str, object]) -> dict[str, object]:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - both are pipes, and mypy must know
        assert process.stdout is not None  # noqa: S101 - the same
        try:
            os.write(process.stdin.fileno(), json.dumps(request).encode() + b"\n")
            reply = json.loads(self._read_line(process.stdout.fileno()))
        except (BrokenPipeError, ValueError) as error:
            raise ReclaimerdError("the simulation's keeper is gone") from error
        if "error" in reply:
            raise ReclaimerdError(f"the simulation's keeper: {reply['error']}")
        return dict(reply)

    def _read_line(self, descriptor: int) -> bytes:
        deadline = time.monotonic() + ANSWER_WITHIN_SECONDS
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise ReclaimerdError(
                    f"the simulation's keeper gave no answer in {ANSWER_WITHIN_SECONDS:g} s"
                )
            chunk = os.read(descriptor, 65536)
            if not chunk:
                raise ReclaimerdError("the simulation's keeper is gone")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line
