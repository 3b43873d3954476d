"""The whole daemon against tasks that really hang in a driver: in its close in R and in D, and in its ioctl.

One guest for all of it. What it found is judged here.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from reclaimerd.judge.plight import DRAIN_FACTOR
from reclaimerd.model.process import PF_EXITING
from tests.qemu.guest import EXIT_GRACE_SECONDS, GPU
from tests.qemu.parts import CannotBootError, gather_parts
from tests.qemu.rig import GUEST_SECONDS, Guest, boot

pytestmark = [pytest.mark.qemu, pytest.mark.slow, pytest.mark.timeout(GUEST_SECONDS + 400)]

Found = Mapping[str, Any]
IN_RELEASE = ("spinning", "sleeping")
ALL = (*IN_RELEASE, "in_ioctl")
SIGKILL_BIT = 0x100


@pytest.fixture(scope="module")
def guest() -> Guest:
    """Boot the one guest; a machine that can't is told as a skip with the reason."""
    try:
        parts = gather_parts()
    except CannotBootError as error:
        pytest.skip(str(error))
    return boot(parts)


def kinds(found: Found) -> list[tuple[str, str | None]]:
    """Return the records about one holder in order, each with its action; notes come when they are ready."""
    return [(one["kind"], one.get("action")) for one in found["records"] if one["kind"] != "note"]


def status_bits(found: Found, key: str) -> int:
    """Return a signal mask of the holder's status file."""
    return int(found["kernel"]["status"].partition(f"{key}:")[2].split()[0], 16)


def test_the_guest_came_to_its_end(guest: Guest) -> None:
    """Every part ran, within the guest's limit."""
    assert "seconds" in guest.finding("done"), guest.console


@pytest.mark.parametrize(("name", "state"), [("spinning", "R"), ("sleeping", "D")])
def test_the_task_is_in_the_exit_path_and_shows_no_descriptor(guest: Guest, name: str, state: str) -> None:
    """The rig is true: PF_EXITING, nothing open, no memory; R shows its stack at times, D always."""
    kernel = guest.finding(name)["kernel"]
    assert kernel["state"] == state
    assert kernel["flags"] & PF_EXITING
    assert kernel["fds"] == []
    assert (kernel["maps"], kernel["cmdline"]) == ("", "")
    assert "VmRSS" not in kernel["status"]
    if state == "R":
        assert kernel["ticks"] > 10
        assert all(stack == "" or "stand_in_spin+" in stack for stack in kernel["stacks"])
    else:
        assert kernel["ticks"] == 0
        assert all("stand_in_release+" in stack and "[nvidia]" in stack for stack in kernel["stacks"])
        assert all("do_exit+" in stack for stack in kernel["stacks"])


def test_an_ioctl_holds_a_killed_task_outside_the_exit_path(guest: Guest) -> None:
    """The third shape: D, SIGKILL pending, not exiting, with its descriptors and its memory."""
    found = guest.finding("in_ioctl")
    assert found["kernel"]["state"] == "D"
    assert not found["kernel"]["flags"] & PF_EXITING
    assert status_bits(found, "SigPnd") & SIGKILL_BIT
    assert "stand_in_ioctl+" in found["kernel"]["stacks"][0]
    assert found["kernel"]["fds"] != []


@pytest.mark.parametrize("name", IN_RELEASE)
def test_a_holder_without_descriptors_is_remembered(guest: Guest, name: str) -> None:
    """It stays in the table although no descriptor shows it, and even where NVML lists nobody any more."""
    found = guest.finding(name)
    assert found["row"] is not None
    assert "exiting (1 task" in found["row"]["state"]
    listed = name == "spinning"
    assert (found["pid"] in found["listed"]) is listed
    assert found["row"]["how"] == ("listed" if listed else "remembered")


@pytest.mark.parametrize("name", IN_RELEASE)
def test_a_task_in_the_exit_path_refuses_the_reset(guest: Guest, name: str) -> None:
    """`explain reset` names it with the reason exit_path."""
    found = guest.finding(name)
    assert not found["explain"]["permitted"]
    in_exit_path = [reason for reason in found["explain"]["reasons"] if reason["kind"] == "exit_path"]
    assert [reason["pids"] for reason in in_exit_path] == [[found["pid"]]]


def test_a_task_blocked_in_the_driver_refuses_the_reset(guest: Guest) -> None:
    """It is alive and holds the GPU: that alone refuses."""
    found = guest.finding("in_ioctl")
    assert not found["explain"]["permitted"]
    assert any(found["pid"] in reason["pids"] for reason in found["explain"]["reasons"])


def test_explain_reset_leaves_with_its_verdict(guest: Guest) -> None:
    """The command ends with 3 while the task spins, and with 0 when nobody is left."""
    assert guest.finding("spinning")["command"]["code"] == 3
    assert guest.finding("spinning_freed")["command"]["code"] == 0


def test_the_ladder_ends_in_one_drain_request(guest: Guest) -> None:
    """SIGTERM, SIGKILL, a refused reset, the drain; handed over to the scheduler; never a reset."""
    found = guest.finding("spinning")
    assert kinds(found) == [
        ("incident_opened", None),
        ("intent", "sigterm"),
        ("outcome", "sigterm"),
        ("intent", "sigkill"),
        ("outcome", "sigkill"),
        ("refused", "reset"),
        ("passed_over", "reset"),
        ("intent", "drain"),
        ("outcome", "drain"),
        ("incident_ended", None),
    ]
    refusal = next(one for one in found["records"] if one["kind"] == "refused")
    assert {reason["kind"] for reason in refusal["refusals"]} >= {"exit_path"}
    assert found["ended"]["end"] == "handed_over to scheduler"
    (request,) = found["drains"]
    assert request["incident"] == found["ended"]["incident"]
    assert (request["pids"], request["gpus"]) == ([found["pid"]], [GPU])


