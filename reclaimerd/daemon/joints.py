"""What a pass joins: eyes, memory, hands, and what only `wiring` can know of this host."""

from collections.abc import Callable
from dataclasses import dataclass

from reclaimerd.daemon.recording import RecordingPort
from reclaimerd.judge.evaluate import JudgeContext
from reclaimerd.judge.plight import PlightSettings
from reclaimerd.judge.protections import Ours
from reclaimerd.model.identity import IncidentId
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
    forget: Callable[[IncidentId], None]
    """Let the hands drop what they kept of an incident that ended."""
    host_namespace: bool = True
    foreground: bool = False
    dry_run: bool = False
