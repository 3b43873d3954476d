"""A process table of thousands: one tiny program's children, in a PID namespace of its own.

Children share the parent's memory (clone without CLONE_THREAD), so each costs the kernel some 30 KiB. The
end of the first one takes all the others along. Root only; built by gcc when it is needed.
"""

import os
import resource
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PID_MAX = Path("/proc/sys/kernel/pid_max")
SPARE_PIDS = 8192
"""Left to everybody else on the machine."""
BYTES_EACH = 48 * 1024
GONE_WITHIN_SECONDS = 60.0

SOURCE = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define STACK 8192

static _Atomic long asleep;

static int sleeper(void *nothing) {
    asleep++;
    for (;;) pause();
    return nothing != NULL;
}

static int first(void *words) {
    long count = atol(((char **)words)[1]);
    char *stacks = mmap(NULL, (size_t)count * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    long made = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (stacks == MAP_FAILED) return 1;
    while (made < count) {
        char *top = stacks + (made + 1) * STACK;
        if (clone(sleeper, top, CLONE_VM | CLONE_FS | SIGCHLD, NULL) < 0) break;
        made++;
    }
    while (asleep < made) usleep(1000);
    printf("%ld\n", made);
    fflush(stdout);
    for (;;) pause();
}

int main(int argc, char **words) {
    static char stack[65536];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc < 2 || clone(first, stack + sizeof stack, CLONE_NEWPID | SIGCHLD, words) < 0) return 1;
    close(1);
    for (;;) pause();
}
"""


def why_unavailable(count: int) -> str:
    """Return why so many processes can't be made here, or ""."""
    threads_max = int(Path("/proc/sys/kernel/threads-max").read_text(encoding="ascii"))
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    wanted = count + SPARE_PIDS
    reasons = {
        "needs root": os.geteuid() != 0,
        "no gcc to build the sleeper": shutil.which("gcc") is None,
        f"the kernel allows {threads_max} threads in all": wanted > threads_max,
        "pid_max is too low and can't be raised": not os.access(PID_MAX, os.W_OK) and _pid_max() < wanted,
        f"too little memory: {free_bytes >> 20} MiB are free": free_bytes < 2 * count * BYTES_EACH,
        f"this user may have {limit} processes": limit != resource.RLIM_INFINITY and limit < wanted,
    }
    return next((reason for reason, stands in reasons.items() if stands), "")


def _pid_max() -> int:
    return int(PID_MAX.read_text(encoding="ascii"))


@contextmanager
def many_processes(folder: Path, count: int) -> Iterator[int]:
    """Have so many processes, all asleep; yields how many there are, all gone at the end of the block.

    Where the machine's pid_max is too low it is raised, and put back at the end.
    """
    gcc = shutil.which("gcc")
    assert gcc is not None
    program = folder / "sleepers"
    subprocess.run(
        [gcc, "-O1", "-Wall", "-Werror", "-x", "c", "-", "-o", program], input=SOURCE.encode(), check=True
    )
    before = _pid_max()
    if before < count + SPARE_PIDS:
        PID_MAX.write_text(f"{count + 2 * SPARE_PIDS}\n", encoding="ascii")
    crowd = subprocess.Popen([program, str(count)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={})
    assert crowd.stdout is not None
    first = 0
    try:
        line = crowd.stdout.readline()
        first = int(Path(f"/proc/{crowd.pid}/task/{crowd.pid}/children").read_text(encoding="ascii") or 0)
        yield int(line or 0)
    finally:
        gone = os.pidfd_open(first) if first else None
        crowd.kill()  # the first of the namespace goes with it, and all others with that one
        crowd.wait(GONE_WITHIN_SECONDS)
        crowd.stdout.close()
        if gone is not None:
            _wait_gone(gone)
        if _pid_max() != before:
            PID_MAX.write_text(f"{before}\n", encoding="ascii")


def _wait_gone(pidfd: int) -> None:
    try:
        assert select.select([pidfd], [], [], GONE_WITHIN_SECONDS)[0], "the crowd would not go"
    finally:
        os.close(pidfd)
