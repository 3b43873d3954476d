"""The files that systemd reads: the unit, the group and the directories."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.errors import ExitCode

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd" / "reclaimerd.service"
DIRECTORIES = {"/etc": "Configuration", "/run": "Runtime", "/var/lib": "State", "/var/log": "Logs"}
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is not installed (Debian package systemd)",
)


def unit_keys() -> dict[str, str]:
    """Return the unit's keys, of all sections."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


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


@pytest.mark.parametrize("name", [".ci/run", *(f"tools/{path.name}" for path in (ROOT / "tools").iterdir())])
def test_scripts_can_be_run_and_stop_at_the_first_error(name: str) -> None:
    """Each script is executable, strict, and well-formed bash."""
    script = ROOT / name
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    done = subprocess.run(["/bin/bash", "-n", str(script)], capture_output=True, check=False, timeout=10)
    assert done.stderr == b""
