"""Rules that look back, and rules that sum, on real processes: the right one goes, its neighbour lives."""

import os
import signal
from collections.abc import Mapping

import pytest

from reclaimerd.simulation.keeper import LaunchedWorkload
from tests.e2e.policies import RULE, Table
from tests.e2e.rig import GPU_A, Rig, is_alive, simulated_host
from tests.rigs.simulated import state_of, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

WINDOW = "8s"
"""Twenty looks: the shortest that a policy may have."""
PATIENCE_SECONDS = 60.0
LOOSE: Mapping[str, Table] = {"breaker": {"workloads_per_pass": 200}}


def timed(kind: str, **own: object) -> Table:
    """Return an enforcing rule of a kind that needs no cap."""
    return {**{key: value for key, value in RULE.items() if key != "above"}, "kind": kind, **own}


def assert_only_this_goes(rig: Rig, target: LaunchedWorkload, *others: LaunchedWorkload) -> str:
    """Assert that the target is reclaimed by the rule, and the others live; return the reason on record."""
    ended = rig.wait_record("incident_ended", pid=target.pid, seconds=PATIENCE_SECONDS)
    assert ended["end"] == "reclaimed"
    rig.passes(4)
    for other in others:
        assert is_alive(other.pid)
        assert rig.records(pid=other.pid) == [], rig.story()
    return str(rig.records("incident_opened", pid=target.pid)[0]["reason"])


def test_a_leak_is_found_and_a_large_steady_neighbour_is_not() -> None:
    """The one that grows all the while goes; one that holds more, and one that grew once, live."""
    leak = timed("memory_growth", growth="100MiB/s", window=WINDOW)
    with simulated_host(leak) as rig:
        rig.start_daemon()
        steady = rig.launch(size="30GiB")
        once = rig.launch("--grow", "8GiB", "--every", "5", size="1GiB")
        leaking = rig.launch("--grow", "100MiB", "--every", "0.25", "--times", "400", size="1GiB")
        reason = assert_only_this_goes(rig, leaking, steady, once)
        assert "grows by" in reason
        assert "MiB/s over 8 s" in reason


WARNED: dict[str, Table] = {"warn": {"hook": "/usr/bin/true", "terminals": False}}
"""Whoever is idle is warned first: here by a program that takes every warning."""


def test_an_idle_holder_is_found_and_a_busy_one_is_not() -> None:
    """The one that holds memory and does nothing goes; one at work lives, and so does one that is stopped."""
    with simulated_host(timed("idle", idle=5, window=WINDOW, warn_before="1s"), tables=WARNED) as rig:
        rig.start_daemon()
        busy = rig.launch("--sm", "40")
        stopped = rig.launch("--stop-self")
        wait_until(lambda: state_of(stopped.pid) == "T", "stopped")
        idle = rig.launch()
        reason = assert_only_this_goes(rig, idle, busy, stopped)
        assert f"used at most 0 % of {GPU_A} for 8 s and holds 5.0 GiB of it" in reason
        assert rig.verdict(stopped.pid) == "undetermined"
        assert rig.verdict(busy.pid) == "watch"


def test_nobody_is_idle_where_the_driver_tells_no_shares() -> None:
    """Without the driver's samples an idle rule touches nobody, and says that it can't know."""
    with simulated_host(timed("idle", idle=5, window=WINDOW, warn_before="1s"), tables=WARNED) as rig:
        rig.fail_calls(GPU_A, samples="not supported")
        rig.start_daemon()
        pid, _ = rig.recorder()
        why = "absent (not supported)"

        def is_told() -> bool:
            answer = rig.ask(f"/v1/explain/pid/{pid}")
            return why in str(answer)

        wait_until(is_told, "the rule says what it lacks", PATIENCE_SECONDS)
        assert rig.verdict(pid) == "undetermined"
        assert rig.records(pid=pid) == []


def test_residency_ends_and_a_stopped_one_is_left_to_whom_it_belongs() -> None:
    """Older than the limit with memory held: gone; one that somebody stopped is not judged by its age."""
    with simulated_host(timed("age", older_than="3s")) as rig:
        stopped = rig.launch("--stop-self")
        wait_until(lambda: state_of(stopped.pid) == "T", "stopped")
        empty = rig.launch(size="0B")
        old = rig.launch()
        rig.start_daemon()
        reason = assert_only_this_goes(rig, old, stopped, empty)
        assert f"old and holds 5.0 GiB of {GPU_A}" in reason
        assert rig.verdict(stopped.pid) == "undetermined"
        os.kill(stopped.pid, signal.SIGCONT)
        rig.wait_record("incident_ended", pid=stopped.pid, seconds=PATIENCE_SECONDS)


def test_of_a_user_over_the_cap_one_goes_and_that_is_enough() -> None:
    """Three under the cap, over it together: the largest goes, and the other two are under it then."""
    cap = {**RULE, "above": "12GiB", "per": "user"}
    with simulated_host(cap, tables=LOOSE) as rig:
        rig.hold.touch()
        rig.start_daemon()
        small, large, middle = rig.launch(size="4GiB"), rig.launch(size="7GiB"), rig.launch(size="5GiB")
        wait_until(lambda: rig.verdict(large.pid) == "reclaim", "the largest is due")
        rig.hold.unlink()
        reason = assert_only_this_goes(rig, large, small, middle)
        assert "uid 0 (3 processes) holds 16.0 GiB, more than 12.0 GiB" in reason
