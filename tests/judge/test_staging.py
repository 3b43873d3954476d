"""A share of the hosts: the same hosts each time, more of them when it grows, and never by mistake all."""

import hashlib
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.modes import effective_mode
from reclaimerd.judge.staging import enforces_on, is_staged, place_of, staged
from reclaimerd.model.policy import FaultRule, Mode
from tests.builders import a_policy, a_rule

MACHINES = st.text("0123456789abcdef", min_size=32, max_size=32)
NAMES = st.text("abcdefgh-", min_size=1, max_size=16)
SHARES = st.floats(0.0, 100.0)
HOSTS = 10_000


@given(MACHINES, NAMES, SHARES, SHARES)
def test_a_share_that_grows_drops_nobody(machine: str, name: str, one: float, other: float) -> None:
    """Whoever enforces at a share enforces at every greater one."""
    less, more = sorted((one, other))
    if enforces_on(machine, a_rule(name, enforce_on_percent=less)):
        assert enforces_on(machine, a_rule(name, enforce_on_percent=more))


@given(MACHINES, NAMES)
def test_a_place_is_the_first_8_bytes_of_a_hash(machine: str, name: str) -> None:
    """Anybody can compute it: SHA-256 of machine id and rule name, as a fraction; none reaches 1."""
    digest = hashlib.sha256((machine + name).encode()).hexdigest()
    place = place_of(machine, name)
    assert 0 <= place < 1
    assert place == pytest.approx(int(digest[:16], 16) / 2**64, abs=2**-52)


@pytest.mark.parametrize("percent", [0.0, 1.0, 5.0, 50.0, 99.0])
def test_about_that_share_of_10_000_hosts_enforces(percent: float) -> None:
    """Within four standard deviations of the share, over machine ids of a fixed seed."""
    ids = random.Random(7)  # noqa: S311  # a fixed sample, not a secret
    machines = [f"{ids.getrandbits(128):032x}" for _ in range(HOSTS)]
    found = sum(enforces_on(machine, a_rule(enforce_on_percent=percent)) for machine in machines)
    share = percent / 100
    assert abs(found - HOSTS * share) <= 4 * (HOSTS * share * (1 - share)) ** 0.5


def test_two_rules_choose_other_hosts() -> None:
    """A host that is the first for one rule is not the first for each: places differ by rule."""
    machines = [f"{number:032x}" for number in range(200)]
    one = {machine for machine in machines if place_of(machine, "one") < 0.2}
    other = {machine for machine in machines if place_of(machine, "other") < 0.2}
    assert one - other
    assert other - one


def test_without_a_machine_id_no_share_is_ours() -> None:
    """A host that nobody can place stays in dry run, even where nearly all enforce."""
    assert not enforces_on("", a_rule(enforce_on_percent=99.9))
    assert enforces_on("", a_rule(enforce_on_percent=100.0))


def test_a_staged_rule_enforces_only_where_somebody_said_that_it_does() -> None:
    """A policy that was not brought to its host enforces nothing of the kind: the mistake is the safe one."""
    rule = a_rule(enforce_on_percent=99.9)
    policy = a_policy(rule)
    assert effective_mode(policy, rule) is Mode.DRY_RUN
    assert effective_mode(replace(policy, enforces_here=frozenset({rule.name})), rule) is Mode.ENFORCE


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DRY_RUN])
def test_a_share_lets_no_rule_go_further(mode: Mode) -> None:
    """Among the hosts of its share a rule still goes only as far as its mode and the daemon's."""
    rule = a_rule(enforce_on_percent=50.0, mode=mode)
    assert effective_mode(a_policy(rule, enforces_here=frozenset({rule.name})), rule) is mode
    other = a_rule(enforce_on_percent=50.0)
    policy = a_policy(other, mode=mode, enforces_here=frozenset({other.name}))
    assert effective_mode(policy, other) is mode


def test_a_policy_is_brought_to_its_host() -> None:
    """The rules of the share are named, of both kinds; whole ones are not among them and enforce anyway."""
    machine = "0" * 32
    inside = a_rule("inside", enforce_on_percent=100 * place_of(machine, "inside") + 0.001)
    outside = a_rule("outside", enforce_on_percent=100 * place_of(machine, "outside") - 0.001)
    whole = a_rule("whole")
    fault = FaultRule("fault", mode=Mode.ENFORCE, enforce_on_percent=100 * place_of(machine, "fault") + 0.001)
    policy = staged(replace(a_policy(inside, outside, whole), fault_rules=(fault,)), machine)
    assert policy.enforces_here == {"inside", "fault"}
    modes = [effective_mode(policy, rule) for rule in (inside, outside, whole, fault)]
    assert modes == [Mode.ENFORCE, Mode.DRY_RUN, Mode.ENFORCE, Mode.ENFORCE]
    assert [is_staged(rule) for rule in (inside, whole)] == [True, False]
