"""The programs under test while they run, and what they returned."""

import json
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]
STOP_SECONDS = 8.0
CTL_SECONDS = 40.0


@dataclass(frozen=True, slots=True)
class Ran:
    """What one command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Json:
        """Return the one JSON object that it printed."""
        return dict(json.loads(self.out))

    def target(self, pid: int) -> Json:
        """Return the result of one target of a kill."""
        return next(dict(one) for one in self.answer["targets"] if one["pid"] == pid)


@dataclass(frozen=True, slots=True)
class Asked:
    """A command that is still running."""

    process: "subprocess.Popen[str]"

    def result(self, seconds: float = CTL_SECONDS) -> Ran:
        """Wait for its end and return what came of it."""
        out, err = self.process.communicate(timeout=seconds)
        return Ran(self.process.returncode, out, err)

    def end(self) -> None:
        """End it, however far it is."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One running reclaimerd."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self.process.pid

    def words(self) -> str:
        """Return what it has written to its standard error."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill_now(self) -> None:
        """SIGKILL it, and wait until it is gone."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Ask it to end and return its exit code; SIGKILL when it does not come."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_now()
            raise
