"""What must be known of a GPU and its host before a reset, read for that moment alone.

Everything here is read, never guessed: what could not be read is Unreadable and refuses; what the
vendor or the kernel does not offer is Absent and refuses nothing.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Reading


class Generation(StrEnum):
    """As much of a GPU's architecture as decides whether its NVLink peers must be reset with it."""

    BEFORE_AMPERE = "before_ampere"
    AMPERE = "ampere"
    LATER = "later"


class Virtualisation(StrEnum):
    """How a GPU is shared with virtual machines, in NVML's words."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU_GUEST = "vgpu_guest"
    VGPU_HOST = "vgpu_host"


@dataclass(frozen=True, slots=True)
class NvLinks:
    """The active NVLinks of a GPU: PCI addresses of GPUs at their other ends, and whether a switch is there.

    Addresses are `0000:3b:00.0`, lower case.
    """

    active: int
    peers: tuple[str, ...] = ()
    switched: bool = False


@dataclass(frozen=True, slots=True)
class ErrorCounters:
    """Lifetime (aggregate) error counts of a GPU: they only rise, and must not rise by a reset."""

    uncorrected_ecc: Reading[int]
    remapped_rows: Reading[int]
    remap_failed: Reading[bool]


class SettingKind(StrEnum):
    """What a GPU forgets when its last client leaves and the driver lets go of it."""

    POWER_LIMIT = "power_limit"
    COMPUTE_MODE = "compute_mode"
    ACCOUNTING_MODE = "accounting_mode"
    APPLICATION_CLOCKS = "application_clocks"


@dataclass(frozen=True, slots=True)
class GpuSetting:
    """One setting as the vendor's tool takes it back.

    Values: `-pl` watts ("300.00"), `-c` mode number ("0"), `-am` "0" or "1", `-ac` "memory,graphics" MHz.
    `is_default`: it equals the GPU's own default, so there is nothing to write back.
    """

    kind: SettingKind
    value: Reading[str]
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU by NVML, besides what every pass reads of it."""

    uuid: GpuUuid
    pci_address: str
    generation: Reading[Generation]
    links: Reading[NvLinks]
    fabric: Reading[str]
    virtualisation: Reading[Virtualisation]
    display_active: Reading[bool]
    drain_state: Reading[bool]
    mig_pending: Reading[bool]
    """MIG mode after the next reset differs from now."""
    counters: ErrorCounters
    settings: tuple[GpuSetting, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """One kernel module that can hold a GPU: its use count, and the modules that use it.

    `users` is /sys/module/NAME/refcnt; Absent when the module is not loaded.
    """

    name: str
    users: Reading[int]
    used_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BusyThread:
    """A kernel thread that is inside the driver in three looks: a close that was deferred."""

    pid: int
    comm: str
    frame: str


@dataclass(frozen=True, slots=True)
class DisplayClient:
    """A display or DRM use of a GPU that has no process: a console, a connector, a lease."""

    pci_address: str
    text: str


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What only the kernel knows: holders without a process, and whether the device is there at all.

    `opens` is how many descriptors on the driver's nodes the search could see: what the module counts
    beyond them and the modules on top is held by somebody who can't be seen.
    """

    present: tuple[str, ...]
    """PCI addresses of the GPUs that /sys/bus/pci/devices has and that the nvidia driver is bound to."""
    missing: tuple[str, ...]
    modules: tuple[ModuleUse, ...]
    busy_threads: tuple[BusyThread, ...]
    displays: tuple[DisplayClient, ...]
    opens: Reading[int]
    other_resets: tuple[int, ...] = ()
    """Pids of another reset tool under way, ours apart."""
    skipped: tuple[str, ...] = ()
    """What could not be looked at, a sentence each."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """One systemd unit, by `systemctl show`: ActiveState, and what a stop of it would reach.

    `stops_too` are active units that would be stopped with it (RequiredBy, BoundBy, ConsistsOf,
    PropagatesStopTo, walked to the end); `triggers` are active units that may start it again.
    """

    name: str
    loaded: bool
    active: str
    stops_too: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """The units that a reset may have to stop, and those that tell which scheduler owns this host."""

    units: tuple[UnitState, ...]
    schedulers: tuple[str, ...] = ()
    """Active units of a scheduler's node agent: kubelet, slurmd."""
    fabric_manager: bool = False

    def unit(self, name: str) -> UnitState | None:
        """Return one unit, or None when it was not asked for."""
        return next((unit for unit in self.units if unit.name == name), None)


@dataclass(frozen=True, slots=True)
class ResetFacts:
    """All of it at one instant (`at`, monotonic seconds), for every GPU of the host."""

    at: float
    gpus: Reading[tuple[GpuFacts, ...]]
    kernel: Reading[KernelFacts]
    units: Reading[UnitFacts]
    tool_fault: str = ""
    """Why the vendor's tool can't be run here; it is told apart from the gate's own answer."""
    notes: tuple[str, ...] = field(default=())

    def gpu(self, uuid: GpuUuid) -> GpuFacts | None:
        """Return the facts of one GPU, or None where they were not read."""
        value = getattr(self.gpus, "value", ())
        return next((gpu for gpu in value if gpu.uuid == uuid), None)
