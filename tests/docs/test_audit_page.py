"""docs/audit.md agrees with the code: each field of a record, each kind, each command."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from reclaimerd.cli.commands_files import audit
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Actor, Outcome, Proof, Target
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.step import GateAnswer, Reason
from reclaimerd.record.chain import FIRST_PREVIOUS, SCHEMA, Head, Stamp, entry_body, sealed_line
from tests.builders import BOOT, MONO, WALL

PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_each_field_of_a_record_has_its_row_in_order() -> None:
    """The table has the keys of a line, in the order in which they stand."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.split("## One record")[1], re.MULTILINE)
    line, _ = sealed_line(
        Head(0, FIRST_PREVIOUS), Stamp(WALL, MONO, BOOT, "host"), entry_body(AuditEntry(RecordKind.NOTE))
    )
    before = re.findall(rb'"(\w+)":', line)
    entry = [field.name for field in fields(AuditEntry)]
    assert rows == [key.decode() for key in before[:-2]] + entry + ["hash"]
    assert f"`schema` is {SCHEMA}" in PAGE


@pytest.mark.parametrize("model", [Actor, Target, ProcessRef, GateAnswer, Reason, Outcome, Proof])
def test_each_field_within_is_named(model: type) -> None:
    """What stands inside actor, target, gates, refusals, outcome and proof is on the page."""
    assert [field.name for field in fields(model) if f"`{field.name}`" not in PAGE] == []


def test_each_kind_is_named() -> None:
    """No kind of record is left out, and none is made up."""
    kinds = PAGE.split("Kinds: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", kinds)) == {str(kind) for kind in RecordKind}


def test_each_command_and_key_is_named() -> None:
    """Each `audit` command stands there, and each key of `[audit]`."""
    commands = set(re.findall(r"reclaimctl audit (\w+)", PAGE)) | {"path"}
    assert commands == set(audit.commands)
    keys = {field.name for field in fields(AuditSettings)} - {"file_bytes"} | {"file_size"}
    assert [key for key in keys if f"`{key}`" not in PAGE and f"[audit] {key}" not in PAGE] == []
