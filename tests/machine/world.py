"""The simulated truth: processes, what they hold of GPUs, the driver, the disk and the clocks.

It knows nothing of the daemon and judges nothing; whoever acts on it, or looks at it, comes from outside.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.fault import DeviceAction, DeviceEvent, XidLine
from reclaimerd.model.identity import FileIdentity, GpuUuid, ProcessRef
from tests.builders import GIB, GPU_A, GPU_B, WALL

EXIT_SECONDS = 3.0
"""How long an exit takes that nothing holds up."""
REAP_SECONDS = 20.0
PYTHON = FileIdentity(1, 7)
OTHER_PROGRAM = FileIdentity(1, 8)
SHIELDED_UID = 1500
"""The policy protects whoever has this uid."""
CLIENT_UNIT = "nvidia-dcgm.service"
CLIENT_PID = 60


class Phase(StrEnum):
    """Where a process is between its start and its end."""

    ALIVE = "alive"
    EXITING = "exiting"
    ZOMBIE = "zombie"
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Proc:
    """One process: identity, what it runs as, and what becomes of it when it is told to go."""

    ref: ProcessRef
    ppid: int
    unit: str
    born: float
    uid: int = 1000
    exe: FileIdentity = PYTHON
    phase: Phase = Phase.ALIVE
    obeys: bool = True
    sticks: bool = False
    """Its exit hangs in the driver."""
    readable: bool = True
    is_orphan: bool = False
    """Nobody waits for it: it leaves no zombie."""
    since: float = 0.0
    """When its phase began."""

    @property
    def is_shielded(self) -> bool:
        """Tell whether the policy protects it."""
        return self.uid == SHIELDED_UID

    @property
    def may_hold(self) -> bool:
        """Tell whether it can still hold anything."""
        return self.phase in (Phase.ALIVE, Phase.EXITING)

    @property
    def looks(self) -> tuple[int, FileIdentity, str]:
        """Return what it runs as: whoever judged it judged this."""
        return self.uid, self.exe, self.unit


@dataclass(slots=True, eq=False)
class Context:
    """Memory of one GPU: NVML names its owner for as long as anybody holds it."""

    gpu: GpuUuid
    owner: ProcessRef
    used: int
    holders: set[ProcessRef]


@dataclass(slots=True)
class Card:
    """One GPU: whether it is on the bus, what its dead left behind, and its persistence mode."""

    uuid: GpuUuid
    index: int
    present: bool = True
    ghost: int = 0
    """Bytes in use that no context accounts for."""
    leaks: bool = False
    """The next death on it leaves its memory behind."""
    persistence: bool = True
    resets: int = 0

    @property
    def pci(self) -> str:
        """Return its address as the kernel log has it."""
        return f"0000:0{self.index}:00.0"


@dataclass(slots=True)
class Disk:
    """What is wrong with the disk; `reserve_is_spent`: the operators' room was given up."""

    full: bool = False
    broken: bool = False
    reserve_is_spent: bool = False


def _cards() -> dict[GpuUuid, Card]:
    return {GPU_A: Card(GPU_A, 0), GPU_B: Card(GPU_B, 1)}


