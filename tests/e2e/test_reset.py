"""A GPU reset from the command to the last thing put back, on a simulated host: gate, tool, proof, crash."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon.past import read_stored
from reclaimerd.model.reset_run import ResetPhase, ResetResult
from reclaimerd.simulation.host import change_simulated_host
from tests.e2e.reset_rig import DCGM, ResetRig, intervals_in, mostly_slow, reset_host
from tests.e2e.rig import GPU_A, GPU_B, is_alive
from tests.rigs.simulated import GIB, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process]
FAST_CLIENT = Path(__file__).with_name("fast_client.py")
PERMITTED, REFUSED = 0, 3
WHOLE = ["prepare", "fence", "stop_clients", "look_again", "reset", "verify", "restore"]


def fail(host: ResetRig, how: str) -> None:
    """Let the reset of the first GPU go so."""
    host.rig.fail_calls(GPU_A, reset=how)


def test_a_reset_is_done_verified_and_everything_is_put_back() -> None:
    """Persistence off, DCGM stopped, one reset over nobody, proof, all as before; each phase on record."""
    with reset_host() as host:
        host.set_gpu(GPU_A, residue_bytes=2 * GIB)
        host.rig.start_daemon()
        told = host.explain()
        assert told.code == PERMITTED, told.out
        ran = host.reset()
        assert ran.code == 0, ran.out + ran.err + host.rig.story()
        assert [(line.gpu, line.over) for line in host.resets] == [(GPU_A, False)]
        assert host.phases() == WHOLE, host.rig.story()
        assert host.jobs == (f"stop {DCGM}", f"start {DCGM}")
        assert (host.gpu().recovery_action, host.gpu().residue_bytes) == ("none", 0)
        host.as_before()


def test_a_dry_run_changes_nothing() -> None:
    """The same answer as the gate's, one record, no unit stopped, no reset."""
    with reset_host() as host:
        host.rig.start_daemon()
        before = host.gpu()
        ran = host.reset("--dry-run")
        assert ran.code == 0, ran.out + ran.err
        assert (host.resets, host.jobs, host.gpu()) == ((), (), before)


@pytest.mark.parametrize(
    "fields",
    mostly_slow(
        {"recovery_action": "node_reboot"},
        {"recovery_action": "dance"},
        {"drain_state": True},
        {"display_active": True},
        {"mig_pending": True},
        {"mig": True},
        {"virtualisation": "vgpu_guest"},
        {"generation": "before_ampere", "peers": (GPU_B,)},
        {"generation": "ampere", "switched": True},
    ),
)
def test_the_gate_refuses_and_nothing_is_touched(fields: dict[str, object]) -> None:
    """Each state that forbids a reset is an answer with exit 3; even a careless driver resets nothing."""
    with reset_host() as host:
        fail(host, "careless")
        host.set_gpu(GPU_A, **fields)
        if "switched" in fields:
            host.set_gpu(GPU_B, **fields)
        host.rig.start_daemon()
        assert host.explain().code == REFUSED
        assert host.explain("--force").code == REFUSED
        ran = host.reset("--force")
        assert ran.code == REFUSED, ran.out + ran.err
        assert (host.resets, host.jobs) == ((), ())
        host.as_before()


def test_a_living_holder_refuses_by_name_and_lives_on() -> None:
    """A process that is nobody's to stop is named with its pid; it is not touched."""
    with reset_host() as host:
        fail(host, "careless")
        pid = host.rig.launch(size="1GiB").pid
        host.rig.start_daemon()
        told = host.explain()
        assert told.code == REFUSED
        assert any(pid in reason["pids"] for reason in told.answer["reasons"]), told.out
        assert host.reset("--force").code == REFUSED
        assert (host.resets, host.jobs) == ((), ())
        assert is_alive(pid)
        host.as_before()


@pytest.mark.parametrize("how", ["in_use", "not_supported"])
def test_a_driver_that_says_no_is_a_refusal_with_all_put_back(how: str) -> None:
    """The tool's refusal is ordinary: exit 3, no drain, no breaker, everything restored."""
    with reset_host(tables={"breaker": {"failed_resets": 1}}) as host:
        fail(host, how)
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code == REFUSED, ran.out + ran.err + host.rig.story()
        assert host.resets == ()
        assert host.phases()[-2:] == ["reset", "restore"]
        assert not host.rig.records("breaker_tripped")
        host.as_before()


@pytest.mark.parametrize(
    "how",
    mostly_slow("residue", "lost_after", "recovery_after", "silent", "ecc_after", "xid_after", "lost"),
)
def test_a_reset_that_is_not_proven_is_never_done(how: str) -> None:
    """Something is wrong after it: another exit than 0, one reset and no second, what can be is put back."""
    with reset_host() as host:
        fail(host, how)
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code not in {0, REFUSED}, ran.out + ran.err + host.rig.story()
        assert len(host.resets) == 1
        host.wait_done()
        assert host.unit() == "active"
        if not how.startswith("lost"):
            host.as_before()


def test_another_index_afterwards_is_the_same_gpu() -> None:
    """The GPU is known by its UUID: it came back behind the others, and the reset is verified."""
    with reset_host() as host:
        fail(host, "other_index")
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code == 0, ran.out + ran.err + host.rig.story()
        host.as_before()


