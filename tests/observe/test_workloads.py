"""From cgroup text to workloads: every form, and what may not be believed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.model.process import WorkloadKind, WorkloadNames
from reclaimerd.observe.workloads import DirectoryOwners, workload_of

C = "3f2a" * 16
D = "beef" * 16
U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
U_ = U.replace("-", "_")
HASH = "a5363f4f31e043bdae3c93aca4991903"
ALLOC = "0b4f31aa-7d3c-4c1e-8f5e-001122334455"
SLUID = "s5K1KKYAYG5D00"


def everything(_controllers: str, _path: str) -> bool:
    """Say that root owns each directory."""
    return True


def nothing(_controllers: str, _path: str) -> bool:
    """Say that no directory can be looked at."""
    return False


def all_but(*foreign: str) -> Callable[[str, str], bool]:
    """Say that root owns each directory except these."""
    return lambda _controllers, path: path not in foreign


KUBE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{U_}.slice"
CRI = f"cri-containerd-{C}.scope"
PLAIN = f"/kubepods.slice/kubepods-pod{U_}.slice"
NESTED = f"kubelet-kubepods-pod{U_}.slice"
MIXED = f"/system.slice/containerd.service/kubepods-burstable-pod{U_}.slice:cri-containerd:{C}"
PODMAN = f"/machine.slice/machine-libpod_pod_{D}.slice"
POD_NAME = "pod 9a15d2b5…"
C_NAME = "container 3f2a3f2a3f2a…"
Expected = tuple[str, str, str, str, str]
FORMS: list[tuple[str, Expected]] = [
    (f"0::{KUBE}/{CRI}", ("pod", POD_NAME, KUBE, "", C)),
    (f"0::{PLAIN}/{CRI}", ("pod", POD_NAME, f"{PLAIN}", "", C)),
    (
        f"11:devices:/kubepods/besteffort/pod{U}/{C}",
        ("pod", POD_NAME, f"/kubepods/besteffort/pod{U}", "devices", C),
    ),
    (f"0::/kubepods/pod{U}/{C}", ("pod", POD_NAME, f"/kubepods/pod{U}", "", C)),
    (f"0::{MIXED}", ("pod", POD_NAME, f"{MIXED}", "", C)),
    (f"0::{KUBE}/crio-{C}.scope/container", ("pod", POD_NAME, KUBE, "", C)),
    (f"0::{KUBE}/docker-{C}.scope", ("pod", POD_NAME, KUBE, "", C)),
    (
        f"0::/kubepods.slice/kubepods-pod{HASH}.slice/{CRI}",
        ("pod", "pod a5363f4f…", f"/kubepods.slice/kubepods-pod{HASH}.slice", "", C),
    ),
    (
        f"0::/kubelet.slice/kubelet-kubepods.slice/{NESTED}/{CRI}",
        ("pod", POD_NAME, f"/kubelet.slice/kubelet-kubepods.slice/{NESTED}", "", C),
    ),
    (
        f"0::/system.slice/docker-{D}.scope/kubelet.slice/{NESTED}/{CRI}",
        ("container", "container beefbeefbeef…", f"/system.slice/docker-{D}.scope", "", D),
    ),
    (f"12:devices:/docker/{C}", ("container", C_NAME, f"/docker/{C}", "devices", C)),
    (f"0::/system.slice/docker-{C}.scope", ("container", C_NAME, f"/system.slice/docker-{C}.scope", "", C)),
    (
        f"0::/machine.slice/libpod-{C}.scope/container",
        ("container", C_NAME, f"/machine.slice/libpod-{C}.scope", "", C),
    ),
    (f"0::/libpod_parent/libpod-{C}", ("container", C_NAME, f"/libpod_parent/libpod-{C}", "", C)),
    (
        f"0::/system.slice/web.service/libpod-payload-{C}",
        ("container", C_NAME, f"/system.slice/web.service/libpod-payload-{C}", "", C),
    ),
    (f"0::{PODMAN}/libpod-{C}.scope/container", ("container", C_NAME, f"{PODMAN}/libpod-{C}.scope", "", C)),
    (f"0::/system.slice/nerdctl-{C}.scope", ("container", C_NAME, f"/system.slice/nerdctl-{C}.scope", "", C)),
    (
        "0::/system.slice/slurmstepd.scope/job_3385/step_0/user/task_0",
        ("slurm_job", "slurm job 3385", "/system.slice/slurmstepd.scope/job_3385", "", ""),
    ),
    (
        f"0::/system.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0",
        ("slurm_job", f"slurm job {SLUID}", f"/system.slice/slurmstepd.scope/{SLUID}", "", ""),
    ),
    (
        "0::/system.slice/gpu01_slurmstepd.scope/job_7/step_batch/user/task_special",
        ("slurm_job", "slurm job 7", "/system.slice/gpu01_slurmstepd.scope/job_7", "", ""),
    ),
    (
        "8:devices:/slurm/uid_1000/job_123/step_0/task_0\n0::/system.slice/slurmd.service",
        ("slurm_job", "slurm job 123", "/slurm/uid_1000/job_123", "devices", ""),
    ),
    (
        "8:devices:/slurm_gpu01/uid_0/job_1/step_batch/task_0",
        ("slurm_job", "slurm job 1", "/slurm_gpu01/uid_0/job_1", "devices", ""),
    ),
    (
        f"0::/nomad.slice/share.slice/{ALLOC}.train.scope",
        (
            "nomad_alloc",
            "nomad task train of 0b4f31aa…",
            f"/nomad.slice/share.slice/{ALLOC}.train.scope",
            "",
            "",
        ),
    ),
    (
        "0::/lxc.payload.web/system.slice/x.service",
        ("machine", "lxc container web", "/lxc.payload.web", "", ""),
    ),
    ("0::/lxc/101/ns/system.slice", ("machine", "lxc container 101", "/lxc/101", "", "")),
    (
        "0::/machine.slice/systemd-nspawn@build.service/payload/init.scope",
        ("machine", "machine build", "/machine.slice/systemd-nspawn@build.service", "", ""),
    ),
    (
        "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt",
        ("machine", "machine qemu-1-vm", "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope", "", ""),
    ),
    (
        "0::/user.slice/user-1000.slice/session-42.scope",
        ("session", "session 42 of uid 1000", "/user.slice/user-1000.slice/session-42.scope", "", ""),
    ),
    (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/X.service",
        ("session", "user units of uid 1000", "/user.slice/user-1000.slice/user@1000.service", "", ""),
    ),
    (
        "0::/system.slice/ollama.service",
        ("unit", "unit ollama.service", "/system.slice/ollama.service", "", ""),
    ),
    (
        "0::/system.slice/system-a.slice/a@1.service/worker",
        ("unit", "unit a@1.service", "/system.slice/system-a.slice/a@1.service", "", ""),
    ),
    (
        f"0::/kubepods.slice/kubepods-pod{U_}.slice/docker-{C}.scope",
        ("pod", POD_NAME, PLAIN, "", C),
    ),
    (f"0::{KUBE}/crio-{C}", ("pod", POD_NAME, KUBE, "", C)),
    (f"0::/docker/{C}", ("container", C_NAME, f"/docker/{C}", "", C)),
    (f"12:pids:/libpod_parent/libpod-{C}", ("container", C_NAME, f"/libpod_parent/libpod-{C}", "pids", C)),
    (
        "0::/system.slice/slurmstepd.scope/job_42/step_extern/user",
        ("slurm_job", "slurm job 42", "/system.slice/slurmstepd.scope/job_42", "", ""),
    ),
    (
        f"0::/batch.slice/gpu01_slurmstepd.scope/{SLUID}/step_0+1/user/task_special",
        ("slurm_job", f"slurm job {SLUID}", f"/batch.slice/gpu01_slurmstepd.scope/{SLUID}", "", ""),
    ),
    (
        "0::/system.slice/slurmstepd.scope/job_3385/step_0/slurm",
        ("slurm_job", "slurm job 3385", "/system.slice/slurmstepd.scope/job_3385", "", ""),
    ),
    (
        "0::/system.slice/slurmstepd.scope/system",
        ("unit", "unit slurmstepd.scope", "/system.slice/slurmstepd.scope", "", ""),
    ),
    (
        "8:memory:/system.slice/slurmd.service",
        ("unit", "unit slurmd.service", "/system.slice/slurmd.service", "memory", ""),
    ),
    (
        f"0::/nomad.slice/reserve.slice/{ALLOC}.train.scope",
        (
            "nomad_alloc",
            "nomad task train of 0b4f31aa…",
            f"/nomad.slice/reserve.slice/{ALLOC}.train.scope",
            "",
            "",
        ),
    ),
    (
        "1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n0::/system.slice/slurmstepd.scope/job_9/step_extern/user",
        ("slurm_job", "slurm job 9", "/system.slice/slurmstepd.scope/job_9", "", ""),
    ),
    (f"0::{KUBE}/{CRI} (deleted)", ("pod", POD_NAME, KUBE, "", C)),
    (
        f"9:name=systemd:/\n4:memory:/\n0::/\n5:devices:/docker/{C}",
        ("container", C_NAME, f"/docker/{C}", "devices", C),
    ),
    ("0::/", ("none", "no workload", "", "", "")),
    ("", ("none", "no workload", "", "", "")),
]


@pytest.mark.parametrize(("text", "expected"), FORMS)
def test_each_form_shows_its_outermost_boundary(text: str, expected: Expected) -> None:
    """Where root owns every directory, each known form gives its boundary, its name and its container."""
    found = workload_of(text + "\n", everything)
    assert found.trusted
    assert (found.kind, found.name, found.path, found.controller, found.container_id) == expected


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        (f"/kubepods.slice/kubepods-pod{U_}.slice/cri-containerd-{C}.scope", "cri-containerd"),
        (f"/kubepods.slice/kubepods-pod{U_}.slice/crio-{C}.scope", "crio"),
        (f"/kubepods.slice/kubepods-pod{U_}.slice/docker-{C}.scope", "docker"),
        (f"/system.slice/kubepods-burstable-pod{U_}.slice:cri-containerd:{C}", "cri-containerd"),
        (f"/kubepods/burstable/pod{U}/{C}", ""),
        (f"/kubepods/burstable/pod{U}", ""),
        (f"/system.slice/docker-{C}.scope", "docker"),
        (f"/docker/{C}", "docker"),
        (f"/machine.slice/libpod-{C}.scope", "libpod"),
        (f"/machine.slice/libpod-payload-{C}.scope", "libpod"),
        (f"/system.slice/nerdctl-{C}.scope", "nerdctl"),
        (f"/default/{C}", ""),
        ("/system.slice/docker.service", ""),
    ],
)
def test_the_word_for_the_runtime_is_in_the_path(path: str, runtime: str) -> None:
    """Where the path names what made the container; a bare id, or no container at all, says nothing."""
    assert workload_of(f"0::{path}\n", everything).runtime == runtime


def test_a_runtime_that_root_did_not_name_is_none() -> None:
    """Neither of an untrusted path, nor of a container in a pod whose directory is not root's."""
    pod = f"/kubepods.slice/kubepods-pod{U_}.slice"
    inside = workload_of(f"0::{pod}/crio-{C}.scope\n", all_but(pod))
    assert (inside.kind, inside.runtime, inside.container_id) == (WorkloadKind.POD, "", "")
    assert workload_of(f"0::/docker/{C}\n", all_but("/")).runtime == ""
    assert workload_of(f"0::/user.slice/docker/{C}\n", everything).runtime == ""


