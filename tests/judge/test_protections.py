"""Protections are bought by nobody: file, uids and unit decide, a name never does."""

from typing import Any

import pytest

from reclaimerd.judge.protections import exe_doubt, looks_protected, program_globs, protection_of
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import UserProtection
from reclaimerd.model.process import (
    PF_KTHREAD,
    ProcessReading,
    WorkloadKind,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.verdict import Protection
from tests.builders import OURS, a_policy, a_process, a_task, a_workload

FILE = FileIdentity(8, 4711)
ROOT = (0, 0, 0, 0)


def host(path: str) -> dict[FileIdentity, str]:
    """Return the host's files with one program."""
    return {FILE: path}


def program(path: str, uids: tuple[int, int, int, int] = ROOT, **overrides: Any) -> ProcessReading:
    """Return a process that runs the host's file at `path`."""
    fields: dict[str, Any] = {
        "comm": path.rpartition("/")[2][:15],
        "exe": Known(path),
        "exe_file": Known(FILE),
    }
    return a_process(uids=uids, **(fields | overrides))


def protect(
    reading: ProcessReading, files: dict[FileIdentity, str], *added: UserProtection
) -> Protection | None:
    """Return the protection under a policy with `added`."""
    return protection_of(reading, host_files=files, policy=a_policy(protections=added), ours=OURS)


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (a_process(1), "pid 1"),
        (a_process(2, tasks=(a_task(2, "I", PF_KTHREAD),)), "kernel thread"),
        (a_process(900), "reclaimerd itself"),
        (a_process(800), "ancestor"),
        (a_process(902), "worker"),
    ],
)
def test_place_protects(reading: ProcessReading, text: str) -> None:
    """Init, kernel threads, ourselves, our ancestors and our workers are protected without any file."""
    found = protect(reading, {})
    assert found is not None
    assert found.by == "built-in"
    assert text in found.text


@pytest.mark.parametrize(
    ("path", "uids", "workload"),
    [
        ("/usr/bin/nvidia-persistenced", (120, 120, 120, 120), a_workload("nvidia-persistenced.service")),
        ("/usr/bin/nv-hostengine", ROOT, a_workload("nvidia-dcgm.service")),
        ("/usr/bin/containerd-shim-runc-v2", ROOT, a_workload("containerd.service")),
        ("/usr/lib/systemd/systemd-logind", ROOT, a_workload("systemd-logind.service")),
        ("/usr/sbin/sshd", ROOT, a_workload("s", kind=WorkloadKind.SESSION, trusted=False)),
        ("/usr/bin/nvidia-cuda-mps-server", ROOT, a_workload("x", kind=WorkloadKind.NONE)),
        ("/usr/sbin/slurmstepd", ROOT, a_workload("j", kind=WorkloadKind.SLURM_JOB)),
    ],
)
def test_host_program_in_its_place_is_protected(path: str, uids: Any, workload: Any) -> None:
    """The host's own file under system uids in a system unit, or as root outside containers, is spared."""
    found = protect(program(path, uids, workload=workload), host(path))
    assert found is not None
    assert path in found.text


@pytest.mark.parametrize(
    ("uids", "workload", "files"),
    [
        (ROOT, a_workload(), {}),
        ((1000, 1000, 1000, 1000), a_workload(), host("/usr/sbin/sshd")),
        ((0, 1000, 0, 0), a_workload(), host("/usr/sbin/sshd")),
        ((120, 120, 120, 120), a_workload(trusted=False), host("/usr/sbin/sshd")),
        (ROOT, a_workload(kind=WorkloadKind.POD), host("/usr/sbin/sshd")),
        (ROOT, a_workload(kind=WorkloadKind.CONTAINER), host("/usr/sbin/sshd")),
        (ROOT, a_workload(kind=WorkloadKind.SLURM_JOB), host("/usr/sbin/sshd")),
        (ROOT, a_workload(), host("/usr/bin/python3")),
    ],
    ids=["not the host's", "a user", "half a user", "forged unit", "pod", "container", "job", "another file"],
)
def test_name_without_file_uid_and_place_is_not_protected(uids: Any, workload: Any, files: Any) -> None:
    """Each of file, uids and place is needed; what fails one only looks protected, which is an alarm."""
    reading = program("/usr/sbin/sshd", uids, workload=workload)
    assert protect(reading, files) is None
    alike = looks_protected(reading, host_files=files, policy=a_policy(), ours=OURS)
    assert alike is not None
    assert "sshd" in alike


