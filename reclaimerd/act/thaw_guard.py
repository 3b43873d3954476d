"""Stand by while a workload is held still: should we die meanwhile, it is let go again.

A shell waits at a pipe whose other end is ours alone. Our death closes it, by whatever cause, and the shell
writes 0 to the cgroup's freeze file through the directory that we had opened. It does nothing else.
"""

import os
import subprocess
from dataclasses import dataclass

from reclaimerd.act.cgroup import Cgroup
from reclaimerd.host.child import Child, abandon, spawn

SHELL = "/bin/sh"
_STAND_BY = (
    'trap \'\' HUP INT TERM; read -r word; [ "$word" = over ] || echo 0 > "/proc/self/fd/$1/cgroup.freeze"'
)


@dataclass(frozen=True, slots=True)
class Guard:
    """The shell, and our end of its pipe."""

    child: Child
    pipe: int


def stand_by(cgroup: Cgroup) -> Guard:
    """Start the guard of a cgroup that is about to be frozen by us. Raises OSError: then it must not be."""
    theirs, ours = os.pipe()
    try:
        child = spawn(
            [SHELL, "-c", _STAND_BY, "thaw-guard", str(cgroup.directory_fd)],
            pass_fds=(cgroup.directory_fd,),
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        os.close(ours)
        why = f"{SHELL} can't stand by to let it go should we die ({error.strerror})"
        raise OSError(error.errno, why) from error
    finally:
        os.close(theirs)
    return Guard(child, ours)


def dismiss(guard: Guard, *, thawed: bool) -> None:
    """Send the guard away; one whose cgroup we could not let go ourselves tries it once more."""
    try:
        if thawed:
            os.write(guard.pipe, b"over\n")
    except BrokenPipeError:
        return  # somebody ended it: there is nothing left for it to do
    finally:
        os.close(guard.pipe)
        abandon(guard.child)
