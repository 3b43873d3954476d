"""A machine on which the Debian package is installed, and a simulated GPU host on it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.policies import Table, policy_text
from tests.rigs.simulated import wait_until
from tests.systemd.nspawn import ROOT, Machine, python

BUILD_SECONDS = 600.0
BOUND_SECONDS = 60.0
HOST = "/srv/simulated"
UNIT = "reclaimerd.service"
SOCKET_UNIT = "reclaimerd.socket"
STAGE = str(Path(__file__).with_name("stage.py"))
PROBE = Path(__file__).with_name("sandbox_probe.py")
CALL = """
import socket
with socket.socket(socket.AF_UNIX) as channel:
    channel.settimeout(50)
    channel.connect("/run/reclaimerd/reclaimerd.sock")
    channel.sendall(b"GET /v1/status HTTP/1.0\\r\\n\\r\\n")
    print(channel.makefile().read())
"""
"""A call with more patience than reclaimctl has: a daemon takes a moment to start."""
WORDS = (
    f"--config /etc/reclaimerd/reclaimerd.toml --simulate {HOST} --state-dir /var/lib/reclaimerd "
    "--log-dir /var/log/reclaimerd --socket /run/reclaimerd/reclaimerd.sock"
)
Json = dict[str, Any]


def build_package(folder: Path) -> Path:
    """Return a package of the checkout: a new one, or the one that RECLAIMERD_DEB names."""
    made = os.environ.get("RECLAIMERD_DEB")
    if made:
        return Path(made)
    done = subprocess.run(
        [str(ROOT / "tools" / "build-deb"), str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


@dataclass(slots=True)
class Stage:
    """The simulated host inside the machine."""

    process: "subprocess.Popen[str]"

    def ask(self, op: str, **more: object) -> Json:
        """Return the answer to one order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **more}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> Json:
        """Return what it says next."""
        assert self.process.stdout is not None
        answer = dict(json.loads(self.process.stdout.readline()))
        assert "error" not in answer, answer
        return answer

    def launch(self, *words: str) -> int:
        """Start a workload over the cap, and return its pid inside."""
        return int(self.ask("launch", words=["--gpu", "GPU-a", "--bytes", "5GiB", *words])["pid"])


@dataclass(slots=True)
class Installed:
    """The machine, our unit on it, and what its audit log says."""

    machine: Machine
    package: Path
    drop_ins: list[Path] = field(default_factory=list)

    def place(self, path: str) -> Path:
        """Return a path of the machine as we see it."""
        return self.machine.root / path.lstrip("/")

    def program(self, source: Path) -> str:
        """Return where a program of the tests lies inside: the unit sees nothing of /tmp, /home and /root."""
        inside = Path("/srv/programs") / source.name
        self.place(str(inside.parent)).mkdir(mode=0o755, exist_ok=True)
        place = self.place(str(inside))
        place.write_bytes(source.read_bytes())
        place.chmod(0o755)
        return str(inside)

    def policy(self, *rules: Table, **tables: Table) -> None:
        """Write the policy that the unit reads."""
        self.place("/etc/reclaimerd/reclaimerd.toml").write_text(policy_text(rules, tables), encoding="utf-8")

    def drop_in(self, name: str, text: str) -> None:
        """Give the unit a drop-in until `clear`."""
        folder = self.place(f"/etc/systemd/system/{UNIT}.d")
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        self.drop_ins.append(folder / name)
        self.machine.systemctl("daemon-reload")

    def simulate(self, program: str = "/opt/reclaimerd/bin/reclaimerd", more: str = "") -> None:
        """Let the unit watch the simulated host, whose files stand for a driver's."""
        text = f"""[Service]
ExecStart=
ExecStart={program} {WORDS}
ExecStopPost=
ExecStopPost=/opt/reclaimerd/bin/reclaimerd --restore {WORDS}
ReadWritePaths={HOST}
RestartSec=100ms
{more}
"""
        self.drop_in("50-simulate.conf", text)

    def clear(self) -> None:
        """Stop the unit, and forget drop-ins, state and records."""
        self.machine.run("systemctl", "stop", SOCKET_UNIT, UNIT)
        self.machine.run("systemctl", "reset-failed")
        for path in self.drop_ins:
            path.unlink(missing_ok=True)
        self.drop_ins.clear()
        self.machine.systemctl("daemon-reload")
        self.machine.run("sh", "-c", "rm -rf /var/lib/reclaimerd/* /var/log/reclaimerd/*")

    @property
    def main_pid(self) -> int:
        """Return the daemon's pid inside, 0 for none."""
        return int(self.machine.show(UNIT, "MainPID"))

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a process inside."""
        done = self.machine.run("sh", "-c", f"kill -{int(number)} {pid}")
        assert done.returncode == 0, done.stderr

    def ctl(self, *words: str) -> Json:
        """Return what one reclaimctl command inside prints; its code must be 0."""
        done = self.machine.run("reclaimctl", *words, "--json")
        assert done.returncode == 0, f"{done.stderr}{done.stdout}{self.story()}"
        return dict(json.loads(done.stdout))

    def records(self, kind: str) -> list[Json]:
        """Return the audit log's lines of one kind."""
        path = self.place("/var/log/reclaimerd/audit.jsonl")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        rows = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [row for row in rows if row["kind"] == kind]

    def wait_record(self, kind: str, count: int = 1) -> Json:
        """Wait for the record of a kind that makes so many."""
        wait_until(lambda: len(self.records(kind)) >= count, f"{kind}: {self.story()}", BOUND_SECONDS)
        return self.records(kind)[count - 1]

    def story(self) -> str:
        """Return what the unit said last, for a failing test's message."""
        return self.machine.run("journalctl", "-u", UNIT, "-n", "40", "-o", "cat", "--no-pager").stdout


@contextmanager
def staged(machine: Machine) -> Iterator[Stage]:
    """Run a simulated host inside until the block is left."""
    machine.run("mkdir", "-p", "/srv/mounts")
    # A container has neither; a host has both.
    machine.run("mknod", "/dev/fuse", "c", "10", "229")
    machine.run("mknod", "-m", "0644", "/dev/kmsg", "c", "1", "11")
    inside = ["nsenter", "-t", str(machine.init), "-m", "-p", "-n", "-u", "-i", "-C", "--"]
    # Not in /tmp: the unit has one of its own.
    words = ["env", "TMPDIR=/srv/mounts", f"PYTHONPATH={ROOT}", *python(STAGE, HOST)]
    process = subprocess.Popen(
        [*inside, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, stderr=sys.stderr
    )
    stage = Stage(process)
    try:
        assert stage.answer() == {}
        yield stage
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(BOUND_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def pinged(unit: Installed) -> str:
    """Return when systemd heard last from the daemon's loop."""
    return unit.machine.show(UNIT, "WatchdogTimestampMonotonic")


def probed(unit: Installed, more: str) -> dict[str, str]:
    """Return what the unit may do, by a program in the daemon's place."""
    booted = unit.machine
    booted.run("sh", "-c", "echo mark >/root/mark")
    booted.systemctl("restart", "holder.service")
    holder = booted.show("holder.service", "MainPID")
    unit.machine.run("systemctl", "stop", UNIT)
    unit.drop_in(
        "70-probe.conf",
        f"[Service]\nType=oneshot\nRestart=no\nWatchdogSec=0\nExecStart=\nExecStopPost=\n"
        f"ExecStart=/opt/reclaimerd/bin/python -P {unit.program(PROBE)} {holder}\n{more}\n",
    )
    booted.systemctl("start", UNIT)
    return dict(json.loads(unit.place("/var/lib/reclaimerd/probe").read_text()))
