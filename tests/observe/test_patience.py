"""Who made a worker hang is not asked again for a while: short the first time, longer each time."""

from dataclasses import dataclass

from reclaimerd.observe.patience import FIRST_SECONDS, FORGET_AFTER_SECONDS, MOST_SECONDS, Unanswered


@dataclass(slots=True)
class _Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def _note(unanswered: Unanswered, clock: _Clock) -> float:
    """Note one process, and go on to when it may be asked again; return how long that took."""
    began = clock.now
    unanswered.note(7, "it hangs")
    while unanswered.current() == {7: "it hangs"}:
        clock.now += 1.0
    assert unanswered.current() == {}
    return clock.now - began


def test_each_time_is_twice_as_long_up_to_the_most() -> None:
    """A slow disk under the reader costs a target five seconds, a process that always hangs a minute."""
    clock = _Clock()
    unanswered = Unanswered(clock)
    assert [_note(unanswered, clock) for _ in range(6)] == [
        FIRST_SECONDS,
        10,
        20,
        40,
        MOST_SECONDS,
        MOST_SECONDS,
    ]


def test_who_makes_nobody_hang_for_long_is_as_new() -> None:
    """Ten minutes after its last time is over."""
    clock = _Clock()
    unanswered = Unanswered(clock)
    _note(unanswered, clock)
    clock.now += FORGET_AFTER_SECONDS - 1
    assert unanswered.current() == {}
    assert _note(unanswered, clock) == 2 * FIRST_SECONDS
    clock.now += FORGET_AFTER_SECONDS
    assert unanswered.current() == {}
    assert _note(unanswered, clock) == FIRST_SECONDS