def test_an_operator_is_told_that_it_did_not_die(guest: Guest) -> None:
    """`kill --force` ends with 5, shows the task in the exit path, and drains nothing."""
    found = guest.finding("sleeping")
    assert found["kill"]["code"] == 5
    (target,) = found["kill"]["answer"]["targets"]
    assert target["end"] == "handed_over"
    (task,) = target["tasks"][0]["tasks"]
    assert (task["state"], task["exiting"]) == ("D", True)
    assert found["ended"]["end"] == "handed_over to operator"
    assert not [one for one in found["records"] if one.get("action") in ("reset", "drain")]


@pytest.mark.parametrize("name", ALL)
def test_killing_the_cgroup_changes_nothing(guest: Guest, name: str) -> None:
    """cgroup.kill ends no task that is inside the driver: the cgroup stays populated, the module in use."""
    found = guest.finding(name)
    assert not found["cgroup"]["died"]
    assert "populated 1" in found["cgroup"]["events"]
    assert found["module_users"] > 0


@pytest.mark.parametrize("name", ALL)
def test_it_is_noticed_when_the_driver_lets_go(guest: Guest, name: str) -> None:
    """The task dies at once, a late release is on record under its incident, and the reset gate permits."""
    found, freed = guest.finding(name), guest.finding(f"{name}_freed")
    assert freed["freed"]
    assert freed["late"]["incident"] == found["ended"]["incident"]
    assert freed["row"] is None
    assert freed["explain"]["permitted"], freed["explain"]
    late = [one for one in guest.finding("audit")["records"] if one["kind"] == "late_release"]
    assert len([one for one in late if one["incident"] == found["ended"]["incident"]]) == 1


def test_what_moves_is_given_time(guest: Guest) -> None:
    """A spin that was seen in the driver drains after one exit grace; one without a stack after five."""
    found = guest.finding("spinning")
    at = {(one["kind"], one.get("action")): one["mono"] for one in found["records"]}
    (request,) = found["drains"]
    graces = 1 if "the stand-in device (driver)" in request["reason"] else DRAIN_FACTOR
    assert at["intent", "drain"] - at["outcome", "sigkill"] >= graces * EXIT_GRACE_SECONDS


def test_a_killed_task_blocked_in_the_driver_ends_in_a_drain_request(guest: Guest) -> None:
    """It is not exiting, but our SIGKILL pends and nothing moves: it joins the request that the node has."""
    found = guest.finding("in_ioctl")
    assert found["ended"]["end"] == "handed_over to scheduler"
    assert len(found["drains"]) == 1
    joins = f"incident {found['ended']['incident']} joins: pid {found['pid']}: "
    texts = [one["reason"] for one in guest.finding("audit")["records"] if one["kind"] == "drain_step"]
    (reason,) = [text for text in texts if text.startswith(joins)]
    assert "the stand-in device (driver)" in reason


def test_evidence_is_kept_by_itself(guest: Guest) -> None:
    """When the daemon judges a task stuck it keeps the evidence, and one note under the incident names it."""
    notes = [one for one in guest.finding("spinning")["records"] if one["kind"] == "note"]
    (reason,) = [one["reason"] for one in notes]
    assert reason.startswith(f"evidence of pid {guest.finding('spinning')['pid']}: ")


def test_no_reset_is_ever_begun(guest: Guest) -> None:
    """In the whole run no intent of a reset is on record."""
    records = guest.finding("audit")["records"]
    assert ("intent", "sigkill") in [(one["kind"], one.get("action")) for one in records]
    assert ("intent", "reset") not in [(one["kind"], one.get("action")) for one in records]


def test_a_spin_is_called_stuck_only_with_a_stack(guest: Guest) -> None:
    """With a sample of its stack (R shows one only off its CPU) it is stuck; without, undetermined."""
    plight = guest.finding("spinning")["process"]["plight"]
    seen = any("stand_in_spin" in line for line in plight["evidence"])
    assert plight["condition"] == "exiting"
    assert "SIGKILL cannot help" in plight["text"]
    if seen:
        assert (plight["leaving"], plight["signature"]) == ("stuck_spinning", "stand-in")
        assert plight["fault_domain"] == "driver"
    else:
        assert (plight["leaving"], plight["signature"]) == ("no_release", "")
        assert plight["fault_domain"] == "unknown"
        assert "undetermined" in plight["text"]


@pytest.mark.parametrize(("name", "condition"), [("sleeping", "exiting"), ("in_ioctl", "blocked")])
def test_a_wait_in_the_driver_is_called_stuck(guest: Guest, name: str, condition: str) -> None:
    """D with an unmoved stack in the driver is stuck there, by the policy's own signature."""
    plight = guest.finding(name)["process"]["plight"]
    assert (plight["condition"], plight["leaving"]) == (condition, "stuck_blocked")
    assert (plight["signature"], plight["fault_domain"]) == ("stand-in", "driver")
    assert "the stand-in device (driver)" in plight["text"]
    assert "SIGKILL cannot help" in plight["text"]
