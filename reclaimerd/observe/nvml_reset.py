"""What a reset must know of one GPU, through pynvml: each failure a reading of its own.

The module is handed in by `observe.nvml`, the one door to it. It asks and changes nothing.
"""

from collections.abc import Callable, Iterable
from ctypes import byref
from types import ModuleType
from typing import Any, TypeVar

from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import (
    ErrorCounters,
    Generation,
    GpuFacts,
    GpuSetting,
    NvLinks,
    SettingKind,
    Virtualisation,
)
from reclaimerd.observe import nvml_quirks as quirks

T = TypeVar("T")
U = TypeVar("U")

AMPERE = 7
"""NVML_DEVICE_ARCH_AMPERE (nvml.h); numbers rise with the generation."""
UNKNOWN_ARCHITECTURE = 0xFFFFFFFF
MOST_LINKS = 18
"""NVML_NVLINK_MAX_LINKS up to Blackwell; the module may know of more."""
INVALID_ARGUMENT = 2
NO_SUCH_LINK = quirks.NOT_OFFERED | {INVALID_ARGUMENT}
REMOTE_GPU, REMOTE_IBM_NPU, REMOTE_SWITCH = 0, 1, 2
"""nvmlIntNvLinkDeviceType_t."""
_SWITCH, _NO_GPU = "switch", ""
UNCORRECTED, AGGREGATE = 1, 1
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC: lifetime counts, a reset clears the others."""
GRAPHICS_CLOCK, MEMORY_CLOCK = 0, 2
VIRTUALISATIONS = {
    0: Virtualisation.NONE,
    1: Virtualisation.PASSTHROUGH,
    2: Virtualisation.VGPU_GUEST,
    3: Virtualisation.VGPU_HOST,
    4: Virtualisation.VGPU_HOST,
}
FABRIC_STATES = {1: "not_started", 2: "in_progress", 3: "completed"}
NO_FABRIC = 0


class _Gpu:
    """One GPU's handle, and the vendor's calls on it by name."""

    __slots__ = ("handle", "module")

    def __init__(self, module: ModuleType, handle: object) -> None:
        self.module = module
        self.handle = handle

    def ask(self, name: str, *args: object, absent: frozenset[int] = quirks.NOT_OFFERED) -> Reading[Any]:
        """Return what a call on this GPU gives; a call that our package lacks is Absent too."""
        call = getattr(self.module, name, None)
        if call is None:
            return Absent(f"nvidia-ml-py lacks {name}")
        return quirks.reading_of(self.module, lambda: call(self.handle, *args), absent=absent)


def read_gpu_facts(module: ModuleType, index: int, known: Iterable[str]) -> GpuFacts | str:
    """Return one GPU's facts, or why not even its identity can be read.

    `known` are the PCI addresses of all GPUs of this host. Raises StaleConnectionError.
    """
    identity = quirks.reading_of(module, lambda: _read_identity(module, index))
    if not isinstance(identity, Known):
        return identity.why
    handle, uuid, pci = identity.value
    gpu = _Gpu(module, handle)
    drained = quirks.reading_of(module, lambda: bool(module.nvmlDeviceQueryDrainState(pci)))
    return GpuFacts(
        uuid=uuid,
        pci_address=quirks.pci_address(pci.busId),
        generation=_then(gpu.ask("nvmlDeviceGetArchitecture"), generation_of),
        links=_read_links(gpu, frozenset(known)),
        fabric=_read_fabric(gpu),
        virtualisation=_then(gpu.ask("nvmlDeviceGetVirtualizationMode"), virtualisation_of),
        display_active=_flag(gpu.ask("nvmlDeviceGetDisplayActive")),
        drain_state=drained,
        mig_pending=_then(gpu.ask("nvmlDeviceGetMigMode"), lambda modes: Known(modes[0] != modes[1])),
        counters=_read_counters(gpu),
        settings=_read_settings(gpu),
    )


def blind_facts(uuid: GpuUuid, pci_address: str, why: str) -> GpuFacts:
    """Return a GPU of which nothing but its identity is known."""
    blind = Unreadable(why)
    return GpuFacts(
        uuid=uuid,
        pci_address=pci_address,
        generation=blind,
        links=blind,
        fabric=blind,
        virtualisation=blind,
        display_active=blind,
        drain_state=blind,
        mig_pending=blind,
        counters=ErrorCounters(blind, blind, blind),
    )


def read_address(module: ModuleType, index: int) -> str | None:
    """Return one GPU's PCI address, None where it can't be read."""
    match quirks.reading_of(module, lambda: _read_identity(module, index)):
        case Known(value=(_, _, pci)):
            return quirks.pci_address(pci.busId)
        case _:
            return None


def _read_identity(module: ModuleType, index: int) -> tuple[object, GpuUuid, Any]:
    handle = module.nvmlDeviceGetHandleByIndex(index)
    uuid = GpuUuid(module.nvmlDeviceGetUUID(handle))
    return handle, uuid, module.nvmlDeviceGetPciInfo_v3(handle)


def _then(reading: Reading[T], meaning: Callable[[T], Reading[U]]) -> Reading[U]:
    return meaning(reading.value) if isinstance(reading, Known) else reading


def _flag(reading: Reading[int]) -> Reading[bool]:
    return _then(reading, lambda value: Known(bool(value)))


def generation_of(architecture: int) -> Reading[Generation]:
    """Return what an NVML architecture number means to us; NVML's own "unknown" is unreadable."""
    if architecture == UNKNOWN_ARCHITECTURE:
        return Unreadable("the driver does not know this GPU's architecture")
    if architecture == AMPERE:
        return Known(Generation.AMPERE)
    return Known(Generation.BEFORE_AMPERE if architecture < AMPERE else Generation.LATER)


