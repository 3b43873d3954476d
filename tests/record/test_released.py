"""An upgrade takes over what every released version left, and a way back never drops what binds."""

import re
import sqlite3
from pathlib import Path

import pytest

from reclaimerd import __version__
from reclaimerd.errors import CorruptStoreError
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.incident import Stage
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit import Audit
from reclaimerd.record.audit_read import verify
from reclaimerd.record.store import Store
from reclaimerd.record.store_file import MIGRATIONS, migrate
from tests.builders import BOOT, WALL
from tests.record.old_versions import VERSIONS, lay_out, schema_of

CHANGELOG = Path(__file__).parents[2] / "CHANGELOG.md"


def test_every_released_version_is_among_them() -> None:
    """Who makes a release keeps a state of the one before: the changelog names them all."""
    released = set(re.findall(r"^## \[(\d[^\]]*)\]", CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE))
    assert released - {__version__} <= set(VERSIONS)
    assert VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_an_upgrade_takes_over_store_and_log(version: str, tmp_path: Path) -> None:
    """Incidents, pause, budgets and holders are there, the schema is ours, and the chain goes on whole."""
    state, log = tmp_path / "state", tmp_path / "log"
    lay_out(version, state, log)
    store = Store.open(state / "store.sqlite")
    stored = store.load()
    listed = [one.stage for one in store.incidents()]
    store.close()
    audit = Audit.open(log, boot_id=BOOT, settings=AuditSettings(), anchor=stored.anchor)
    head = audit.append([AuditEntry(RecordKind.STARTED, reason="upgraded")], wall=WALL, mono=1.0)
    audit.close()
    (incident,) = stored.open_incidents
    assert (incident.stage, len(incident.attempts)) == (Stage.SIGTERM, 1)
    assert stored.ledger.pause is not None
    assert stored.ledger.pause.reason == "upgrade"
    assert len(stored.ledger.spends) == 2
    assert len(stored.remembered) == 1
    assert {one.role for one in stored.abandoned} == {"nvml", "procfs", "door"}
    assert listed == [Stage.SIGTERM, Stage.RECLAIMED]
    assert schema_of(state) == len(MIGRATIONS)
    found = verify(log, head)
    assert (found.faults, found.head) == ((), head)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reader_does_not_upgrade(version: str, tmp_path: Path) -> None:
    """A command beside no daemon says what to do, and leaves the store as it is."""
    lay_out(version, tmp_path / "state", tmp_path / "log")
    before = schema_of(tmp_path / "state")
    with pytest.raises(CorruptStoreError, match="older schema") as caught:
        Store.open(tmp_path / "state" / "store.sqlite", read_only=True)
    assert "start the daemon once" in caught.value.mend
    assert schema_of(tmp_path / "state") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_the_released_version_refuses_what_we_write(version: str, tmp_path: Path) -> None:
    """Its reader would drop what came to the documents since; by its own check it refuses our store."""
    lay_out(version, tmp_path / "state", tmp_path / "log")
    known = schema_of(tmp_path / "state")
    path = tmp_path / "state" / "store.sqlite"
    Store.open(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(
        CorruptStoreError, match=f"schema {len(MIGRATIONS)}, this version knows up to {known}"
    ):
        migrate(connection, path, "write", MIGRATIONS[:known])
    connection.close()
