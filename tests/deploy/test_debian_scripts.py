"""The package's own scripts, as dpkg calls them: what ran before an upgrade runs after it, whatever came."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "debian"
BOTH = ("reclaimerd.socket", "reclaimerd.service")
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HERE/calls"
[ "$1" != show ] || cat "$HERE/$4"
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A folder in the place of /run, and a systemctl that notes what it is asked."""

    folder: Path

    def state(self, socket: str, service: str) -> None:
        """Say how both units are."""
        for unit, word in zip(BOTH, (socket, service), strict=True):
            (self.folder / unit).write_text(f"{word}\n", encoding="ascii")

    def call(self, script: str, *words: str) -> list[str]:
        """Run a script as dpkg does; return what systemctl was asked for but how things are."""
        text = (SCRIPTS / script).read_text(encoding="utf-8")
        copy = self.folder / script
        copy.write_text(text.replace("/run/", f"{self.folder}/run/"), encoding="utf-8")
        calls = self.folder / "calls"
        calls.write_text("", encoding="ascii")
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HERE": str(self.folder)}
        done = subprocess.run(
            ["/bin/sh", str(copy), *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [line for line in calls.read_text(encoding="ascii").splitlines() if line[:4] != "show"]

    @property
    def remembers(self) -> bool:
        """Tell whether a note of what ran is left."""
        return (self.folder / "run" / "reclaimerd.upgrade").exists()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host with systemd, our units down."""
    (tmp_path / "run" / "systemd" / "system").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, text in (
        ("systemctl", SYSTEMCTL),
        ("systemd-sysusers", "#!/bin/sh\n"),
        ("systemd-tmpfiles", "#!/bin/sh\n"),
    ):
        program = tmp_path / "bin" / name
        program.write_text(text, encoding="ascii")
        program.chmod(0o755)
    made = Host(tmp_path)
    made.state("inactive", "inactive")
    return made


def starts(calls: list[str]) -> list[str]:
    """Return which units were started."""
    return [unit for call in calls if call.startswith("start ") for unit in call.split()[1:]]


@pytest.mark.parametrize("state", ["active", "reloading", "activating"])
def test_what_ran_runs_again(host: Host, state: str) -> None:
    """A daemon that crashes again and again is "activating" and runs too: the upgrade may be its mend."""
    host.state("active", state)
    assert host.call("prerm", "upgrade", "2") == ["stop reclaimerd.socket reclaimerd.service"]
    assert starts(host.call("postinst", "configure", "1")) == list(BOTH)
    assert not host.remembers


@pytest.mark.parametrize("state", ["inactive", "failed", "deactivating"])
def test_what_did_not_run_is_not_started(host: Host, state: str) -> None:
    """An upgrade starts nothing that somebody stopped, and nothing that had ended."""
    host.state("inactive", state)
    host.call("prerm", "upgrade", "2")
    assert starts(host.call("postinst", "configure", "1")) == []
    assert not host.remembers


def test_a_first_installation_starts_nothing(host: Host) -> None:
    """The preset decides, and it disables."""
    calls = host.call("postinst", "configure")
    assert calls == ["daemon-reload", "--quiet preset reclaimerd.service reclaimerd.socket"]


@pytest.mark.parametrize(
    ("stopped_by", "given_up"),
    [("upgrade", "abort-upgrade"), ("remove", "abort-remove"), ("deconfigure", "abort-deconfigure")],
)
def test_what_was_stopped_for_nothing_comes_back(host: Host, stopped_by: str, given_up: str) -> None:
    """A full disk ends an upgrade half way: dpkg puts the old files back, and the daemon runs as before."""
    host.state("inactive", "active")
    host.call("prerm", stopped_by)
    assert starts(host.call("postinst", given_up)) == ["reclaimerd.service"]
    assert not host.remembers


def test_a_second_try_still_knows_what_ran(host: Host) -> None:
    """Configuring failed (nobody answered a question): the next try finds the unit down, and starts it."""
    host.state("inactive", "active")
    host.call("prerm", "upgrade", "2")
    host.state("inactive", "inactive")
    host.call("prerm", "upgrade", "2")
    assert starts(host.call("postinst", "configure", "1")) == ["reclaimerd.service"]


def test_a_removal_disables_and_leaves_no_note(host: Host) -> None:
    """A later installation starts nothing by what ran before the removal."""
    host.state("active", "active")
    calls = host.call("prerm", "remove")
    assert calls == [
        "--quiet disable reclaimerd.service reclaimerd.socket",
        "stop reclaimerd.socket reclaimerd.service",
    ]
    host.call("postrm", "remove")
    assert not host.remembers
    assert starts(host.call("postinst", "configure", "1")) == []
