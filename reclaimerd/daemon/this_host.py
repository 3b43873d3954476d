"""What the daemon knows of itself and its host: who we are, above us, and in which namespace."""

import os
import platform
from pathlib import Path

from reclaimerd.host.proc_text import parse_stat
from reclaimerd.model.identity import ProcessRef

HOST_PID_NAMESPACE = 4026531836
"""Inode of the initial PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_MOST_ANCESTORS = 64


def read_boot_id() -> str:
    """Return this boot's id (proc(5), sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_own_ref(boot_id: str) -> ProcessRef:
    """Return our own identity."""
    stat = parse_stat(Path("/proc/self/stat").read_text(encoding="utf-8", errors="surrogateescape"))
    return ProcessRef(boot_id, os.getpid(), stat.start_ticks)


def read_ancestors(pid: int) -> frozenset[int]:
    """Return the pids above a process up to 1; `status` is safe to read of any process."""
    found: set[int] = set()
    parent = pid
    while parent > 0 and len(found) < _MOST_ANCESTORS:
        try:
            text = Path(f"/proc/{parent}/status").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            break
        parent = _parent(text)
        if parent > 0:
            found.add(parent)
    return frozenset(found)


def sees_host_pids() -> bool:
    """Tell whether we are in the host's own PID namespace, whose pids NVML uses."""
    return Path("/proc/self/ns/pid").stat().st_ino == HOST_PID_NAMESPACE


def host_name() -> str:
    """Return the node's name."""
    return platform.node()


def _parent(status_text: str) -> int:
    words = next((line.split() for line in status_text.splitlines() if line.startswith("PPid:")), [])
    return int(words[1]) if len(words) > 1 else 0
