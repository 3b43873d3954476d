"""Thousands of steps of whatever may happen to a host, over the real daemon: no promise is ever broken."""

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.machine.faults import PLANTED
from tests.machine.machine import Machine
from tests.machine.story import Plant, Tally

STEPS_EACH = 50
CI_SEED = 7
CI_STEPS = 5000
CI_HOSTS = 120
NIGHTLY_HOSTS = 2400
"""Hypothesis takes a few steps less than 50 on some."""


def a_run(number: int, hosts: int, plant: Plant | None = None, *, shrink: bool = False) -> Tally:
    """Return what the machine saw on so many hosts, 50 steps each; raises what broke a promise."""
    tally = Tally()

    @seed(number)
    def machine() -> Machine:
        return Machine(tally, plant)

    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    chosen = settings(
        max_examples=hosts,
        stateful_step_count=STEPS_EACH,
        deadline=None,
        database=None,
        derandomize=False,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)  # type: ignore[arg-type]  # it takes any maker of one
    return tally


def line_of(tally: Tally, number: int) -> str:
    """Return what a run was, in one line."""
    acts = ", ".join(f"{count} {name}" for name, count in sorted(tally.acts.items()))
    deaths = sum(tally.deaths.values())
    return (
        f"machine: seed {number}: {tally.steps} steps, {tally.passes} passes, {tally.lives} starts, "
        f"{deaths} deaths at {len(tally.deaths)} boundaries; {acts}"
    )


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.timeout(900)
def test_no_promise_is_broken_in_five_thousand_steps(figure: Callable[[str], None]) -> None:
    """A fixed seed: what it finds it finds again; and it does see acts, ends and deaths of every kind."""
    tally = a_run(CI_SEED, CI_HOSTS)
    figure(line_of(tally, CI_SEED))
    assert tally.steps >= CI_STEPS
    assert {"SIGTERM", "SIGKILL", "reset", "drain"} <= tally.acts.keys()
    assert {f"end {end}" for end in ("reclaimed", "stood_down", "unverified")} <= tally.acts.keys()
    assert {"before an append", "after an append", "in mid-append", "before a save"} <= tally.deaths.keys()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    """The machine can fail: what it is to notice it notices within the steps of CI, by its seed."""
    plant, words = PLANTED[name]
    with pytest.raises(AssertionError, match=words):
        a_run(CI_SEED, CI_HOSTS, plant)


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_promise_is_broken_in_a_hundred_thousand_steps(figure: Callable[[str], None]) -> None:
    """A seed of its own each night; RECLAIMERD_MACHINE_SEED plays one again, ..._SHRINK makes it shorter."""
    number = int(os.environ.get("RECLAIMERD_MACHINE_SEED") or random.SystemRandom().randrange(2**32))
    hosts = int(os.environ.get("RECLAIMERD_MACHINE_HOSTS", NIGHTLY_HOSTS))
    figure(f"machine: seed {number}; play it again with RECLAIMERD_MACHINE_SEED={number}")
    figure(line_of(a_run(number, hosts, shrink="RECLAIMERD_MACHINE_SHRINK" in os.environ), number))
