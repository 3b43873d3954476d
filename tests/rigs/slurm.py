"""A real Slurm of one node on loopback: munged, slurmctld and slurmd of our own, ended with the block.

Own socket, key, ports and folders: another Slurm on the machine is not touched. Root only.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.observe.peers import cgroup_root
from tests.rigs.simulated import wait_until

NODE = "gpu01"
SCONTROL = "/usr/bin/scontrol"
_DAEMONS = ("/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", SCONTROL, "/usr/bin/sbatch")
_END_SECONDS = 10.0
_CONF = """
ClusterName=rt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
MpiDefault=none
KillWait=1
ReturnToService=2
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd_port} CPUs=1 State=UNKNOWN
PartitionName=short Nodes={node} Default=YES State=UP
"""


def why_unavailable() -> str:
    """Return why there can be no Slurm here, or "" when there can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [path for path in _DAEMONS if not Path(path).exists()]
    return f"Slurm is not installed: no {missing[0]}" if missing else ""


@dataclass(frozen=True, slots=True)
class Slurm:
    """One running Slurm; `environment` is for its commands."""

    folder: Path
    environment: Mapping[str, str]
    controller: "subprocess.Popen[bytes]"

    def run(self, *words: str) -> str:
        """Run one of its commands to its end and return what it printed."""
        return subprocess.run(
            words, env=dict(self.environment), capture_output=True, check=True, timeout=30, text=True
        ).stdout

    def submit(self, command: str, *, uid: int) -> str:
        """Start a batch job of this user and return its id."""
        out = self.run(
            "/usr/bin/sbatch",
            "--parsable",
            f"--uid={uid}",
            "--chdir=/",
            "--output=/dev/null",
            "--wrap",
            command,
        )
        return out.strip()

    def pids_of(self, job: str) -> list[int]:
        """Return the processes of a job on the node, as Slurm lists them."""
        try:
            lines = self.run(SCONTROL, "listpids", job, NODE).splitlines()
        except subprocess.CalledProcessError:  # no step of it has started yet
            return []
        return [int(line.split()[0]) for line in lines[1:] if line.split()[0] != "-1"]

    def story(self) -> str:
        """Return the ends of its logs, for a failing test's message."""
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.log"))


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Run one until the block is left; every job is cancelled then, and every daemon ended."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, folder)
        stack.callback(_remove_cgroups)
        folder.chmod(0o711)
        _write_files(folder)
        environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}

        def start(*words: str) -> "subprocess.Popen[bytes]":
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(words, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
            stack.callback(_end, process)
            return process

        files = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        start(
            "/usr/sbin/munged",
            "--foreground",
            "--force",
            *(f"--{option}={folder}/munge.{name}" for option, name in files.items()),
        )
        wait_until((folder / "munge.socket").exists, "munged listens")
        controller = start("/usr/sbin/slurmctld", "-D", "-c", "-f", f"{folder}/slurm.conf")
        start("/usr/sbin/slurmd", "-D", "-N", NODE, "-f", f"{folder}/slurm.conf")
        made = Slurm(folder, environment, controller)
        wait_until(lambda: _state(made) == "idle", "the node is idle", 60)
        stack.callback(_cancel_all, made)
        yield made


def _write_files(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    words = {"host": socket.gethostname(), "node": NODE, "folder": folder}
    ports = {"ctld_port": _free_port(), "slurmd_port": _free_port()}
    (folder / "slurm.conf").write_text(_CONF.format(**words, **ports))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _state(made: Slurm) -> str:
    try:
        return made.run("/usr/bin/sinfo", "-h", "-o", "%T").strip()
    except subprocess.SubprocessError:
        return ""


def _cancel_all(made: Slurm) -> None:
    """Cancel every job, and wait until the node is free: no process of a job outlives the block."""
    with suppress(subprocess.SubprocessError):
        made.run("/usr/bin/scancel", "--user=root")
        made.run("/usr/bin/scancel", "--user=nobody")
        wait_until(lambda: _state(made) == "idle", "the node is idle again", 30)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_SECONDS)


def _remove_cgroups() -> None:
    """Remove the empty cgroups that slurmd leaves behind, deepest first."""
    for controller in ("freezer", "cpuset", "memory", "devices", "cpuacct"):
        with suppress(OSError):
            top = cgroup_root(controller) / f"slurm_{NODE}"
            for folder, _, _ in os.walk(top, topdown=False):
                Path(folder).rmdir()
