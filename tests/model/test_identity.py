"""Names that can't come to mean another thing."""

from dataclasses import FrozenInstanceError

import pytest

from reclaimerd.model.identity import ProcessRef
from tests.builders import a_ref


def test_a_process_prints_as_ps_shows_it_and_kill_takes_it() -> None:
    """PID@START."""
    assert str(a_ref(812, 4711)) == "812@4711"


def test_the_same_pid_is_another_process_with_another_start_or_boot() -> None:
    """A reused pid, and a pid of an earlier boot, never compare equal."""
    assert a_ref(100, 1) == a_ref(100, 1)
    assert len({a_ref(100, 1), a_ref(100, 2), a_ref(100, 1, "another-boot")}) == 3


def test_of_two_with_one_pid_the_younger_is_the_greater() -> None:
    """Who looks for the last bearer of a pid takes the greatest."""
    assert max(a_ref(100, 5), a_ref(100, 70)) == a_ref(100, 70)


def test_an_identity_can_not_be_changed() -> None:
    """It is made once."""
    ref = ProcessRef("boot", 1, 2)
    with pytest.raises(FrozenInstanceError):
        ref.pid = 3  # type: ignore[misc]  # the claim of this test
