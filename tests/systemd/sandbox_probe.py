"""What a process may do in the sandbox of our unit: run as the unit's program, it prints one JSON object.

Each claim is tried for real: "" where it worked, else the error's name.
"""

import ctypes
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH = 16
CLONE_NEWNS = 0x20000
AF_PACKET = 17
DENIED = {
    "write /etc": "EROFS",
    "write policy": "EROFS",
    "write /usr": "EROFS",
    "write /opt": "EROFS",
    "write /proc/sys": "EROFS",
    "write /sys": "EROFS",
    "list /root": "ENOENT",
    "mount": "EPERM",
    "ptrace": "EPERM",
    "unshare": "EPERM",
    "set clock": "EPERM",
    "raw packets": "EAFNOSUPPORT",
    "make device": "EPERM",
    "become somebody": "EPERM",
    "load module": "EPERM",
}
"""What our unit denies, and by which error."""


def called(returned: int) -> None:
    """Raise OSError for a call of libc that failed."""
    if returned == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def written(path: str) -> None:
    """Make a file and take it away."""
    Path(path).write_text("x", encoding="ascii")
    Path(path).unlink()


def mounted() -> None:
    """Mount something, and take it away."""
    called(LIBC.mount(b"x", b"/run/reclaimerd", b"tmpfs", 0, None))
    called(LIBC.umount2(b"/run/reclaimerd", 0))


def in_a_cgroup() -> None:
    """Write to a file of our own cgroup that every hierarchy has."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    place = next(
        line.split(":", 2)[2] for line in lines if line.startswith("0::") or ":name=systemd:" in line
    )
    tops = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"))
    files = (top / place.lstrip("/") / "cgroup.procs" for top in tops)
    next(file for file in files if file.exists()).write_text("0", encoding="ascii")


def owned_by_group(path: str) -> None:
    """Give a file of ours to another group."""
    Path(path).touch()
    os.chown(path, 0, 12345)
    Path(path).unlink()


def transient_unit() -> None:
    """Start a program outside of our cgroup, as a reset is."""
    words = ["/usr/bin/systemd-run", "--quiet", "--wait", "--collect", "--service-type=exec", "/bin/true"]
    if subprocess.run(words, check=False, capture_output=True, timeout=60).returncode:
        raise OSError(errno.EIO, "no transient unit")


def claims(pid: int) -> dict[str, Callable[[], object]]:
    """Return what is tried; `pid` is a process of another user."""
    return {
        "write /etc": lambda: written("/etc/x"),
        "write policy": lambda: written("/etc/reclaimerd/x"),
        "write /usr": lambda: written("/usr/x"),
        "write /opt": lambda: written("/opt/reclaimerd/x"),
        "write /proc/sys": lambda: written("/proc/sys/kernel/core_pattern"),
        "write /sys": lambda: Path("/sys/kernel/uevent_seqnum").open("w"),
        "list /root": lambda: Path("/root/mark").read_text(encoding="ascii"),
        "mount": mounted,
        "ptrace": lambda: called(LIBC.ptrace(PTRACE_ATTACH, pid, None, None)),
        "unshare": lambda: called(LIBC.unshare(CLONE_NEWNS)),
        "set clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        "raw packets": lambda: socket.socket(AF_PACKET, socket.SOCK_RAW, 0).close(),
        "make device": lambda: os.mknod("/run/reclaimerd/d", 0o20600, os.makedev(1, 3)),
        "become somebody": lambda: os.setuid(1234),
        "load module": lambda: called(LIBC.syscall(175, b"", 0, b"")),
        "write /tmp": lambda: written("/tmp/x"),
        "write /var/tmp": lambda: written("/var/tmp/x"),
        "write state": lambda: written("/var/lib/reclaimerd/x"),
        "write log": lambda: written("/var/log/reclaimerd/x"),
        "write /run/reclaimerd": lambda: written("/run/reclaimerd/x"),
        "write its cgroup": in_a_cgroup,
        "give to a group": lambda: owned_by_group("/run/reclaimerd/y"),
        "see descriptors": lambda: [one.readlink() for one in Path(f"/proc/{pid}/fd").iterdir()],
        "see program": lambda: Path(f"/proc/{pid}/exe").readlink(),
        "see mapped files": lambda: [one.stat() for one in Path(f"/proc/{pid}/map_files").iterdir()],
        "see stack": lambda: Path(f"/proc/{pid}/stack").read_text(encoding="ascii"),
        "see the host's files": lambda: Path("/proc/1/root/etc/passwd").stat(),
        "signal": lambda: os.kill(pid, 0),
        "read kernel log": lambda: os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)),
        "hear of devices": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15).bind((0, 1)),
        "start a transient unit": transient_unit,
        "connect": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    }


def tried(claim: Callable[[], object]) -> str:
    """Return "" where it worked, else the error's name; tried in a child, so that nothing of it stays."""
    pid = os.fork()
    if pid == 0:
        code = 0
        try:
            claim()
        except OSError as error:
            code = error.errno or errno.EIO
        except BaseException:
            code = errno.EBADMSG
            raise
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return errno.errorcode.get(code, str(code)) if code else ""


def main() -> None:
    """Try everything, and print what came of it."""
    found = {name: tried(claim) for name, claim in claims(int(sys.argv[1])).items()}
    Path("/var/lib/reclaimerd/probe").write_text(json.dumps(found), encoding="ascii")


if __name__ == "__main__":
    main()