CASES: list[tuple[str, str, tuple[str, str, str]]] = [
    (
        "C84",
        f"12:hugetlb:/kubepods.slice/kubepods-pod{U_}.slice/cri-containerd-{C}.scope",
        ("pod", U, C),
    ),
    ("C84", f"0::{KUBE}/crio-{C}.scope", ("pod", U, C)),
    ("C84", f"1:name=systemd:{KUBE}/docker-{C}.scope", ("pod", U, C)),
    ("C84", f"0::/kubepods/burstable/pod{U}/{C}", ("pod", U, C)),
    ("C84", f"4:devices:/kubepods/kubepods/besteffort/pod{U}/{C}", ("pod", U, C)),
    ("C84", f"0::/docker/{C}", ("container", "", C)),
    ("C85", f"0::/kubepods/burstable/pod{HASH}/{C}", ("pod", HASH, C)),
    (
        "C85",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/{CRI}",
        ("pod", HASH, C),
    ),
    ("C58", f"0::{KUBE}/{CRI}/docker/{D}", ("pod", U, C)),
    ("C89", "10:devices:/slurm/uid_10001/job_280678/step_interactive/task_0", ("slurm_job", "280678", "")),
    (
        "C89",
        "0::/system.slice/node01_slurmstepd.scope/job_123/step_batch/user/task_special",
        ("slurm_job", "123", ""),
    ),
    ("C89", "4:devices:/slurm_node01/uid_10001/job_77/step_0/task_0", ("slurm_job", "77", "")),
    ("C89", "0::/system.slice/slurmstepd.scope/system", ("unit", "", "")),
    ("C90", f"0::/machine.slice/libpod-{C}.scope/container", ("container", "", C)),
    ("C90", "0::/lxc.payload.web01", ("machine", "", "")),
    ("C90", "0::/user.slice/user-1000.slice/session-3.scope", ("session", "", "")),
]


