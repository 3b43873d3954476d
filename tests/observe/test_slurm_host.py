"""Which slurmd runs on a host, and where Slurm's programs are: only the host's own and root's count."""

import os
import time
from pathlib import Path

import pytest

from reclaimerd.observe.slurm_host import SlurmHost, SlurmPlaces, read_slurm_host

pytestmark = pytest.mark.root

STATUS = (
    "Name:\tslurmd\nTgid:\t{pid}\nPPid:\t{parent}\nNSpid:\t{ns}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    "Gid:\t0\t0\t0\t0\nThreads:\t1\nSigPnd:\t0\nShdPnd:\t0\n"
)
UPTIME = 1000.0
TICKS = 500
"""Start of every process, in clock ticks since boot."""


class Host:
    """Files and processes of one host."""

    def __init__(self, folder: Path) -> None:
        self.root, self.proc, self.conf = folder / "root", folder / "proc", folder / "conf"
        self.proc.mkdir()
        (self.proc / "uptime").write_text(f"{UPTIME} 1.0\n")
        (self.proc / "self").mkdir()

    def program(self, name: str) -> Path:
        """Add a program of root's."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path

    def process(self, pid: int, *words: str, parent: int = 1, uid: int = 0, ns: str = "") -> None:
        """Add a process that is called slurmd."""
        folder = self.proc / str(pid)
        folder.mkdir()
        (folder / "comm").write_text("slurmd\n")
        (folder / "status").write_text(STATUS.format(pid=pid, parent=parent, uid=uid, ns=ns or pid))
        fields = ["S", str(parent), *["0"] * 17, str(TICKS), *["0"] * 30]
        (folder / "stat").write_text(f"{pid} (slurmd) {' '.join(fields)}\n")
        (folder / "cmdline").write_bytes("\0".join(["/usr/sbin/slurmd", *words, ""]).encode())

    def read(self, **places: str) -> SlurmHost:
        """Return what is read of it."""
        return read_slurm_host(SlurmPlaces(str(self.root), **places), self.proc)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Give a host with scontrol."""
    made = Host(tmp_path)
    made.program("usr/bin/scontrol")
    return made


def test_a_host_without_scontrol_is_not_searched(tmp_path: Path) -> None:
    """Not even for processes, whatever they are called; nor with one that somebody else may change."""
    host = Host(tmp_path)
    host.process(7)
    assert host.read() == SlurmHost("", "")
    os.chown(host.program("usr/bin/scontrol"), 1234, 1234)
    assert host.read() == SlurmHost("", "")


def test_slurmd_is_found_with_its_node_and_its_age(host: Host) -> None:
    """The age is the process's, the node its own `-N`; squeue lies beside scontrol."""
    slurmd, squeue = host.program("usr/sbin/slurmd"), host.program("usr/bin/squeue")
    sinfo = host.program("usr/bin/sinfo")
    host.process(7, "-D", "-N", "gpu01")
    found = host.read()
    assert (found.scontrol, found.slurmd) == (str(host.root / "usr/bin/scontrol"), str(slurmd))
    assert (found.squeue, found.sinfo) == (str(squeue), str(sinfo))
    (daemon,) = found.daemons
    assert (daemon.pid, daemon.start_ticks, daemon.node) == (7, TICKS, "gpu01")
    assert daemon.age_seconds == UPTIME - TICKS / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(("words", "node"), [(("-Ngpu02",), "gpu02"), (("-N",), ""), (("-D",), "")])
def test_a_node_may_be_named_otherwise_or_not(host: Host, words: tuple[str, ...], node: str) -> None:
    """The short form, one that is cut off, none."""
    host.process(7, *words)
    assert [one.node for one in host.read().daemons] == [node]


def test_only_the_hosts_own_daemons_count(host: Host) -> None:
    """Not a user's process of that name, not a container's, not what slurmd forked, not one that is gone."""
    host.process(7)
    host.process(8, parent=7)
    host.process(9, uid=1000)
    host.process(10, ns="10 1")
    host.process(11)
    (host.proc / "11" / "stat").unlink()
    assert [one.pid for one in host.read().daemons] == [7]
    assert host.read().slurmd == ""
    host.process(12)
    assert [one.pid for one in host.read().daemons] == [7, 12]


def test_a_crowd_of_that_name_hides_no_daemon(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may start processes called slurmd, listed before it: they do not fill the bound."""
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: sorted(listdir(path)))
    for pid in range(100, 140):
        host.process(pid, uid=1000)
    host.process(500, "-N", "gpu01")
    assert [one.pid for one in host.read().daemons] == [500]


def test_the_policy_names_programs(host: Host) -> None:
    """Then no other place is looked at, and one that is not there is none."""
    named = host.program("sw/slurm/bin/scontrol")
    host.program("usr/sbin/slurmd")
    found = host.read(scontrol="/sw/slurm/bin/scontrol", slurmd="/sw/slurm/sbin/slurmd")
    assert (found.scontrol, found.slurmd, found.squeue) == (str(named), "", "")


def test_the_age_of_gres_conf_is_told(host: Host) -> None:
    """Where the folder is known and has one."""
    assert host.read(folder=str(host.conf)).gres_age_seconds is None
    host.conf.mkdir()
    (host.conf / "gres.conf").touch()
    os.utime(host.conf / "gres.conf", (time.time() - 100, time.time() - 100))
    age = host.read(folder=str(host.conf)).gres_age_seconds
    assert age is not None
    assert 99 <= age <= 130
