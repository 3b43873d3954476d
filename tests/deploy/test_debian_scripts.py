"""The package's own scripts, as dpkg calls them: what ran before an upgrade runs after it, whatever came."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from reclaimerd.daemon.this_host import read_boot_id, read_own_ref
from reclaimerd.host.wire import to_json

SCRIPTS = Path(__file__).resolve().parents[2] / "deploy" / "debian"
LEFT = ("store.sqlite", "audit.jsonl", "HOLD")
BOTH = ("reclaimerd.socket", "reclaimerd.service")
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HERE/calls"
[ "$1" != show ] || cat "$HERE/$4"
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A folder in the place of /run, /var and /etc, and a systemctl that notes what it is asked."""

    folder: Path

    def state(self, socket: str, service: str) -> None:
        """Say how both units are."""
        for unit, word in zip(BOTH, (socket, service), strict=True):
            (self.folder / unit).write_text(f"{word}\n", encoding="ascii")

    def call(self, script: str, *words: str) -> list[str]:
        """Run a script as dpkg does; return what systemctl was asked for but how things are."""
        text = (SCRIPTS / script).read_text(encoding="utf-8")
        copy = self.folder / script
        for place in ("run", "var", "etc"):
            text = text.replace(f"/{place}/", f"{self.folder}/{place}/")
        copy.write_text(text, encoding="utf-8")
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
        (self.folder / "said").write_text(done.stderr, encoding="utf-8")
        return [line for line in calls.read_text(encoding="ascii").splitlines() if line[:4] != "show"]

    @property
    def directories(self) -> list[Path]:
        """Return where a daemon's things lie."""
        return [self.folder / place / "reclaimerd" for place in ("var/lib", "var/log", "run")]

    def has_run(self) -> None:
        """Leave what a daemon leaves that ended by itself: state, log, and a hold file."""
        for folder, name in zip(self.directories, LEFT, strict=True):
            folder.mkdir(parents=True)
            (folder / name).write_text("x", encoding="ascii")

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


def test_a_purge_takes_the_records_of_a_daemon_that_is_gone(host: Host) -> None:
    """Also where it was killed and left its claim, or where its pid is another's by now."""
    host.has_run()
    gone = {**own_claim(), "start_ticks": 1}
    (host.directories[0] / "writer.json").write_text(json.dumps(gone), encoding="ascii")
    host.call("prerm", "remove")
    host.call("postrm", "remove")
    assert all(folder.exists() for folder in host.directories)
    host.call("postrm", "purge")
    assert not any(folder.exists() for folder in host.directories)


@pytest.mark.parametrize("sign", ["pod", "writer", "written since"])
def test_a_purge_leaves_what_a_pod_has(host: Host, sign: str) -> None:
    """The DaemonSet keeps state and log in the same directories: they are not the package's to take away."""
    host.has_run()
    host.call("postrm", "remove")
    state, log, _ = host.directories
    match sign:
        case "pod":
            (host.folder / "var/lib/kubelet/pods/0f/containers/reclaimerd").mkdir(parents=True)
        case "writer":
            (state / "writer.json").write_text(json.dumps(own_claim()), encoding="ascii")
            os.utime(state / "writer.json", (0, 0))
        case _:
            later = (state / ".removed").stat().st_mtime + 1
            os.utime(log / "audit.jsonl", (later, later))
    host.call("postrm", "purge")
    kept = [folder / name for folder, name in zip(host.directories, LEFT, strict=True)]
    assert [path.read_text(encoding="ascii") for path in kept] == ["x"] * 3
    assert "are left: " in (host.folder / "said").read_text(encoding="utf-8")


def test_an_installation_forgets_the_removal_before(host: Host) -> None:
    """What its daemon writes from now on is the package's."""
    host.has_run()
    host.call("postrm", "remove")
    assert (host.directories[0] / ".removed").exists()
    host.call("postinst", "configure")
    assert not (host.directories[0] / ".removed").exists()


def own_claim() -> dict[str, object]:
    """Return a writer's claim of this very process."""
    return dict(json.loads(to_json(read_own_ref(read_boot_id()))))
