"""The Debian package on a machine with a real systemd: one build and one boot for all of it.

The GPU host is simulated, all else is real: the unit with its sandbox, the journal, the processes.
"""

import json
import shutil
import signal
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.policies import rule
from tests.rigs.raw_fuse import why_unavailable
from tests.rigs.simulated import wait_until
from tests.systemd.installed import (
    BOUND_SECONDS,
    CALL,
    PROBE,
    UNIT,
    Installed,
    Stage,
    build_package,
    pinged,
    probed,
    staged,
)
from tests.systemd.nspawn import boot, missing_programs, python
from tests.systemd.sandbox_probe import DENIED

HERE = Path(__file__).parent
BLOCKED = HERE / "blocked_daemon.py"
LACKING = missing_programs() or ("" if shutil.which("dpkg-deb") else "not installed: dpkg-deb")
HOLDER = "[Service]\nUser=nobody\nExecStart=/bin/sleep infinity\n"
NEWER = "/srv/newer"
STOP_SECONDS = 5.0
LEEWAY_SECONDS = 3.0
"""For a loaded machine between the daemon's end and our seeing it."""

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.root,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(LACKING), reason=LACKING or "never"),
]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Return a machine with the package on it, as dpkg left it."""
    folder = tmp_path_factory.mktemp("package")
    package = build_package(folder / "built")
    booted = boot(folder, {"holder.service": HOLDER})
    try:
        installed = Installed(booted, package)
        done = booted.run("dpkg", "--force-unsafe-io", "--install", str(package))
        assert done.returncode == 0, done.stderr + done.stdout
        installed.clear()  # the host that the machine is laid over may have records of its own
        yield installed
    finally:
        booted.stop()


@pytest.fixture(scope="module")
def stage(machine: Installed) -> Iterator[Stage]:
    """Return the simulated GPU host on it."""
    with staged(machine.machine) as made:
        yield made


@pytest.fixture
def unit(machine: Installed, stage: Stage) -> Iterator[Installed]:
    """Return the machine, its unit stopped and without drop-ins before and after."""
    assert stage.process.poll() is None
    machine.policy()
    yield machine
    machine.clear()


def test_an_installation_starts_nothing(machine: Installed) -> None:
    """As dpkg leaves it: not enabled, not running, group and user made, nobody else's folders opened."""
    booted = machine.machine
    for name in (UNIT, "reclaimerd.socket"):
        assert booted.run("systemctl", "is-enabled", name).stdout.strip() == "disabled"
        assert booted.show(name, "ActiveState") == "inactive"
    assert booted.run("id", "-gn", "reclaimerd").stdout.strip() == "reclaimerd"
    modes = {
        path: stat.S_IMODE(machine.place(path).stat().st_mode)
        for path in ("/var/lib/reclaimerd", "/etc/reclaimerd")
    }
    assert modes == {"/var/lib/reclaimerd": 0o700, "/etc/reclaimerd": 0o755}
    assert booted.run("dpkg", "--verify", "reclaimerd").stdout == ""
    assert booted.run("reclaimctl", "policy", "check", "/etc/reclaimerd/reclaimerd.toml").returncode == 0
    assert booted.run("man", "-w", "reclaimctl").returncode in (0, 127)
    verify = booted.run(
        "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", UNIT, "reclaimerd.socket"
    )
    assert (verify.returncode, verify.stderr) == (0, "")


