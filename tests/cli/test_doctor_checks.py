"""The checks of `doctor` one by one, on hosts of the test's own."""

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli import doctor_access as access
from reclaimerd.cli import doctor_around as around
from reclaimerd.cli import doctor_driver as driver
from reclaimerd.cli import doctor_kernel as kernel
from reclaimerd.cli import doctor_records as records
from reclaimerd.cli.doctor_child import examined
from reclaimerd.cli.doctor_host import Host, ran
from reclaimerd.cli.doctor_words import Finding, Said, State
from reclaimerd.model.drain_policy import (
    CommandTarget,
    DrainSettings,
    KubernetesTarget,
    SlurmTarget,
)
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import AttributionSettings, AuditSettings, ListedStage, Policy
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.reset_run import Untouchable
from reclaimerd.model.snapshot import ContextKind, HostGpus, RecoveryAction
from reclaimerd.record.store import STORE_NAME, Store
from tests.builders import a_gpu, a_policy, a_row, a_rule
from tests.cli.canned import Answer, canned
from tests.cli.doctor_rig import a_host, a_where, check_of, put

WHOLE = 0x1FFFFFFFFFF
STATUS: dict[str, Any] = {"pid": 7, "driver": {"state": "responsive"}, "resets": [], "gpus": []}


@pytest.mark.parametrize(
    ("options", "own", "state"),
    [
        ("rw,nosuid", "rw", State.OK),
        ("rw", "rw,hidepid=0", State.OK),
        ("rw", "rw,gid=4,hidepid=invisible", State.WARN),
        ("rw", "rw,hidepid=2", State.WARN),
        ("rw", "rw,subset=pid", State.FAIL),
    ],
)
def test_a_proc_that_hides_is_told(tmp_path: Path, options: str, own: str, state: State) -> None:
    """Only the mount at /proc counts, and of several the last one."""
    lines = (
        "1 0 0:1 / / rw - ext4 x rw\n"
        "2 1 0:2 / /proc rw - proc proc rw,hidepid=1\n"
        f"3 2 0:3 / /proc {options} - proc proc {own}\n"
    )
    put(tmp_path, "proc/self/mountinfo", lines)
    assert kernel.read_proc_mount(a_host(tmp_path)).state is state


def test_no_proc_at_all_fails(tmp_path: Path) -> None:
    """A line about another place is not /proc."""
    put(tmp_path, "proc/self/mountinfo", "1 0 0:1 / /mnt/proc rw - proc proc rw\nshort\n")
    assert kernel.read_proc_mount(a_host(tmp_path)).state is State.FAIL


def test_another_pid_namespace_fails_but_for_a_simulation(tmp_path: Path) -> None:
    """The inode of the namespace decides."""
    put(tmp_path, "proc/self/ns/pid", "")
    host = a_host(tmp_path)
    said = kernel.read_pid_namespace(host)
    assert (said.state, "hostPID" in said.mend) == (State.FAIL, True)
    host.where = a_where(tmp_path, simulate=tmp_path)
    assert kernel.read_pid_namespace(host).state is State.OK


@pytest.mark.parametrize(
    ("made", "word"),
    [("cgroup.controllers", "v2"), ("unified/cgroup.controllers", "beside"), ("memory/x", "v1"), ("", "")],
)
def test_the_cgroup_version_is_told(tmp_path: Path, made: str, word: str) -> None:
    """Without any it fails."""
    if made:
        put(tmp_path, f"sys/fs/cgroup/{made}", "")
    said = kernel.read_cgroups(a_host(tmp_path))
    assert (said.state, word in said.text) == (State.OK if made else State.FAIL, True)


def test_what_this_kernel_offers_is_asked_for_real(tmp_path: Path) -> None:
    """Pidfds work here; a host without /dev/kmsg is told so."""
    assert kernel.read_pidfd(a_host(tmp_path)).state is State.OK
    assert kernel.read_kernel_log(a_host(tmp_path)).state is State.WARN
    assert kernel.read_python(a_host(tmp_path)).state in (State.OK, State.FAIL)
    assert "is missing" in kernel._package_fault("no-such-package>=1")
    assert "older than 999" in kernel._package_fault("click>=999")
    assert kernel._package_fault("click>=8.1; python_version > '3'") == ""


