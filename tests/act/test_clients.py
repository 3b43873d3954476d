"""Claims about what a reset changes besides the GPU, with real programs that keep a state."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reclaimerd.act.clients import Clients, ClientTools
from reclaimerd.act.gpu_settings import COMMANDS, PERSISTENCE, is_same
from reclaimerd.model.policy import ResetSettings
from reclaimerd.model.ports import ChangeFailed, ChangeMade
from reclaimerd.model.reset_facts import SettingKind
from reclaimerd.model.reset_run import Change, ChangeKind
from tests.act.reset_tools import program, runs
from tests.builders import GPU_A

UNIT = Change(ChangeKind.UNIT, "nvidia-dcgm.service", "active")
PERSIST = Change(ChangeKind.PERSISTENCE, GPU_A, "1")
pytestmark = pytest.mark.process

SYSTEMCTL = """
echo "$@" >> calls
case "$1" in
stop) [ -e stuck ] || echo inactive > state ;;
start) [ -e broken ] || echo active > state ;;
is-active) cat state; grep -qx active state || exit 3 ;;
esac
"""
SMI = """
echo "$@" >> calls
case "$*" in
--query-gpu=*) [ -e asleep ] && { echo "No devices were found"; exit 6; }; cat setting ;;
*"-pm 0") [ -e stuck ] || echo Disabled > setting ;;
*"-pm 1") [ -e stuck ] || echo Enabled > setting ;;
*) echo "$4 W" > setting ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Rig:
    """The two programs and what they keep."""

    folder: Path
    clients: Clients

    def state(self, name: str, text: str) -> None:
        """Set what a program keeps."""
        (self.folder / name).write_text(f"{text}\n")

    @property
    def calls(self) -> list[str]:
        """Return every call so far."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Return two programs in a folder of their own, with a running unit and persistence on."""
    head = f"cd {tmp_path} || exit 9\n"
    tools = ClientTools(
        program(tmp_path / "systemctl", head + SYSTEMCTL),
        program(tmp_path / "nvidia-smi", head + SMI),
        any_owner=os.geteuid() != 0,
    )
    settings = ResetSettings(unit_seconds=20.0, fence_hook=program(tmp_path / "hook", 'echo "$@"'))
    made = Rig(tmp_path, Clients(tools, lambda: settings, lambda: "incident-1"))
    made.state("state", "active")
    made.state("setting", "Enabled")
    return made


def test_a_unit_is_stopped_once_and_its_state_is_the_proof(rig: Rig) -> None:
    """The unit is stopped by name, and read back."""
    assert runs(lambda: rig.clients.make(UNIT)) == ChangeMade("nvidia-dcgm.service is inactive")
    assert rig.calls == ["stop nvidia-dcgm.service", "is-active nvidia-dcgm.service"]


def test_a_unit_that_does_not_stop_is_a_failure(rig: Rig) -> None:
    """An exit code of 0 is no proof: a unit that still runs was not stopped, and it is not tried again."""
    rig.state("stuck", "")
    answer = runs(lambda: rig.clients.make(UNIT))
    assert isinstance(answer, ChangeFailed)
    assert "is active after `systemctl stop`" in answer.why
    assert rig.calls.count("stop nvidia-dcgm.service") == 1


def test_a_systemctl_that_hangs_is_a_failure(rig: Rig) -> None:
    """Past the policy's bound it is given up, and said."""
    tool = program(rig.folder / "hang", "exec sleep 60")
    tools = replace(rig.clients.tools, systemctl=tool)
    clients = Clients(tools, lambda: ResetSettings(unit_seconds=0.3), lambda: "")
    answer = runs(lambda: clients.make(UNIT))
    assert isinstance(answer, ChangeFailed)
    assert "did not end within 0.3 s" in answer.why


def test_what_was_stopped_is_started_and_twice_does_no_harm(rig: Rig) -> None:
    """Undoing starts the unit and reads it back; the second time finds it running and starts nothing."""
    rig.state("state", "inactive")
    assert runs(lambda: rig.clients.undo(UNIT)) == ChangeMade("nvidia-dcgm.service is active")
    assert runs(lambda: rig.clients.undo(UNIT)) == ChangeMade("nvidia-dcgm.service is active already")
    assert rig.calls.count("start nvidia-dcgm.service") == 1


