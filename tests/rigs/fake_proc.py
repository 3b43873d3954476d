"""A proc file system of plain files, for what no child of ours can be: kernel threads of a driver."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KTHREAD_FLAGS = 0x208040
BOOT_ID = "11111111-2222-3333-4444-555555555555"


@dataclass(frozen=True, slots=True)
class FakeTask:
    """One task: what its stat, status, wchan and stack say."""

    tid: int
    comm: str = "python"
    state: str = "S"
    flags: int = 0x400000
    stack: str = ""
    wchan: str = "0"
    pending: int = 0
    ticks: int = 7


class FakeProc:
    """Writes processes below a folder; each has what the kernel's reader reads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        boot = root / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text(f"{BOOT_ID}\n")
        (root / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 400 kB\n")

    def add(self, tasks: Sequence[FakeTask], *, ppid: int = 1, extra: str = "") -> int:
        """Write one process, its leader first, and return its pid."""
        pid = tasks[0].tid
        folder = self.root / str(pid)
        for task in tasks:
            place = folder / "task" / str(task.tid)
            place.mkdir(parents=True)
            (place / "stat").write_text(_stat(task, ppid))
            (place / "status").write_text(_status(task, pid, extra))
            (place / "wchan").write_text(task.wchan)
            (place / "stack").write_text(task.stack)
        (folder / "status").write_text(_status(tasks[0], pid, extra))
        (folder / "cgroup").write_text("0::/\n")
        (folder / "io").write_text("rchar: 1\nwchar: 4096\n")
        return pid


def _stat(task: FakeTask, ppid: int) -> str:
    middle = (
        f"{task.state} {ppid} 0 0 0 -1 {task.flags} 0 0 0 0 {task.ticks} 0 0 0 20 0 1 0 {1000 + task.tid}"
    )
    return f"{task.tid} ({task.comm}) {middle} " + "0 " * 16 + "1 " + "0 " * 12


def _status(task: FakeTask, pid: int, extra: str) -> str:
    return (
        f"Name:\t{task.comm}\nTgid:\t{pid}\nTracerPid:\t0\nUid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t{pid}\n"
        f"{extra}Threads:\t1\nSigPnd:\t{task.pending:016x}\nShdPnd:\t0000000000000000\n"
        "voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n"
    )
