"""Finds in the audit log what reclaimerd did to one process, job or pod: for "who killed my job?".

Two readings, by the index where there is one: which incidents name it, then those incidents whole. Memory is
bounded by how many incidents are told. It writes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from reclaimerd.record.audit_filter import Filter, Json, instant_of, no_limit, table_of, tables_of, word_of
from reclaimerd.record.audit_index import AuditIndex
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.audit_review import Found, review
from reclaimerd.record.why_fold import Story, name_of

MOST_FAULTS: Final = 20
_GRAVEST: Final = ("signalled", "unknown", "acted", "nothing_done")


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked about: a pid (all its processes without `start`), a job or a pod; by `uid` only theirs.

    `go_on` is called while the log is searched, and raises where that takes too long.
    """

    pid: int | None = None
    start: int | None = None
    job: str = ""
    pod: str = ""
    since: float | None = None
    uid: int | None = None
    limit: int = 20
    go_on: Callable[[], None] = field(default=no_limit, compare=False)

    def is_meant(self, ref: Json) -> bool:
        """Tell whether a process reference is the one that was asked about."""
        return ref.get("pid") == self.pid and self.start in (None, ref.get("start_ticks"))

    def filter(self) -> Filter:
        """Return what a record has that names it."""
        return Filter(
            pid=self.pid, job=self.job, pod=self.pod, since=self.since, uid=self.uid, go_on=self.go_on
        )


def read_why(directory: Path, asked: Asked, index: AuditIndex | None) -> Json:
    """Return what is on record, newest first. Raises OSError when the log can't be read.

    `answer` is the gravest of all incidents' answers, or `named` (only as somebody who was in another's way)
    or `not_on_record`.
    """
    faults: list[str] = []
    names, named, more = _incidents(
        review(directory, asked.filter(), index, newest_first=True), asked, faults
    )
    stories = _stories(directory, names, asked, index, faults) if names else []
    told = [story.as_json() for story in stories]
    answers = {story.answer() for story in stories}
    otherwise = "named" if named else "not_on_record"
    return {
        "answer": next((one for one in _GRAVEST if one in answers), otherwise),
        "processes": list(_processes(stories)) if asked.pid is not None else [],
        "incidents": told,
        "more": more,
        "named_by": named,
        "covers": _covers(directory, asked.since),
        "faults": list(dict.fromkeys(faults)),
    }


def _incidents(
    records: Iterable[Found], asked: Asked, faults: list[str]
) -> tuple[dict[str, None], list[str], bool]:
    """Return the incidents it was a target of, others that only name it, and whether there are more."""
    own: dict[str, None] = {}
    named: dict[str, None] = {}
    for found in records:
        _note_fault(found, faults)
        incident = word_of(found.record, "incident")
        if not incident:
            continue
        if asked.pid is not None and not _is_target(found.record, asked):
            if len(named) < asked.limit and _is_named(found.record, asked):
                named[incident] = None
            continue
        if incident not in own and len(own) >= asked.limit:
            return own, [one for one in named if one not in own], True
        own[incident] = None
    return own, [one for one in named if one not in own], False


def _is_target(record: Json, asked: Asked) -> bool:
    """Tell whether the process is one of whom the record's act is about."""
    target, outcome = table_of(record, "target"), table_of(record, "outcome")
    refs = [table_of(target, "root"), *tables_of(target, "members")]
    refs += [table_of(one, "ref") for one in tables_of(outcome, "targets")]
    return any(asked.is_meant(ref) for ref in refs)


def _is_named(record: Json, asked: Asked) -> bool:
    """Tell whether a refusal names the process: it held what another's step needed."""
    refusals = tables_of(record, "refusals")
    return any(asked.is_meant(ref) for refusal in refusals for ref in tables_of(refusal, "processes"))


def _note_fault(found: Found, faults: list[str]) -> None:
    if found.fault and len(faults) < MOST_FAULTS:
        place = found.record.get("seq", found.record.get("file", "?"))
        faults.append(f"record {place}: {found.fault}")


def _stories(
    directory: Path, names: dict[str, None], asked: Asked, index: AuditIndex | None, faults: list[str]
) -> list[Story]:
    """Return these incidents, each from all of its records, in the order of their names."""
    is_meant = asked.is_meant if asked.pid is not None else None
    stories = {name: Story(name, is_meant) for name in names}
    for found in review(
        directory, Filter(incidents=frozenset(names), go_on=asked.go_on), index, newest_first=False
    ):
        _note_fault(found, faults)
        story = stories.get(word_of(found.record, "incident"))
        if story is not None:
            story.take(found.record)
    return list(stories.values())


def _processes(stories: list[Story]) -> Iterator[Json]:
    """Yield each process that had the pid, the one of the newest incident first, with what was done to it."""
    refs: dict[tuple[str, str], list[Story]] = {}
    for story in stories:
        for ref in story.members():
            refs.setdefault((word_of(ref, "boot_id"), name_of(ref)), []).append(story)
    for (boot, name), own in refs.items():
        ref = next(one for one in own[0].members() if name_of(one) == name)
        answers = {story.answer() for story in own}
        yield {
            "process": name,
            "boot": boot,
            "started_at": next(
                (at for at in (story.started_at(ref) for story in own) if at is not None), None
            ),
            "answer": next(one for one in _GRAVEST if one in answers),
            "incidents": [story.incident for story in own],
        }


def _covers(directory: Path, since: float | None) -> Json:
    """Return from when on the record speaks, whether there was more before, and how far it was looked at.

    Numbers begin at 1 and never again, so a first record with another number says that files are gone.
    """
    first = next(read_records(directory, limit=1), {})
    seq = first.get("seq")
    begin = instant_of(first)
    looked = since if begin is None or (since is not None and since > begin) else begin
    return {
        "first_at": begin,
        "first_seq": seq if isinstance(seq, int) else None,
        "older_removed": isinstance(seq, int) and seq > 1,
        "looked_from_at": looked,
    }
