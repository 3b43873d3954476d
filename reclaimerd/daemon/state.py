"""What the cycle carries from one pass to the next; all that must survive a restart is in the store too."""

from dataclasses import dataclass, field

from reclaimerd.daemon.draft import Owed
from reclaimerd.daemon.driver_watch import DriverWatch
from reclaimerd.daemon.faults import FaultMemory
from reclaimerd.errors import CorruptStoreError
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.plight import PlightMemory
from reclaimerd.judge.series import Past
from reclaimerd.model.allocation import Departure
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.incident import Incident
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.verdict import Sustained


@dataclass(frozen=True, slots=True)
class PassReport:
    """When the next pass is due (monotonic seconds; None: at the interval), and what was done."""

    wake_at: float | None
    at_once: bool
    acts: int
    seconds: float


@dataclass(slots=True)
class State:
    """What the cycle knows between passes; all that must survive a restart is in the store too."""

    incidents: dict[IncidentId, Incident] = field(default_factory=dict)
    handed: dict[IncidentId, Incident] = field(default_factory=dict)
    last_acted: Incident | None = None
    """Of the incidents that ended, also before our start, the one whose last step is the newest."""
    ledger: Ledger = field(default_factory=Ledger)
    sustained: tuple[Sustained, ...] = ()
    past: Past = field(default_factory=Past)
    departures: tuple[Departure, ...] = ()
    snapshot: Snapshot | None = None
    evaluation: Evaluation | None = None
    said: dict[IncidentId, str] = field(default_factory=dict)
    alarmed: frozenset[str] = frozenset()
    record_fault: str = ""
    operator_fault: str = ""
    """The part of the record fault that binds operators too."""
    owed: Owed = field(default_factory=Owed)
    corrupt: CorruptStoreError | None = None
    denied: int = 0
    """Calls that were denied since our start."""
    wants_full_scan: bool = False
    wants_reset_look: bool = False
    wants_every_reading: bool = False
    """Somebody wants what other policies than ours may ask of a look."""
    asked_pids: set[int] = field(default_factory=set)
    plight_memory: PlightMemory = field(default_factory=PlightMemory)
    faults: FaultMemory = field(default_factory=FaultMemory)
    driver_watch: DriverWatch = field(default_factory=DriverWatch)
    well_mono: float | None = None
    """Since when every cause of this node's drain request is over and the GPUs are well, without a break."""
