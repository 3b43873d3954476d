"""When a rule last opened an incident: asked of SQLite, so that no thousand incidents are made for it."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Actor, ActorKind, Incident
from reclaimerd.record.store import STORE_NAME, Store
from reclaimerd.record.store_file import CACHE_KIB
from tests.builders import an_incident

MANY = 600


def opened(name: str, at: float, actor: Actor) -> Incident:
    """Return an incident that somebody opened then."""
    return replace(an_incident(), id=IncidentId(name), opened_at=at, actor=actor)


def test_each_rule_has_its_newest_however_many_came_since(tmp_path: Path) -> None:
    """An operator of a rule's name is none; what makes no sense is an error and not an empty answer."""
    store = Store.open(tmp_path / STORE_NAME)
    rare, busy = Actor(ActorKind.RULE, "rare"), Actor(ActorKind.RULE, "busy")
    person = Actor(ActorKind.OPERATOR, "rare")
    assert store.last_by_rule() == {}
    store.save([opened("a", 5.0, rare), opened("b", 7.0, rare), opened("c", 9.0, person)])
    store.save([opened(f"d-{count}", 10.0 + count, busy) for count in range(MANY)])
    store.last_by_rule()
    tracemalloc.start()
    try:
        assert store.last_by_rule() == {"rare": 7.0, "busy": 10.0 + MANY - 1}
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024
    finally:
        tracemalloc.stop()
        store.close()


def test_a_row_that_is_no_document_is_an_error(tmp_path: Path) -> None:
    """It is not left out: a store that is damaged is told."""
    store = Store.open(tmp_path / STORE_NAME)
    store.save([an_incident()])
    store._connection.execute("UPDATE incidents SET doc = '{'")  # damage from outside
    try:
        with pytest.raises(ReclaimerdError, match="malformed JSON"):
            store.last_by_rule()
    finally:
        store.close()


def test_a_connection_keeps_few_pages(tmp_path: Path) -> None:
    """Reader and writer alike: what a thread took once for them, its heap keeps."""
    path = tmp_path / STORE_NAME
    stores = [Store.open(path), Store.open(path, read_only=True)]
    try:
        for store in stores:
            assert store._connection.execute("PRAGMA cache_size").fetchone() == (-CACHE_KIB,)
    finally:
        for store in stores:
            store.close()
