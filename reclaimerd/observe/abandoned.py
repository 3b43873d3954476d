"""Workers that SIGKILL could not end: watched by pidfd until they are gone, also across our restart.

They may not be waited for, and their /proc files may not be read here: the reader might hang too.
"""

from dataclasses import dataclass
from pathlib import Path

from reclaimerd.host.child import Child, Finished, adopt, let_go, reap, run_bounded
from reclaimerd.model.identity import ProcessRef

_READ_SECONDS = 1.0
_START_TICKS = 19  # proc(5) stat, field 22, counted after the comm's last bracket


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A worker that was killed and may never end; `ref` is None when it hung before it said who it is."""

    child: Child
    ref: ProcessRef | None

    def is_gone(self) -> bool:
        """Tell whether its last thread is gone; reaps it then."""
        return reap(self.child) is not None


async def adopt_abandoned(ref: ProcessRef) -> Abandoned | None:
    """Return the worker that we abandoned before our restart, None when it is gone.

    Its start ticks are read by a child with a deadline. Where they can't be read it counts as ours and
    alive: too many workers in a hung driver are worse than none.
    """
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()  # noqa: ASYNC240  # never hangs
    child = adopt(ref.pid) if ref.boot_id == boot_id else None
    if child is None:
        return None
    read = await run_bounded(["/bin/cat", f"/proc/{ref.pid}/stat"], deadline_seconds=_READ_SECONDS)
    words = read.out.rpartition(")")[2].split()
    ticks = int(words[_START_TICKS]) if isinstance(read, Finished) and len(words) > _START_TICKS else None
    if reap(child) is not None:
        return None
    if ticks is not None and ticks != ref.start_ticks:
        let_go(child)
        return None
    return Abandoned(child, ref)
