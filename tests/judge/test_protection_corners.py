"""Corners of the protections: each part of what is asked for must be there, not any one of them."""

from typing import Any

import pytest

from reclaimerd.judge.protections import looks_protected, protection_of
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.policy import UserProtection
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.verdict import Protection
from tests.builders import OURS, a_policy, a_process, a_workload

FILE = FileIdentity(8, 4711)
ROOT, USER = (0, 0, 0, 0), (1000, 1000, 1000, 1000)


def protect(reading: ProcessReading, path: str, *added: UserProtection) -> Protection | None:
    """Return the protection of one that runs the host's file at this path."""
    return protection_of(reading, host_files={FILE: path}, policy=a_policy(protections=added), ours=OURS)


def program(path: str, **overrides: Any) -> ProcessReading:
    """Return a process that runs the host's file at `path`."""
    return a_process(**{"exe": Known(path), "exe_file": Known(FILE), **overrides})


@pytest.mark.parametrize(
    ("uids", "kind", "protected"),
    [
        (ROOT, WorkloadKind.SLURM_JOB, True),
        (ROOT, WorkloadKind.UNIT, True),
        (ROOT, WorkloadKind.SESSION, True),
        (ROOT, WorkloadKind.NONE, True),
        (USER, WorkloadKind.SLURM_JOB, False),
        ((0, 1000, 0, 0), WorkloadKind.SLURM_JOB, False),
        (ROOT, WorkloadKind.POD, False),
        (ROOT, WorkloadKind.CONTAINER, False),
    ],
)
def test_a_step_daemon_is_roots_on_the_host_or_in_a_job(
    uids: Any,
    kind: WorkloadKind,
    protected: bool,  # noqa: FBT001  # a column
) -> None:
    """A user who starts Slurm's own program in his job, or root in a container, buys nothing by it."""
    reading = program("/usr/sbin/slurmstepd", uids=uids, workload=a_workload("j", kind=kind))
    assert (protect(reading, "/usr/sbin/slurmstepd") is not None) is protected


@pytest.mark.parametrize("trusted", [True, False])
def test_roots_own_program_is_the_hosts_in_whatever_unit(*, trusted: bool) -> None:
    """Root needs no directory of its own for that: what counts is that it is outside containers and jobs."""
    unit = a_workload("x.service", trusted=trusted)
    assert protect(program("/usr/sbin/sshd", uids=ROOT, workload=unit), "/usr/sbin/sshd") is not None
    foreign = program("/usr/sbin/sshd", uids=USER, workload=unit)
    assert protect(foreign, "/usr/sbin/sshd") is None


@pytest.mark.parametrize(
    ("listed", "protected"),
    [
        (UserProtection("keep", exe="/opt/serve/*"), True),
        (UserProtection("keep", exe="/opt/other/*"), False),
        (UserProtection("keep", unit="train-*.service"), True),
        (UserProtection("keep", unit="serve-*.service"), False),
    ],
)
def test_what_the_policy_lists_protects_only_what_it_names(
    listed: UserProtection,
    protected: bool,  # noqa: FBT001  # a column
) -> None:
    """A program that the host knows, or a unit that root named, is not enough: its name must fit too."""
    reading = program("/opt/serve/bin", uids=USER)
    assert (protect(reading, "/opt/serve/bin", listed) is not None) is protected


def test_a_protection_without_a_doubt_speaks_of_none() -> None:
    """The sentence ends where there is nothing more to be said."""
    found = protect(
        program("/opt/serve/bin", uids=USER), "/opt/serve/bin", UserProtection("k", exe="/opt/*/bin")
    )
    assert found is not None
    assert found.text == "the policy protects it by exe"


def test_a_program_whose_path_can_not_be_read_is_known_by_its_file() -> None:
    """The host's path of the file decides; a name that is not there fits nothing."""
    hidden = program("/opt/serve/bin", uids=USER, exe=Unreadable("hung"))
    assert protect(hidden, "/opt/serve/bin", UserProtection("k", exe="/opt/serve/*")) is not None
    assert protect(hidden, "/opt/serve/bin", UserProtection("k", exe="/opt/other/*")) is None


def test_a_borne_name_may_be_the_files() -> None:
    """A comm can be set to anything: the name of the file counts as well."""
    reading = a_process(comm="python3", exe=Known("/home/u/nvidia-persistenced"))
    alike = looks_protected(reading, host_files={}, policy=a_policy(), ours=OURS)
    assert alike is not None
    assert "nvidia-persistenced" in alike
