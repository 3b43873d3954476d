"""What a pass joins: eyes, memory, hands, and what only `wiring` can know of this host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reclaimerd.daemon.news import News
from reclaimerd.daemon.recording import RecordingPort
from reclaimerd.daemon.warning_tasks import WarningTasks
from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.plight import PlightSettings
from reclaimerd.judge.protections import Ours
from reclaimerd.model.fault import XidEntry
from reclaimerd.model.identity import AttemptId, IncidentId
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import ExecutorPort, SamplerPort


@dataclass(frozen=True, slots=True)
class Joints:
    """What the cycle joins: eyes, memory, hands, and what only `wiring` can know of this host."""

    sampler: SamplerPort
    recorder: RecordingPort
    executor: ExecutorPort
    judge: Callable[[], JudgeContext]
    ours: Callable[[], Ours]
    hold_file: Callable[[Policy], str]
    clock: Callable[[], float]
    plight_settings: Callable[[Policy], PlightSettings]
    """Patience and known places in the kernel, by the policy in force."""
    news: News
    """The kernel's log and device events, until they are durable."""
    xids: Mapping[int, XidEntry]
    """The catalogue: what each Xid asks for."""
    driver_changed: Callable[[], None]
    """A GPU came, went or changed hands: whoever asks the driver must start anew."""
    begin_reset: Callable[[AttemptId], None]
    """Let the reset procedure take up a run that is durable; it goes on by itself, beside the passes."""
    warnings: WarningTasks
    """The warnings to owners that are under way, beside the passes."""
    forget: Callable[[IncidentId], None]
    """Let the hands drop what they kept of an incident that ended."""
    look_after_drain: Callable[[], None]
    """Let this node's drain request go on from where the ledger has it."""
    drain_targets: Callable[[], tuple[str, ...]]
    """Return who is asked for a drain by the policy in force."""
    host: str = ""
    host_namespace: bool = True
    foreground: bool = False
    dry_run: bool = False