def test_it_starts_reloads_and_says_how_it_is(unit: Installed) -> None:
    """READY after the first pass, STATUS in a sentence, a good policy taken, a bad one refused and told."""
    booted = unit.machine
    unit.simulate()
    booted.systemctl("start", UNIT)
    assert booted.show(UNIT, "ActiveState") == "active"
    assert booted.show(UNIT, "StatusText") == "enforce: 2 GPUs, 0 holders, 0 incidents"
    pid = unit.main_pid
    assert unit.ctl("status")["mode"] == "enforce"

    unit.policy(daemon={"mode": "observe"})
    booted.systemctl("reload", UNIT)
    wait_until(
        lambda: booted.show(UNIT, "StatusText").startswith("observe:"), "the new policy holds", BOUND_SECONDS
    )
    unit.place("/etc/reclaimerd/reclaimerd.toml").write_text("[daemon]\nmode = 'sleep'\n")
    booted.systemctl("reload", UNIT)
    said = ("journalctl", "-u", UNIT, "-o", "json", "RECLAIMERD_EVENT=reload_refused")
    wait_until(lambda: bool(booted.run(*said).stdout.strip()), "the journal has the refusal", BOUND_SECONDS)
    (refused,) = [json.loads(line) for line in booted.run(*said).stdout.splitlines()]
    assert "mode" in refused["RECLAIMERD_ERROR"]
    assert (refused["PRIORITY"], refused["SYSLOG_IDENTIFIER"]) == ("3", "reclaimerd")
    assert unit.ctl("status")["mode"] == "observe"
    assert unit.main_pid == pid
    assert booted.show(UNIT, "ActiveState") == "active"
    readers = int(booted.run("id", "-g", "reclaimerd").stdout)
    for path in ("/var/log/reclaimerd", "/var/log/reclaimerd/audit.jsonl"):
        assert unit.place(path).stat().st_gid == readers, f"systemd gave {path} to another group"


def test_a_bad_policy_at_the_start_is_not_tried_again(unit: Installed) -> None:
    """Exit code 2 leaves the unit failed, without one restart."""
    booted = unit.machine
    unit.simulate()
    unit.place("/etc/reclaimerd/reclaimerd.toml").write_text("[daemon]\nmode = 'sleep'\n")
    assert booted.run("systemctl", "start", UNIT).returncode != 0
    assert booted.show(UNIT, "ActiveState") == "failed"
    assert (booted.show(UNIT, "ExecMainStatus"), booted.show(UNIT, "NRestarts")) == ("2", "0")


def test_killed_in_mid_ladder_the_same_incident_goes_on(unit: Installed, stage: Stage) -> None:
    """After kill -9 systemd starts it again: one incident, one SIGTERM, and its end is proven."""
    booted = unit.machine
    unit.simulate()
    unit.policy(rule(grace="300s"))
    booted.systemctl("start", UNIT)
    pid = stage.launch("--record-signals", "/srv/signals")
    opened = unit.wait_record("outcome")
    before = unit.main_pid
    unit.signal(before, signal.SIGKILL)
    unit.wait_record("started", 2)
    after = unit.main_pid
    assert after not in (0, before)
    status = unit.ctl("incidents")
    assert [one["id"] for one in status["incidents"] if not one["end"]] == [opened["incident"]]
    unit.signal(pid, signal.SIGKILL)
    ended = unit.wait_record("incident_ended")
    assert (ended["incident"], ended["end"]) == (opened["incident"], "reclaimed")
    assert unit.place("/srv/signals").read_text().split().count("SIGTERM") == 1
    assert [one["action"] for one in unit.records("intent")] == ["sigterm"]
    assert booted.show(UNIT, "NRestarts") == "1"


def test_a_loop_that_is_blocked_is_ended_by_the_watchdog(unit: Installed) -> None:
    """The loop's thread sleeps: no ping comes, systemd aborts it, and the next one works."""
    booted = unit.machine
    unit.simulate(f"/opt/reclaimerd/bin/python -P {unit.program(BLOCKED)}", "WatchdogSec=10s\nLimitCORE=0")
    booted.systemctl("start", UNIT)
    before = unit.main_pid
    for _ in range(2):
        last = pinged(unit)
        wait_until(partial(_pinged_since, unit, last), "a ping", BOUND_SECONDS)
    assert unit.main_pid == before
    unit.signal(before, signal.SIGUSR1)
    wait_until(lambda: unit.main_pid not in (0, before), f"it is started anew: {unit.story()}", BOUND_SECONDS)
    assert "Watchdog timeout" in booted.run("journalctl", "-u", UNIT, "-o", "cat", "--no-pager").stdout
    unit.wait_record("started", 2)


@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "never")
def test_it_stops_in_time_while_a_worker_is_stuck_in_the_driver(unit: Installed, stage: Stage) -> None:
    """Within 5 s the daemon is gone, though a worker of its own can't be ended."""
    booted = unit.machine
    unit.simulate()
    unit.policy(workers={"answer_within": "500ms", "hung_after": "2s"})
    booted.systemctl("start", UNIT)
    pid = unit.main_pid
    stage.ask("hang")
    try:
        began = time.monotonic()
        booted.systemctl("stop", "--no-block", UNIT)
        wait_until(lambda: not unit.place(f"/proc/{pid}/fd").exists(), "the daemon is gone", 30.0)
        assert time.monotonic() - began < STOP_SECONDS + LEEWAY_SECONDS
        assert booted.show(UNIT, "ActiveState") == "deactivating", "no worker was stuck"
    finally:
        stage.ask("free")
    wait_until(
        lambda: booted.show(UNIT, "ActiveState") in ("inactive", "failed"), "it is down", BOUND_SECONDS
    )


