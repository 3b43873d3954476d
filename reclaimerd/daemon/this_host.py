"""What the daemon knows of itself and its host: who we are, above us, and in which namespace."""

import os
import platform
import re
from dataclasses import replace
from pathlib import Path

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.host.proc_text import parse_stat
from reclaimerd.judge.staging import staged
from reclaimerd.model.identity import ProcessRef

HOST_PID_NAMESPACE = 4026531836
"""Inode of the initial PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""
_MOST_ANCESTORS = 64
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_MACHINE_ID = re.compile(r"[0-9a-f]{32}\n?", re.ASCII)


def read_boot_id() -> str:
    """Return this boot's id (proc(5), sys/kernel/random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def read_machine_id(files: tuple[Path, ...] = MACHINE_ID_FILES) -> str:
    """Return this installation's id (machine-id(5)), or "" where it has none yet.

    It is no secret of a process, but nothing tells it to anybody either: only its hash is used.
    """
    for path in files:
        try:
            text = path.read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        if _MACHINE_ID.fullmatch(text):
            return text.strip()
    return ""


def on_this_host(loaded: LoadedPolicy) -> LoadedPolicy:
    """Return a policy as it holds here: a rule that enforces on a share of the hosts, only if we are one."""
    return replace(loaded, policy=staged(loaded.policy, read_machine_id()))


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
