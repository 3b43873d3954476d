"""Faults of a GPU: what the kernel log, udev and the driver say of it, and what each asks for."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from reclaimerd.model.identity import GpuUuid


class FaultClass(IntEnum):
    """What a fault asks for, least first: the more severe of several sources wins.

    UNKNOWN stands above RESET: a fault that we have no word for never leads to an automatic reset.
    """

    NONE = 0
    IGNORE = 1
    APPLICATION = 2
    RESET = 3
    DRAIN_AND_RESET = 4
    UNKNOWN = 5
    OTHER = 6
    """The vendor asks for something else first (peer links, IMEX, a workflow): no reset of ours mends it."""
    REBOOT = 7
    LOST = 8

    @property
    def word(self) -> str:
        """Return the name as policy, records and JSON have it."""
        return self.name.lower()


class FaultSource(StrEnum):
    """Who says so."""

    XID = "xid"
    RECOVERY_ACTION = "recovery_action"
    DEVICE = "device"


@dataclass(frozen=True, slots=True)
class XidEntry:
    """One row of the catalogue: `code`, its class, the vendor's mnemonic, and where that stands."""

    code: int
    fault: FaultClass
    mnemonic: str
    source: str


@dataclass(frozen=True, slots=True)
class XidLine:
    """One Xid of the kernel log. `pci` is `0000:3b:00.0`; the pid is a hint, and often not the culprit's.

    `at` is monotonic seconds (the kernel's own stamp), `seq` the record's number in this boot.
    """

    seq: int
    at: float
    pci: str
    code: int
    text: str
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid_hint: int | None = None


@dataclass(frozen=True, slots=True)
class KernelNews:
    """What came in the kernel log since the last look; `last_seq` is the newest record's number.

    `gap` says in words what was missed ("" for nothing): then Xids are unknown for that time. `more`: the
    log has more than one look reads, and the rest comes with the next.
    """

    xids: tuple[XidLine, ...] = ()
    last_seq: int | None = None
    gap: str = ""
    more: bool = False


class DeviceAction(StrEnum):
    """What udev says happened to a device of ours."""

    ADDED = "add"
    REMOVED = "remove"
    BOUND = "bind"
    UNBOUND = "unbind"
    CHANGED = "change"


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """One udev event of a PCI or drm device; `pci` is the address of the GPU (or of its parent)."""

    action: DeviceAction
    subsystem: str
    pci: str
    driver: str = ""
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StandingXid:
    """An Xid that stands against a GPU until a verified reset or a reboot; `count` lines, the last at `at`.

    `at` is wall-clock seconds, `seq` the newest record's number.
    """

    gpu: GpuUuid
    boot_id: str
    code: int
    fault: FaultClass
    seq: int
    at: float
    count: int = 1
    text: str = ""


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What ails one GPU by every source, the gravest first; `text` is for people."""

    gpu: GpuUuid
    fault: FaultClass
    text: str = ""
    sources: tuple[tuple[FaultSource, FaultClass, str], ...] = ()