def virtualisation_of(mode: int) -> Reading[Virtualisation]:
    """Return what an NVML virtualisation mode means; a number without a word is unreadable."""
    found = VIRTUALISATIONS.get(mode)
    return Unreadable(f"unknown virtualisation mode {mode}") if found is None else Known(found)


def _read_links(gpu: _Gpu, known: frozenset[str]) -> Reading[NvLinks]:
    """Return the active NVLinks; a GPU without any is Known(0), one unreadable link hides a peer."""
    active, peers, switched = 0, set[str](), False
    for link in range(max(MOST_LINKS, getattr(gpu.module, "NVML_NVLINK_MAX_LINKS", 0))):
        state = gpu.ask("nvmlDeviceGetNvLinkState", link, absent=NO_SUCH_LINK)
        match state:
            case Unreadable(why=why):
                return Unreadable(f"NVLink {link}: {why}")
            case Known(value=value) if value:
                active += 1
            case _:
                continue
        match _read_other_end(gpu, link, known):
            case Known(value=end):
                switched |= end == _SWITCH
                peers |= {end} - {_SWITCH, _NO_GPU}
            case Unreadable(why=why) | Absent(why=why):
                return Unreadable(f"NVLink {link}: what is at its other end is not told: {why}")
    return Known(NvLinks(active, tuple(sorted(peers)), switched))


def _read_other_end(gpu: _Gpu, link: int, known: frozenset[str]) -> Reading[str]:
    """Return the PCI address of the GPU at a link's other end, `switch`, or "" for neither.

    A library that does not tell kinds (before R465) may still tell the address of a GPU of this host.
    """
    kind = gpu.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link)
    match kind:
        case Known(value=value) if value == REMOTE_SWITCH:
            return Known(_SWITCH)
        case Known(value=value) if value == REMOTE_IBM_NPU:
            return Known(_NO_GPU)
        case Known(value=value) if value != REMOTE_GPU:
            return Unreadable(f"unknown kind {value}")
        case Unreadable():
            return kind
        case _:
            address = _then(
                gpu.ask("nvmlDeviceGetNvLinkRemotePciInfo", link),
                lambda pci: Known(quirks.pci_address(pci.busId)),
            )
    if isinstance(kind, Absent) and isinstance(address, Known) and address.value not in known:
        return Unreadable(f"{kind.why}, and {address.value} is no GPU of this host")
    return address


def _read_fabric(gpu: _Gpu) -> Reading[str]:
    """Return how far this GPU's registration with its NVLink fabric is, in NVML's words."""
    make = getattr(gpu.module, "c_nvmlGpuFabricInfo_v2_t", None)
    if make is None:
        return Absent("nvidia-ml-py knows no fabric")
    fabric = make()
    asked = gpu.ask("nvmlDeviceGetGpuFabricInfoV", byref(fabric))
    if not isinstance(asked, Known):
        return asked
    if fabric.state == NO_FABRIC:
        return Absent("this GPU has no fabric")
    word = FABRIC_STATES.get(fabric.state)
    if word is None:
        return Unreadable(f"unknown fabric state {fabric.state}")
    if fabric.status:
        return Known(f"failed: {quirks.ERROR_WORDS.get(fabric.status, fabric.status)}")
    return Known(word)


def _read_counters(gpu: _Gpu) -> ErrorCounters:
    rows = gpu.ask("nvmlDeviceGetRemappedRows")
    return ErrorCounters(
        uncorrected_ecc=gpu.ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, AGGREGATE),
        remapped_rows=_then(rows, lambda counts: Known(int(counts[1]))),
        remap_failed=_then(rows, lambda counts: Known(bool(counts[3]))),
    )


def _read_settings(gpu: _Gpu) -> tuple[GpuSetting, ...]:
    """Return what the GPU forgets when its last client leaves; each beside its own default."""
    limit = _then(gpu.ask("nvmlDeviceGetPowerManagementLimit"), _watts)
    default_limit = _then(gpu.ask("nvmlDeviceGetPowerManagementDefaultLimit"), _watts)
    clocks = _read_clocks(gpu, "nvmlDeviceGetApplicationsClock")
    default_clocks = _read_clocks(gpu, "nvmlDeviceGetDefaultApplicationsClock")
    compute = _then(gpu.ask("nvmlDeviceGetComputeMode"), lambda mode: Known(str(mode)))
    accounting = _then(gpu.ask("nvmlDeviceGetAccountingMode"), lambda mode: Known(str(mode)))
    off = Known("0")
    return (
        _setting(SettingKind.POWER_LIMIT, limit, default_limit),
        _setting(SettingKind.COMPUTE_MODE, compute, off),
        _setting(SettingKind.ACCOUNTING_MODE, accounting, off),
        _setting(SettingKind.APPLICATION_CLOCKS, clocks, default_clocks),
    )


def _setting(kind: SettingKind, value: Reading[str], default: Reading[str]) -> GpuSetting:
    return GpuSetting(kind, value, is_default=isinstance(value, Known) and value == default)


def _watts(milliwatts: int) -> Reading[str]:
    return Known(f"{milliwatts / 1000:.2f}")


def _read_clocks(gpu: _Gpu, name: str) -> Reading[str]:
    """Return `memory,graphics` in MHz, as the vendor's tool takes them."""
    memory, graphics = gpu.ask(name, MEMORY_CLOCK), gpu.ask(name, GRAPHICS_CLOCK)
    return _then(memory, lambda mhz: _then(graphics, lambda other: Known(f"{mhz},{other}")))
