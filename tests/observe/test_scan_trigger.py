"""When the whole host is searched: at once where something is odd, and once for each oddity."""

from dataclasses import replace

from reclaimerd.model.reading import Unreadable
from reclaimerd.observe.scan_trigger import CHANGE_BYTES, ScanTrigger, unexplained_bytes
from tests.builders import GIB, GPU_B, a_gpu, a_row


def _settled(*, dead: set[int] | None = None, unexplained: int = 0) -> ScanTrigger:
    """Return a trigger whose last search was at 100."""
    trigger = ScanTrigger(60)
    trigger.done(100, dead or set(), unexplained)
    return trigger


def test_the_first_look_searches_and_then_the_interval_rules() -> None:
    """Not before it is over, and at the instant when it is."""
    trigger = ScanTrigger(60)
    assert trigger.due(100, set(), 0, asked=False) == "first look"
    trigger.done(100, set(), 0)
    assert trigger.full_at == 100
    assert trigger.due(159.9, set(), 0, asked=False) == ""
    assert trigger.due(160, set(), 0, asked=False) == "interval"


def test_a_search_that_failed_is_due_again() -> None:
    """Only `done` says that one was made."""
    trigger = ScanTrigger(60)
    assert trigger.due(1, set(), 0, asked=False)
    assert trigger.due(2, set(), 0, asked=False)


def test_asking_is_enough() -> None:
    """Before a reset the search is never left out."""
    assert _settled().due(100.1, set(), 0, asked=True) == "asked for"


def test_a_dead_pid_in_the_list_asks_for_one_search() -> None:
    """A further one asks again; the same one does not, and one fewer neither."""
    trigger = _settled(dead={7})
    assert trigger.due(101, {7}, 0, asked=False) == ""
    assert trigger.due(101, set(), 0, asked=False) == ""
    assert "dead" in trigger.due(101, {7, 8}, 0, asked=False)


def test_memory_that_nobody_accounts_for_asks_for_one_search() -> None:
    """Only a growth above the driver's own noise counts."""
    trigger = _settled(unexplained=GIB)
    assert trigger.due(101, set(), GIB + CHANGE_BYTES, asked=False) == ""
    assert "accounts for" in trigger.due(101, set(), GIB + CHANGE_BYTES + 1, asked=False)
    trigger.done(101, set(), GIB + CHANGE_BYTES + 1)
    assert trigger.due(102, set(), GIB + CHANGE_BYTES + 1, asked=False) == ""


def test_a_new_interval_holds_at_once() -> None:
    """Also for the search that was made under the old one."""
    trigger = _settled()
    trigger.take_interval(5)
    assert trigger.due(105, set(), 0, asked=False) == "interval"


def test_unexplained_is_what_is_used_beyond_the_listed_over_all_gpus() -> None:
    """A surplus on one GPU never hides a lack on another, and what can't be read explains nothing."""
    short = a_gpu(used=5 * GIB, processes=(a_row(1, 2 * GIB), a_row(2, used_bytes=Unreadable("x"))))
    surplus = a_gpu(GPU_B, used=GIB, processes=(a_row(1, 9 * GIB),))
    assert unexplained_bytes((short, surplus)) == 3 * GIB
    blind = replace(a_gpu(used=5 * GIB), processes=Unreadable("silent"))
    lost = replace(a_gpu(used=5 * GIB), memory=Unreadable("lost"))
    assert unexplained_bytes((blind, lost)) == 0