@pytest.mark.parametrize(("case", "line", "expected"), CASES)
def test_the_public_cases_of_paths(case: str, line: str, expected: tuple[str, str, str]) -> None:
    """Each reported form gives its kind, the pod's uid or the job's id as the API has it, and the id."""
    found = workload_of(f"{line}\n", everything)
    names = found.names or WorkloadNames()
    assert (found.kind, names.pod_uid or names.job_id or "", found.container_id) == expected, case


@pytest.mark.parametrize(
    "line",
    [
        f"0::/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{U_}.slice/{CRI}",
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{C}.scope",
        f"0::/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{U_}.slice/{CRI}",
    ],
)
def test_cases_of_paths_that_prove_nothing(line: str) -> None:
    """C87, C90: from a namespace, or below a user's slice, no uid, job or container id is passed on."""
    found = workload_of(f"{line}\n", everything)
    assert (found.trusted, found.container_id, found.names) == (False, "", None)


def test_a_container_in_a_pod_that_somebody_else_owns_is_not_believed() -> None:
    """The pod's own name is root's; what stands in its directory is not, where root does not own that."""
    found = workload_of(f"0::{KUBE}/{CRI}\n", all_but(KUBE))
    assert (found.kind, found.trusted, found.container_id) == (WorkloadKind.POD, True, "")


