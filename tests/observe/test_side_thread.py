"""A reading that hangs is given up once, and keeps nobody waiting after that."""

import threading
import time

from reclaimerd.observe.side_thread import SideThread


def test_a_reading_in_time_is_returned() -> None:
    """Each call runs its own reading."""
    aside = SideThread()
    assert aside.call(lambda: 7, 5.0) == 7
    assert aside.call(lambda: "x", 5.0) == "x"


def test_a_hanging_reading_costs_its_bound_once_and_no_second_thread() -> None:
    """While it hangs later calls return at once and read nothing; when it is back, they read again."""
    aside, free, ran = SideThread(), threading.Event(), []
    assert aside.call(lambda: free.wait(30), 0.05) is None
    began = time.monotonic()
    assert aside.call(lambda: ran.append(1), 30.0) is None
    assert time.monotonic() - began < 5
    assert ran == []
    free.set()
    deadline = time.monotonic() + 10
    while aside.call(lambda: "back", 5.0) != "back":
        assert time.monotonic() < deadline
