"""Commands that review the audit log: list, show, follow, stats, export. They ask nobody and change nothing.

The one thing that they may write is the index beside the log, and only as who owns the log.
"""

import csv
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reclaimerd.cli import audit_text, completing, texts
from reclaimerd.cli.audit_options import filter_options, parse_instant
from reclaimerd.cli.audit_story import story_lines
from reclaimerd.cli.client import NoDaemonError, Settings, ask_running
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import Table, age_text, say, show, show_json, stop_printing, user_text
from reclaimerd.cli.tables import Layout
from reclaimerd.errors import ExitCode, NotAllowedError, NoTargetError, ReclaimerdError

if TYPE_CHECKING:
    from reclaimerd.record.audit_filter import Filter
    from reclaimerd.record.audit_index import AuditIndex
    from reclaimerd.record.audit_review import Found
    from reclaimerd.record.audit_stats import Statistics, Tally

_LOOK_MILLISECONDS = 250
_SLOW_BYTES = 16 << 20
NO_INDEX = "Read the log itself, without the index beside it."
OF_STORY = "At most so many records, the first ones."
FORMAT = "One line of CSV each, or each record's own line."
ONE = "ID"


@contextmanager
def reading(directory: Path) -> Iterator[None]:
    """Turn a log that can't be read into a sentence with its mend; a reader that went away ends quietly."""
    try:
        yield
    except BrokenPipeError:
        stop_printing()
    except PermissionError as error:
        where = error.filename or directory
        mend = "join the group reclaimerd, or run this as root"
        raise NotAllowedError(f"you may not read the audit log ({where})", mend) from None
    except OSError as error:
        what = f"the audit log in {directory} can't be read: {error.strerror or error}"
        raise ReclaimerdError(what, "name its directory with --log-dir") from None


@contextmanager
def indexed(directory: Path, *, wanted: bool = True) -> "Iterator[AuditIndex | None]":
    """Give the index beside the log, None where none helps; say what is read without one."""
    from reclaimerd.record.audit_review import ready_index  # noqa: PLC0415 - only `audit` reads files

    index = None
    if wanted and directory.is_dir():
        owns = directory.stat().st_uid == os.geteuid() and os.access(directory, os.W_OK)
        ready = ready_index(directory, may_write=owns)
        index = ready.index
        if ready.behind_bytes > _SLOW_BYTES:
            what = f"reclaimctl: {ready.behind_bytes >> 20} MiB are read without an index"
            say(f"{what}; as root, `reclaimctl audit index` makes one", to_stderr=True)
    try:
        yield index
    finally:
        if index is not None:
            index.close()


@contextmanager
def _reviewed(
    settings: Settings, wanted: "Filter", *, newest_first: bool, use_index: bool = True
) -> "Iterator[Iterator[Found]]":
    """Give the records that are asked for, by the index where there is one that helps."""
    from reclaimerd.record.audit_review import review  # noqa: PLC0415 - only `audit` reads files

    directory = settings.log_dir
    with reading(directory), indexed(directory, wanted=use_index and wanted.narrows()) as index:
        yield review(directory, wanted, index, newest_first=newest_first)


@click.command("list")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000000), default=50, show_default=True, help=texts.LIMIT
)
@click.option("--oldest", is_flag=True, help="The oldest in place of the newest.")
@click.option("--no-index", is_flag=True, help=NO_INDEX)
@filter_options
@common_options
@answers
def list_audit(settings: Settings, limit: int, *, oldest: bool, no_index: bool, wanted: "Filter") -> int:
    """List the newest records that have all that is asked for, oldest of them first."""
    with _reviewed(settings, wanted, newest_first=not oldest, use_index=not no_index) as records:
        found = list(islice(records, limit))
    if not oldest:
        found.reverse()
    if settings.as_json:
        show_json({"records": [audit_text.json_of(one.record, one.fault) for one in found]})
    elif not found:
        say("no records")
    else:
        rows = tuple(audit_text.row_of(one.record, one.fault) for one in found)
        show((Table(audit_text.HEADINGS, rows, audit_text.LAYOUT),))
    return int(ExitCode.OK)


@click.command("show")
@click.argument("name", metavar=ONE, shell_complete=completing.incidents)
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 1000000), default=10000, show_default=True, help=OF_STORY
)
@common_options
@answers
def show_audit(settings: Settings, name: str, limit: int) -> int:
    """Tell the whole story of an incident from its records: why, gates, each step, evidence, end."""
    from reclaimerd.record.audit_filter import Filter  # noqa: PLC0415 - only `audit` reads files

    if not name.strip():  # an empty filter asks nothing, so it would be everybody's story
        raise click.BadParameter("is no incident's id; `reclaimctl audit list` shows them", param_hint=ONE)
    with _reviewed(settings, Filter(incident=name), newest_first=False) as records:
        found = list(islice(records, limit + 1))
    more = len(found) > limit
    del found[limit:]
    if not found:
        raise NoTargetError(
            f"no record names an incident {name!r}", "reclaimctl audit list shows their names"
        )
    shown = [audit_text.json_of(one.record, one.fault) for one in found]
    lines = story_lines(name, shown)
    if settings.as_json:
        show_json({"incident": name, "records": shown, "story": lines, "more": more})
    else:
        show(lines)
    if more:
        what = f"reclaimctl: only the first {limit} records are told, and there are more"
        say(
            f"{what}; --limit tells more, `reclaimctl audit export --incident {name}` gives all",
            to_stderr=True,
        )
    return int(ExitCode.OK)