@pytest.mark.parametrize(
    ("lacking", "stages", "state", "word"),
    [
        ((), (ListedStage.RESET,), State.OK, "every"),
        ((5,), (), State.FAIL, "CAP_KILL"),
        ((19,), (), State.FAIL, "CAP_SYS_PTRACE"),
        ((2,), (), State.OK, "every"),
        ((1, 2), (), State.FAIL, "CAP_DAC_READ_SEARCH"),
        ((21,), (), State.WARN, "CAP_SYS_ADMIN"),
        ((21,), (ListedStage.RESET,), State.FAIL, "CAP_SYS_ADMIN"),
        ((34,), (), State.WARN, "CAP_SYSLOG"),
        ((34, 5), (), State.FAIL, "CAP_KILL"),
    ],
)
def test_a_capability_that_a_stage_needs_is_named(
    tmp_path: Path, lacking: tuple[int, ...], stages: tuple[ListedStage, ...], state: State, word: str
) -> None:
    """What only helps warns; what a listed stage needs fails."""
    mask = WHOLE & ~sum(1 << bit for bit in lacking)
    put(tmp_path, "proc/7/status", f"Name:\tx\nCapEff:\t{mask:016x}\n")
    host = a_host(tmp_path, a_policy(a_rule(stages=stages)), daemon_pid=7)
    said = kernel.read_capabilities(host)
    assert (said.state, word in said.text) == (state, True)


def test_without_a_daemon_nobodys_capabilities_are_unknown(tmp_path: Path) -> None:
    """Ours are not its own."""
    assert kernel.read_capabilities(a_host(tmp_path)).state is State.UNKNOWN


