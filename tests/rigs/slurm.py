"""A real Slurm of one node or more on loopback: munged, slurmctld, slurmd of our own, ended with the block.

Own socket, key, ports and folders: another Slurm on the machine is not touched. Root only.
"""

import fcntl
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from reclaimerd.observe.peers import cgroup_root
from tests.rigs.simulated import wait_until

NODE = "gpu01"
SCONTROL = "/usr/bin/scontrol"
SQUEUE = "/usr/bin/squeue"
SINFO = "/usr/bin/sinfo"
SLURMD = "/usr/sbin/slurmd"
_DAEMONS = ("/usr/sbin/munged", "/usr/sbin/slurmctld", SLURMD, SCONTROL, SQUEUE, "/usr/bin/sbatch")
_END_SECONDS = 10.0
TURN_SECONDS = 600.0
"""The longest file of tests with a Slurm takes less."""
_NOBODYS_MAJOR = 240
"""For local and experimental use (the kernel's devices.txt): no driver of a GPU's."""
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
MessageTimeout=2
UnkillableStepTimeout=10
ReturnToService=2
SlurmdParameters=config_overrides
{gres}
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={slurmd_port} CPUs=4 State=UNKNOWN {gpus}
{more}
PartitionName=short Nodes={nodes} Default=YES State=UP
{settings}
"""
_GRES = "GresTypes=gpu\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU"


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
    nodes: tuple[str, ...] = (NODE,)
    start: "Callable[..., subprocess.Popen[bytes]]" = subprocess.Popen
    later_controllers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def run(self, *words: str) -> str:
        """Run one of its commands to its end and return what it printed."""
        return subprocess.run(
            words, env=dict(self.environment), capture_output=True, check=True, timeout=30, text=True
        ).stdout

    def submit(self, command: str, *options: str, uid: int) -> str:
        """Start a batch job of this user and return its id."""
        out = self.run(
            "/usr/bin/sbatch",
            "--parsable",
            f"--uid={uid}",
            "--chdir=/",
            "--output=/dev/null",
            *options,
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

    def lose_step(self, job: str) -> None:
        """Let the daemon of a job's step die, as by want of memory: nobody ends the job's processes then."""
        title = f"slurmstepd: [{job}.".encode()
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdecimal() and (folder / "cmdline").read_bytes().startswith(title):
                    os.kill(int(folder.name), signal.SIGKILL)

    def cancel_all(self) -> None:
        """Cancel every job, and wait until the node is free."""
        for folder in _jobs_left():
            for pid in (folder / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with suppress(subprocess.SubprocessError):
            self.run("/usr/bin/scancel", f"--nodelist={NODE}")
            wait_until(lambda: _state(self) == "idle", "the node is idle again", 30)

    def undrain_all(self) -> None:
        """Give every node back that was drained, failed or set down, and wait until all are idle."""
        for node in self.nodes:
            with suppress(subprocess.CalledProcessError):  # nothing was wrong with it
                self.run(SCONTROL, "update", f"nodename={node}", "state=resume")
        # An undrained node counts as silent until its slurmd has told of itself anew.
        self.run(SCONTROL, "reconfigure")
        wait_until(lambda: _state(self) == "idle", f"all nodes are idle again: {self.story()}", 30)

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """End the controller, and start one again afterwards that knows what the first one knew."""
        _end(self.later_controllers[-1] if self.later_controllers else self.controller)
        try:
            yield
        finally:
            again = self.start("/usr/sbin/slurmctld", "-D", "-f", f"{self.folder}/slurm.conf")
            self.later_controllers.append(again)
            back = "the controller is back, and knows its nodes"
            wait_until(lambda: bool(_state(self)) and "unknown" not in _state(self), back, 60)

    def install(self, root: Path) -> None:
        """Put its programs below another root, where they speak to this Slurm and to no other."""
        for program in (SCONTROL, SQUEUE, SINFO, SLURMD):
            wrapper = root / program.removeprefix("/")
            wrapper.parent.mkdir(parents=True, exist_ok=True)
            wrapper.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {program} "$@"\n')
            wrapper.chmod(0o755)


@contextmanager
def slurm(gpus: int = 0, *, more_nodes: Sequence[str] = (), settings: str = "") -> Iterator[Slurm]:
    """Run one until the block is left; every job is cancelled then, and every daemon ended.

    Its GPUs are device nodes of its own (nobody drives them); gres.conf names the last one first. Further
    nodes have a slurmd each, and no GPU; `settings` are more lines of slurm.conf. A machine has one at a
    time: two would share the cgroups of their node's name, and the end of one would end the other's jobs.
    """
    with ExitStack() as stack:
        stack.enter_context(_alone())
        folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, folder)
        nodes = (NODE, *more_nodes)
        stack.callback(_remove_cgroups, nodes)
        folder.chmod(0o711)
        _write_files(folder, gpus, more_nodes, settings)
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
        start(SLURMD, "-D", "-N", NODE, "-f", f"{folder}/slurm.conf")
        for node in more_nodes:
            start(SLURMD, "-D", "-N", node, "-f", f"{folder}/slurm-{node}.conf")
        made = Slurm(folder, environment, controller, nodes, start)
        wait_until(lambda: _state(made) == "idle", "the node is idle", 60)
        stack.callback(made.cancel_all)
        yield made


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the machine's one place for a Slurm, by a lock on slurmd's own file: nothing is left behind."""
    with Path(SLURMD).open("rb") as program:
        wait_until(lambda: _is_locked(program), "another test's Slurm ends", TURN_SECONDS)
        yield


