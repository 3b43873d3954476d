"""Metrics and notices beside the passes: heard after the fact, and no fault of theirs reaches a pass."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon import entries
from reclaimerd.daemon.anchor_tasks import AnchorSender
from reclaimerd.daemon.notice_tasks import Notifier
from reclaimerd.daemon.outlets import SAME_TEXT_SECONDS, TEXTFILE_EVERY_SECONDS, Outlets
from reclaimerd.daemon.recording import HeardRecorder
from reclaimerd.daemon.tally import Tally
from reclaimerd.errors import RecordError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain_ports import Asked, TargetAnswer
from reclaimerd.model.outlets import MetricsSettings, NotifyTarget, Severity
from reclaimerd.model.ports import Batch
from tests.builders import BOOT, GIB, WALL, a_busy_snapshot, a_policy, a_rule
from tests.fakes import FakeRecorder, Rig, a_disk_error, a_rig
from tests.rigs.simulated import wait_until

BOUND = 10.0
ALARM = Batch(entries=(entries.of_host(RecordKind.ALARM, "it burns"),))


@dataclass(slots=True)
class Story:
    """Outlets over a rig, and what was posted."""

    rig: Rig
    outlets: Outlets
    posted: list[str] = field(default_factory=list)

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, with a bound, and stop."""

        async def all_of_it() -> None:
            async with asyncio.timeout(BOUND):
                await work()
                await self.outlets.stop()

        asyncio.run(all_of_it())


def make(textfile: Path | None = None, **joints: object) -> Story:
    """Return outlets with one receiver that wants everything."""
    policy = replace(
        a_policy(a_rule(above=70 * GIB)),
        metrics=MetricsSettings(textfile="" if textfile is None else str(textfile)),
        notices=(NotifyTarget("a", "https://a/", tuple(Severity), '{"t": "$kind: $reason"}'),),
    )
    rig = a_rig(a_busy_snapshot(), policy, **joints)
    posted: list[str] = []

    async def post(_webhook: object, _message: str, body: str) -> TargetAnswer:
        posted.append(body)
        return Asked("took it")

    tally = Tally()
    notifier = Notifier(lambda: policy.notices, post, tally, lambda: rig.now[0])
    anchors = AnchorSender(lambda: policy.anchor_webhook, post, lambda: rig.now[0], lambda: WALL, BOOT)
    return Story(rig, Outlets(lambda: rig.cycle, tally, notifier, anchors, wall=lambda: WALL), posted)


async def rest() -> None:
    """Let everything go as far as it can."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_a_batch_is_counted_and_told_a_turn_later() -> None:
    """Whoever commits waits for neither."""
    story = make()

    async def work() -> None:
        story.outlets.hear(ALARM)
        assert story.outlets.tally.alarms == 0
        await rest()
        assert story.outlets.tally.alarms == 1

    story.run(work)
    assert story.posted == ['{"t": "alarm: it burns"}\n']


def test_a_batch_that_failed_is_heard_of_by_nobody() -> None:
    """Only what is durable counts."""
    heard: list[Batch] = []
    inner = FakeRecorder(errors=[a_disk_error(), None])
    recorder = HeardRecorder(inner, heard.append)

    async def work() -> None:
        with pytest.raises(RecordError):
            await recorder.commit(ALARM)
        assert heard == []
        assert recorder.fault() == recorder.fault_for_operators() == "audit: Input/output error"
        await recorder.commit(ALARM)

    asyncio.run(work())
    assert heard == [ALARM]
    assert recorder.fault() == ""


def test_a_fault_of_ours_reaches_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in counting is the loop's to tell; the batch is durable and its act goes on."""
    story = make()
    faults: list[object] = []

    def broken(_self: Tally, _batch: Batch) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Tally, "take", broken)

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, fault: faults.append(fault["exception"])
        )
        await HeardRecorder(FakeRecorder(), story.outlets.hear).commit(ALARM)
        await rest()
        story.outlets.hear(ALARM)
        await rest()

    story.run(work)
    assert [type(fault) for fault in faults] == [ZeroDivisionError, ZeroDivisionError]


def test_that_nothing_can_be_recorded_is_told_once() -> None:
    """It can't be on record itself; told again when it came back and went."""
    story = make()

    async def work() -> None:
        for fault in ("no space", "no space", "", "no space"):
            story.rig.cycle.state.record_fault = fault
            story.outlets.passed(0.01)
            await rest()

    story.run(work)
    text = '{"t": "record_fault: nothing can be put on record, so nothing is done: no space"}\n'
    assert story.posted == [text, text]


def test_in_the_foreground_nothing_leaves(tmp_path: Path) -> None:
    """A command's passes tell nobody and write no file."""
    story = make(tmp_path / "x.prom", foreground=True)
    story.rig.cycle.state.record_fault = "no space"

    async def work() -> None:
        story.outlets.passed(0.01)
        await rest()

    story.run(work)
    assert story.posted == []
    assert list(tmp_path.iterdir()) == []