@pytest.mark.parametrize(
    ("mode", "of_state", "of_log"),
    [
        (0o700, State.OK, State.OK),
        (0o750, State.WARN, State.OK),
        (0o770, State.FAIL, State.FAIL),
        (0o703, State.FAIL, State.FAIL),
    ],
)
def test_a_folder_that_others_may_use_is_told(
    tmp_path: Path, mode: int, of_state: State, of_log: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may be read by its group, the state by nobody."""
    monkeypatch.setattr(records, "_LEAST_BYTES", 0)
    monkeypatch.setattr(records, "_FEW_BYTES", 0)
    host = a_host(tmp_path)
    for path in (host.where.state_dir, host.where.log_dir):
        path.mkdir()
        path.chmod(mode)
    host.where = replace(host.where, simulate=tmp_path)
    assert records.read_state_directory(host).state is of_state
    assert records.read_log_directory(host).state is of_log


def test_a_folder_that_is_missing_a_link_or_full_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of them is made or changed."""
    host = a_host(tmp_path)
    host.where = replace(host.where, simulate=tmp_path)
    assert records.read_state_directory(host).state is State.WARN
    assert not host.where.state_dir.exists()
    host.where.log_dir.mkdir(mode=0o700)
    host.where.state_dir.symlink_to(host.where.log_dir)
    assert records.read_state_directory(host).state is State.FAIL
    assert records.read_reserve(host).state is State.WARN
    monkeypatch.setattr(records, "_LEAST_BYTES", 1 << 70)
    said = records.read_log_directory(host)
    assert (said.state, "make room" in said.mend) == (State.FAIL, True)
    assert list(host.where.log_dir.iterdir()) == []


def test_a_clock_before_the_boot_or_the_last_record_fails(tmp_path: Path) -> None:
    """A step back of less than a minute is nobody's business."""
    host = a_host(tmp_path)
    put(tmp_path, "proc/stat", f"cpu 1\nbtime {int(time.time()) + 9999}\n")
    assert "boot" in records.read_clock(host).text
    assert records.read_clock(host).state is State.FAIL
    put(tmp_path, "proc/stat", "btime 1000\n")
    assert records.read_clock(host).state is State.OK
    put(tmp_path, "log/audit.jsonl", '{"at":"2199-01-01T00:00:00.000Z"}\n')
    assert records.read_clock(host).state is State.FAIL
    put(tmp_path, "log/audit.jsonl", '{"at":"2020-01-01T00:00:00.000Z"}\n')
    assert records.read_clock(host).state is State.OK
    assert records.read_synchronised(host).state in (State.OK, State.WARN)


def test_the_writer_is_one(tmp_path: Path) -> None:
    """A claim of somebody else than who answers fails; one of the dead does not."""
    host = a_host(tmp_path)
    assert records.read_audit(host).state is State.OK
    host.where.state_dir.mkdir(mode=0o700)
    assert records.read_audit(host).state is State.OK
    assert records.read_writer(host).state is State.OK
    put(tmp_path, "state/writer.json", '{"boot_id":"b","pid":9,"start_ticks":1}')
    assert "takes over" in records.read_writer(host).text
    vars(host)["daemon_pid"] = 9
    assert records.read_writer(host).state is State.FAIL
    vars(host)["status"] = STATUS
    assert records.read_writer(host).state is State.FAIL
    vars(host)["status"] = {**STATUS, "pid": 9}
    assert records.read_writer(host).state is State.OK


def test_the_daemons_pid_is_its_own_word_or_its_living_claim(tmp_path: Path) -> None:
    """A claim of another boot, or of a pid that is gone, is no daemon."""
    put(tmp_path, "proc/sys/kernel/random/boot_id", "b\n")
    (tmp_path / "state").mkdir(mode=0o700)
    claim = '{"boot_id":"%s","pid":9,"start_ticks":1}'
    for text, there, pid in ((claim % "b", False, None), (claim % "b", True, 9), (claim % "old", True, None)):
        put(tmp_path, "state/writer.json", text)
        if there:
            (tmp_path / "proc/9").mkdir(exist_ok=True)
        host = a_host(tmp_path)
        del vars(host)["daemon_pid"]
        assert host.daemon_pid == pid
    vars(host)["status"] = STATUS
    del vars(host)["daemon_pid"]
    assert host.daemon_pid == 7


@pytest.mark.parametrize(
    ("changes", "read", "state"),
    [
        ({}, driver.read_persistence, State.OK),
        ({"persistence": Known(False)}, driver.read_persistence, State.WARN),
        ({"persistence": Unreadable("no")}, driver.read_persistence, State.UNKNOWN),
        ({}, driver.read_recovery, State.OK),
        ({"recovery_action": Known(RecoveryAction.GPU_RESET)}, driver.read_recovery, State.FAIL),
        ({"recovery_action": Unreadable("no")}, driver.read_recovery, State.UNKNOWN),
        ({"mig": Unreadable("no")}, driver.read_mig, State.UNKNOWN),
        ({"mig": Known(True)}, driver.read_mig, State.OK),
        ({"processes": Unreadable("no")}, driver.read_mps, State.UNKNOWN),
        ({}, driver.read_mps, State.OK),
    ],
)
def test_what_a_gpu_says_is_never_guessed(
    tmp_path: Path, changes: dict[str, Any], read: Any, state: State
) -> None:
    """What can't be read is unknown, whatever the other GPU says."""
    one = replace(a_gpu(), **changes)
    host = a_host(tmp_path, gpus=HostGpus("595", (a_gpu("GPU-b", index=1), one), ()))
    said = read(host)
    assert said.state is state
    assert state is State.OK or f"GPU {one.index}" in said.text


def test_mps_and_failures_and_a_count_are_told(tmp_path: Path) -> None:
    """Which GPU MPS serves, one that could not be read at all, and one the daemon does not see."""
    shared = a_gpu(processes=(a_row(context=ContextKind.MPS),))
    found = HostGpus("595", (shared,), ())
    assert f"MPS serves GPU {shared.index}" in driver.read_mps(a_host(tmp_path, gpus=found)).text
    assert driver.read_gpus(a_host(tmp_path, gpus=found)).state is State.OK
    assert driver.read_gpus(a_host(tmp_path, gpus=found, status=STATUS)).state is State.WARN
    assert driver.read_gpus(a_host(tmp_path, gpus=replace(found, gpus=()))).state is State.WARN
    lost = replace(found, failures=("GPU 1: lost",))
    assert driver.read_gpus(a_host(tmp_path, gpus=lost)).state is State.FAIL


@pytest.mark.parametrize(
    ("said", "state", "word"),
    [
        ({"driver_released": {"by": "x"}}, State.UNKNOWN, "released"),
        ({"resets": [{"id": "r"}]}, State.UNKNOWN, "reset"),
        ({"do_not_touch": [{}]}, State.UNKNOWN, "reset"),
        ({"driver": {"state": "unresponsive", "text": "driver unresponsive"}}, State.FAIL, "unresponsive"),
    ],
)
def test_a_driver_that_is_not_to_be_opened_is_not(
    tmp_path: Path, said: dict[str, Any], state: State, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a reset, a release and a hang NVML is not asked, and its checks are not ok."""
    opened: list[object] = []
    monkeypatch.setattr("reclaimerd.cli.doctor_host.RealNvml", lambda: opened.append(1))
    host = a_host(tmp_path, status={**STATUS, **said})
    told = driver.read_driver(host)
    assert (told.state, word in told.text) == (state, True)
    assert {read(host).state for read in (driver.read_gpus, driver.read_mig)} == {State.UNKNOWN}
    assert opened == []


def test_without_a_daemon_its_store_keeps_the_driver_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset that hung is remembered there."""
    monkeypatch.setattr("reclaimerd.cli.doctor_host.RealNvml", lambda: pytest.fail("it was opened"))
    host = a_host(tmp_path)
    host.where.state_dir.mkdir(mode=0o700)
    store = Store.open(host.where.state_dir / STORE_NAME)
    store.save([], Ledger(untouchable=(Untouchable((GpuUuid("GPU-a"),), "boot", 1.0, "hung"),)))
    store.close()
    assert "a reset was cut off" in driver.read_driver(host).text
    (host.where.state_dir / STORE_NAME).write_bytes(b"damage")
    damaged = driver.read_driver(a_host(tmp_path))
    assert (damaged.state, "can't be told" in damaged.text) == (State.UNKNOWN, True)


def test_no_driver_fails_with_its_mend(tmp_path: Path) -> None:
    """A simulated host without a keeper is a host without a driver."""
    host = a_host(tmp_path)
    put(tmp_path, "proc/sys/kernel/random/boot_id", "b\n")
    host.where = replace(host.where, simulate=tmp_path)
    assert driver.read_driver(host).state is State.FAIL
    assert driver.read_package(host).state is State.OK


def test_the_policy_file_is_told_with_its_faults(tmp_path: Path) -> None:
    """A missing one that was named, one with faults; the checks that need it are unknown."""
    path = tmp_path / "none.toml"
    host = Host(a_where(tmp_path), tmp_path)
    assert access.read_policy(host).state is State.FAIL
    path.write_text('mode = "sideways"\nnonsense = 1\n', encoding="utf-8")
    said = access.read_policy(host)
    assert (said.state, "1 more" in said.text) == (State.FAIL, True)
    found = [one for one in examined([check_of("groups")], host) if isinstance(one, Finding)]
    assert [(one.state, one.text) for one in found] == [(State.UNKNOWN, "the policy file has faults")]
    path.write_text('mode = "observe"\n', encoding="utf-8")
    path.chmod(0o600)
    assert access.read_policy(host).state in (State.OK, State.FAIL)


def test_groups_sockets_and_programs_are_held_to_the_policy(tmp_path: Path) -> None:
    """A group that does not exist, a socket for everybody, and programs that anybody may change."""
    policy = Policy(nvidia_smi=str(tmp_path / "smi"))
    host = a_host(tmp_path, replace(policy, access=replace(policy.access, group="no-such-group")))
    assert "groupadd" in access.read_groups(host).mend
    assert access.read_socket(host).state is State.WARN
    put(tmp_path, "s", "")
    assert access.read_socket(host).state is State.FAIL
    host.where.socket.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(host.where.socket))
        host.where.socket.chmod(0o666)
        host.where = replace(host.where, simulate=tmp_path)
        assert "open to everybody" in access.read_socket(host).text
        host.where.socket.chmod(0o660)
        assert access.read_socket(host).state is State.OK
    assert access.read_reset_tool(host).state is State.OK
    host.where = replace(host.where, simulate=None)
    assert access.read_reset_tool(host).state is State.WARN
    resets = a_policy(a_rule(stages=(ListedStage.RESET,)), nvidia_smi=policy.nvidia_smi)
    assert access.read_reset_tool(a_host(tmp_path, resets)).state is State.FAIL
    put(tmp_path, "drain", "#!/bin/sh\n")
    (tmp_path / "drain").chmod(0o777)
    named = replace(policy, drain=DrainSettings(command=CommandTarget(str(tmp_path / "drain"))))
    assert "[drain.command]" in access.read_programs(a_host(tmp_path, named)).text
    assert access.read_programs(host).state is State.OK


def test_the_daemons_words_are_passed_on(tmp_path: Path) -> None:
    """Another version warns, what needs a person fails, a refusal is unknown."""
    quiet = a_host(tmp_path)
    assert (access.read_daemon(quiet).state, access.read_attention(quiet).state) == (
        State.WARN,
        State.UNKNOWN,
    )
    told = {**STATUS, "version": "0.0.0", "attention": ["the breaker tripped"]}
    host = a_host(tmp_path, status=told)
    assert access.read_daemon(host).state is State.WARN
    assert access.read_attention(host) == Said(State.FAIL, "the breaker tripped", "reclaimctl status")
    real = Host(a_where(tmp_path), tmp_path)
    with canned(tmp_path / "s", {"GET /v1/status": Answer({"error": "no"}, status=403)}) as server:
        found = [one for one in examined([check_of("daemon")], real) if isinstance(one, Finding)]
    assert [one.state for one in found] == [State.UNKNOWN]
    assert [asked.method for asked in server.asked] == ["GET"]


ANCHORED = Policy(audit=AuditSettings(anchor_file="/mnt/far/anchor"))


@pytest.mark.parametrize(
    ("policy", "known", "state", "words"),
    [
        (Policy(), {"status": STATUS | {"anchor_fault": ""}}, State.OK, "nowhere else"),
        (ANCHORED, {"status": STATUS | {"anchor_fault": ""}}, State.OK, "/mnt/far/anchor"),
        (ANCHORED, {"status": STATUS | {"anchor_fault": "/mnt/far: gone"}}, State.FAIL, "/mnt/far: gone"),
        (Policy(), {"status": STATUS | {"anchor_fault": "h refused it"}}, State.FAIL, "h refused it"),
        (ANCHORED, {}, State.UNKNOWN, "no daemon"),
        (Policy(), {}, State.OK, "nowhere else"),
    ],
)
def test_an_audit_head_that_is_not_kept_elsewhere_is_told(
    tmp_path: Path, policy: Policy, known: dict[str, Any], state: State, words: str
) -> None:
    """By the daemon's word, which alone writes it; where none is asked for, that is no fault."""
    said = check_of("anchor").read(a_host(tmp_path, policy, **known))
    assert said.state is state
    assert words in said.text
    assert bool(said.mend) is (state is not State.OK)


UNIT = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "UnitFileState": "enabled"}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, State.OK),
        ({"LoadState": "not-found"}, State.WARN),
        ({"ActiveState": "failed", "Result": "exit-code"}, State.FAIL),
        ({"ActiveState": "inactive"}, State.WARN),
        ({"UnitFileState": "disabled"}, State.WARN),
        ({"NRestarts": "3"}, State.WARN),
        ({"LoadState": ""}, State.WARN),
    ],
)
def test_the_unit_is_judged(changes: dict[str, str], state: State) -> None:
    """By what systemd says of it."""
    assert around.unit_said({**UNIT, **changes}).state is state