def _is_locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_files(folder: Path, gpus: int, more_nodes: Sequence[str], settings: str) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    words = {"host": socket.gethostname(), "node": NODE, "folder": folder}
    ports = {"ctld_port": _free_port(), "slurmd_port": _free_port()}
    kinds = {"gres": _GRES, "gpus": f"Gres=gpu:{gpus}"} if gpus else {"gres": "", "gpus": ""}
    place = f"NodeHostname={words['host']} NodeAddr=127.0.0.1"
    rows = [f"NodeName={name} {place} Port={_free_port()} CPUs=1 State=UNKNOWN" for name in more_nodes]
    more = {"more": "\n".join(rows), "nodes": ",".join((NODE, *more_nodes)), "settings": settings}
    text = _CONF.format(**words, **ports, **kinds, **more)
    (folder / "slurm.conf").write_text(text)
    for name in more_nodes:  # slurmds of one host must not share their spool
        own = text.replace(f"{folder}/spool", f"{folder}/spool-{name}")
        own = own.replace(f"{folder}/slurmd.", f"{folder}/slurmd-{name}.")
        (folder / f"slurm-{name}.conf").write_text(own)
    if gpus:
        nodes = [folder / f"nvidia{minor}" for minor in reversed(range(gpus))]
        for minor, node in enumerate(nodes):
            os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(_NOBODYS_MAJOR, minor))
        rows = [f"NodeName={NODE} Name=gpu File={node}\n" for node in nodes]
        (folder / "gres.conf").write_text("".join(rows))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _state(made: Slurm) -> str:
    try:
        return " ".join(sorted(set(made.run(SINFO, "-h", "-o", "%T").split())))
    except subprocess.SubprocessError:
        return ""


def _jobs_left() -> list[Path]:
    """Return the cgroups of the node's steps."""
    return sorted((cgroup_root("freezer") / f"slurm_{NODE}").glob("uid_*/job_*/step_*"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_SECONDS)


def _remove_cgroups(nodes: Sequence[str]) -> None:
    """Remove the empty cgroups that slurmd leaves behind, deepest first."""
    for controller in ("freezer", "cpuset", "memory", "devices", "cpuacct"):
        for node in nodes:
            with suppress(OSError):
                top = cgroup_root(controller) / f"slurm_{node}"
                for folder, _, _ in os.walk(top, topdown=False):
                    Path(folder).rmdir()