def test_the_sandbox_denies_what_it_says_and_nothing_else(unit: Installed) -> None:
    """In the unit's own sandbox: each denial by its error; what a stage needs works.

    Without the sandbox the denied things work, but for the two that a container denies by itself.
    """
    found = probed(unit, "")
    assert {name: why for name, why in found.items() if why} == DENIED
    assert len(found) > len(DENIED) + 10
    holder = unit.machine.show("holder.service", "MainPID")
    words = ("systemd-run", "--quiet", "--wait", "--collect", *python(unit.program(PROBE), holder))
    assert unit.machine.run(*words).returncode == 0
    free = dict(json.loads(unit.place("/var/lib/reclaimerd/probe").read_text()))
    assert {name for name, why in free.items() if why} <= {
        "set clock",
        "load module",
        "write /proc/sys",
        "write /sys",
    }


def test_it_starts_beside_a_full_disk_and_its_hooks_have_room(unit: Installed) -> None:
    """What is temporary is its own and in memory: a full root file system takes it from nobody."""
    booted = unit.machine
    unit.simulate()
    for place in ("/tmp", "/var/tmp"):
        booted.run("mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=4", "tmpfs", place)
        booted.run("sh", "-c", f"touch {place}/mark; cat /dev/zero >{place}/fill; touch {place}/more")
    try:
        assert booted.run("mktemp").returncode != 0, "the disk is not full"
        booted.systemctl("start", UNIT)
        inside = f"nsenter -t {unit.main_pid} -m sh -c"
        tried = booted.run("sh", "-c", f"{inside} 'mktemp && mktemp -p /var/tmp && test ! -e /tmp/mark'")
        assert tried.returncode == 0, tried.stderr
    finally:
        booted.systemctl("stop", UNIT)
        booted.run("umount", "/tmp", "/var/tmp")


def test_watching_needs_no_root(unit: Installed, stage: Stage) -> None:
    """With the drop-in it runs as a user, sees every holder, answers, and can't signal anybody."""
    booted = unit.machine
    unit.simulate()
    unit.policy(rule(mode="observe"), daemon={"mode": "observe"})
    text = unit.place("/usr/share/reclaimerd/observe-only.conf").read_text()
    unit.drop_in("60-observe-only.conf", text)
    booted.run("chmod", "-R", "a+rwX", "/srv/simulated")
    booted.systemctl("start", UNIT)
    status = unit.place(f"/proc/{unit.main_pid}/status").read_text()
    assert set(status.partition("Uid:")[2].splitlines()[0].split()) == {
        booted.run("id", "-u", "reclaimerd").stdout.strip()
    }
    pid = stage.launch()
    wait_until(lambda: pid in [row["pid"] for row in unit.ctl("ps")["rows"]], "it is seen", BOUND_SECONDS)
    assert booted.run("journalctl", "-u", UNIT, "-o", "cat", "RECLAIMERD_EVENT=pass_failed").stdout == ""
    unit.signal(pid, signal.SIGKILL)
    found = probed(unit, "")
    assert (found["signal"], found["see stack"], found["write its cgroup"]) == ("EPERM", "EACCES", "EROFS")
    assert found["see descriptors"] == found["see program"] == found["see mapped files"] == ""
    assert found["read kernel log"] == found["hear of devices"] == ""


def test_the_managers_socket_outlives_the_daemon(unit: Installed) -> None:
    """A call starts the daemon; one that comes while it is away is answered by the next; the file stays."""
    booted = unit.machine
    unit.simulate()
    booted.systemctl("start", "reclaimerd.socket")
    assert unit.main_pid == 0
    assert booted.run(*python("-c", CALL)).stdout.startswith("HTTP/1.1 200 ")
    path = unit.place("/run/reclaimerd/reclaimerd.sock")
    before = path.stat()
    assert stat.S_IMODE(before.st_mode) == 0o660
    pid = unit.main_pid
    booted.systemctl("kill", "--signal=KILL", UNIT)
    assert booted.run(*python("-c", CALL)).stdout.startswith("HTTP/1.1 200 ")
    assert unit.main_pid not in (0, pid)
    booted.systemctl("stop", UNIT)
    assert path.stat().st_ino == before.st_ino
    booted.systemctl("stop", "reclaimerd.socket")
    assert not path.exists()


