"""The bounded memory."""

from reclaimerd.observe.recent import Recent


def test_a_bounded_memory_forgets_what_was_used_least_recently() -> None:
    """Past its bound the entry that nobody asked for goes."""
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
