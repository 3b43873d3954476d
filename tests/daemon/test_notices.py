"""Which records people are told of, how grave, and that one receiver never holds up another or a pass."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reclaimerd.daemon import entries
from reclaimerd.daemon.notice_tasks import MOST_WAITING, Notifier
from reclaimerd.daemon.notices import notices_of, record_fault
from reclaimerd.daemon.tally import Tally
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import Asked, NotAsked, TargetAnswer
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Incident, Recipient, Stage
from reclaimerd.model.outlets import Notice, NoticeKind, NotifyTarget, Severity
from reclaimerd.model.ports import Batch
from reclaimerd.model.step import Permit
from tests.builders import GPU_A, OPERATOR, WALL, a_plan, a_step, an_incident

BOUND = 10.0
ALL = tuple(Severity)


def told(*records: AuditEntry, incidents: tuple[Incident, ...] = (), dry_run: bool = False) -> list[Notice]:
    """Return what is told of one batch."""
    batch = Batch(incidents=incidents, entries=records)
    return list(notices_of(batch, "gpu-7", WALL, {}, dry_run=dry_run))


def ended(stage: Stage, **overrides: Any) -> AuditEntry:
    """Return the record of an end."""
    return entries.ended(an_incident(stage=stage, ended_at=WALL, **overrides))


def an_intent(incident: Incident, stage: Stage) -> AuditEntry:
    """Return the record before an act."""
    attempt = Attempt(AttemptId("att-1"), stage, (), WALL)
    return entries.intent(incident, attempt, Permit(a_step(incident, stage), ()))


@pytest.mark.parametrize(
    ("record", "kind", "severity"),
    [
        (entries.of_host(RecordKind.ALARM, "it burns"), NoticeKind.ALARM, Severity.CRITICAL),
        (entries.of_host(RecordKind.BREAKER_TRIPPED, "x"), NoticeKind.BREAKER_TRIPPED, Severity.CRITICAL),
        (an_intent(an_incident(), Stage.DRAIN), NoticeKind.DRAIN_REQUESTED, Severity.CRITICAL),
        (entries.opened(an_incident()), NoticeKind.INCIDENT_OPENED, Severity.WARNING),
        (ended(Stage.RECLAIMED), NoticeKind.INCIDENT_ENDED, Severity.INFO),
        (ended(Stage.STOOD_DOWN), NoticeKind.INCIDENT_ENDED, Severity.INFO),
        (ended(Stage.UNVERIFIED), NoticeKind.INCIDENT_ENDED, Severity.WARNING),
        (
            ended(Stage.HANDED_OVER, handed_to=Recipient.PERSON),
            NoticeKind.INCIDENT_ENDED,
            Severity.WARNING,
        ),
    ],
)
def test_what_is_told_and_how_grave_it_is(record: AuditEntry, kind: NoticeKind, severity: Severity) -> None:
    """One notice for each such record."""
    (notice,) = told(record)
    assert (notice.kind, notice.severity, notice.host, notice.at) == (kind, severity, "gpu-7", WALL)
    assert record.reason in notice.reason


@pytest.mark.parametrize(
    "record",
    [
        entries.of_host(RecordKind.NOTE, "x"),
        entries.of_host(RecordKind.PAUSED, "x", OPERATOR),
        entries.opened(an_incident(actor=OPERATOR)),
        entries.ended(an_incident(actor=OPERATOR, stage=Stage.RECLAIMED)),
        an_intent(an_incident(), Stage.SIGKILL),
    ],
)
def test_what_is_told_to_nobody(record: AuditEntry) -> None:
    """What operators do they know, and a step of a rule is told by its incident."""
    assert told(record) == []


def test_a_notice_says_which_rule_process_and_gpu() -> None:
    """And nothing of the command line."""
    incident = an_incident()
    (notice,) = told(entries.opened(incident), incidents=(incident,))
    assert notice.incident == incident.id
    assert notice.rule == incident.actor.name
    assert notice.pid == incident.target.root.pid
    assert notice.gpus == (GPU_A,)
    assert incident.target.command not in str(notice)


def test_a_dry_run_is_marked() -> None:
    """By its incident, or for everybody by the daemon's own."""
    dry = an_incident(plan=a_plan(dry_run=True))
    assert [one.dry_run for one in told(entries.opened(dry), incidents=(dry,))] == [True]
    assert [one.dry_run for one in told(entries.opened(an_incident()), dry_run=True)] == [True]
    assert [one.dry_run for one in told(entries.opened(an_incident()))] == [False]
    batch = Batch(entries=(an_intent(dry, Stage.DRAIN),))
    (known,) = notices_of(batch, "h", WALL, {dry.id: dry}, dry_run=False)
    assert known.dry_run