def test_passes_are_counted() -> None:
    """Whole ones with their time, broken ones by number."""
    story = make()

    async def work() -> None:
        story.outlets.passed(0.02)
        story.outlets.failed()
        text = story.outlets.text()
        assert "reclaimerd_pass_duration_seconds_count 1.0" in text
        assert "reclaimerd_pass_failures_total 1.0" in text
        assert "reclaimerd_last_pass_timestamp_seconds 1.8e+09" in text

    story.run(work)


def test_a_flood_of_scrapes_makes_one_text_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks again at once gets the same; a second later it is a new one."""
    story = make()
    made: list[object] = []

    def text(measured: object) -> str:
        made.append(measured)
        return f"x {len(made)}\n"

    monkeypatch.setattr("reclaimerd.daemon.outlets.metrics_text", text)

    async def work() -> None:
        assert {story.outlets.text() for _ in range(100)} == {"x 1\n"}
        story.rig.now[0] += SAME_TEXT_SECONDS
        assert story.outlets.text() == "x 2\n"

    story.run(work)
    assert len(made) == 2


def write_after_pass(story: Story) -> Callable[[], Awaitable[None]]:
    """Return one pass, and a wait for the thread that writes."""

    async def work() -> None:
        story.outlets.passed(0.01)
        await rest()
        thread: Any = story.outlets._thread._thread
        if thread is not None:
            await asyncio.to_thread(thread.join, BOUND)

    return work


def test_the_text_file_is_whole_and_for_everybody(tmp_path: Path) -> None:
    """Replaced by a rename, readable, nothing is left beside it, and not more often than it pays."""
    path = tmp_path / "reclaimerd.prom"
    story = make(path)

    async def work() -> None:
        once = write_after_pass(story)
        await once()
        first = path.stat()
        assert stat.S_IMODE(first.st_mode) == 0o644
        await once()
        assert path.stat().st_ino == first.st_ino
        story.rig.now[0] += TEXTFILE_EVERY_SECONDS
        await once()
        assert path.stat().st_ino != first.st_ino

    story.run(work)
    assert path.read_text().startswith("# HELP reclaimerd_gpu_memory_used_bytes ")
    assert path.read_text().endswith("\n")
    assert [one.name for one in tmp_path.iterdir()] == ["reclaimerd.prom"]


def test_a_link_in_the_folder_of_others_leads_nowhere(tmp_path: Path) -> None:
    """Whoever owns the folder can't have root write elsewhere: the link is replaced, its target stays."""
    target = tmp_path / "shadow"
    target.write_text("precious")
    path = tmp_path / "reclaimerd.prom"
    path.symlink_to(target)
    story = make(path)
    story.run(write_after_pass(story))
    assert target.read_text() == "precious"
    assert not path.is_symlink()


def test_a_folder_that_is_missing_is_said_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it, not each time; when the folder is there the file comes."""
    said: list[dict[str, object]] = []
    monkeypatch.setattr("reclaimerd.daemon.outlets.logs.warning", lambda _name, **fields: said.append(fields))
    path = tmp_path / "later" / "reclaimerd.prom"
    story = make(path)

    async def work() -> None:
        once = write_after_pass(story)
        for _ in range(3):
            await once()
            story.rig.now[0] += TEXTFILE_EVERY_SECONDS
        assert [fields["error"] for fields in said] == ["No such file or directory"]
        path.parent.mkdir()
        await once()

    story.run(work)
    assert path.exists()


def test_a_folder_that_hangs_holds_up_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread waits for it, and no second one is started."""
    reader, writer = os.pipe()
    calls: list[Path] = []

    def hang(path: Path, _content: bytes, _mode: int) -> None:
        calls.append(path)
        os.read(reader, 1)

    monkeypatch.setattr("reclaimerd.daemon.outlets.replace_plainly", hang)
    story = make(tmp_path / "x.prom")

    async def work() -> None:
        for _ in range(4):
            story.outlets.passed(0.01)
            await rest()
            story.rig.now[0] += TEXTFILE_EVERY_SECONDS

    try:
        story.run(work)
        wait_until(lambda: bool(calls), "the thread has begun")
        assert len(calls) == 1
    finally:
        os.write(writer, b"x")
        story.outlets._thread._thread.join(BOUND)  # type: ignore[union-attr]  # it was started above
        os.close(reader)
        os.close(writer)


def test_a_head_that_can_t_be_kept_is_told_once_and_hinders_nothing() -> None:
    """By notice and metric; told again when it came back and went."""
    story = make()
    faults = iter(("", "/mnt/x: gone", "/mnt/x: gone", "", "/mnt/x: gone"))
    fault = [""]
    story.outlets.anchor_file_fault = lambda: fault[0]

    async def work() -> None:
        for fault[0] in faults:
            story.outlets.passed(0.01)
            await rest()
            story.rig.now[0] += SAME_TEXT_SECONDS
            assert f"reclaimerd_anchor_fault {float(bool(fault[0]))}" in story.outlets.text()

    story.run(work)
    text = '{"t": "anchor_fault: the audit log\'s head can\'t be kept elsewhere: /mnt/x: gone"}\n'
    assert story.posted == [text, text]
