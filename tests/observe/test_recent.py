"""The bounded memory."""

from reclaimerd.observe.recent import IDLE_ROUNDS, Recent


def test_a_bounded_memory_forgets_what_was_used_least_recently() -> None:
    """Past its bound the entry that nobody asked for goes."""
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)


def test_what_is_kept_of_those_who_went_does_not_pile_up() -> None:
    """Ten stay and are asked for in each round, three come and go in each: only the last ones are kept."""
    recent: Recent[int, int] = Recent(4096, IDLE_ROUNDS)
    for stays in range(10):
        recent.put(stays, stays)
    for gone in range(1000, 4000):
        recent.put(gone, gone)
        if gone % 3 == 0:
            assert [recent.get(stays) for stays in range(10)] == list(range(10))
    assert len(recent) <= 10 + 3 * (IDLE_ROUNDS + 2)
    assert recent.get(3999) == 3999
    assert recent.get(1000) is None


def test_without_rounds_nothing_is_forgotten_before_the_bound() -> None:
    """What is asked for rarely stays as long as there is room."""
    recent: Recent[int, int] = Recent(1001)
    recent.put(-1, -1)
    for key in range(1000):
        recent.put(key, key)
        assert recent.get(key) == key
    assert recent.get(-1) == -1
