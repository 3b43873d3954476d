"""The commands that read the audit log, as the recorder writes it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from reclaimerd.cli.main import run
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Actor, ActorKind, Outcome, OutcomeKind
from reclaimerd.model.policy import AuditSettings
from reclaimerd.record.audit import Audit
from reclaimerd.record.store import STORE_NAME, Store
from tests.builders import BOOT, a_target

INCIDENT = IncidentId("i1")
ENTRIES = (
    AuditEntry(RecordKind.STARTED),
    AuditEntry(
        RecordKind.INTENT,
        incident=INCIDENT,
        action="sigterm",
        actor=Actor(ActorKind.OPERATOR, "root", uid=0),
        target=a_target(),
        reason="leak\x1b[2J\nnext",
    ),
    AuditEntry(RecordKind.OUTCOME, incident=INCIDENT, outcome=Outcome(OutcomeKind.SENT)),
)


@dataclass(frozen=True, slots=True)
class Places:
    """Where one test's records lie."""

    log: Path
    state: Path

    def call(self, *arguments: str) -> int:
        """Run reclaimctl on these records."""
        return run([*arguments, "--log-dir", str(self.log), "--state-dir", str(self.state)])


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Write three records and their anchor with the daemon's own code."""
    places = Places(tmp_path / "log", tmp_path / "state")
    places.state.mkdir(mode=0o700)
    audit = Audit.open(places.log, boot_id=BOOT, settings=AuditSettings(), anchor=None)
    head = audit.append(ENTRIES, wall=1.7e9, mono=1.0)
    audit.close()
    store = Store.open(places.state / STORE_NAME)
    store.anchor(head)
    store.close()
    return places


def test_verify_finds_it_intact(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """An intact log is exit 0, with its number of records, in words and in JSON."""
    assert places.call("audit", "verify") == 0
    out, err = capsys.readouterr()
    assert out == "audit intact: 3 records, the last is number 3\n"
    assert err == ""
    assert places.call("audit", "verify", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    head = answer.pop("head")
    assert (head["seq"], len(head["hash"])) == (3, 64)
    assert answer == {"ok": True, "records": 3, "faults": [], "anchors_compared": 0, "unanchored": ""}


@pytest.mark.parametrize("cut", [False, True])
def test_verify_names_the_break(places: Places, capsys: pytest.CaptureFixture[str], *, cut: bool) -> None:
    """An edit, and a cut that only the anchor shows, are exit 9 with file and line."""
    path = places.log / "audit.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = lines[:2] if cut else [lines[0], lines[1].replace(b"sigterm", b"sigkill"), lines[2]]
    path.write_bytes(b"".join(changed))
    assert places.call("audit", "verify") == 9
    assert "audit.jsonl:2: " in capsys.readouterr().out


def test_verify_says_when_it_has_no_anchor(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an anchor the check says what it can't see, and a corrupt store is exit 11."""
    (places.state / STORE_NAME).unlink()
    assert places.call("audit", "verify") == 0
    assert "a cut at the end of the log would not be seen" in capsys.readouterr().err
    (places.state / STORE_NAME).write_bytes(b"no database" * 100)
    (places.state / STORE_NAME).chmod(0o600)
    assert places.call("audit", "verify") == 11
    out, err = capsys.readouterr()
    assert out.startswith("audit intact")
    assert "corrupt" in err


def test_verify_writes_nothing(places: Places) -> None:
    """Looking at the record leaves every file as it was."""
    files = [path for folder in (places.log, places.state) for path in folder.iterdir() if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    for call in (["verify"], ["list"], ["path"]):
        assert places.call("audit", *call) == 0
    assert {path: path.read_bytes() for path in files} == before


def test_path_is_all_that_is_printed(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """`audit path` prints the absolute path of the current file and nothing else."""
    assert places.call("audit", "path") == 0
    out, err = capsys.readouterr()
    assert (out, err) == (f"{places.log / 'audit.jsonl'}\n", "")


def test_list_shows_who_did_what(places: Places, capsys: pytest.CaptureFixture[str]) -> None:
    """Records are listed oldest first, one line each whatever a reason holds, and can be narrowed."""
    assert places.call("audit") == 0
    head, first, second, third = capsys.readouterr().out.splitlines()
    assert head.startswith("SEQ")
    assert first.startswith("1 ")
    assert "by root" in second
    assert "leak\\x1b[2J\\x0anext" in second
    assert third.endswith("sent")
    assert places.call("audit", "list", "--incident", "i1", "--limit", "1", "--json") == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert [record["kind"] for record in records] == ["outcome"]


def test_no_log_is_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was recorded yet, list and verify say so and are content."""
    places = Places(tmp_path / "none", tmp_path / "none")
    assert places.call("audit", "list") == 0
    assert places.call("audit", "verify") == 0
    out, err = capsys.readouterr()
    assert out == "no records\naudit intact: 0 records\n"
    assert err == ""


def test_log_that_is_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log directory that is a file is one sentence with its mend."""
    (tmp_path / "file").write_text("x")
    assert Places(tmp_path / "file", tmp_path).call("audit", "verify") == 1
    assert "can't be read" in capsys.readouterr().err
