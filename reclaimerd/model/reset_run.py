"""One reset on its way: a persisted machine of its own, so that a death of ours at any point loses nothing.

Each phase is durable before anything of it is done; each change is durable before it is made, and
again when it is undone.
"""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import AttemptId, GpuUuid, IncidentId, ProcessRef
from reclaimerd.model.incident import Actor


class ResetPhase(StrEnum):
    """Where a reset stands. LEFT_ALONE: the tool did not end in time and nobody touches the GPU."""

    PREPARE = "prepare"
    FENCE = "fence"
    STOP_CLIENTS = "stop_clients"
    LOOK_AGAIN = "look_again"
    RESET = "reset"
    LEFT_ALONE = "left_alone"
    VERIFY = "verify"
    RESTORE = "restore"
    DONE = "done"


class ResetFact(StrEnum):
    """What happened in a phase; `judge.reset_steps` maps (phase, fact) to the next phase."""

    PREPARED = "prepared"
    FENCED = "fenced"
    STOPPED = "stopped"
    CLEAR = "clear"
    REFUSED = "refused"
    TOOL_ENDED = "tool_ended"
    TOOL_SAID_NO = "tool_said_no"
    TOOL_OVERRAN = "tool_overran"
    VERIFIED = "verified"
    NOT_VERIFIED = "not_verified"
    RESTORED = "restored"
    REBOOTED = "rebooted"


class ResetResult(StrEnum):
    """What came of a reset; only the first says that the GPU was reset and is well."""

    VERIFIED = "verified"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_VERIFIED = "not_verified"
    ABANDONED = "abandoned"


class ChangeKind(StrEnum):
    """What a reset changes on the host besides the GPU, in the order it is changed; undone in reverse."""

    FENCE = "fence"
    UNIT = "unit"
    PERSISTENCE = "persistence"
    SETTING = "setting"


class ChangeState(StrEnum):
    """How far one change is. LEFT: it could not be undone, and a person is told."""

    PLANNED = "planned"
    MADE = "made"
    UNDONE = "undone"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is changed and put back: what it was before, in the words that put it back.

    UNIT: `name` is the unit, `before` "active". PERSISTENCE: the GPU's UUID, "1". SETTING: `name` is
    "UUID kind", `before` the value as `GpuSetting` has it; made by the reset itself. FENCE: the host,
    and what the fence said of itself. `text` says what failed.
    """

    kind: ChangeKind
    name: str
    before: str
    state: ChangeState = ChangeState.PLANNED
    text: str = ""


@dataclass(frozen=True, slots=True)
class GpuBefore:
    """What the verification compares with: counters None where they could not be read."""

    uuid: GpuUuid
    pci_address: str
    uncorrected_ecc: int | None
    remapped_rows: int | None
    remap_failed: bool | None
    baseline_bytes: int | None
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ResetRun:
    """One reset, from its permit to the last thing put back. Times are wall-clock seconds.

    `gpus` are all that the tool is given in one command. `tool` is the process that runs it, once
    known. `kernel_seq` is the last kernel log record before the tool ran.
    """

    id: AttemptId
    incident: IncidentId
    boot_id: str
    actor: Actor
    gpus: tuple[GpuUuid, ...]
    began_at: float
    force: bool = False
    phase: ResetPhase = ResetPhase.PREPARE
    phase_at: float = 0.0
    changes: tuple[Change, ...] = ()
    before: tuple[GpuBefore, ...] = ()
    tool: ProcessRef | None = None
    tool_at: float | None = None
    kernel_seq: int | None = None
    result: ResetResult | None = None
    text: str = ""
    told: bool = False
    """The incident has its outcome; the run goes on only to put things back."""

    @property
    def is_done(self) -> bool:
        """Tell whether nothing of it is left to do."""
        return self.phase is ResetPhase.DONE


@dataclass(frozen=True, slots=True)
class ResetPast:
    """One reset that has its result, for budgets, cool-downs and the GPU's breaker."""

    gpus: tuple[GpuUuid, ...]
    result: ResetResult
    at: float
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Untouchable:
    """DO NOT TOUCH: a reset tool of this boot was left alone on these GPUs; only a reboot ends it."""

    gpus: tuple[GpuUuid, ...]
    boot_id: str
    since: float
    why: str
    tool: ProcessRef | None = None


@dataclass(frozen=True, slots=True)
class GpuBreaker:
    """Resets of this GPU failed too often; only a person closes it."""

    gpu: GpuUuid
    reason: str
    since: float
