"""Claims about drain requests as a systemd target: over a program that answers as systemctl does."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reclaimerd.act import drain_unit
from reclaimerd.act.drain_unit import DrainUnit
from reclaimerd.act.unit_mark import Mark, UnitMark
from reclaimerd.errors import RecordError
from reclaimerd.model.drain_policy import UnitTarget
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, Foreign, NotAsked, TargetAnswer
from tests.act.drain_builders import a_request
from tests.act.reset_tools import program
from tests.builders import BOOT

pytestmark = pytest.mark.process
UNIT = "reclaimerd-drain.target"
SHIPPED = Path(__file__).parents[2] / "systemd" / UNIT
SYSTEMCTL = """
# A unit is a file with its ActiveState; `load`, `job`, `start` and `stop` beside it change what it does.
cd "$(dirname "$0")"; for unit; do :; done
case $1 in
show)
    [ -e "$unit" ] && load=loaded || load=not-found
    [ -e load ] && load=$(cat load)
    echo "LoadState=$load"
    echo "ActiveState=$(cat "$unit" 2>/dev/null || echo inactive)"
    [ -e job ] && echo "Job=17"
    exit 0;;
*)
    echo "$@" >> jobs
    if [ -e "$1" ]; then sh "./$1" "$unit"; exit; fi
    [ "$1" = start ] && echo active > "$unit" || echo inactive > "$unit";;
esac
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A folder of units with its systemctl, and the target over it."""

    folder: Path
    target: DrainTargetPort
    mark: UnitMark

    def be(self, state: str, unit: str = UNIT) -> None:
        """Let the unit be in a state, by somebody else."""
        (self.folder / unit).write_text(state, encoding="ascii")

    @property
    def state(self) -> str:
        """Return the unit's state."""
        return (self.folder / UNIT).read_text(encoding="ascii").strip()

    def on(self, verb: str, body: str) -> None:
        """Let a verb do something else."""
        (self.folder / verb).write_text(body, encoding="utf-8")

    def jobs(self) -> list[str]:
        """Return the jobs that were asked for."""
        path = self.folder / "jobs"
        return path.read_text().splitlines() if path.exists() else []

    def request(self, incident: str = "inc-1") -> TargetAnswer:
        """Ask once."""
        return asyncio.run(self.target.request(a_request(incident)))

    def withdraw(self, incident: str = "inc-1") -> TargetAnswer:
        """Take it back."""
        return asyncio.run(self.target.withdraw(a_request(incident)))

    def status(self, incident: str = "inc-1") -> TargetAnswer:
        """Ask whether it stands."""
        return asyncio.run(self.target.status(a_request(incident)))


async def plain_write(path: Path, content: bytes) -> None:
    """Write as the recorder does, without its thread."""
    await asyncio.to_thread(path.write_bytes, content)


