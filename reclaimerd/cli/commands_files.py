"""Commands that read the audit log's files and ask nobody."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.options import answers, common_options, stands_alone
from reclaimerd.cli.render import Table, moment_text, say, show, show_json
from reclaimerd.errors import CorruptStoreError, ExitCode, NotAllowedError, ReclaimerdError

if TYPE_CHECKING:
    from reclaimerd.record.chain import Head


@click.group(invoke_without_command=True)
@common_options
@answers
def audit(settings: Settings) -> int:
    """Read the record of every act; without a command, the newest entries."""
    return _list_audit(settings, 50, "") if stands_alone() else int(ExitCode.OK)


@audit.command("list")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000000), default=50, show_default=True, help=texts.LIMIT
)
@click.option("--incident", default="", metavar="ID", help="Only what belongs to this incident.")
@common_options
@answers
def list_audit(settings: Settings, limit: int, incident: str) -> int:
    """List the newest records, oldest of them first."""
    return _list_audit(settings, limit, incident)


def _list_audit(settings: Settings, limit: int, incident: str) -> int:
    from reclaimerd.record.audit_read import read_records  # noqa: PLC0415 - only `audit` reads files

    def wanted(record: Json) -> bool:
        return not incident or record.get("incident") == incident

    with _reading(settings.log_dir):
        newest = list(read_records(settings.log_dir, newest_first=True, limit=limit, where=wanted))
    records = list(reversed(newest))
    if settings.as_json:
        show_json({"records": records})
    elif not records:
        say("no records")
    else:
        show((Table(("SEQ", "AT", "KIND", "INCIDENT", "WHAT"), tuple(_audit_row(r) for r in records)),))
    return int(ExitCode.OK)


def _audit_row(record: Json) -> tuple[str, ...]:
    target: Json = record.get("target") or {}
    root: Json = target.get("root") or {}
    outcome: Json = record.get("outcome") or {}
    actor: Json = record.get("actor") or {}
    refusals: list[Json] = record.get("refusals") or []
    words = (
        record.get("action"),
        f"pid {root['pid']}" if root.get("pid") else "",
        f"by {actor['name']}" if actor.get("name") else "",
        *(outcome.get(key) for key in ("kind", "detail")),
        record.get("end"),
        record.get("reason"),
        *(refusal.get("text") for refusal in refusals),
    )
    what = "  ".join(str(word) for word in words if word)
    names = (record.get("kind"), record.get("incident") or "-")
    return (str(record.get("seq")), moment_text(record.get("at")), *(str(name) for name in names), what)


@contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Turn a log that can't be read into a sentence with its mend."""
    try:
        yield
    except PermissionError as error:
        where = error.filename or directory
        mend = "join the group reclaimerd, or run this as root"
        raise NotAllowedError(f"you may not read the audit log ({where})", mend) from None
    except OSError as error:
        what = f"the audit log in {directory} can't be read: {error.strerror or error}"
        raise ReclaimerdError(what, "name its directory with --log-dir") from None


@audit.command("verify")
@common_options
@answers
def verify_audit(settings: Settings) -> int:
    """Check the whole chain against its anchor; exit 9 names file and line of each break."""
    from reclaimerd.record.audit_read import verify  # noqa: PLC0415 - only `audit` reads files

    anchor, missing = _read_anchor(settings.state_dir)
    with _reading(settings.log_dir):
        found = verify(settings.log_dir, anchor)
    if missing is None and anchor is None and found.records:
        missing = ReclaimerdError(f"there is no anchor in {settings.state_dir}", "name it with --state-dir")
    if settings.as_json:
        faults = list(found.faults)
        unanchored = missing.message if missing else ""
        show_json({"ok": found.ok, "records": found.records, "faults": faults, "unanchored": unanchored})
    else:
        for fault in found.faults:
            say(fault)
        last = f", the last is number {found.head.seq}" if found.head is not None else ""
        say(f"audit {'intact' if found.ok else 'BROKEN'}: {found.records} records{last}")
    if missing is not None:
        say(f"reclaimctl: a cut at the end of the log would not be seen: {missing}", to_stderr=True)
    if not found.ok:
        return int(ExitCode.AUDIT_BROKEN)
    return int(missing.exit_code if isinstance(missing, CorruptStoreError) else ExitCode.OK)


def _read_anchor(state_dir: Path) -> "tuple[Head | None, ReclaimerdError | None]":
    """Return the anchored head, or why it can't be compared; no store is no anchor."""
    from reclaimerd.record.store import STORE_NAME, Store  # noqa: PLC0415 - only `audit verify` opens the store

    path = state_dir / STORE_NAME
    try:
        if not path.exists():
            return None, None
        store = Store.open(path, read_only=True)
        try:
            return store.read_anchor(), None
        finally:
            store.close()
    except ReclaimerdError as error:
        return None, error
    except OSError as error:
        return None, NotAllowedError(f"the store can't be read ({error.strerror})", "run this as root")


@audit.command("path")
@common_options
@answers
def audit_path(settings: Settings) -> int:
    """Print the absolute path of the current audit file and nothing else."""
    from reclaimerd.record.audit_read import current_path  # noqa: PLC0415 - only `audit` reads files

    path = str(current_path(settings.log_dir))
    if settings.as_json:
        show_json({"path": path})
    else:
        click.echo(path)
    return int(ExitCode.OK)
