"""The tasks of one process, and whether a listing had them all: a thread can slip out of it.

Blocking reads below an open /proc folder, for the procfs worker alone. It judges nothing: what is not known
to be all is told as not whole.
"""

from collections.abc import Iterator

from reclaimerd.host.proc_text import StatText, StatusText, parse_stat
from reclaimerd.model.process import TaskReading
from reclaimerd.observe.proc_files import gone, lives, read_text, read_tids

_TRIES = 3


def task_reading(stat: StatText) -> TaskReading:
    """Return a task from its stat line."""
    return TaskReading(stat.pid, stat.state, stat.flags, stat.utime + stat.stime)


def read_every_task(directory: int, pid: int, *, by_pidfd: bool) -> tuple[tuple[TaskReading, ...], bool]:
    """Return the tasks, and whether none is missing; raises ProcessLookupError when there is none.

    A thread that execs takes the leader's number, and one that clones another and ends is never in two
    listings: then only the dead leader is seen. So all dead is believed where the pidfd agrees (`by_pidfd`:
    the folder is of our own /proc), which is readable only when the last thread is gone.
    """
    tasks: tuple[TaskReading, ...] = ()
    for _ in range(_TRIES):
        tasks = _read_tasks(directory, pid)
        if not all(task.is_dead for task in tasks) or not by_pidfd or not lives(pid):
            return tasks, True
    return tasks, False


def _read_tasks(directory: int, pid: int) -> tuple[TaskReading, ...]:
    """Return every task that could be read; one that vanished meanwhile is left out."""
    tasks = []
    for tid in read_tids(directory):
        try:
            tasks.append(task_reading(parse_stat(read_text(directory, f"task/{tid}/stat"))))
        except (FileNotFoundError, ProcessLookupError):
            continue
    if not tasks:
        raise gone(pid)
    return tuple(tasks)


def task_prefixes(directory: int, status: StatusText) -> Iterator[str]:
    """Yield where a process's own files lie: the leader's place, then, if asked, each thread's."""
    yield ""
    if status.threads > 1:
        for tid in read_tids(directory):
            yield f"task/{tid}/"