def test_the_sluid_alone_tells_no_job_id() -> None:
    """Slurm 26.05 names a job's directory by SLUID: the id is to be asked for, never made of it."""
    found = workload_of(f"0::/system.slice/slurmstepd.scope/{SLUID}/step_0/user/task_0\n", everything)
    assert (found.kind, found.names) == (WorkloadKind.SLURM_JOB, None)


def test_a_unit_is_named_beside_the_boundary() -> None:
    """The first service or scope down to the boundary is the unit, as protections need it."""
    inside = f"0::/system.slice/web.service/libpod-payload-{C}"
    assert workload_of(inside, everything).unit == "web.service"
    assert workload_of("0::/system.slice/ollama.service", everything).unit == "ollama.service"
    assert workload_of("0::/user.slice/user-7.slice/session-c1.scope", everything).unit == "session-c1.scope"


@pytest.mark.parametrize(
    "monitor",
    [f"{KUBE}/crio-conmon-{C}.scope", f"/machine.slice/libpod-conmon-{C}.scope", "/lxc.monitor.web"],
)
def test_a_monitor_is_no_workload(monitor: str) -> None:
    """A runtime's monitor is never taken for the container or the pod that it watches."""
    workload = workload_of(f"0::{monitor}", everything)
    assert workload.kind is WorkloadKind.UNIT
    assert workload.name == f"monitor {monitor.rsplit('/', 1)[1]}"
    assert (workload.path, workload.container_id) == (monitor, "")


@pytest.mark.parametrize(
    "below",
    [
        f"/user@1000.service/kubepods.slice/kubepods-pod{U_}.slice/cri-containerd-{C}.scope",
        "/session-3.scope/slurmstepd.scope/job_5/step_0",
        f"/user@1000.service/user.slice/docker-{C}.scope",
    ],
)
def test_nothing_below_user_slice_is_believed(below: str) -> None:
    """A forged pod or job below user.slice is a session, untrusted, even if root seems to own it all."""
    workload = workload_of(f"0::/user.slice/user-1000.slice{below}", everything)
    assert workload.kind is WorkloadKind.SESSION
    assert not workload.trusted
    assert workload.container_id == ""
    assert workload.path.count("/") == 3


def test_a_name_made_below_a_delegated_unit_is_not_believed() -> None:
    """Below a unit that root gave away, a forged pod is that unit, untrusted; the unit's own name stands."""
    unit = "/system.slice/mine.service"
    forged = workload_of(
        f"0::{unit}/kubepods.slice/kubepods-pod{U_}.slice/cri-containerd-{C}.scope", all_but(unit)
    )
    assert (forged.kind, forged.name, forged.trusted) == (WorkloadKind.UNIT, "unit mine.service", False)
    plain = workload_of(f"0::{unit}", all_but(unit))
    assert (plain.kind, plain.trusted) == (WorkloadKind.UNIT, True)


def test_a_forged_pod_with_nothing_around_it_is_no_pod() -> None:
    """A foreign directory at the top proves nothing, and its pod's name is not passed on."""
    forged = workload_of(f"0::/mine/kubepods-pod{U_}.slice", all_but("/mine"))
    assert forged.kind is WorkloadKind.NONE
    assert not forged.trusted