def a_target(folder: Path, mark: UnitMark) -> DrainUnit:
    """Return the target over a folder's systemctl."""
    return DrainUnit(str(folder / "systemctl"), UnitTarget(UNIT), mark, any_owner=os.geteuid() != 0)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host whose unit is inactive."""
    monkeypatch.setattr(drain_unit, "SETTLE_SECONDS", 0.5)
    folder = tmp_path / "units"
    folder.mkdir()
    program(folder / "systemctl", SYSTEMCTL)
    mark = UnitMark(tmp_path / "drain-unit.json", BOOT, plain_write)
    made = Host(folder, a_target(folder, mark), mark)
    made.be("inactive")
    return made


def test_a_request_starts_the_target_once(host: Host) -> None:
    """It is not waited for; a second request finds it active, and a withdrawal stops it."""
    assert host.request() == Asked(f"{UNIT} is active")
    assert host.request() == Asked(f"{UNIT} is active already")
    assert host.status() == Asked(f"{UNIT} is active")
    assert host.jobs() == [f"start --no-block -- {UNIT}"]
    assert host.withdraw() == Asked(f"{UNIT} is stopped")
    assert host.state == "inactive"
    assert host.withdraw() == Asked(f"nothing of ours stands: {UNIT} is inactive")
    assert host.jobs() == [f"start --no-block -- {UNIT}", f"stop --no-block -- {UNIT}"]
    assert isinstance(host.status(), NotAsked)


@pytest.mark.parametrize("state", ["active", "activating", "reloading"])
def test_a_target_that_somebody_else_started_stays_theirs(host: Host, state: str) -> None:
    """It is FOREIGN, and never stopped by us."""
    host.be(state)
    assert isinstance(host.request(), Foreign)
    assert isinstance(host.status(), Foreign)
    assert isinstance(host.withdraw(), Foreign)
    assert host.jobs() == []
    assert host.state == state


def test_a_note_of_another_boot_is_no_note(host: Host) -> None:
    """No unit outlives a boot: what runs now was started by somebody else."""
    assert isinstance(host.request(), Asked)
    later = replace(host, target=a_target(host.folder, replace(host.mark, boot_id="another")))
    assert isinstance(later.request(), Foreign)
    assert isinstance(later.withdraw(), Foreign)
    assert host.state == "active"


def test_another_request_s_target_is_not_stopped(host: Host) -> None:
    """Only the request for which it was started last takes it back."""
    assert isinstance(host.request("inc-1"), Asked)
    assert isinstance(host.withdraw("inc-2"), Foreign)
    assert host.state == "active"
    assert host.request("inc-2") == Asked(f"{UNIT} is active already")
    assert isinstance(host.withdraw("inc-1"), Foreign)
    assert host.withdraw("inc-2") == Asked(f"{UNIT} is stopped")


def test_a_death_between_note_and_start_loses_nothing(host: Host) -> None:
    """The same request comes again, and starts it."""
    asyncio.run(host.mark.set(Mark(UNIT, "inc-1")))
    assert host.request() == Asked(f"{UNIT} is active")
    assert host.jobs() == [f"start --no-block -- {UNIT}"]


def test_after_another_name_in_the_policy_the_old_target_is_stopped(host: Host) -> None:
    """What was started is what is stopped."""
    assert isinstance(host.request(), Asked)
    host.be("active", "other.target")
    named = DrainUnit(
        str(host.folder / "systemctl"), UnitTarget("other.target"), host.mark, any_owner=os.geteuid() != 0
    )
    assert asyncio.run(named.withdraw(a_request())) == Asked(f"{UNIT} is stopped")
    assert host.state == "inactive"
    assert (host.folder / "other.target").read_text(encoding="ascii") == "active"


@pytest.mark.parametrize(
    ("load", "mend"), [("not-found", "daemon-reload"), ("masked", "unmask"), ("bad-setting", "status")]
)
def test_a_target_that_is_not_loaded_is_a_lasting_no(host: Host, load: str, mend: str) -> None:
    """With what helps; nothing is started, and nothing noted."""
    host.on("load", load)
    answer = host.request()
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert load in answer.text
    assert mend in answer.text
    assert host.jobs() == []
    assert asyncio.run(host.mark.read()) is None


def test_a_start_that_fails_is_tried_again(host: Host) -> None:
    """Refused at once, or failed later: it did not take effect, and says where to look."""
    host.on("start", "echo 'Operation refused' >&2; exit 1")
    answer = host.request()
    assert answer == NotAsked(f"`systemctl start {UNIT}` ended with 1 and said: Operation refused")
    host.on("start", 'echo failed > "$1"')
    answer = host.request()
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "journalctl" in answer.text


def test_a_start_that_waits_for_the_site_s_units_stands(host: Host) -> None:
    """A drain may take long: the job is queued, and nobody waits for its end."""
    host.on("start", "touch job")
    answer = host.request()
    assert isinstance(answer, Asked)
    assert "waits" in answer.text


def test_a_stop_that_takes_long_is_not_over(host: Host) -> None:
    """It is looked at again, and until it is inactive it counts as ours."""
    assert isinstance(host.request(), Asked)
    host.on("stop", 'echo deactivating > "$1"')
    answer = host.withdraw()
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    host.be("inactive")
    assert host.withdraw() == Asked(f"{UNIT} is stopped")


def _fails(path: Path) -> None:
    path.write_text("#!/bin/sh\necho 'System has not been booted with systemd' >&2; exit 1\n", "ascii")


@pytest.mark.parametrize("break_it", [_fails, Path.unlink, lambda path: path.chmod(0o644)])
def test_without_systemd_nothing_is_asked(host: Host, break_it: Callable[[Path], None]) -> None:
    """What can't be read is no state."""
    break_it(host.folder / "systemctl")
    for answer in (host.request(), host.withdraw(), host.status()):
        assert isinstance(answer, NotAsked)
    assert host.jobs() == []


def test_without_its_note_nothing_is_started(host: Host) -> None:
    """Nobody could tell later that it was ours."""

    async def full(path: Path, content: bytes) -> None:
        raise RecordError(f"{path} is full of {len(content)}")

    target = a_target(host.folder, replace(host.mark, write=full))
    answer = asyncio.run(target.request(a_request()))
    assert isinstance(answer, NotAsked)
    assert "without a note" in answer.text
    assert host.jobs() == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unit": 3}', '{"unit": "x", "request": "y"}'])
def test_a_torn_note_is_no_note(host: Host, content: str) -> None:
    """What runs beside it is kept."""
    host.mark.path.write_text(content, encoding="ascii")
    host.be("active")
    assert isinstance(host.withdraw(), Foreign)
    assert host.state == "active"


def test_a_note_is_read_through_no_link(host: Host, tmp_path: Path) -> None:
    """A link in its place is an error, and nothing is started or stopped."""
    (tmp_path / "elsewhere").write_text("{}", encoding="ascii")
    host.mark.path.symlink_to(tmp_path / "elsewhere")
    for answer in (host.request(), host.withdraw(), host.status()):
        assert isinstance(answer, NotAsked)
    assert host.jobs() == []


@pytest.mark.parametrize("name", ["", "--now", "x.service", "a b.target", "*.target", "-x.target"])
def test_a_name_is_never_an_option_or_a_pattern(host: Host, name: str) -> None:
    """The policy refuses it, and so does this."""
    target = DrainUnit(str(host.folder / "systemctl"), UnitTarget(name), host.mark, any_owner=True)
    assert isinstance(asyncio.run(target.request(a_request())), NotAsked)
    assert host.jobs() == []


def test_a_plan_is_the_command(host: Host) -> None:
    """And nothing is run."""
    assert host.target.plan(a_request()) == f"{host.folder}/systemctl start --no-block -- {UNIT}"
    assert host.jobs() == []


@pytest.mark.systemd
def test_the_target_that_ships_has_no_faults(tmp_path: Path) -> None:
    """Nor with a service of a site's that hangs on it, as the documents say."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    hook = tmp_path / "site-drain.service"
    shutil.copy(SHIPPED, tmp_path / UNIT)
    text = (SHIPPED.parents[1] / "docs" / "drain.md").read_text(encoding="utf-8")
    unit = text.split("```ini\n")[1].split("```")[0].replace("/usr/local/sbin/site-drain", "/bin/true")
    hook.write_text(unit, encoding="utf-8")
    end = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(tmp_path / UNIT), str(hook)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (end.returncode, end.stderr) == (0, "")
