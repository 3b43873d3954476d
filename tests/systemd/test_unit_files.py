"""The files that systemd reads: the unit, the group and the directories."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.daemon.main import SOCKET
from reclaimerd.errors import ExitCode

ROOT = Path(__file__).parents[2]
SYSTEMD = ROOT / "systemd"
UNIT = SYSTEMD / "reclaimerd.service"
DIRECTORIES = {"/etc": "Configuration", "/run": "Runtime", "/var/lib": "State", "/var/log": "Logs"}
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian package systemd)",
)


def unit_keys() -> dict[str, str]:
    """Return the unit's keys, of all sections."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def values_of(unit: Path, key: str) -> list[str]:
    """Return every value that a unit file gives a key, in order."""
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def verify(unit: Path) -> subprocess.CompletedProcess[str]:
    """Run what `make check` runs, with a program that exists."""
    tool = str(ROOT / "tools" / "verify-unit")
    return subprocess.run(
        [tool, str(unit), sys.executable],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@needs_systemd
def test_systemd_finds_no_fault_in_the_unit() -> None:
    """The shipped unit passes systemd's own check with an empty stderr."""
    done = verify(UNIT)
    assert (done.returncode, done.stderr) == (0, ""), done


@needs_systemd
def test_an_unknown_key_is_a_fault(tmp_path: Path) -> None:
    """A misspelt key fails the check, though systemd-analyze itself returns 0 for it."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")
    done = verify(copy)
    assert done.returncode == 1
    assert "KilMode" in done.stderr


def exposure(folder: Path, *drop_ins: str) -> float:
    """Return systemd's own figure for the unit's exposure, 0 to 10."""
    shutil.copy(UNIT, folder)
    (folder / f"{UNIT.name}.d").mkdir()
    for name in drop_ins:
        shutil.copy(SYSTEMD / name, folder / f"{UNIT.name}.d")
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(folder / UNIT.name)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    return float(found.group(1))


@needs_systemd
def test_the_unit_is_exposed_no_more_than_it_must(tmp_path: Path) -> None:
    """As systemd counts it: at most 4.2 for the unit, at most 3.3 where it only observes."""
    (tmp_path / "acts").mkdir()
    (tmp_path / "observes").mkdir()
    assert exposure(tmp_path / "acts") <= 4.2
    assert exposure(tmp_path / "observes", "observe-only.conf") <= 3.3


def test_each_capability_has_its_reason() -> None:
    """One a line, each with a comment before it; observe-only has four, none of which acts."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    named = [(number, line) for number, line in enumerate(lines) if line.startswith("CapabilityBoundingSet=")]
    assert len(named) >= 6
    for number, line in named:
        assert re.fullmatch(r"CapabilityBoundingSet=CAP_[A-Z_]+", line)
        assert lines[number - 1].startswith("# "), f"{line} has no reason"
    drop_in = SYSTEMD / "observe-only.conf"
    bounded = values_of(drop_in, "CapabilityBoundingSet")
    assert bounded[0] == "", "the unit's own would stay"
    assert bounded[1:] == values_of(drop_in, "AmbientCapabilities")
    given = set(bounded[1].split())
    assert len(given) == 4
    assert not given & {"CAP_KILL", "CAP_SYS_ADMIN", "CAP_CHOWN"}


def test_what_can_not_be_had_says_why() -> None:
    """Each hardening that would break a stage stands in the unit with its reason, and is not set."""
    text = UNIT.read_text(encoding="utf-8")
    reasons = text.partition("# What can't be had, and why:")[2]
    for name in (
        "PrivateDevices",
        "ProtectClock",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "PrivateNetwork",
        "ProtectHostname",
        "PrivateTmp",
    ):
        assert name in reasons
        assert not values_of(UNIT, name)


def test_a_stop_keeps_what_a_person_put_into_the_runtime_folder() -> None:
    """A HOLD file outlives a stop; the socket unit's socket lies there too, where the daemon looks for it."""
    assert unit_keys()["RuntimeDirectoryPreserve"] == "yes"
    unit = SYSTEMD / "reclaimerd.socket"
    assert values_of(unit, "ListenStream") == [str(SOCKET)]
    assert values_of(unit, "SocketMode") == ["0600"]


def test_a_newer_systemd_may_wait_for_the_reload() -> None:
    """The drop-in takes ExecReload's work to systemd itself, by the signal that the daemon reloads on."""
    drop_in = SYSTEMD / "notify-reload.conf"
    assert values_of(drop_in, "Type") == ["notify-reload"]
    assert values_of(drop_in, "ReloadSignal") == ["SIGHUP"]
    assert values_of(drop_in, "ExecReload") == [""]


def test_nothing_is_enabled_by_an_installation() -> None:
    """The preset disables both units."""
    lines = (SYSTEMD / "reclaimerd.preset").read_text(encoding="utf-8").splitlines()
    rows = {line for line in lines if not line.startswith("#")}
    assert rows == {"disable reclaimerd.service", "disable reclaimerd.socket"}


def test_an_error_that_does_not_mend_itself_is_not_retried() -> None:
    """Systemd starts us again after a crash, and not after a bad policy or a corrupt store."""
    keys = unit_keys()
    assert keys["Restart"] == "on-failure"
    codes = {int(word) for word in keys["RestartPreventExitStatus"].split()}
    assert codes == {ExitCode.USAGE, ExitCode.CORRUPT_STORE}


def test_the_unit_and_tmpfiles_agree_on_every_directory() -> None:
    """Each directory has one mode, whoever makes it first; state is for root alone."""
    keys = unit_keys()
    text = (ROOT / "systemd" / "reclaimerd.tmpfiles").read_text(encoding="utf-8")
    rows = [line.split() for line in text.splitlines() if line.startswith("d ")]
    modes = {path: mode for _, path, mode, *_ in rows}
    wanted = {f"{base}/reclaimerd": keys[f"{word}DirectoryMode"] for base, word in DIRECTORIES.items()}
    assert modes == wanted
    assert {keys[f"{word}Directory"] for word in DIRECTORIES.values()} == {"reclaimerd"}
    assert modes["/var/lib/reclaimerd"] == "0700"
    owners = {path: tuple(row[3:5]) for row in rows for path in [row[1]] if path != "/etc/reclaimerd"}
    assert set(owners.values()) == {("root", keys["Group"])}, "systemd would change what tmpfiles made"


def test_the_group_of_the_log_directory_is_made() -> None:
    """The group that tmpfiles names is one that sysusers makes."""
    users = (ROOT / "systemd" / "reclaimerd.sysusers").read_text(encoding="utf-8")
    files = (ROOT / "systemd" / "reclaimerd.tmpfiles").read_text(encoding="utf-8")
    made = set(re.findall(r"^g (\S+)", users, re.MULTILINE)) | {"root"}
    assert {line.split()[4] for line in files.splitlines() if line.startswith("d ")} <= made


def test_the_environment_can_not_change_the_code_that_runs() -> None:
    """The loader's and Python's variables are taken out before the daemon starts."""
    dropped = set(unit_keys()["UnsetEnvironment"].split())
    assert {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME"} <= dropped


def test_the_unit_feeds_a_watchdog_and_reloads() -> None:
    """The main process alone speaks to systemd, is watched, and reloads on SIGHUP."""
    keys = unit_keys()
    assert (keys["Type"], keys["NotifyAccess"]) == ("notify", "main")
    assert int(keys["WatchdogSec"]) == 60
    assert keys["ExecReload"].endswith("kill -HUP $MAINPID")
    assert keys["ExecStart"].split() == [
        "/opt/reclaimerd/bin/reclaimerd",
        "--config",
        "/etc/reclaimerd/reclaimerd.toml",
    ]


def shell_scripts() -> list[str]:
    """Return what is run by a shell: all tools but those that Python's first line or name shows to be its."""
    tools = [path for path in (ROOT / "tools").iterdir() if path.is_file() and path.suffix != ".py"]
    firsts = {path: path.read_text(encoding="utf-8").partition("\n")[0] for path in tools}
    return [".ci/run", *sorted(f"tools/{path.name}" for path in tools if "python" not in firsts[path])]


@pytest.mark.parametrize("name", shell_scripts())
def test_scripts_can_be_run_and_stop_at_the_first_error(name: str) -> None:
    """Each script is executable, strict, and well-formed bash."""
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    done = subprocess.run(["/bin/bash", "-n", str(script)], capture_output=True, check=False, timeout=10)
    assert done.stderr == b""
