"""One simulated host with everything outside the daemon: it outlives each life of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.model.policy import Policy
from tests.machine.hands import Fuse, Kernel, Scheduler, ToolMarks
from tests.machine.oracle import Oracle
from tests.machine.world import World

FAULTS_OF_OURS = frozenset(
    {"pass_failed", "reset_broke_off", "warning_broke_off", "drain_broke_off", "reset_phase_failed",
     "reset_last_look_failed", "reset_tool_start_failed", "reset_tool_unknown"}
)  # fmt: skip
"""Log lines that say that our own code broke: none of them may come of anything that happens here."""
_EXPECTED = ("nothing can be put on record", "Killed")


@dataclass(slots=True)
class Host:
    """The truth, who judges by it, and what the daemon's hands reach."""

    folder: Path
    policy: Policy
    world: World = field(default_factory=World)
    fuse: Fuse = field(default_factory=Fuse)
    marks: ToolMarks = field(default_factory=ToolMarks)
    names: int = 0
    oracle: Oracle = field(init=False)
    kernel: Kernel = field(init=False)
    scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.world, self.policy)
        self.kernel = Kernel(self.world, self.oracle, self.fuse)
        self.scheduler = Scheduler(self.oracle, self.fuse)

    @property
    def log_dir(self) -> Path:
        """Return where the audit log lies."""
        return self.folder / "log"

    @property
    def hold_file(self) -> Path:
        """Return the file that says hold."""
        return self.folder / "HOLD"

    def token(self, _bytes: int) -> str:
        """Return what stands for chance in an incident's name."""
        self.names += 1
        return f"{self.names:06x}"

    def children_of(self, pid: int) -> tuple[int, ...]:
        """Return the children of a process."""
        return tuple(one.ref.pid for one in self.world.procs.values() if one.ppid == pid)

    def take_log(self, level: str, name: str, fields: Mapping[str, object]) -> None:
        """Take a log line: one that says that our own code broke is a sin."""
        del level
        text = str(fields.get("error", ""))
        if name in FAULTS_OF_OURS and not self.fuse.is_blown and not any(one in text for one in _EXPECTED):
            self.oracle.sins.append(f"at {self.world.mono:.1f}: {name}: {dict(fields)}")
