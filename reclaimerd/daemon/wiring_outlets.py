"""The part of wiring that knows how notices leave the host. Builds, and decides nothing."""

import time

from reclaimerd.act.webhook_post import post
from reclaimerd.daemon.anchor_tasks import AnchorSender
from reclaimerd.daemon.engine import ROLES, Choice
from reclaimerd.daemon.notice_tasks import Notifier
from reclaimerd.daemon.outlets import Outlets
from reclaimerd.daemon.recording import HeardRecorder, RecordingPort
from reclaimerd.daemon.tally import Tally
from reclaimerd.daemon.wiring_hands import HandParts
from reclaimerd.daemon.wiring_workers import Probes


def build_outlets(
    parts: HandParts, probes: Probes, choice: Choice, recording: RecordingPort
) -> tuple[Outlets, RecordingPort]:
    """Return metrics and notices of an engine, and its memory; in the foreground they hear of nothing."""
    tally = Tally()
    recorder = parts.recorder

    outlets = Outlets(
        parts.cycle,
        tally,
        Notifier(lambda: parts.policy().notices, post, tally, time.monotonic),
        AnchorSender(lambda: parts.policy().anchor_webhook, post, time.monotonic, time.time, parts.boot_id),
        (lambda: None) if recorder is None else recorder.head,
        str if recorder is None else recorder.anchor_fault,
        lambda: {role: probe.abandoned is not None for role, probe in zip(ROLES, probes, strict=True)},
    )
    silent = recorder is None or choice.foreground
    return outlets, (recording if silent else HeardRecorder(recording, outlets.hear))
