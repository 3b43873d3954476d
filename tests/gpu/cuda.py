"""Real CUDA processes of ours, which hold plain memory and are ended for certain."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CHILD = Path(__file__).with_name("cuda_child.py")
READY_SECONDS = 60.0


@dataclass(slots=True)
class CudaProcess:
    """A CUDA process that said ready; `pid` is the one that is to be reclaimed."""

    popen: "subprocess.Popen[str]"
    pid: int
    child: int


@contextmanager
def cuda_process(*args: str, prefix: tuple[str, ...] = ()) -> Iterator[CudaProcess]:
    """Start one, wait until it holds, and end it and its child for certain."""
    argv = [*prefix, sys.executable, str(CHILD), *args]
    popen = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert popen.stdout is not None
    ready, _, _ = select.select([popen.stdout], [], [], READY_SECONDS)
    words = popen.stdout.readline().split() if ready else []
    assert words[:1] == ["ready"], f"the CUDA child did not get ready: {words}"
    pid, child = popen.pid, int(words[2])
    if prefix:
        pid = _only_child(_only_child(popen.pid) if len(prefix) > 4 else popen.pid)
    try:
        yield CudaProcess(popen, pid, child)
    finally:
        for one in (pid, child, popen.pid):
            if one:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
        popen.wait(30)
        popen.stdout.close()


def _only_child(pid: int) -> int:
    words = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(words[0]) if words else pid