def test_an_upgrade_over_an_edited_policy(unit: Installed) -> None:
    """Told to keep it, dpkg keeps the policy and the daemon runs on; asked by nobody, it stops half way.

    DEBIAN_FRONTEND does not answer for a conffile. The mend of the half way starts what ran.
    """
    booted = unit.machine
    unit.simulate()
    policy = unit.place("/etc/reclaimerd/reclaimerd.toml")
    edited = policy.read_bytes()
    booted.systemctl("start", UNIT)
    before = unit.main_pid
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--force-unsafe-io")
    kept = ("--force-confdef", "--force-confold")
    try:
        done = booted.run(*quiet, *kept, "--install", newer_package(unit, "9.0"))
        assert done.returncode == 0, done.stderr
        after = unit.main_pid
        assert after not in (0, before)
        assert policy.read_bytes() == edited

        done = booted.run(*quiet, "--install", newer_package(unit, "9.1"))
        assert done.returncode != 0
        assert "conffile prompt" in done.stderr
        assert (policy.read_bytes(), booted.show(UNIT, "ActiveState")) == (edited, "inactive")
        mended = booted.run("dpkg", "--configure", "--pending", "--force-confold")
        assert mended.returncode == 0, mended.stderr
        assert unit.main_pid not in (0, after)
        assert policy.read_bytes() == edited
        assert (
            booted.run("dpkg-query", "-W", "-f", "${Status}", "reclaimerd").stdout == "install ok installed"
        )
    finally:
        booted.run(*quiet, *kept, "--force-downgrade", "--install", str(unit.package))
        booted.run("rm", "-rf", NEWER, f"{policy}.dpkg-dist")


def newer_package(unit: Installed, version: str) -> str:
    """Return a package of a version whose policy is another than that of the one before."""
    script = f"""
set -e
[ -d {NEWER} ] || dpkg-deb -R {unit.package} {NEWER}
sed -i 's/^Version: .*/Version: {version}/' {NEWER}/DEBIAN/control
echo '# {version}' >>{NEWER}/etc/reclaimerd/reclaimerd.toml
dpkg-deb --root-owner-group -Znone --build {NEWER} {NEWER}/../{version}.deb
"""
    made = unit.machine.run("sh", "-c", script)
    assert made.returncode == 0, made.stderr
    return f"{NEWER}/../{version}.deb"


def test_a_removal_leaves_the_records_and_no_process(unit: Installed) -> None:
    """An upgrade goes on with what ran; after a removal nothing runs, and state, log and policy are there."""
    booted = unit.machine
    unit.simulate()
    booted.systemctl("enable", "--now", UNIT)
    before = unit.main_pid
    again = booted.run("dpkg", "--force-unsafe-io", "--install", str(unit.package))
    assert again.returncode == 0, again.stderr
    assert unit.main_pid not in (0, before)
    removed = booted.run("dpkg", "--remove", "reclaimerd")
    assert removed.returncode == 0, removed.stderr
    assert booted.run("systemctl", "is-active", UNIT).stdout.strip() in ("inactive", "unknown")
    assert booted.run("pgrep", "-f", "reclaimerd.daemon|bin/reclaimerd").stdout == ""
    assert not unit.place("/etc/systemd/system/multi-user.target.wants/reclaimerd.service").is_symlink()
    for path in (
        "/var/lib/reclaimerd/store.sqlite",
        "/var/log/reclaimerd/audit.jsonl",
        "/etc/reclaimerd/reclaimerd.toml",
    ):
        assert unit.place(path).stat().st_size > 0
    purged = booted.run("dpkg", "--purge", "reclaimerd")
    assert purged.returncode == 0, purged.stderr
    assert not unit.place("/var/lib/reclaimerd").exists()
    assert not unit.place("/opt/reclaimerd").exists()


def _pinged_since(unit: Installed, last: str) -> bool:
    return pinged(unit) != last