@pytest.mark.parametrize("state", ["failed", "deactivating"])
def test_any_state_but_running_is_started(rig: Rig, state: str) -> None:
    """A unit that failed, or that is still on its way down (a stop past its bound), is started too."""
    rig.state("state", state)
    assert runs(lambda: rig.clients.undo(UNIT)) == ChangeMade("nvidia-dcgm.service is active")


def test_a_unit_that_does_not_start_is_said(rig: Rig) -> None:
    """A unit that can't be put back is a failure with its state."""
    rig.state("state", "inactive")
    rig.state("broken", "")
    answer = runs(lambda: rig.clients.undo(UNIT))
    assert isinstance(answer, ChangeFailed)
    assert "is inactive after `systemctl start`" in answer.why


def test_what_was_not_running_is_never_started(rig: Rig) -> None:
    """A unit that was inactive before is left alone."""
    rig.state("state", "inactive")
    assert isinstance(runs(lambda: rig.clients.undo(replace(UNIT, before="inactive"))), ChangeMade)
    assert rig.calls == []


def test_units_are_asked_for_in_one_call_that_waits_for_none(rig: Rig) -> None:
    """Those that ran before and no other; what is no unit's name reaches nobody."""
    other = replace(UNIT, name="exporter.service")
    idle, bad = replace(UNIT, name="idle.service", before="inactive"), replace(UNIT, name="--now")
    asked = runs(lambda: rig.clients.ask_starts([UNIT, PERSIST, idle, bad, other]))
    assert asked == ChangeMade("asked for: nvidia-dcgm.service, exporter.service")
    assert rig.calls == ["start --no-block -- nvidia-dcgm.service exporter.service"]
    assert isinstance(runs(lambda: rig.clients.ask_starts([idle, PERSIST])), ChangeMade)
    assert len(rig.calls) == 1


def test_units_that_can_not_be_asked_for_are_said(rig: Rig) -> None:
    """A program's code and words, or that it hangs."""
    tool = program(rig.folder / "no", "echo 'Failed to connect to bus' >&2; exit 1")
    clients = replace(rig.clients, tools=replace(rig.clients.tools, systemctl=tool))
    answer = runs(lambda: clients.ask_starts([UNIT]))
    assert isinstance(answer, ChangeFailed)
    assert "ended with 1: Failed to connect to bus" in answer.why
    hangs = replace(rig.clients.tools, systemctl=program(rig.folder / "hang", "exec sleep 60"))
    clients = Clients(hangs, lambda: ResetSettings(unit_seconds=0.3), lambda: "")
    assert isinstance(runs(lambda: clients.ask_starts([UNIT])), ChangeFailed)


@pytest.mark.parametrize("name", ["", "-x.service", "a b.service", "--now", "../x.service", "unit"])
def test_only_a_units_name_reaches_systemctl(rig: Rig, name: str) -> None:
    """An option or a path as a unit's name is a failure, and nothing is called."""
    assert isinstance(runs(lambda: rig.clients.make(replace(UNIT, name=name))), ChangeFailed)
    assert rig.calls == []


def test_persistence_goes_off_and_on_by_uuid(rig: Rig) -> None:
    """Off for the reset and on afterwards, each read back by the tool's query."""
    query = f"--query-gpu=persistence_mode --format=csv,noheader -i {GPU_A}"
    made = runs(lambda: rig.clients.make(PERSIST))
    assert made == ChangeMade(f"persistence mode of {GPU_A} is Disabled")
    assert runs(lambda: rig.clients.undo(PERSIST)) == ChangeMade(f"persistence mode of {GPU_A} is Enabled")
    assert rig.calls == [f"-i {GPU_A} -pm 0", query, f"-i {GPU_A} -pm 1", query]


@pytest.mark.parametrize("fault", ["stuck", "asleep"])
def test_persistence_that_reads_otherwise_is_a_failure(rig: Rig, fault: str) -> None:
    """A tool that says nothing is wrong, or that can't read it back, is not believed."""
    rig.state(fault, "")
    answer = runs(lambda: rig.clients.make(PERSIST))
    assert isinstance(answer, ChangeFailed)
    assert "should be Disabled and reads" in answer.why


