"""One command of `reclaimctl` as another user, for a user who may not reach this Python."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def as_user(
    folder: Path, uid: int, groups: Sequence[int], command: Callable[[], int]
) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command, run as this user; the first group is the main one.

    Forked, so what it imports late must have been imported before.
    """
    out, err = folder / "out", folder / "err"
    descriptors = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in (out, err)]
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.dup2(descriptors[0], 1)
            os.dup2(descriptors[1], 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.setgroups(list(groups[1:]))
            os.setgid(groups[0])
            os.setuid(uid)
            code = command()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    for descriptor in descriptors:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.read_text(), err.read_text()
