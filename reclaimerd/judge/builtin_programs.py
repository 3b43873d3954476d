"""The programs that are protected on every host, as one typed table; it judges nothing.

A row protects only the host's own file (root's, not writable by others) in a station where a
workload can't stand: see `judge.protections`.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Station(Enum):
    """Where a built-in program must run to be believed."""

    SYSTEM_UNIT = auto()
    """In a unit whose directories root owns, under system uids only."""
    ROOT = auto()
    """Every uid 0, outside containers and jobs."""
    JOB_ROOT = auto()
    """Every uid 0, in a Slurm job or outside: slurmstepd lives inside the job's cgroup."""


@dataclass(frozen=True, slots=True)
class Program:
    """One protected program: its names, the paths of its file, its units, and where it may stand.

    `names` are what its comm or file name looks like (the kernel cuts a comm at 15 bytes).
    """

    label: str
    names: tuple[str, ...]
    paths: tuple[str, ...]
    units: tuple[str, ...]
    stations: tuple[Station, ...] = (Station.SYSTEM_UNIT, Station.ROOT)


_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin")


def _paths(*names: str, also: tuple[str, ...] = ()) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names for folder in _FOLDERS) + also


_DISPLAY_NAMES = (
    "Xorg",
    "Xwayland",
    "gnome-shell",
    "gdm",
    "gdm3",
    "gdm-*",
    "sddm",
    "sddm-*",
    "lightdm",
    "kwin_*",
    "weston",
)
_RUNTIME_NAMES = ("containerd", "containerd-shim*", "dockerd", "runc", "crun", "conmon", "crio")

PROGRAMS: tuple[Program, ...] = (
    Program(
        "nvidia-persistenced",
        ("nvidia-persistenced",),
        _paths("nvidia-persistenced"),
        ("nvidia-persistenced.service",),
    ),
    Program(
        "NVIDIA fabric manager",
        ("nv-fabricmanager", "nvlsm"),
        _paths("nv-fabricmanager", also=("/opt/nvidia/nvlsm/sbin/nvlsm",)),
        ("nvidia-fabricmanager.service",),
    ),
    Program("NVIDIA IMEX", ("nvidia-imex",), _paths("nvidia-imex"), ("nvidia-imex.service",)),
    Program(
        "NVIDIA DCGM",
        ("nv-hostengine", "dcgm-exporter"),
        _paths("nv-hostengine", "dcgm-exporter"),
        ("nvidia-dcgm.service", "dcgm.service", "dcgm-exporter.service"),
    ),
    Program(
        "NVIDIA MPS",
        ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
        _paths("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
        ("nvidia-mps.service", "nvidia-cuda-mps*.service"),
    ),
    Program(
        "display server",
        _DISPLAY_NAMES,
        _paths(*_DISPLAY_NAMES, also=("/usr/lib/xorg/Xorg", "/usr/libexec/Xorg", "/usr/libexec/gdm-*")),
        ("gdm.service", "gdm3.service", "sddm.service", "lightdm.service", "display-manager.service"),
    ),
    Program(
        "container runtime",
        _RUNTIME_NAMES,
        _paths(*_RUNTIME_NAMES, also=("/usr/libexec/crio/*", "/usr/libexec/podman/conmon")),
        ("containerd.service", "docker.service", "crio.service"),
    ),
    Program(
        "kubelet",
        ("kubelet", "k3s", "k3s-*"),
        _paths("kubelet", "k3s"),
        ("kubelet.service", "k3s.service", "k3s-agent.service"),
    ),
    Program("slurmd", ("slurmd",), _paths("slurmd", also=("/opt/slurm/sbin/slurmd",)), ("slurmd.service",)),
    Program(
        "slurmstepd",
        ("slurmstepd",),
        _paths("slurmstepd", also=("/opt/slurm/sbin/slurmstepd",)),
        ("slurmstepd.scope",),
        (Station.SYSTEM_UNIT, Station.JOB_ROOT),
    ),
    Program(
        "sshd",
        ("sshd", "sshd-session", "sshd-auth"),
        _paths("sshd", also=("/usr/lib/openssh/sshd-*", "/usr/libexec/openssh/sshd-*")),
        ("ssh.service", "sshd.service", "ssh@*.service"),
    ),
    Program(
        "systemd",
        ("systemd", "systemd-*"),
        ("/usr/lib/systemd/*", "/lib/systemd/*"),
        ("systemd-*.service", "init.scope"),
    ),
)