def test_without_systemd_there_is_no_unit(tmp_path: Path) -> None:
    """Which warns once."""
    host = a_host(tmp_path)
    assert (around.read_systemd(host).state, around.read_unit(host).state) == (State.WARN, State.OK)
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert around.read_systemd(host).state is State.OK


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs are run")
def test_scontrol_is_asked_and_one_that_hangs_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Slurm all is well; what the policy needs must answer."""
    assert around.read_slurm(a_host(tmp_path)).state is State.OK
    needed = Policy(drain=DrainSettings(slurm=SlurmTarget()))
    assert around.read_slurm(a_host(tmp_path, needed)).state is State.FAIL
    program = tmp_path / "usr/bin/scontrol"
    for text, state in (
        ("echo 'Slurmctld(primary) at c1 is UP'", State.OK),
        ("echo 'Slurmctld(primary) at c1 is DOWN'; exit 1", State.FAIL),
    ):
        put(tmp_path, "usr/bin/scontrol", f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        (tmp_path / "proc").mkdir(exist_ok=True)
        assert around.read_slurm(a_host(tmp_path, needed)).state is state
    assert around.read_slurm(a_host(tmp_path)).state is State.WARN
    put(tmp_path, "usr/bin/scontrol", "#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(around, "ran", lambda argv: ran(argv, 0.2))
    found = [
        one for one in examined([check_of("slurm")], a_host(tmp_path, needed)) if isinstance(one, Finding)
    ]
    assert (found[0].state, "within 0.2 s" in found[0].text) == (State.UNKNOWN, True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="sockets must be root's")
def test_sockets_of_kubelet_and_runtimes_are_roots(tmp_path: Path) -> None:
    """Absent is well unless a drain needs it; another user's is refused."""
    policy = Policy(attribution=AttributionSettings(kubelet_socket="/k", runtime_sockets=("/r", "/absent")))
    host = a_host(tmp_path, policy)
    assert (around.read_kubelet(host).state, around.read_runtimes(host).state) == (State.OK, State.OK)
    drains = replace(policy, drain=DrainSettings(kubernetes=KubernetesTarget()))
    assert around.read_kubelet(a_host(tmp_path, drains)).state is State.FAIL
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(str(tmp_path / "k"))
        other.bind(str(tmp_path / "r"))
        assert "root's" in around.read_kubelet(host).text
        assert "sockets of r" in around.read_runtimes(host).text
        for name in ("k", "r"):
            os.chown(tmp_path / name, 1000, 1000)
        assert (around.read_kubelet(host).state, around.read_runtimes(host).state) == (State.FAIL, State.FAIL)
