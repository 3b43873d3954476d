"""What leaves the daemon beside log and socket: counts, notices, the audit's head, the metrics' text file.

It hears of each durable batch and of each pass, after the fact and outside of both: neither waits for it, and
a fault of it reaches neither. It may not act, nor change anything of the cycle's.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.daemon.anchor_tasks import AnchorSender
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.metrics import MetricFacts, metrics_of
from reclaimerd.daemon.metrics_text import metrics_text
from reclaimerd.daemon.notice_tasks import Notifier
from reclaimerd.daemon.notices import anchor_fault, notices_of, record_fault
from reclaimerd.daemon.tally import Tally
from reclaimerd.host.files import replace_plainly
from reclaimerd.model.ports import Batch
from reclaimerd.observe.side_thread import SideThread
from reclaimerd.record import logs
from reclaimerd.record.chain import Head

TEXTFILE_EVERY_SECONDS = 15.0
"""node_exporter is asked no more often than that as a rule."""
SAME_TEXT_SECONDS = 1.0
"""One text takes some milliseconds of the loop."""
_TEXTFILE_MODE = 0o644


@dataclass(slots=True)
class Outlets:
    """Heard batches until they are counted, what was told already, and where the text file stands."""

    cycle: Callable[[], Cycle]
    tally: Tally
    notifier: Notifier
    anchors: AnchorSender
    audit_head: Callable[[], Head | None] = lambda: None
    anchor_file_fault: Callable[[], str] = str
    abandoned: Callable[[], dict[str, bool]] = dict
    wall: Callable[[], float] = time.time
    started_at: float = field(default_factory=time.time)
    last_pass_at: float | None = None
    _heard: deque[Batch] = field(default_factory=deque)
    _thread: SideThread = field(default_factory=SideThread)
    _told_fault: bool = False
    _told_anchor: bool = False
    _text: str = ""
    _text_mono: float = float("-inf")
    _written_mono: float = float("-inf")
    _file_fault: str = ""
    _said_fault: str = ""

    def hear(self, batch: Batch) -> None:
        """Take a batch that became durable; it is counted and told a turn of the loop later."""
        self._heard.append(batch)
        if len(self._heard) == 1:
            asyncio.get_running_loop().call_soon(self._take_heard)

    def passed(self, seconds: float) -> None:
        """Take the end of a whole pass."""
        self.tally.passes.add(seconds)
        self.last_pass_at = self.wall()
        asyncio.get_running_loop().call_soon(self._after_pass)

    def failed(self) -> None:
        """Take the end of a pass that broke off."""
        self.tally.failed_passes += 1

    def text(self) -> str:
        """Return the metrics as they are now, or were a second ago: a flood of scrapes costs little."""
        now = self.cycle().joints.clock()
        if now < self._text_mono + SAME_TEXT_SECONDS:
            return self._text
        self._text_mono, self._text = now, self._fresh_text()
        return self._text

    def anchor_fault(self) -> str:
        """Return why the audit's head could not be kept elsewhere, or ""; it binds nobody."""
        return "; ".join(filter(None, (self.anchor_file_fault(), self.anchors.fault())))

    def _fresh_text(self) -> str:
        self._take_heard()
        facts = MetricFacts(
            self.tally,
            self.started_at,
            self.last_pass_at,
            self.audit_head(),
            self.abandoned(),
            self.anchors.sent,
            bool(self.anchor_fault()),
        )
        return metrics_text(metrics_of(self.cycle(), facts))

    async def stop(self) -> None:
        """Let go of notices, and of the head, that are on their way."""
        await self.notifier.stop()
        await self.anchors.stop()

    def _take_heard(self) -> None:
        while self._heard:
            batch = self._heard.popleft()
            self.tally.take(batch)
            self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        if not self.notifier.has_receivers:
            return
        cycle = self.cycle()
        known, dry_run = cycle.state.incidents, cycle.joints.dry_run
        for notice in notices_of(batch, cycle.joints.host, self.wall(), known, dry_run=dry_run):
            self.notifier.tell(notice)

    def _after_pass(self) -> None:
        cycle = self.cycle()
        if cycle.joints.foreground:
            return
        fault = cycle.state.record_fault
        if fault and not self._told_fault and not cycle.joints.dry_run:
            self.notifier.tell(record_fault(fault, cycle.joints.host, self.wall()))
        self._told_fault = bool(fault)
        self.anchors.look(self.audit_head())
        unkept = self.anchor_fault()
        if unkept and not self._told_anchor:
            self.notifier.tell(anchor_fault(unkept, cycle.joints.host, self.wall()))
        self._told_anchor = bool(unkept)
        now = cycle.joints.clock()
        path = cycle.policy.metrics.textfile
        if path and now >= self._written_mono + TEXTFILE_EVERY_SECONDS:
            self._written_mono = now
            self._write(Path(path))

    def _write(self, path: Path) -> None:
        """Write the text file in a thread of its own: its folder is not ours and may hang."""
        fault = self._file_fault
        if fault != self._said_fault:
            self._said_fault = fault
            if fault:
                logs.warning("metrics_not_written", path=str(path), error=fault)
        content = self.text().encode()

        def write() -> None:
            try:
                replace_plainly(path, content, _TEXTFILE_MODE)
            except OSError as error:
                self._file_fault = error.strerror or str(error)
            else:
                self._file_fault = ""

        self._thread.call(write, 0.0)