@pytest.mark.parametrize("uuid", ["0", "", "MIG-x", "GPU-a,GPU-b", "-x"])
def test_only_one_whole_gpu_is_changed(rig: Rig, uuid: str) -> None:
    """No index, list or option reaches the vendor's tool."""
    assert isinstance(runs(lambda: rig.clients.make(replace(PERSIST, name=uuid))), ChangeFailed)
    assert rig.calls == []


def test_a_setting_is_written_back_by_its_option(rig: Rig) -> None:
    """The reset itself changes it; undoing writes the value that was there, and reads it."""
    change = Change(ChangeKind.SETTING, f"{GPU_A} {SettingKind.POWER_LIMIT}", "300.00")
    assert isinstance(runs(lambda: rig.clients.make(change)), ChangeMade)
    assert rig.calls == []
    assert runs(lambda: rig.clients.undo(change)) == ChangeMade(f"power limit of {GPU_A} is 300.00")
    assert rig.calls[0] == f"-i {GPU_A} -pl 300.00"
    assert rig.calls[1].startswith("--query-gpu=power.limit ")


@pytest.mark.parametrize(
    ("name", "value"), [(f"{GPU_A} fan", "1"), (f"{GPU_A} power_limit", "-x"), (GPU_A, "1")]
)
def test_an_unknown_setting_or_value_is_not_written(rig: Rig, name: str, value: str) -> None:
    """What has no option, or is no number, reaches no tool."""
    assert isinstance(runs(lambda: rig.clients.undo(Change(ChangeKind.SETTING, name, value))), ChangeFailed)
    assert rig.calls == []


def test_the_fence_is_asked_for_this_incident(rig: Rig) -> None:
    """The hook gets the host and the incident of the reset under way."""
    change = Change(ChangeKind.FENCE, "gpu01", "")
    assert runs(lambda: rig.clients.make(change)) == ChangeMade("read gpu01 incident-1")
    assert runs(lambda: rig.clients.undo(change)) == ChangeMade("release gpu01 incident-1")


def test_a_tool_that_is_not_there_is_a_failure(rig: Rig) -> None:
    """A missing program is a sentence, not a traceback."""
    clients = replace(rig.clients, tools=ClientTools("/nonexistent/systemctl", "/nonexistent/nvidia-smi"))
    assert isinstance(runs(lambda: clients.make(UNIT)), ChangeFailed)
    assert isinstance(runs(lambda: clients.undo(PERSIST)), ChangeFailed)


@pytest.mark.parametrize(
    ("kind", "answer", "value", "same"),
    [
        (SettingKind.POWER_LIMIT, "300.00 W\n", "300.00", True),
        (SettingKind.POWER_LIMIT, "300 W", "299.8", True),
        (SettingKind.POWER_LIMIT, "310.00 W", "300.00", False),
        (SettingKind.POWER_LIMIT, "[N/A]", "300.00", False),
        (SettingKind.COMPUTE_MODE, "Exclusive_Process\n", "3", True),
        (SettingKind.COMPUTE_MODE, "Default\n", "3", False),
        (SettingKind.COMPUTE_MODE, "Default\n", "9", False),
        (SettingKind.ACCOUNTING_MODE, "Enabled\n", "1", True),
        (SettingKind.APPLICATION_CLOCKS, "1215 MHz, 1410 MHz\n", "1215,1410", True),
        (SettingKind.APPLICATION_CLOCKS, "1215 MHz, 1335 MHz\n", "1215,1410", False),
        (SettingKind.APPLICATION_CLOCKS, "1215 MHz", "1215,1410", False),
    ],
)
def test_what_reads_as_the_same(kind: SettingKind, answer: str, value: str, *, same: bool) -> None:
    """Numbers are compared without their units, modes by the tool's word; anything else differs."""
    assert is_same(COMMANDS[kind], answer, value) is same


def test_every_setting_can_be_put_back() -> None:
    """Each kind that a reset may forget has an option, and no two share one."""
    assert set(COMMANDS) == set(SettingKind)
    assert len({command.option for command in (*COMMANDS.values(), PERSISTENCE)}) == len(COMMANDS) + 1
