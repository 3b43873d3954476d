"""One request that this node be drained: a persisted machine of its own, asked of several targets.

A node has one request at a time; further incidents join it. Each phase and each asking is durable before
anything leaves the host, so a death of ours at any point asks nobody twice with effect.
"""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.policy import FaultDomain


class DrainCode(StrEnum):
    """Why a drain is asked for, as one word that all nodes of a fleet share; no others exist.

    BY_HAND is no reason of ours: a person asked for it, and only they take it back.
    """

    STUCK_EXIT = "stuck_exit"
    DRIVER_UNRESPONSIVE = "driver_unresponsive"
    GPU_LOST = "gpu_lost"
    RECOVERY_ACTION = "recovery_action"
    RESET_FAILED = "reset_failed"
    BY_HAND = "by_hand"


@dataclass(frozen=True, slots=True)
class DrainReason:
    """Why a drain may be asked for (docs/adr says which reasons exist), and whose fault it is."""

    domain: FaultDomain
    text: str
    code: DrainCode


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """What is asked of whoever moves work away from this node; no command line leaves the host.

    `id` is the first incident's: targets know a request again by it. `tried` is what was done before, in
    order; `mend` what whoever is paged should do. `pod` is the offending one (namespace, name, uid), where
    there is one.
    """

    host: str
    incident: IncidentId
    code: DrainCode
    reason: str
    gpus: tuple[GpuUuid, ...]
    pids: tuple[int, ...]
    evidence: tuple[str, ...]
    asked_at: float
    runbook: str
    since_at: float | None = None
    tried: tuple[str, ...] = ()
    mend: str = ""
    pod: tuple[str, str, str] | None = None

    @property
    def id(self) -> str:
        """Return the name by which every target knows this request again."""
        return self.incident


class DrainPhase(StrEnum):
    """Where a node's request stands. SLOT: it waits until the fleet's limit has room for this node."""

    SLOT = "slot"
    ASK = "ask"
    STANDS = "stands"
    WITHDRAW = "withdraw"
    DONE = "done"


class DrainFact(StrEnum):
    """What happened in a phase; `judge.drain_steps` maps (phase, fact) to the next phase."""

    SLOT_TAKEN = "slot_taken"
    ALL_ANSWERED = "all_answered"
    WITHDRAWAL_ORDERED = "withdrawal_ordered"
    ALL_WITHDRAWN = "all_withdrawn"


class AskState(StrEnum):
    """Where one target stands. FOREIGN: somebody else's drain stands there, and ours changed nothing.

    FAILED: asking again changes nothing until a person mends it. DUE: it is to be asked, also again.
    """

    DUE = "due"
    ASKED = "asked"
    FOREIGN = "foreign"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Ask:
    """One target: its state, its own last words, and when it is asked again (wall-clock seconds)."""

    target: str
    state: AskState = AskState.DUE
    text: str = ""
    tries: int = 0
    at: float | None = None
    retry_at: float | None = None
    place: str = ""
    """Where the target left it, as far as the policy may come to name another place meanwhile."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Who wants the request taken back, why, and since when (wall-clock seconds)."""

    by: str
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Joined:
    """One incident that asked for this drain; `well_at` is when its own cause was over, None: it stands.

    `told`: the incident has its outcome. `gpus` are those that it is about.
    """

    incident: IncidentId
    reason: str
    at: float
    well_at: float | None = None
    told: bool = False
    gpus: tuple[GpuUuid, ...] = ()
    by_hand: bool = False
    """A person asked: it is never over by itself, and binds beyond a boot."""


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """This node's request: what is asked, of whom, by which incidents, and how far it is.

    `slot` is what the fleet's arbiter last said, `has_slot` whether it gave a place. `verified_boot` is the
    later boot in which the GPUs were found well again, "" before.
    """

    request: DrainRequest
    boot_id: str
    began_at: float
    joined: tuple[Joined, ...]
    asks: tuple[Ask, ...]
    phase: DrainPhase = DrainPhase.SLOT
    phase_at: float = 0.0
    slot: str = ""
    has_slot: bool = False
    slot_retry_at: float | None = None
    withdrawal: Withdrawal | None = None
    verified_boot: str = ""
    verified_told: bool = False
    """Whether those who can say so without taking the request back have said it."""
    asked_boot: str = ""
    """The boot in which the targets were last asked: what a boot undoes is asked for again."""

    @property
    def id(self) -> str:
        """Return the request's name."""
        return self.request.id

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        """Return every GPU that this is about, of whichever incident."""
        joined = (uuid for one in self.joined for uuid in one.gpus)
        return tuple(dict.fromkeys((*self.request.gpus, *joined)))

    @property
    def by_hand(self) -> bool:
        """Tell whether a person asked for it, alone or beside incidents."""
        return any(one.by_hand for one in self.joined)

    @property
    def is_unasked(self) -> bool:
        """Tell whether nobody was asked yet: nothing of it can stand anywhere."""
        is_early = self.phase in (DrainPhase.SLOT, DrainPhase.ASK)
        return is_early and not any(ask.tries for ask in self.asks)

    @property
    def stands_somewhere(self) -> bool:
        """Tell whether any target has it, or has another's drain in its place."""
        return any(ask.state in (AskState.ASKED, AskState.FOREIGN) for ask in self.asks)

    @property
    def all_failed(self) -> bool:
        """Tell whether every target has answered and none has it: a person must know."""
        return all(
            ask.state is AskState.FAILED or (ask.state is AskState.DUE and bool(ask.text))
            for ask in self.asks
        )
