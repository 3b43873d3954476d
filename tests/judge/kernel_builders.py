"""Short builders of kernel looks: a healthy process of one sleeping task, changed by what a test names."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from reclaimerd.config.signatures import load_signatures
from reclaimerd.judge.plight import Beside, PlightMemory, PlightSettings, advance
from reclaimerd.model.kernel import Frame, KernelLook, KernelTask, Plight
from reclaimerd.model.process import PF_EXITING
from reclaimerd.model.reading import Known
from tests.builders import GIB, MONO, a_ref

SIGNATURES = load_signatures()
GRACE = 120.0
SETTINGS = PlightSettings(exit_grace_seconds=GRACE, signatures=SIGNATURES)
SYSTEM_CALL = "do_syscall_64 entry_SYSCALL_64_after_hwframe"
EXIT = "do_exit do_group_exit get_signal arch_do_signal_or_restart " + SYSTEM_CALL


def stack(text: str, module: str = "") -> tuple[Frame, ...]:
    """Return frames from words, innermost first: `name`, `name/module`, `?name`; `module` is a default."""
    frames = []
    for word in text.split():
        name, _, tag = word.partition("/")
        frames.append(Frame(name.removeprefix("?"), tag or module, reliable=not name.startswith("?")))
    return tuple(frames)


def a_ktask(
    tid: int = 100, state: str = "S", flags: int = 0, frames: str = "", **overrides: Any
) -> KernelTask:
    """Return one thread: asleep and healthy."""
    task = KernelTask(
        tid=tid,
        comm="python3",
        state=state,
        flags=flags,
        cpu_ticks=50,
        processor=0,
        voluntary_switches=10,
        involuntary_switches=1,
        kill_pending=False,
        wchan="",
        frames=Known(stack(frames)),
    )
    return replace(task, **overrides)


def a_look(pid: int = 100, *tasks: KernelTask, **overrides: Any) -> KernelLook:
    """Return one process, child of 50, with 8 GiB in a cgroup of its own."""
    look = KernelLook(
        ref=a_ref(pid),
        ppid=50,
        comm="python3",
        tasks=tasks or (a_ktask(pid),),
        task_count=len(tasks) or 1,
        dumping_core=False,
        tracer_pid=0,
        ns_pids=(pid,),
        resident_bytes=0,
        frozen=Known(value=False),
        freezer="",
        written_bytes=Known(0),
        cgroup_bytes=Known(8 * GIB),
        at=MONO,
    )
    return replace(look, **overrides)


def exiting(pid: int = 100, frames: str = "", state: str = "D", **overrides: Any) -> KernelLook:
    """Return a process of one task in the exit path."""
    return a_look(pid, a_ktask(pid, state, PF_EXITING, frames), **overrides)


def busier(look: KernelLook, by: int = 1) -> KernelLook:
    """Return the same process after some CPU time of each task: motion, and no release."""
    return replace(look, tasks=tuple(replace(task, cpu_ticks=task.cpu_ticks + by) for task in look.tasks))


def by_pid(*looks: KernelLook) -> dict[int, KernelLook]:
    """Return looks as the culprits are searched in."""
    return {look.ref.pid: look for look in looks}


class Watch:
    """One run of looks: takes them at a pace, and keeps the memory between them."""

    def __init__(self, settings: PlightSettings = SETTINGS, pace: float = 2.0) -> None:
        self.settings = settings
        self.pace = pace
        self.now = MONO
        self.memory = PlightMemory()
        self.plights: tuple[Plight, ...] = ()

    def look(
        self, *looks: KernelLook, beside: Beside | None = None, after: float | None = None
    ) -> Plight | None:
        """Take one pass over these processes; return the first plight, if any."""
        self.now += self.pace if after is None else after
        self.plights, self.memory = advance(
            self.memory, looks, Beside() if beside is None else beside, self.settings, self.now
        )
        return self.plights[0] if self.plights else None

    def through(self, looks: Sequence[KernelLook], beside: Beside | None = None) -> list[Plight | None]:
        """Take one pass for each look of one process; return what was said each time."""
        return [self.look(look, beside=beside) for look in looks]

    def stay(self, look: KernelLook, seconds: float = GRACE + 4, beside: Beside | None = None) -> Plight:
        """Show the same look for so long; return the last plight."""
        found: Plight | None = None
        for _ in range(int(seconds / self.pace) + 1):
            found = self.look(look, beside=beside)
        assert found is not None
        return found

    def spin(self, look: KernelLook, seconds: float = GRACE + 4, beside: Beside | None = None) -> Plight:
        """Show the process for so long, busier each time; return the last plight."""
        found: Plight | None = None
        for turn in range(int(seconds / self.pace) + 1):
            found = self.look(busier(look, turn), beside=beside)
        assert found is not None
        return found