@dataclass(slots=True)
class World:
    """One host from its first boot on."""

    mono: float = 10_000.0
    wall_shift: float = WALL - 10_000.0
    boots: int = 1
    ticks: int = 1000
    last_pid: int = 100
    procs: dict[int, Proc] = field(default_factory=dict)
    contexts: list[Context] = field(default_factory=list)
    cards: dict[GpuUuid, Card] = field(default_factory=_cards)
    hung_since: float | None = None
    disk: Disk = field(default_factory=Disk)
    units: dict[str, bool] = field(default_factory=lambda: {CLIENT_UNIT: True})
    xids: list[XidLine] = field(default_factory=list)
    events: list[DeviceEvent] = field(default_factory=list)
    log_seq: int = 10

    def __post_init__(self) -> None:
        self.start_client()

    @property
    def boot_id(self) -> str:
        """Return the name of this boot."""
        return f"{self.boots:08d}-2222-3333-4444-555555555555"

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self.mono

    def time(self) -> float:
        """Return wall-clock seconds."""
        return self.mono + self.wall_shift

    @property
    def living(self) -> list[Proc]:
        """Return whoever may be judged: ordinary processes that have not ended."""
        return [one for one in self.procs.values() if one.may_hold and one.ref.pid != CLIENT_PID]

    def proc(self, ref: ProcessRef) -> Proc | None:
        """Return exactly this process, None when it is not there any more."""
        found = self.procs.get(ref.pid)
        return found if found is not None and found.ref == ref else None

    def holders_of(self, gpu: GpuUuid) -> list[Proc]:
        """Return whoever holds a GPU in truth, exiting or not."""
        refs = {ref for context in self.contexts if context.gpu == gpu for ref in context.holders}
        return [one for ref in sorted(refs) if (one := self.proc(ref)) is not None and one.may_hold]

    def used_by(self, ref: ProcessRef) -> int:
        """Return the most that NVML names this process with on any one GPU."""
        rows: dict[GpuUuid, int] = {}
        for context in self.contexts:
            if context.owner == ref:
                rows[context.gpu] = rows.get(context.gpu, 0) + context.used
        return max(rows.values(), default=0)

    # --- what happens by itself ---------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Let time pass: exits that nothing holds up end, and the dead are reaped."""
        self.mono += seconds
        for proc in list(self.procs.values()):
            if proc.phase is Phase.EXITING and not proc.sticks and self.mono >= proc.since + EXIT_SECONDS:
                self.die(proc)
            elif proc.phase is Phase.ZOMBIE and self.mono >= proc.since + REAP_SECONDS:
                self._reap(proc)

    def spawn(self, unit: str, uid: int = 1000, ppid: int = 50, pid: int | None = None) -> Proc:
        """Start a process, under a pid that is free."""
        if pid is None or pid in self.procs:
            self.last_pid += 1
            pid = self.last_pid
        self.ticks += 1
        proc = Proc(ProcessRef(self.boot_id, pid, self.ticks), ppid, unit, self.mono, uid, since=self.mono)
        self.procs[pid] = proc
        return proc

    def hold(self, proc: Proc, gpu: GpuUuid, used: int) -> None:
        """Let a process have a context of its own."""
        self.contexts.append(Context(gpu, proc.ref, used, {proc.ref}))

    def fork(self, parent: Proc, *, inherits: bool) -> Proc:
        """Let a process have a child, which may inherit the open descriptors."""
        child = self.spawn(parent.unit, parent.uid, parent.ref.pid)
        child.obeys, child.exe = parent.obeys, parent.exe
        if inherits:
            for context in self.contexts:
                if parent.ref in context.holders:
                    context.holders.add(child.ref)
        return child

    def leave(self, proc: Proc) -> None:
        """Let a process enter its exit."""
        if proc.phase is Phase.ALIVE:
            proc.phase, proc.since = Phase.EXITING, self.mono

    def die(self, proc: Proc) -> None:
        """End a process: what it alone held comes back, or stays behind where the driver leaks."""
        proc.phase, proc.since = Phase.ZOMBIE, self.mono
        for context in [one for one in self.contexts if proc.ref in one.holders]:
            context.holders.discard(proc.ref)
            if not context.holders:
                self.contexts.remove(context)
                card = self.cards[context.gpu]
                if card.leaks:
                    card.ghost, card.leaks = card.ghost + context.used, False
        if proc.is_orphan:
            self._reap(proc)

    def _reap(self, proc: Proc) -> None:
        proc.phase = Phase.GONE
        if self.procs.get(proc.ref.pid) is proc:
            del self.procs[proc.ref.pid]

    def vanish(self, proc: Proc) -> None:
        """End a process at once, without a trace in /proc."""
        self.die(proc)
        self._reap(proc)

    def start_client(self) -> None:
        """Start the unit's client of the driver, which has each node open."""
        self.units[CLIENT_UNIT] = True
        client = self.spawn(CLIENT_UNIT, 0, 1, CLIENT_PID)
        client.is_orphan = True
        for uuid in self.cards:
            self.contexts.append(Context(uuid, client.ref, 0, {client.ref}))

    def stop_client(self) -> None:
        """Stop it: it lets go at once."""
        self.units[CLIENT_UNIT] = False
        client = self.procs.get(CLIENT_PID)
        if client is not None:
            self.vanish(client)

    # --- what happens to the machine ------------------------------------------------------------------

    def xid(self, gpu: GpuUuid, code: int) -> None:
        """Let the kernel log an Xid against a GPU."""
        self.log_seq += 1
        pci = self.cards[gpu].pci
        self.xids.append(XidLine(self.log_seq, self.mono, pci, code, f"NVRM: Xid (PCI:{pci}): {code}"))

    def lose(self, gpu: GpuUuid) -> None:
        """Take a GPU off the bus."""
        self.cards[gpu].present = False
        self.events.append(DeviceEvent(DeviceAction.REMOVED, "pci", self.cards[gpu].pci, "nvidia"))

    def find(self, gpu: GpuUuid) -> None:
        """Put it back."""
        self.cards[gpu].present = True
        self.events.append(DeviceEvent(DeviceAction.ADDED, "pci", self.cards[gpu].pci, "nvidia"))

    def reset(self, gpu: GpuUuid) -> None:
        """Make a GPU new."""
        card = self.cards[gpu]
        card.ghost, card.leaks, card.resets = 0, False, card.resets + 1

    def boot(self) -> None:
        """Boot the machine: no process, no fault and no monotonic second of before is left."""
        self.boots += 1
        self.wall_shift = self.time() + 90.0 - 100.0
        self.mono, self.ticks, self.log_seq = 100.0, 50, 10
        for proc in self.procs.values():
            proc.phase = Phase.GONE
        self.procs, self.contexts, self.hung_since = {}, [], None
        self.cards, self.xids, self.events = _cards(), [], []
        self.start_client()


SIZES = (1 * GIB, 8 * GIB, 30 * GIB)
"""Of contexts: the first is below the rule's cap."""