def test_protected_and_ordinary_look_like_nothing() -> None:
    """A truly protected process and an ordinary one raise no alarm."""
    real = program("/usr/sbin/sshd", workload=a_workload("ssh.service"))
    assert looks_protected(real, host_files=host("/usr/sbin/sshd"), policy=a_policy(), ours=OURS) is None
    assert looks_protected(a_process(), host_files={}, policy=a_policy(), ours=OURS) is None


@pytest.mark.parametrize("comm", ["nvidia-persiste", "containerd-shim", "systemd-logind", "Xorg"])
def test_comm_cut_at_fifteen_bytes_still_looks_protected(comm: str) -> None:
    """The kernel's cut comm is recognised, also where the exe can't be read."""
    reading = a_process(comm=comm, exe=Unreadable("gone"), exe_file=Unreadable("gone"))
    assert looks_protected(reading, host_files={}, policy=a_policy(), ours=OURS) is not None


def test_unreadable_exe_leaves_it_to_uid_and_unit() -> None:
    """Without an exe, system uids in a trusted known unit protect, and the text says exe unreadable."""
    blind: dict[str, Any] = {"exe": Unreadable("no exe left"), "exe_file": Unreadable("no exe left")}
    unit = a_workload("kubelet.service")
    found = protect(a_process(uids=ROOT, workload=unit, **blind), {})
    assert found is not None
    assert "exe unreadable (no exe left)" in found.text
    assert protect(a_process(workload=unit, **blind), {}) is None
    assert protect(a_process(uids=ROOT, workload=a_workload("train.service"), **blind), {}) is None


@pytest.mark.parametrize("field", ["exe", "exe_file"])
def test_exe_doubt_names_its_cause(field: str) -> None:
    """Either half of the exe missing is a doubt; both known is none."""
    blind: dict[str, Any] = {field: Absent("none")}
    assert exe_doubt(a_process(**blind)) == "exe unreadable (none)"
    assert exe_doubt(a_process()) is None


def test_administrator_protects_by_every_field_that_is_set() -> None:
    """An added protection holds only when exe, unit and uids that are set all hold."""
    keep = UserProtection("keep", exe="/opt/serve/*", unit="serve*.service", uids=((1000, 1001),))
    right = program("/opt/serve/bin", (1000, 1001, 1000, 1000), workload=a_workload("serve-1.service"))
    files = host("/opt/serve/bin")
    found = protect(right, files, keep)
    assert found is not None
    assert found.by == "keep"
    assert "exe and unit and uid" in found.text
    stranger = program("/opt/serve/bin", (1000, 2000, 1000, 1000), workload=a_workload("serve-1.service"))
    forged = program("/opt/serve/bin", workload=a_workload("serve-1.service", trusted=False))
    assert protect(stranger, files, keep) is None
    assert protect(forged, files, UserProtection("u", unit="serve*")) is None
    assert protect(right, {}, keep) is None
    assert protect(right, files, UserProtection("empty")) is None


def test_administrator_unit_protects_without_an_exe_and_says_so() -> None:
    """A listed unit protects also where the exe can't be read; the record says so."""
    reading = a_process(exe=Unreadable("hung"), workload=a_workload("serve.service"))
    found = protect(reading, {}, UserProtection("u", unit="serve.service"))
    assert found is not None
    assert "exe unreadable (hung)" in found.text


def test_globs_name_built_in_and_added_programs_once() -> None:
    """Whoever stats the host's files gets every built-in path and the policy's own, each once."""
    added = (
        UserProtection("a", exe="/opt/a"),
        UserProtection("b", exe="/opt/a"),
        UserProtection("c", unit="u"),
    )
    globs = program_globs(added)
    assert "/usr/bin/nvidia-persistenced" in globs
    assert globs.count("/opt/a") == 1
    assert len(set(globs)) == len(globs)
    assert "" not in globs