@click.command("follow")
@common_options
@answers
def follow_audit(settings: Settings) -> int:
    """Print new records as they come, over rotations, until interrupted or nobody reads any more."""
    from reclaimerd.record.audit_follow import Follower  # noqa: PLC0415 - only `audit` reads files
    from reclaimerd.record.audit_read import record_of  # noqa: PLC0415 - the same
    from reclaimerd.record.audit_review import fault_of  # noqa: PLC0415 - the same

    reader = select.poll()
    reader.register(sys.stdout.fileno(), 0)  # Its errors alone: that is, that nobody reads.
    with reading(settings.log_dir):
        follower = Follower(settings.log_dir)
        say(f"reclaimctl: following {settings.log_dir}", to_stderr=True)
        try:
            while True:
                for line in follower.news():
                    _print_followed(settings, record_of(line) or {}, line, fault_of(line))
                sys.stdout.flush()
                if reader.poll(_LOOK_MILLISECONDS):
                    break
            stop_printing()
        finally:
            follower.close()
    return int(ExitCode.OK)


def _print_followed(settings: Settings, record: Json, line: bytes, fault: str) -> None:
    if settings.as_json:
        click.echo(audit_text.json_line(record, line, fault))
    else:
        say("  ".join(audit_text.row_of(record, fault)))


@click.command("stats")
@click.option("--since", metavar="WHEN", callback=parse_instant, help="Only since then: RFC 3339, or an age.")
@click.option("--until", metavar="WHEN", callback=parse_instant, help="Only before then.")
@common_options
@answers
def audit_stats(settings: Settings, since: float | None, until: float | None) -> int:
    """Count per rule, user, GPU and day (UTC): acts, refusals, failures, and times to reclaim."""
    from reclaimerd.record.audit_filter import Filter  # noqa: PLC0415 - only `audit` reads files
    from reclaimerd.record.audit_stats import COUNTED, Statistics  # noqa: PLC0415 - the same

    counted, faulty = Statistics(), 0
    with _reviewed(settings, Filter(since=since, until=until, kinds=COUNTED), newest_first=False) as records:
        for one in records:
            counted.take(one.record)
            faulty += bool(one.fault)
    if settings.as_json:
        groups = {
            grouping: [{"name": name, **_figures(tally)} for name, tally in sorted(group.items())]
            for grouping, group in counted.groups.items()
        }
        show_json({"total": _figures(counted.total), **groups, "not_as_written": faulty})
    else:
        show(_stats_tables(counted))
    if faulty:
        what = f"{faulty} records are not as they were written, and are counted as they stand"
        say(f"reclaimctl: {what}; `reclaimctl audit verify` names them", to_stderr=True)
    return int(ExitCode.OK)


def _figures(tally: "Tally") -> Json:
    """Return one group's figures as JSON has them."""
    return {
        "incidents": tally.incidents,
        "acts": tally.acts,
        "dry_runs": tally.dry_runs,
        "refusals": tally.refusals,
        "failures": tally.failures,
        "reclaimed": tally.reclaimed,
        "handed_over": tally.handed_over,
        "seconds_to_reclaim_p50": tally.percentile(50),
        "seconds_to_reclaim_p95": tally.percentile(95),
    }


def _stats_tables(counted: "Statistics") -> Iterator[Table]:
    """Return a table for each grouping, all in one form."""
    columns = ("INCIDENTS", "ACTS", "DRY RUN", "REFUSED", "FAILED", "RECLAIMED", "HANDED OVER", "P50", "P95")
    for grouping, group in (("total", {"all": counted.total}), *counted.groups.items()):
        rows = []
        for name, tally in sorted(group.items()):
            *figures, middle, most = _figures(tally).values()
            shown = f"{user_text(int(name))} ({name})" if grouping == "user" and name.isdigit() else name
            times = (age_text(one) if one is not None else "-" for one in (middle, most))
            rows.append((shown, *(str(figure) for figure in figures), *times))
        if rows:
            layout = Layout(cut=(("GPU", 13), ("RULE", 20)), drop=("HANDED OVER", "DRY RUN", "P50"))
            yield Table((grouping.upper(), *columns), tuple(rows), layout)


@click.command("export")
@click.option(
    "--format", "form", type=click.Choice(("csv", "jsonl")), default="jsonl", show_default=True, help=FORMAT
)
@filter_options
@common_options
@answers
def export_audit(settings: Settings, form: str, wanted: "Filter") -> int:
    """Write all records that have what is asked for, oldest first, as they come; for admins."""
    with reading(settings.log_dir):
        _ask_leave(settings)
    with _reviewed(settings, wanted, newest_first=False) as records:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if form == "csv":
            writer.writerow(audit_text.COLUMNS)
        for one in records:
            if form == "csv":
                writer.writerow(audit_text.csv_cells(one.record, one.fault))
            else:
                sys.stdout.write(audit_text.json_line(one.record, one.line, one.fault) + "\n")
        sys.stdout.flush()
    return int(ExitCode.OK)


def _ask_leave(settings: Settings) -> None:
    """Raise NotAllowedError unless the caller is root, owns the log (a copy of it), or is the daemon's admin.

    An admin's export is on record before it begins, and so is its refusal to anybody else.
    """
    directory = settings.log_dir
    if os.geteuid() == 0 or not directory.exists() or directory.stat().st_uid == os.geteuid():
        return
    try:
        ask_running(settings.socket, Request("POST", "/v1/audit/exports"))
    except NoDaemonError as error:
        what = f"audit export needs the role admin, and nobody can tell whether you have it: {error.message}"
        raise NotAllowedError(what, "run this as root") from None
