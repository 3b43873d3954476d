"""Where the reset tool's runner is started: a transient unit of systemd's, never below our own cgroup.

Without that, a restart of our unit would cut a reset off in the middle. It may not start anything but the
runner, nor wait for the tool.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reclaimerd.act.programs import program_fault, sentence
from reclaimerd.act.reset_runner import TAKEN, UNASKED, unit_cgroup
from reclaimerd.host.child import Child, Overran, abandon, run_bounded, spawn
from reclaimerd.model.identity import AttemptId

SYSTEMD_RUN = "/usr/bin/systemd-run"
BOOTED = Path("/run/systemd/system")
"""Only where systemd is the host's init (sd_booted(3))."""
PLACE_SECONDS = 10.0
_MAX_UNIT = 200
_PROPERTIES = (
    "KillMode=none",
    "SendSIGKILL=no",
    "TimeoutStopSec=infinity",
    "Restart=no",
    f"SuccessExitStatus={TAKEN} {UNASKED}",
    "OOMPolicy=continue",
    "OOMScoreAdjust=-900",
    "UMask=0077",
    "UnsetEnvironment=LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE",
    "StandardInput=null",
    "StandardOutput=null",
    "StandardError=journal",
)
"""Nobody signals the tool: not a stop of its unit, not the memory killer before most others."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What is known at once: our own child where it is one, and why nothing runs (as far as we were told)."""

    child: Child | None = None
    why: str = ""


class Place(Protocol):
    """Where the runner is started."""

    @property
    def outside_of(self) -> str:
        """Return the cgroup that the runner must not be in, "" for none."""
        ...

    def fault(self) -> str:
        """Return why nothing can be started here, or ""."""
        ...

    async def start(self, run: AttemptId, argv: Sequence[str]) -> Placed:
        """Start a program for this run, and do not wait for its end."""
        ...


def read_own_cgroup(proc_self: Path = Path("/proc/self")) -> str:
    """Return our own cgroup as systemd keeps it, "" where we are in none of our own. Raises OSError."""
    return unit_cgroup((proc_self / "cgroup").read_text(encoding="utf-8", errors="replace"))


@dataclass(frozen=True, slots=True)
class SystemdPlace:
    """A transient unit in system.slice; `outside_of` is our own cgroup."""

    outside_of: str
    program: str = SYSTEMD_RUN
    booted: Path = BOOTED

    def fault(self) -> str:
        """Return why no transient unit can be made here, or ""."""
        if not self.booted.is_dir():
            return (
                "systemd is not this host's init, so the reset tool can't be placed outside our cgroup; "
                "run the daemon on the host itself"
            )
        fault = program_fault(self.program)
        return f"{fault}; the reset tool is placed by it" if fault else ""

    async def start(self, run: AttemptId, argv: Sequence[str]) -> Placed:
        """Have systemd start it; `exec` means that the answer comes when the program is loaded."""
        try:
            end = await run_bounded(self.command(run, argv), deadline_seconds=PLACE_SECONDS)
        except OSError as error:
            return Placed(why=f"{self.program} did not start ({error.strerror})")
        if isinstance(end, Overran):
            return Placed(why=f"{self.program} did not answer within {PLACE_SECONDS:g} s")
        return Placed(why=f"{self.program} ended with {end.code}: {sentence(end.err)}" if end.code else "")

    def command(self, run: AttemptId, argv: Sequence[str]) -> list[str]:
        """Return the whole command line."""
        properties = [word for line in _PROPERTIES for word in ("-p", line)]
        # In a unit's command `$` begins a variable (systemd.service(5)); `$$` is the letter itself.
        words = [word.replace("$", "$$") for word in argv]
        return [
            self.program,
            f"--unit={unit_name(run)}",
            f"--description=GPU reset {run} of reclaimerd",
            "--slice=system.slice",
            "--service-type=exec",
            "--collect",
            "--quiet",
            "--no-ask-password",
            *properties,
            "--",
            *words,
        ]


def unit_name(run: AttemptId) -> str:
    """Return the transient unit's name; systemd refuses a second one of that name."""
    return "reclaimerd-reset-" + re.sub(r"[^0-9A-Za-z_.-]", "_", run)[:_MAX_UNIT]


@dataclass(frozen=True, slots=True)
class ChildPlace:
    """A plain child in a session of its own: for the simulation, where nothing can be cut off."""

    outside_of: str = ""

    def fault(self) -> str:
        """Return "": a child can always be had."""
        return ""

    async def start(self, run: AttemptId, argv: Sequence[str]) -> Placed:
        """Start the child; the loop reaps it whenever it ends."""
        try:
            child = spawn(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError as error:
            return Placed(why=f"the runner of {run} did not start ({error.strerror})")
        abandon(child)
        return Placed(child=child)
