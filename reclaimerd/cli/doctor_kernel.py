"""Checks of `doctor` about the kernel and what the daemon may do in it: namespaces, /proc, capabilities."""

import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import takewhile

from reclaimerd import __version__
from reclaimerd.cli.doctor_host import Host
from reclaimerd.cli.doctor_words import Said, State, fail, gravest, ok, unknown, warn
from reclaimerd.daemon.this_host import HOST_PID_NAMESPACE
from reclaimerd.model.policy import ListedStage

_OLDEST_PYTHON = (3, 11)
_MOUNTS = "/proc/self/mountinfo"
_PLACE = 4
"""Where a line has the mount point; after it the options, at the end those of the file system (proc(5))."""
_HIDING = ("hidepid=", "subset=")
_UNIT_MEND = "take CapabilityBoundingSet= out of the unit, or add it there; a pod needs it in securityContext"


@dataclass(frozen=True, slots=True)
class Needed:
    """A capability: its bits in capability.h, any of which will do, and what for; `must`: not without it."""

    bits: tuple[int, ...]
    name: str
    purpose: str
    must: bool = True


def needed_for(listed: Collection[ListedStage]) -> tuple[Needed, ...]:
    """Return the capabilities that looking needs, an operator's kill, and the listed stages."""
    resets = ListedStage.RESET in listed
    return (
        Needed((19,), "CAP_SYS_PTRACE", "to see who holds a GPU"),
        Needed((1, 2), "CAP_DAC_READ_SEARCH", "to read /proc of others"),
        Needed((5,), "CAP_KILL", "for the stages sigterm and sigkill, and for `reclaimctl kill`"),
        Needed((21,), "CAP_SYS_ADMIN", "for kernel stacks, and for the stage reset", must=resets),
        Needed((34,), "CAP_SYSLOG", "to read Xids in the kernel log", must=False),
    )


def read_python(_host: Host) -> Said:
    """Say which Python runs this, and whether our packages are what we need."""
    shown = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < _OLDEST_PYTHON:
        return fail(f"Python {shown} is older than 3.11", "install it with Python 3.11 or newer")
    try:
        wanted = [line for line in requires("reclaimerd") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return warn(
            f"Python {shown}; reclaimerd {__version__} is not installed as a package", "install the package"
        )
    lacking = [fault for line in wanted if (fault := _package_fault(line))]
    if lacking:
        return fail("; ".join(lacking), "install reclaimerd again, with its packages")
    return ok(f"Python {shown}, reclaimerd {__version__}, {len(wanted)} packages as required")


def _package_fault(line: str) -> str:
    """Return what is wrong with one required package (`name>=1.2`), or ""."""
    name = "".join(takewhile(lambda letter: letter.isalnum() or letter in "-_.", line))
    least = line.partition(">=")[2].partition(",")[0].partition(";")[0].strip()
    try:
        found = version(name)
    except PackageNotFoundError:
        return f"the package {name} is missing"
    return f"{name} {found} is older than {least}" if _numbers(found) < _numbers(least) else ""


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in takewhile(str.isdigit, text.split(".")))


def read_pid_namespace(host: Host) -> Said:
    """Say whether pids here are those that NVML tells."""
    if host.path("/proc/self/ns/pid").stat().st_ino == HOST_PID_NAMESPACE:
        return ok("this is the host's PID namespace")
    if host.where.simulate is not None:
        return ok("not the host's PID namespace, which a simulation does not need")
    return fail("this is not the host's PID namespace", "run it on the host, or give the pod hostPID: true")


def read_proc_mount(host: Host) -> Said:
    """Say whether /proc shows every process."""
    rows = [line.split() for line in host.read(_MOUNTS).splitlines()]
    mounted = [row for row in rows if row[_PLACE : _PLACE + 1] == ["/proc"]]
    if not mounted:
        return fail("nothing is mounted at /proc", "mount -t proc proc /proc")
    words = {word for row in mounted[-1:] for part in (row[_PLACE + 1], row[-1]) for word in part.split(",")}
    hiding = sorted(
        word for word in words if word.startswith(_HIDING) and word not in ("hidepid=0", "hidepid=off")
    )
    if not hiding:
        return ok("/proc shows every process")
    text = f"/proc is mounted with {', '.join(hiding)}"
    if any(word.startswith("subset=") for word in hiding):
        return fail(
            f"{text}: what the kernel tells of itself is not there",
            "mount a whole one there: mount -t proc proc /proc",
        )
    return warn(
        f"{text}: without CAP_SYS_PTRACE nobody else's process shows",
        "keep CAP_SYS_PTRACE, or mount -o remount,hidepid=0 /proc",
    )


def read_cgroups(host: Host) -> Said:
    """Say which cgroup version is here."""
    if host.path("/sys/fs/cgroup/cgroup.controllers").exists():
        return ok("cgroup v2")
    if host.path("/sys/fs/cgroup/unified/cgroup.controllers").exists():
        return ok("cgroup v1 with v2 beside it")
    if host.path("/sys/fs/cgroup").is_dir():
        return ok("cgroup v1: there is no cgroup.kill")
    return fail("no cgroup file system at /sys/fs/cgroup", "mount it: without it no workload can be told")


def read_kernel_log(host: Host) -> Said:
    """Say whether the kernel log can be read, where Xids stand; it is opened and let go."""
    try:
        os.close(os.open(host.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        return warn("there is no /dev/kmsg, so no Xid is seen", "give the container /dev/kmsg")
    except OSError as error:
        if os.geteuid() != 0:
            return unknown(f"/dev/kmsg: {error.strerror}", "run doctor as root")
        return warn(
            f"/dev/kmsg can't be read ({error.strerror}), so no Xid is seen",
            "keep CAP_SYSLOG, or allow the device",
        )
    return ok("/dev/kmsg can be read")


def read_pidfd(_host: Host) -> Said:
    """Say whether signals can go through pidfds, tried on ourselves with signal 0, which sends nothing."""
    try:
        descriptor = os.pidfd_open(os.getpid())
        try:
            signal.pidfd_send_signal(descriptor, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        return fail(
            f"pidfds do not work here ({error.strerror})", "use Linux 5.3 or newer; allow them in seccomp"
        )
    return ok("pidfd_open and pidfd_send_signal work")


def read_capabilities(host: Host) -> Said:
    """Say whether the daemon has the capabilities that the policy's stages need."""
    pid = host.daemon_pid
    if pid is None:
        return unknown(
            "no daemon runs, so nobody's capabilities can be looked at", "systemctl start reclaimerd"
        )
    line = next(line for line in host.read(f"/proc/{pid}/status").splitlines() if line.startswith("CapEff:"))
    held = int(line.split()[1], 16)
    lacking = [one for one in needed_for(host.stages) if not any(held >> bit & 1 for bit in one.bits)]
    said = [
        Said(State.FAIL if one.must else State.WARN, f"pid {pid} lacks {one.name} {one.purpose}", _UNIT_MEND)
        for one in lacking
    ]
    return gravest(said, ok(f"pid {pid} has every capability that its policy needs"))
