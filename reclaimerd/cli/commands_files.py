"""Commands that read the audit log's files and ask nobody."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings
from reclaimerd.cli.commands_review import (
    audit_stats,
    export_audit,
    follow_audit,
    list_audit,
    reading,
    show_audit,
)
from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.options import answers, common_options, stands_alone
from reclaimerd.cli.render import say, show_json
from reclaimerd.errors import CorruptStoreError, ExitCode, NotAllowedError, ReclaimerdError

if TYPE_CHECKING:
    from reclaimerd.record.audit_check import Anchors, Verification
    from reclaimerd.record.chain import Head


class WrongAnchorError(ReclaimerdError):
    """A file that was named as anchor holds none."""

    exit_code = ExitCode.USAGE


@click.group(invoke_without_command=True)
@common_options
@answers
def audit(_settings: Settings) -> int:
    """Read the record of every act; without a command, the newest entries."""
    if not stands_alone():
        return int(ExitCode.OK)
    return int(click.get_current_context().invoke(list_audit))


for _command in (list_audit, show_audit, follow_audit, audit_stats, export_audit):
    audit.add_command(_command)


@audit.command("verify")
@click.option("--anchor", "anchor_file", type=click.Path(path_type=Path), metavar="FILE", help=texts.ANCHOR)
@click.option("--anchor-host", default="", metavar="NAME", help=texts.ANCHOR_HOST)
@common_options
@answers
def verify_audit(settings: Settings, anchor_file: Path | None, anchor_host: str) -> int:
    """Check the whole chain against its anchors; exit 9 names file and line of each break."""
    from reclaimerd.record.audit_read import verify  # noqa: PLC0415 - only `audit` reads files

    kept = None if anchor_file is None else _kept_anchors(anchor_file, anchor_host)
    anchor, missing = read_anchor(settings.state_dir)
    with reading(settings.log_dir):
        found = verify(settings.log_dir, anchor, kept)
    if missing is None and anchor is None and found.records:
        missing = ReclaimerdError(f"there is no anchor in {settings.state_dir}", "name it with --state-dir")
    if kept is not None and not isinstance(missing, CorruptStoreError):
        missing = None  # Whoever holds an anchor of their own needs no store.
    if settings.as_json:
        show_json(_verification(found, missing))
    else:
        for fault in found.faults:
            say(fault)
        last = f", the last is number {found.head.seq}" if found.head is not None else ""
        say(f"audit {'intact' if found.ok else 'BROKEN'}: {found.records} records{last}")
        if kept is not None:
            say(f"compared with {found.compared} of {len(kept.heads)} anchors in {anchor_file}")
    if missing is not None:
        say(f"reclaimctl: a cut at the end of the log would not be seen: {missing}", to_stderr=True)
    if not found.ok:
        return int(ExitCode.AUDIT_BROKEN)
    return int(missing.exit_code if isinstance(missing, CorruptStoreError) else ExitCode.OK)


def _verification(found: "Verification", missing: ReclaimerdError | None) -> Json:
    """Return the answer as JSON has it; `head` is what one would keep off the host."""
    return {
        "ok": found.ok,
        "records": found.records,
        "faults": list(found.faults),
        "head": None if found.head is None else {"seq": found.head.seq, "hash": found.head.hash},
        "anchors_compared": found.compared,
        "unanchored": missing.message if missing else "",
    }


def _kept_anchors(path: Path, host: str) -> "Anchors":
    """Return the heads of an anchor file; one without any is refused, for it would prove nothing."""
    from reclaimerd.record.audit_anchors import read_anchors  # noqa: PLC0415 - only for --anchor
    from reclaimerd.record.audit_check import Anchors  # noqa: PLC0415 - the same

    try:
        heads = read_anchors(path, host)
    except OSError as error:
        raise WrongAnchorError(
            f"{path} can't be read: {error.strerror or error}", "name another file"
        ) from None
    if not heads:
        mend = "give an [audit] anchor_file, what a receiver kept, or the daemon's lines `audit_head`"
        raise WrongAnchorError(f"{path} holds no anchor{f' of {host}' if host else ''}", mend)
    return Anchors(heads, str(path))


def read_anchor(state_dir: Path) -> "tuple[Head | None, ReclaimerdError | None]":
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
        say(path)
    return int(ExitCode.OK)


@audit.command("index")
@click.option("--rebuild", is_flag=True, help="Make it anew from the whole log.")
@common_options
@answers
def audit_index(settings: Settings, *, rebuild: bool) -> int:
    """Bring the index beside the log up to date; the log is the truth, and the index may be removed."""
    from reclaimerd.record.audit_index import INDEX_NAME, AuditIndex  # noqa: PLC0415 - only `audit` reads files

    path = settings.log_dir / INDEX_NAME
    with reading(settings.log_dir):
        if settings.log_dir.stat().st_uid != os.geteuid() or not os.access(settings.log_dir, os.W_OK):
            raise NotAllowedError(f"you may not write {path}", "run this as root, who owns the log")
        if rebuild:
            path.unlink(missing_ok=True)
        index = AuditIndex.open(settings.log_dir, write=True)
        if index is None:
            raise ReclaimerdError(f"the index {path} can't be made", "the log can be read without it")
        try:
            added = index.update(settings.log_dir)
        finally:
            index.close()
    if settings.as_json:
        show_json({"path": str(path), "added": added})
    else:
        say(f"{path}: {added} records added")
    return int(ExitCode.OK)