@dataclass(slots=True)
class Rig:
    """A notifier over a receiver of the test's; `now` is its clock."""

    targets: list[NotifyTarget]
    now: list[float] = field(default_factory=lambda: [0.0])
    sent: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, TargetAnswer] = field(default_factory=dict)
    stalls: dict[str, asyncio.Event] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    async def post(self, webhook: WebhookTarget, message: str, body: str) -> TargetAnswer:
        """Note what is posted; answer as the test said, when it lets us."""
        if webhook.url in self.stalls:
            await self.stalls[webhook.url].wait()
        self.sent.append((webhook.url, message, json.loads(body)))
        return self.answers.get(webhook.url, Asked("took it"))

    def run(self, work: Callable[[Notifier], Awaitable[None]]) -> None:
        """Do the work with a notifier, and stop it."""

        async def all_of_it() -> None:
            notifier = Notifier(lambda: tuple(self.targets), self.post, self.tally, lambda: self.now[0])
            async with asyncio.timeout(BOUND):
                await work(notifier)
                await notifier.stop()

        asyncio.run(all_of_it())


async def rest() -> None:
    """Let every task go as far as it can."""
    for _ in range(200):
        await asyncio.sleep(0)


def receiver(name: str = "a", **overrides: Any) -> NotifyTarget:
    """Return one that wants everything."""
    return replace(NotifyTarget(name, f"https://{name}/", ALL), **overrides)


NOTICE = record_fault("no space left", "gpu-7", WALL)


def test_each_receiver_is_told_what_it_wants() -> None:
    """One post each, with an id of its own, in the receiver's own form."""
    rig = Rig(
        [receiver(), receiver("b", severities=(Severity.INFO,)), receiver("c", template='{"t": "$reason"}')]
    )

    async def work(notifier: Notifier) -> None:
        notifier.tell(NOTICE)
        notifier.tell(NOTICE)
        await rest()

    rig.run(work)
    assert sorted(url for url, _, _ in rig.sent) == ["https://a/", "https://a/", "https://c/", "https://c/"]
    assert len({message for _, message, _ in rig.sent}) == 4
    bodies = {url: body for url, _, body in rig.sent}
    assert bodies["https://a/"]["kind"] == "record_fault"
    assert bodies["https://c/"] == {"t": NOTICE.reason}
    assert rig.tally.notices == {("a", "sent"): 2, ("c", "sent"): 2}


def test_a_dry_run_sends_nothing_without_leave() -> None:
    """And with leave it does."""
    rig = Rig([receiver(), receiver("b", dry_run=True)])

    async def work(notifier: Notifier) -> None:
        notifier.tell(replace(NOTICE, dry_run=True))
        await rest()

    rig.run(work)
    assert [url for url, _, _ in rig.sent] == ["https://b/"]
    assert rig.sent[0][2]["dry_run"] is True


def test_one_that_hangs_holds_up_nobody() -> None:
    """`tell` returns at once, the other receiver is told, and what waits for the first has a bound."""
    rig = Rig([receiver(per_hour=1000), receiver("b", per_hour=1000)])

    async def work(notifier: Notifier) -> None:
        rig.stalls["https://a/"] = asyncio.Event()
        for _ in range(MOST_WAITING + 10):
            notifier.tell(NOTICE)
            await rest()
        assert [url for url, _, _ in rig.sent] == ["https://b/"] * (MOST_WAITING + 10)
        assert rig.tally.notices["a", "dropped"] == 9  # one is on its way, so many wait
        rig.stalls["https://a/"].set()
        await rest()

    rig.run(work)
    assert rig.tally.notices["a", "sent"] == MOST_WAITING + 1


def test_past_so_many_an_hour_they_are_dropped_and_the_next_one_says_so() -> None:
    """After the hour it goes on; only a notice that arrived has told of the lost ones."""
    rig = Rig([receiver(per_hour=2)])

    async def work(notifier: Notifier) -> None:
        for _ in range(5):
            notifier.tell(NOTICE)
            await rest()
        assert len(rig.sent) == 2
        rig.answers["https://a/"] = NotAsked("down")
        rig.now[0] = 3600.0
        notifier.tell(NOTICE)
        await rest()
        rig.answers.clear()
        notifier.tell(NOTICE)
        await rest()

    rig.run(work)
    assert [body["dropped"] for _, _, body in rig.sent] == [0, 0, 3, 3]
    assert rig.tally.notices == {("a", "sent"): 3, ("a", "dropped"): 3, ("a", "failed"): 1}


def test_the_end_leaves_no_task() -> None:
    """A notice on its way is let go."""
    rig = Rig([receiver()])

    async def work(notifier: Notifier) -> None:
        rig.stalls["https://a/"] = asyncio.Event()
        notifier.tell(NOTICE)
        await rest()
        await notifier.stop()
        assert len(asyncio.all_tasks()) == 1

    rig.run(work)
    assert rig.sent == []


def test_a_policy_without_receivers_tells_nobody() -> None:
    """Also after a reload that took them away."""
    rig = Rig([receiver()])

    async def work(notifier: Notifier) -> None:
        notifier.tell(NOTICE)
        await rest()
        rig.targets.clear()
        assert not notifier.has_receivers
        notifier.tell(NOTICE)
        await rest()

    rig.run(work)
    assert len(rig.sent) == 1
