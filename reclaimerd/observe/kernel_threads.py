"""One look at one kernel thread: whether it is at work inside a GPU driver (a deferred close).

Busy is who has a driver's frame other than the idle loop's in every one of several looks; here is one.
Plain blocking reads below an open /proc folder, in the procfs worker.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from reclaimerd.host.kernel_text import parse_stack
from reclaimerd.host.proc_text import StatText, parse_stat, printable
from reclaimerd.model.reset_facts import BusyThread
from reclaimerd.observe.kernel_scan import KTHREAD_NAMES, busy_frame_of
from reclaimerd.observe.proc_files import read_text, words_of

NOT_SHOWN = "its stack does not show"


def read_busy_threads(proc_root: Path, pids: Iterable[int]) -> tuple[tuple[BusyThread, ...], tuple[str, ...]]:
    """Return which of these kernel threads are busy now, and what could not be looked at."""
    busy: list[BusyThread] = []
    skipped: list[str] = []
    for pid in pids:
        try:
            directory = os.open(proc_root / str(pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            continue
        try:
            found = read_busy_thread(directory, parse_stat(read_text(directory, f"task/{pid}/stat")))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except (OSError, ValueError) as error:
            found = f"kernel thread {pid}: {words_of(error) if isinstance(error, OSError) else error}"
        finally:
            os.close(directory)
        if isinstance(found, BusyThread):
            busy.append(found)
        elif found is not None:
            skipped.append(found)
    return tuple(busy), tuple(skipped)


def read_busy_thread(directory: int, stat: StatText) -> BusyThread | str | None:
    """Return a kernel thread that is at work in a driver, None for any other, or why that can't be told.

    Raises OSError when it is gone.
    """
    ours = stat.comm.startswith(KTHREAD_NAMES)
    try:
        frame = busy_frame_of(parse_stack(read_text(directory, f"task/{stat.pid}/stack")))
    except FileNotFoundError:
        os.stat(f"task/{stat.pid}", dir_fd=directory)  # raises for one that is gone
        frame = None  # a kernel without stacks
    except ProcessLookupError:
        raise
    except OSError as error:
        who = f"kernel thread {stat.pid} ({printable(stat.comm)})"
        return f"{who}: its stack can't be read: {words_of(error)}" if ours else None
    if frame is None and ours and stat.state in "RD":
        return BusyThread(stat.pid, printable(stat.comm), f"state {stat.state}, {NOT_SHOWN}")
    return None if frame is None else BusyThread(stat.pid, printable(stat.comm), str(frame))