def test_a_pod_nested_in_a_pod_is_the_outer_pod() -> None:
    """A privileged pod can make any name below its own: the outermost one counts."""
    inner = "11111111-2222-3333-4444-555555555555"
    workload = workload_of(f"0::{KUBE}/cri-containerd-{C}.scope/kubepods/pod{inner}/{D}", everything)
    assert (workload.name, workload.container_id) == ("pod 9a15d2b5…", C)


@pytest.mark.parametrize("relative", [f"/../../kubepods-pod{U_}.slice/{CRI}", f"/../docker-{C}.scope"])
def test_a_path_out_of_our_namespace_is_named_and_not_trusted(relative: str) -> None:
    """Seen from inside a cgroup namespace the boundary is told to people, and proves nothing."""
    workload = workload_of(f"0::{relative}", everything)
    assert workload.kind in {WorkloadKind.POD, WorkloadKind.CONTAINER}
    assert not workload.trusted
    assert workload.container_id == ""


def test_without_a_cgroup_file_system_nothing_is_trusted() -> None:
    """Where no directory can be looked at, kinds are told and none is trusted."""
    for text, (kind, *_rest) in FORMS:
        workload = workload_of(text, nothing)
        assert not workload.trusted or kind == "none"


_PART = st.sampled_from(
    [
        "kubepods.slice",
        f"kubepods-pod{U_}.slice",
        f"cri-containerd-{C}.scope",
        C,
        "user.slice",
        "user-1.slice",
        "..",
        "slurmstepd.scope",
        "job_1",
        "uid_1",
        "x.service",
        "lxc",
        "machine.slice",
        "a (deleted)",
        "\u202e",
        "",
        ":",
    ],
)


@given(
    st.lists(_PART, max_size=8), st.sampled_from(["0:", "3:cpu", "x", "1:name=systemd"]), st.text(max_size=20)
)
def test_no_path_raises_and_every_boundary_is_on_the_path(parts: list[str], head: str, tail: str) -> None:
    """Any text gives a workload; its name is printable and its directory lies on the path."""
    path = "/" + "/".join(parts) + tail
    for owned in (everything, nothing):
        workload = workload_of(f"{head}:{path}\n", owned)
        assert workload.name.isprintable()
        if head != "x" and "\n" not in tail and workload.path and ".." not in path:
            assert "/".join(part for part in path.split("/") if part).startswith(workload.path.strip("/"))


@given(st.lists(_PART, max_size=8), st.sets(st.integers(0, 8)), st.sampled_from(["0:", "4:devices"]))
def test_no_boundary_lies_below_a_directory_that_root_does_not_own(
    parts: list[str], foreign: set[int], controllers: str
) -> None:
    """Whatever the path: what is trusted was named by root all the way, and not in a user's slice."""
    path = "/" + "/".join(parts)
    clean = [part for part in path.removesuffix(" (deleted)").split("/") if part]
    lost = {"/" + "/".join(clean[:depth]) for depth in foreign}
    found = workload_of(f"{controllers}:{path}\n", lambda _, one: one not in lost)
    if not found.trusted:
        assert (found.container_id, found.names) == ("", None)
        return
    own = [part for part in found.path.split("/") if part]
    above = {"/" + "/".join(own[:depth]) for depth in range(len(own))}
    assert not above & lost
    if found.kind not in {WorkloadKind.NONE, WorkloadKind.SESSION}:
        assert own[0] != "user.slice"
    if found.kind is WorkloadKind.POD and found.container_id and found.container_id not in own[-1]:
        assert found.path not in lost


@given(st.text())
def test_no_text_raises(text: str) -> None:
    """Whatever the file holds, the parser returns a workload."""
    workload_of(text, everything)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_owners_are_read_from_the_directories(tmp_path: Path) -> None:
    """A directory is root's if root owns it; a foreign one, a missing one and a way up are not."""
    (tmp_path / "unified" / "a" / "b").mkdir(parents=True)
    (tmp_path / "systemd" / "s").mkdir(parents=True)
    os.chown(tmp_path / "unified" / "a" / "b", 1234, 1234)
    owners = DirectoryOwners(str(tmp_path))
    assert owners.owned_by_root("", "/")
    assert owners.owned_by_root("", "/a")
    assert owners.owned_by_root("name=systemd", "/s")
    assert not owners.owned_by_root("", "/a/b")
    assert not owners.owned_by_root("", "/gone")
    assert not owners.owned_by_root("", "/a/../a")
    assert not owners.owned_by_root("cpu", "/")
    assert not owners.owned_by_root("", "/a\0b")
