"""record/store: what was saved comes back whole, and a store that can't be trusted is never empty."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import CorruptStoreError, ExitCode, RecordError
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Attempt, Outcome, OutcomeKind, Proof, ProofKind, Stage
from reclaimerd.model.ledger import Breaker, Ledger, Pause, Spend, SpendKind
from reclaimerd.model.memory import Baseline, RememberedHolder
from reclaimerd.record import store_file
from reclaimerd.record.chain import Head
from reclaimerd.record.store import AbandonedWorker, Remembered, Store
from tests.builders import GPU_A, GPU_B, WALL, a_ref, an_incident

LEDGER = Ledger(
    spends=(Spend(SpendKind.WORKLOAD, "train.service", WALL),),
    pause=Pause("root", "maintenance", WALL),
    breaker=Breaker("3 workloads at once", WALL),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store lies."""
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Return a new store."""
    opened = Store.open(path)
    yield opened
    opened.close()


def fill(path: Path, count: int = 1) -> None:
    """Save open incidents and a ledger, and close, so that all is in the main file."""
    opened = Store.open(path)
    incidents = [replace(an_incident(), id=IncidentId(f"inc-{number}")) for number in range(count)]
    opened.save(incidents, LEDGER)
    opened.close()


def test_a_new_store_is_empty_and_closed_to_others(store: Store, path: Path) -> None:
    """Only a store that was not there is new: it holds nothing, and its files are 0600."""
    found = store.load()
    assert (found.open_incidents, found.ledger, found.anchor) == ((), Ledger(), None)
    store.save([an_incident()])
    assert {one.stat().st_mode & 0o777 for one in path.parent.iterdir()} == {0o600}


def test_everything_comes_back_after_a_restart(path: Path) -> None:
    """Incidents with attempts, ledger, holders, baselines, anchor and abandoned workers survive."""
    attempt = Attempt("try-1", Stage.SIGTERM, (a_ref(),), WALL, Outcome(OutcomeKind.SENT))  # type: ignore[arg-type]  # a plain string is what the wire gives back
    incident = replace(an_incident(), stage=Stage.SIGTERM, attempts=(attempt,))
    holder = RememberedHolder(a_ref(), GPU_A, 1000, "/job", (a_ref(50),), 12)
    workers = (AbandonedWorker("nvml", a_ref(9), 12.5, alarmed=True), AbandonedWorker("procfs", a_ref(8)))
    remembered = Remembered((holder,), (Baseline(GPU_A, "key", 7),), workers)
    first = Store.open(path)
    first.save([incident], LEDGER)
    first.remember(remembered)
    first.anchor(Head(3, "ab" * 32))
    first.close()
    second = Store.open(path)
    found = second.load()
    second.close()
    assert found.open_incidents == (incident,)
    assert found.ledger == LEDGER
    assert (found.remembered, found.baselines, found.abandoned) == (
        remembered.holders,
        remembered.baselines,
        remembered.abandoned,
    )
    assert found.anchor == Head(3, "ab" * 32)


def test_an_ended_incident_is_listed_but_not_open(store: Store) -> None:
    """An end takes an incident out of what a start resumes; it can still be asked for."""
    proof = Proof(ProofKind.EXCLUSIVE, "memory is back", ((GPU_A, 0),))
    ended = replace(an_incident(), stage=Stage.RECLAIMED, ended_at=WALL + 9, proof=proof)
    later = replace(an_incident(), id=IncidentId("inc-2"), opened_at=WALL + 1)
    store.save([an_incident()])
    store.save([ended, later])
    assert store.load().open_incidents == (later,)
    assert store.incidents() == (later, ended)
    assert store.incidents(limit=1) == (later,)
    assert store.incidents(open_only=True) == (later,)
    assert store.incident(ended.id) == ended
    assert store.incident(IncidentId("none")) is None


def test_remember_replaces_only_the_parts_that_are_given(store: Store) -> None:
    """A part of None stays as it is; an empty one is emptied."""
    store.remember(Remembered(baselines=(Baseline(GPU_A, "key", 7), Baseline(GPU_B, "key", 8))))
    store.remember(Remembered(holders=()))
    assert len(store.load().baselines) == 2
    store.remember(Remembered(baselines=()))
    assert store.load().baselines == ()


def test_a_ledger_of_none_stays(store: Store) -> None:
    """Saving incidents alone does not empty the ledger."""
    store.save([], LEDGER)
    store.save([an_incident()])
    assert store.load().ledger == LEDGER


def test_a_save_is_whole_or_not_at_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure in the middle of a save leaves neither the incident nor the ledger."""
    monkeypatch.setattr(
        "reclaimerd.record.store.to_json", lambda one: None if isinstance(one, Ledger) else "{}"
    )
    with pytest.raises(RecordError, match="NOT NULL"):
        store.save([an_incident()], LEDGER)
    assert store.incidents(open_only=True) == ()