@pytest.mark.parametrize(
    ("unit", "calls"),
    mostly_slow(
        ({"fail_stop": "busy"}, {}),
        ({"slow_stop_seconds": 8.0}, {}),
        ({"returns": True}, {}),
        ({}, {"set_persistence": "no"}),
        ({}, {"set_persistence": "silent"}),
    ),
)
def test_a_client_that_does_not_stop_is_a_refusal(unit: Mapping[str, Any], calls: dict[str, str]) -> None:
    """No reset, not even by a careless driver, and what had been stopped is back."""
    with reset_host(**unit) as host:
        host.rig.fail_calls(GPU_A, reset="careless", **calls)
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code == REFUSED, ran.out + ran.err + host.rig.story()
        assert host.resets == ()
        wait_until(lambda: host.unit() == "active", "the unit is back")
        assert host.gpu().persistence


def test_a_client_that_comes_while_units_are_stopped_is_seen_at_the_last_look() -> None:
    """It opens the device after the gate and stays: refused, though this driver would reset over it."""
    with reset_host() as host:
        fail(host, "careless")
        log = host.rig.directory / "client"
        argv = [sys.executable, str(FAST_CLIENT), str(host.rig.host), GPU_A, str(log)]
        host.rig.keeper.launch_commands([[*argv, "--after", str(host.rig.host / "systemctl.log")]])
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code == REFUSED, ran.out + ran.err + host.rig.story()
        assert len(intervals_in(log)) == 1
        assert host.resets == ()
        host.as_before()


_SLOW = [pytest.mark.slow, pytest.mark.timeout(900)]
_NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("times", [6, pytest.param(12, marks=_SLOW), pytest.param(100, marks=_NIGHTLY)])
def test_never_over_a_fast_client(times: int) -> None:
    """A client opens and closes all the time: each reset is verified or refused, and none is over it."""
    with reset_host() as host:
        log = host.rig.directory / "client"
        argv = [sys.executable, str(FAST_CLIENT), str(host.rig.host), GPU_A, str(log)]
        host.rig.keeper.launch_commands([[*argv, "--gap", "0.3", "--hold", "0.02"]])
        host.rig.start_daemon()
        ends = []
        for _ in range(times):
            host.set_gpu(GPU_A, power_limit="300.00")
            ran = host.reset("--force")
            assert ran.code in {0, REFUSED}, ran.out + ran.err + host.rig.story()
            ends.append(ran.code)
        held = intervals_in(log)
        assert held
        assert not any(line.over for line in host.resets)
        assert not [one for line in host.resets for one in held if one.overlaps(line)]
        assert len(host.resets) == ends.count(0), host.rig.story()
        host.as_before()


def test_a_hung_tool_is_left_alone_and_what_was_stopped_comes_back_when_it_ends() -> None:
    """At the deadline: DO NOT TOUCH, no signal, nothing restored, no other reset; then all is put back."""
    with reset_host(tables={"ladder": {"reset": "1s"}}) as host:
        fail(host, "hang")
        host.rig.start_daemon()
        ran = host.reset()
        assert ran.code not in {0, REFUSED}, ran.out + ran.err + host.rig.story()
        assert host.under_way() == ["left_alone"]
        assert host.jobs == (f"stop {DCGM}",)
        assert host.explain("--force").code == REFUSED
        assert host.reset("--force").code == REFUSED
        change_simulated_host(host.rig.host, lambda one: replace(one, fail={}))
        host.wait_done()
        assert len(host.resets) == 1
        host.as_before()
        assert host.reset("--force").code == REFUSED


def test_the_end_of_the_service_puts_back_what_was_stopped_for_a_tool_that_has_ended() -> None:
    """SIGKILL while the tool runs and no next start: it is verified by what the unit runs after its end."""
    with reset_host() as host:
        host.slow_reset(0.5)
        daemon = host.rig.start_daemon()
        asked = host.rig.begin("reset", "--gpu", GPU_A, "--json")
        wait_until(lambda: "reset" in host.phases(), host.rig.story(), 30.0)
        wait_until(lambda: bool(list((host.rig.state / "resets").glob("*.started"))), host.rig.story(), 30.0)
        daemon.send(signal.SIGKILL)
        daemon.process.wait(10)
        asked.result()
        wait_until(
            lambda: bool(list((host.rig.state / "resets").glob("*.ended"))), "the tool has ended", 30.0
        )
        where = ("--simulate", str(host.rig.host), "--config", str(host.rig.policy))
        argv = [sys.executable, "-m", "reclaimerd.daemon.main", *where, "--restore"]
        told = subprocess.run(argv, capture_output=True, text=True, timeout=60.0, check=False)
        assert (told.returncode, told.stderr) == (0, ""), host.rig.story()
        assert len(host.resets) == 1
        (left,) = read_stored(host.rig.state).ledger.resets
        assert (left.phase, left.result) == (ResetPhase.DONE, ResetResult.VERIFIED), host.rig.story()
        host.as_before()


@pytest.mark.parametrize(
    "phase", mostly_slow("stop_clients", "reset", *sorted({*WHOLE} - {"stop_clients", "reset"}))
)
def test_a_daemon_killed_in_any_phase_resets_once_and_restores_all(phase: str) -> None:
    """SIGKILL when the phase is on record, then a new start: the same end, never twice, all put back."""
    with reset_host() as host:
        host.slow_reset(0.5)
        daemon = host.rig.start_daemon()
        asked = host.rig.begin("reset", "--gpu", GPU_A, "--json")
        wait_until(lambda: phase in host.phases(), host.rig.story(), 30.0)
        daemon.send(signal.SIGKILL)
        daemon.process.wait(10)
        asked.result()
        host.rig.start_daemon()
        host.wait_done()
        assert len(host.resets) <= 1
        assert host.resets or phase not in {"verify", "restore"}, host.rig.story()
        host.as_before()
