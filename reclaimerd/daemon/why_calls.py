"""The call that tells what the record has of one process, job or pod, for who may not read its files.

An operator is told all of it; an owner what was done about their own processes, without a word that may name
somebody else's. It reads files in a thread of its own and changes nothing.
"""

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import OrderFault
from reclaimerd.daemon.http_server import Answer
from reclaimerd.daemon.limits import Buckets
from reclaimerd.daemon.owner_calls import TooManyOrdersError
from reclaimerd.daemon.past import READING_SECONDS, Reader
from reclaimerd.daemon.service import Service
from reclaimerd.errors import RecordError
from reclaimerd.record.audit_filter import Json
from reclaimerd.record.audit_index import AuditIndex
from reclaimerd.record.why_found import Asked, read_why

MOST_TOLD = 200
QUESTIONS_PER_SECOND = 0.1
QUESTIONS_AT_ONCE = 5.0
"""Each reads the whole log where no index is."""
OWNERS_SECONDS = 10.0
"""One owner's reading, so that it can't take the time of all that wait: `READING_SECONDS` with their turn."""
_FORMS: Mapping[str, re.Pattern[str]] = {
    "pid": re.compile(r"[1-9][0-9]{0,6}", re.ASCII),
    "start": re.compile(r"[0-9]{1,19}", re.ASCII),
    "job": re.compile(r"[0-9]{1,10}", re.ASCII),
    "pod": re.compile(
        r"[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII
    ),
    "since": re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII),
    "limit": re.compile(r"[1-9][0-9]{0,2}", re.ASCII),
}
_HIDDEN: Json = {"text": "", "mend": ""}


@dataclass(slots=True)
class WhyDesk:
    """Answers one question after the other, so that none makes the reading of incidents wait.

    Owners' have a turn of their own: theirs, be they ever so many, never stand before an operator's. A uid
    has one question at a time, and a reading ends at its deadline, in its thread too.
    """

    service: Service
    _reader: Reader = field(init=False, default_factory=Reader)
    _owners_reader: Reader = field(init=False, default_factory=Reader)
    _turns: Buckets = field(init=False)
    _asking: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        clock = self.service.cycle.joints.clock
        self._turns = Buckets(QUESTIONS_PER_SECOND, QUESTIONS_AT_ONCE, clock)

    async def answer(self, query: Mapping[str, str], caller: Caller) -> Answer:
        """Return what is on record. Raises OrderFault, TooManyOrdersError and RecordError."""
        owner = caller.role < Role.OPERATOR
        asked = asked_of(query, caller.actor.uid if owner else None)
        uid = caller.actor.uid or 0
        if uid in self._asking:
            raise TooManyOrdersError("a question of yours is not answered yet", "wait for its answer")
        if self._turns.take(uid) < 0.0:
            raise TooManyOrdersError("too many questions of yours in a short time", "wait some ten seconds")
        self._asking.add(uid)
        try:
            found = await self._read(asked, owner=owner)
        finally:
            self._asking.discard(uid)
        told = found | {"chain": "broken" if found["faults"] else "not_checked", "only_uid": asked.uid}
        return Answer(200, as_owner_reads(told) if owner else told)

    async def _read(self, asked: Asked, *, owner: bool) -> Json:
        directory = self.service.engine.paths.log_dir
        seconds = OWNERS_SECONDS if owner else READING_SECONDS

        def read() -> Json:
            bounded = replace(asked, go_on=_until(time.monotonic() + seconds, seconds))
            index = AuditIndex.open(directory, write=False) if directory.is_dir() else None
            try:
                return read_why(directory, bounded, index)
            finally:
                if index is not None:
                    index.close()

        return await (self._owners_reader if owner else self._reader).read(read, "reading the record")


def _until(end: float, seconds: float) -> Callable[[], None]:
    """Return what raises RecordError once it is called after `end` (monotonic seconds)."""

    def go_on() -> None:
        if time.monotonic() > end:
            text = f"record: reading it took longer than {seconds:g} s"
            raise RecordError(text, "ask with --since for less of it, or root for `audit index`")

    return go_on


def asked_of(query: Mapping[str, str], uid: int | None) -> Asked:
    """Return the question of a query, of `uid` alone where one is given. Raises OrderFault."""
    given = {key: query.get(key, "") for key in _FORMS}
    for key, form in _FORMS.items():
        if given[key] and not form.fullmatch(given[key]):
            raise OrderFault(f"{key}={given[key][:64]!r} can't be read", "see docs/openapi.json")
    if sum(given[key] != "" for key in ("pid", "job", "pod")) != 1 or (given["start"] and not given["pid"]):
        raise OrderFault("it must be asked about one of pid, job, pod", "start belongs to pid")
    since = float(given["since"]) if given["since"] else None
    return Asked(
        pid=int(given["pid"]) if given["pid"] else None,
        start=int(given["start"]) if given["start"] else None,
        job=given["job"],
        pod=given["pod"],
        since=since if since is not None and math.isfinite(since) else None,
        uid=uid,
        limit=min(MOST_TOLD, int(given["limit"] or 20)),
    )


def as_owner_reads(found: Json) -> Json:
    """Return it without texts that may name another user's processes: what refused a step, notes, details."""
    return found | {"incidents": [_own_incident(one) for one in found["incidents"]]}


def _own_incident(one: Json) -> Json:
    steps = [step if step["did"] == "yes" else step | {"detail": ""} for step in one["steps"]]
    refused = [word for word in one["words"] if word["kind"] == "refused"]
    words = [
        word | {"text": "", "reasons": [reason | _HIDDEN for reason in word["reasons"]]} for word in refused
    ]
    return one | {"steps": steps, "words": words, "end_reason": ""}