def test_old_ended_incidents_are_forgotten_but_open_ones_never(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store stays bounded over months: the oldest ended incidents go at a start."""
    monkeypatch.setattr("reclaimerd.record.store._MOST_ENDED", 3)
    first = Store.open(path)
    still_open = replace(an_incident(), id=IncidentId("open"), opened_at=0.0)
    ended = [
        replace(
            an_incident(), id=IncidentId(f"inc-{number}"), stage=Stage.STOOD_DOWN, opened_at=float(number)
        )
        for number in range(1, 9)
    ]
    first.save([still_open, *ended])
    first.close()
    second = Store.open(path)
    assert [one.id for one in second.incidents()] == ["inc-8", "inc-7", "inc-6", "open"]
    second.close()


def test_a_running_store_forgets_them_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is not restarted for years keeps no more than one that is."""
    monkeypatch.setattr("reclaimerd.record.store._MOST_ENDED", 3)
    store.save([replace(an_incident(), id=IncidentId("open"), opened_at=0.0)])
    for number in range(1, 9):
        one = replace(an_incident(), id=IncidentId(f"inc-{number}"), stage=Stage.STOOD_DOWN)
        store.save([replace(one, opened_at=float(number))])
    assert [one.id for one in store.incidents()] == ["inc-8", "inc-7", "inc-6", "open"]


@pytest.mark.parametrize("loss", ["removed", "replaced", "in a removed folder"])
def test_a_store_that_was_taken_away_takes_no_more_until_it_is_back(tmp_path: Path, loss: str) -> None:
    """SQLite would write on into a file that no start finds: an error with the mend, and nothing is saved."""
    folder = tmp_path / "state"
    folder.mkdir()
    path, aside = folder / "store.sqlite", tmp_path / "aside"
    opened = Store.open(path)
    folder.rename(aside)
    if loss != "in a removed folder":
        folder.mkdir()
    if loss == "replaced":
        fill(path)
    writes: tuple[Callable[[], object], ...] = (
        lambda: opened.save([an_incident()], LEDGER),
        lambda: opened.anchor(Head(3, "ab" * 32)),
        lambda: opened.remember(Remembered(holders=())),
    )
    for write in writes:
        with pytest.raises(RecordError, match="is gone, or another file") as caught:
            write()
        assert "put it back, or restart" in caught.value.mend
    if folder.exists():
        shutil.rmtree(folder)
    aside.rename(folder)
    assert opened.incidents() == ()
    opened.save([an_incident()], LEDGER)
    assert opened.incidents() == (an_incident(),)
    opened.close()


def damage_header(path: Path) -> None:
    """Overwrite the beginning."""
    path.write_bytes(b"garbage!" * 64 + path.read_bytes()[512:])


def damage_pages(path: Path) -> None:
    """Zero everything but the first page."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes(len(content) - 4096))


def damage_length(path: Path) -> None:
    """Cut the file in the middle."""
    os.truncate(path, path.stat().st_size // 2)


def damage_to_nothing(path: Path) -> None:
    """Cut the file to nothing, as a full disk and a careless copy do."""
    os.truncate(path, 0)


def damage_to_zeros(path: Path) -> None:
    """Leave nothing but zeros, as a power cut may."""
    path.write_bytes(bytes(path.stat().st_size))


def damage_to_directory(path: Path) -> None:
    """Put a directory in its place."""
    path.unlink()
    path.mkdir()


def damage_row(path: Path) -> None:
    """Spoil one open incident's document."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE incidents SET doc = '{\"id\": 1}' WHERE id = 'inc-0'")
    connection.close()


def damage_table(path: Path) -> None:
    """Drop a table."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE remembered")
    connection.close()


def damage_version(path: Path) -> None:
    """Take the schema version away."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()


def damage_by_removal(path: Path) -> None:
    """Remove the store but leave its journal."""
    path.rename(path.with_name("store.sqlite-wal"))


def damage_by_link(path: Path) -> None:
    """Put a link to a good store in its place."""
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


DAMAGES = (
    damage_header,
    damage_pages,
    damage_length,
    damage_to_nothing,
    damage_to_zeros,
    damage_to_directory,
    damage_row,
    damage_table,
    damage_version,
    damage_by_removal,
    damage_by_link,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damage_is_never_taken_as_empty(path: Path, damage: object) -> None:
    """Each kind of damage raises with the mend and exit code 11, and the files stay for the person."""
    fill(path, count=200)
    assert callable(damage)
    damage(path)
    before = {one.name: one.stat().st_size for one in path.parent.iterdir() if one.suffix != ".sqlite-shm"}
    with pytest.raises(CorruptStoreError) as caught:
        Store.open(path)
    assert caught.value.exit_code is ExitCode.CORRUPT_STORE
    assert "move it aside" in caught.value.mend
    assert "what is lost" in caught.value.mend
    after = {one.name: one.stat().st_size for one in path.parent.iterdir()}
    assert after.items() >= {name: size for name, size in before.items() if "-" not in name}.items()


def test_a_newer_schema_is_refused_with_the_mend(path: Path) -> None:
    """A store of a newer version is neither read nor written."""
    fill(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for read_only in (True, False):
        with pytest.raises(CorruptStoreError, match="schema 99") as caught:
            Store.open(path, read_only=read_only)
        assert "install the newer reclaimerd" in caught.value.mend


def test_an_older_schema_is_brought_up_step_by_step(path: Path) -> None:
    """Each migration runs once, in its order; one that fails leaves the version before it."""
    steps = (("CREATE TABLE a (x)",), ("CREATE TABLE b (x)", "INSERT INTO a VALUES (1)"), ("NO SUCH WORD",))
    connection = sqlite3.connect(path, isolation_level=None)
    store_file.migrate(connection, path, "make", steps[:1])
    store_file.migrate(connection, path, "write", steps[:2])
    store_file.migrate(connection, path, "write", steps[:2])
    with pytest.raises(sqlite3.Error):
        store_file.migrate(connection, path, "write", steps)
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    assert connection.execute("SELECT count(*) FROM a").fetchone() == (1,)
    with pytest.raises(CorruptStoreError, match="older schema"):
        store_file.migrate(connection, path, "read", steps)
    connection.close()


def test_a_store_that_was_never_finished_is_made_anew(path: Path) -> None:
    """A crash while the very first store was made leaves a file under another name: no damage."""
    path.with_name(".store.sqlite.new").write_bytes(b"half")
    opened = Store.open(path)
    assert opened.load().open_incidents == ()
    opened.close()
    assert not path.with_name(".store.sqlite.new").exists()


def test_a_reader_sees_the_writers_commits_and_writes_nothing(store: Store, path: Path) -> None:
    """A client reads beside the running writer, and can't write."""
    store.save([an_incident()], LEDGER)
    store.anchor(Head(1, "cd" * 32))
    reader = Store.open(path, read_only=True)
    assert reader.incidents() == (an_incident(),)
    assert reader.read_anchor() == Head(1, "cd" * 32)
    with pytest.raises(RecordError, match="read-only"):
        reader.save([an_incident()])
    reader.close()


def test_reading_where_nothing_was_recorded_makes_nothing(path: Path) -> None:
    """A reader of a store that is not there gets one sentence, and no file is made."""
    with pytest.raises(RecordError, match="there is none"):
        Store.open(path, read_only=True)
    assert list(path.parent.iterdir()) == []


def test_a_commit_survives_without_a_close(path: Path) -> None:
    """What was saved is there for another process while the first never closes: it is in the journal."""
    first = Store.open(path)
    first.save([an_incident()], LEDGER)
    copy = path.with_name("copy.sqlite")
    copy.write_bytes(path.read_bytes())
    copy.with_name("copy.sqlite-wal").write_bytes(path.with_name("store.sqlite-wal").read_bytes())
    second = Store.open(copy)
    assert second.load().open_incidents == (an_incident(),)
    second.close()
    first.close()


def test_a_second_writer_gets_a_sentence_and_not_a_hang(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that another process is writing to answers within the bound."""
    monkeypatch.setattr("reclaimerd.record.store_file._BUSY_SECONDS", 0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    second = None
    try:
        with pytest.raises(RecordError, match="another process writes"):
            second = Store.open(path)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert second is None
    store.save([an_incident()])
