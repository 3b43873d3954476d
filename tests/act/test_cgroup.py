"""Claims about which cgroups may be acted on as a whole, and how they are opened."""

from pathlib import Path

import pytest

from reclaimerd.act.cgroup import Forbidden, Unusable, forbidden_reason, open_cgroup
from reclaimerd.model.process import (
    Workload,
    WorkloadKind,
)
from tests.builders import a_workload

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"


@pytest.mark.parametrize(
    "workload",
    [
        a_workload(),
        Workload(WorkloadKind.POD, "pod", path=POD),
        Workload(WorkloadKind.POD, "pod", path="/kubepods/burstable/pod1-2"),
        Workload(WorkloadKind.CONTAINER, "c", path="/system.slice/docker-abc.scope"),
    ],
)
def test_a_workload_of_its_own_is_not_forbidden(workload: Workload) -> None:
    """Units, pods (slices by name under the systemd driver) and containers may be acted on."""
    assert forbidden_reason(workload, "/system.slice/reclaimerd.service") == ""


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (a_workload(path="/"), "whole host"),
        (a_workload(path=""), "no workload"),
        (a_workload(kind=WorkloadKind.NONE), "no workload"),
        (a_workload(path="/../other"), "no path below"),
        (a_workload(path="system.slice/x.service"), "no path below"),
        (a_workload(path="/system.slice"), "slice of the system"),
        (a_workload(path="/system.slice/x-pod.slice"), "slice of the system"),
        (a_workload(path="/init.scope"), "slice of the system"),
        (a_workload(path="/user.slice/user-1000.slice/session-3.scope"), "login session"),
        (a_workload(path="/x/c1", kind=WorkloadKind.SESSION), "login session"),
        (a_workload(path="/system.slice/reclaimerd.service"), "we run in"),
        (a_workload(path="/system.slice/reclaimerd.service/../reclaimerd.service"), "no path below"),
        (a_workload(path="/box"), "we run in"),
        (a_workload(trusted=False), "not root's"),
    ],
)
def test_what_is_no_workload_is_forbidden(workload: Workload, words: str) -> None:
    """The root, slices, sessions, our own cgroup and its parents, and names of a user are refused."""
    own = "/box/in" if workload.path == "/box" else "/system.slice/reclaimerd.service"
    assert words in forbidden_reason(workload, own)


def test_a_slurm_job_is_never_killed_as_a_whole() -> None:
    """A job's slurmstepd lives inside job_N: its members are signalled one by one."""
    path = "/system.slice/slurmstepd.scope/job_12"
    found = open_cgroup(a_workload(path=path, kind=WorkloadKind.SLURM_JOB))
    assert isinstance(found, Unusable)
    assert "slurmstepd" in found.why


def _proc_self(tmp_path: Path, mount: Path) -> Path:
    """Return a folder like /proc/self whose cgroup v2 is mounted at `mount`."""
    mountinfo = f"30 20 0:26 / {mount} rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "mountinfo").write_text(mountinfo)
    (tmp_path / "cgroup").write_text("3:cpuset:/a\n0::/own\n")
    return tmp_path


def test_a_link_on_the_way_down_is_not_followed(tmp_path: Path) -> None:
    """A link instead of a directory is never followed, wherever it stands in the path."""
    mount = tmp_path / "mount"
    (mount / "real" / "x.service").mkdir(parents=True)
    (mount / "link").symlink_to("real")
    proc_self = _proc_self(tmp_path, mount)
    found = open_cgroup(a_workload(path="/link/x.service"), proc_self=proc_self)
    assert isinstance(found, Unusable)


def test_without_a_hierarchy_there_is_nothing_to_open(tmp_path: Path) -> None:
    """A hierarchy that is not mounted, or not from its root, is Unusable."""
    proc_self = _proc_self(tmp_path, tmp_path)
    (tmp_path / "mountinfo").write_text(f"30 20 0:26 /below {tmp_path} rw - cgroup2 cgroup2 rw\n")
    found = open_cgroup(a_workload(), proc_self=proc_self)
    assert isinstance(found, Unusable)
    assert "no mounted cgroup hierarchy v2" in found.why


def test_our_own_cgroup_is_read_from_proc(tmp_path: Path) -> None:
    """The boundary that we run in is found out, not assumed."""
    found = open_cgroup(a_workload(path="/own"), proc_self=_proc_self(tmp_path, tmp_path))
    assert found == Forbidden("we run in /own ourselves")
