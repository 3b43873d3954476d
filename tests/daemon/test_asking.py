"""An operator's order from the API's body: every field is checked, and nothing is guessed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.daemon.asking import MOST_PAUSE_SECONDS, OrderFault, orders_of, pause_seconds
from reclaimerd.errors import ExitCode
from reclaimerd.model.policy import Scope
from tests.builders import OPERATOR


def order(**body: Any) -> Any:
    """Return the one order of this body for pid 100."""
    (found,) = orders_of({"targets": [{"pid": 100}], **body}, OPERATOR)
    return found


def fault(**body: Any) -> OrderFault:
    """Return the fault that this body has."""
    with pytest.raises(OrderFault) as found:
        orders_of({"targets": [{"pid": 100}], **body}, OPERATOR)
    assert found.value.exit_code is ExitCode.USAGE
    return found.value


def test_a_bare_order_is_gentle() -> None:
    """No force, no dry run, the policy's times, the process alone."""
    found = order()
    assert (found.force, found.dry_run, found.grace_seconds, found.timeout_seconds) == (
        False,
        False,
        None,
        None,
    )
    assert found.scope is Scope.PROCESS
    assert found.actor is OPERATOR


def test_every_field_arrives() -> None:
    """PID@START, times, scope, expected user."""
    (found,) = orders_of(
        {
            "targets": [{"pid": 100, "start_ticks": 7}],
            "force": True,
            "grace_seconds": 0,
            "timeout_seconds": 1.5,
            "scope": "tree",
            "expect_user": 0,
            "reason": "x" * 999,
        },
        OPERATOR,
    )
    assert (found.start_ticks, found.force, found.grace_seconds, found.timeout_seconds) == (7, True, 0.0, 1.5)
    assert (found.scope, found.expect_uid, len(found.reason)) == (Scope.TREE, 0, 500)


@pytest.mark.parametrize("pid", [0, 1, -1, -100, True, "100", 1.0, None, 4_194_305, 10**30])
def test_what_is_no_single_process_is_refused(pid: object) -> None:
    """Groups, everyone, init, numbers over the kernel's largest pid, other types."""
    assert "no process that can be a target" in fault(targets=[{"pid": pid}]).message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"targets": []}, "targets"),
        ({"targets": None}, "targets"),
        ({"targets": {"pid": 5}}, "targets"),
        ({"targets": ["5"]}, "target"),
        ({"targets": [{"pid": 100, "start_ticks": "7"}]}, "start_ticks"),
        ({"targets": [{"pid": 100, "start_ticks": -7}]}, "start_ticks"),
        ({"grace_seconds": -1}, "grace_seconds"),
        ({"grace_seconds": True}, "grace_seconds"),
        ({"grace_seconds": float("inf")}, "grace_seconds"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"timeout_seconds": 86401}, "timeout_seconds"),
        ({"scope": "host"}, "scope"),
        ({"scope": ["tree"]}, "scope"),
        ({"expect_user": "root"}, "expect_user"),
        ({"max_targets": 1.5}, "max_targets"),
    ],
)
def test_a_faulty_field_is_named(body: dict[str, Any], field: str) -> None:
    """What is wrong, and where."""
    assert field in fault(**body).message


@pytest.mark.parametrize("force", ["yes", 1, None, "false", []])
def test_force_and_dry_run_are_true_or_not_at_all(force: object) -> None:
    """Nothing but JSON's true counts: a word is no order to kill."""
    assert not order(force=force).force
    assert not order(dry_run=force).dry_run


def test_more_than_eight_need_a_word_and_nobody_is_named_twice() -> None:
    """--max-targets raises the bound, to 4096 and not beyond."""
    nine = [{"pid": pid} for pid in range(100, 109)]
    assert "max-targets" in fault(targets=nine).mend
    assert len(orders_of({"targets": nine, "max_targets": 9}, OPERATOR)) == 9
    assert "twice" in fault(targets=[{"pid": 5}, {"pid": 5}]).message
    many = [{"pid": pid} for pid in range(2, 4099 + 1)]
    assert "4098" in fault(targets=many, max_targets=100_000).message


@given(
    st.dictionaries(
        st.text(max_size=12),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_no_body_makes_anything_but_a_fault(body: dict[str, Any]) -> None:
    """Whatever JSON comes: an OrderFault, or orders for pids over 1."""
    try:
        orders = orders_of(body, OPERATOR)
    except OrderFault:
        return
    assert all(found.pid > 1 for found in orders)


@pytest.mark.parametrize("value", [0, -1, True, "60", float("inf"), float("nan"), MOST_PAUSE_SECONDS + 1])
def test_a_pause_has_a_time_that_makes_sense(value: object) -> None:
    """For ever is said by leaving it out."""
    with pytest.raises(OrderFault):
        pause_seconds({"for_seconds": value})
    assert pause_seconds({}) is None
    assert pause_seconds({"for_seconds": 60}) == 60.0
