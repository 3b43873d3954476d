"""The reset of the simulated `nvidia-smi`: the driver's own refusals, and what a reset does to a GPU.

The texts are those that users have reported of the real tool; a refused reset ends 255. The driver's
lock is held from the check to the end, so a client comes before the reset (and refuses it) or after.
Each reset that took place is a line of DIR/resets.log.
"""

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import assert_never

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.reset_facts import Generation, SettingKind, Virtualisation
from reclaimerd.model.snapshot import RecoveryAction
from reclaimerd.simulation.claims import forget_leaks, leaked_claims
from reclaimerd.simulation.clients import alone, is_in_use
from reclaimerd.simulation.failures import CARELESS, RESET_AFTERMATHS
from reclaimerd.simulation.host import (
    SETTING_DEFAULTS,
    SimulatedGpu,
    SimulatedHost,
    change_simulated_host,
    read_simulated_host,
)
from reclaimerd.simulation.kernel_log import write_xid
from reclaimerd.simulation.nvml import read_keeper_pid
from reclaimerd.simulation.sys_tree import remove_device
from reclaimerd.simulation.units import is_unit_active

OK = 0
FELL_OFF_THE_BUS = 15
OTHER = 255
IN_USE = "In use by another client"
NOT_SUPPORTED = "Not Supported"
FABRIC_MANAGER = "nvidia-fabricmanager.service"
RESETS_LOG = "resets.log"
RESIDUE_BYTES = 1 << 30
HANG_POLL_SECONDS = 0.05
XID_AFTER = 79


@dataclass(frozen=True, slots=True)
class ResetLine:
    """One reset of one GPU that took place; monotonic nanoseconds, how it came out.

    `over`: somebody was a client of the GPU, which only a careless driver lets happen.
    """

    gpu: str
    began_ns: int
    ended_ns: int
    pid: int
    how: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class SmiEnd:
    """How the tool ends: its exit code and what it prints."""

    code: int
    text: str


def read_resets(directory: Path) -> tuple[ResetLine, ...]:
    """Return every reset that took place on this simulated host, oldest first."""
    try:
        text = (directory / RESETS_LOG).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    return tuple(ResetLine(**json.loads(line)) for line in text.splitlines())


def vendor_bus_id(pci: str) -> str:
    """Return `0000:3b:00.0` as the vendor prints it: `00000000:3B:00.0`."""
    domain, _, rest = pci.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def reset_gpus(directory: Path, uuids: Sequence[str]) -> SmiEnd:
    """Reset these GPUs in one command, or none of them; hangs where host.toml says so."""
    _hang_while_told(directory, uuids)
    with alone(directory):
        host = read_simulated_host(directory)
        gpus = [gpu for gpu in host.gpus if gpu.uuid in uuids]
        root = None if host.all_processes else read_keeper_pid(directory)
        refused = _refusal(directory, host, gpus, root)
        if refused is not None:
            return refused
        over = {gpu.uuid: is_in_use(directory, gpu, root) for gpu in gpus}
        began_ns = time.monotonic_ns()  # the check is done: whoever closed during it was before the reset
        time.sleep(host.slow_reset_seconds)
        for gpu in gpus:
            _take_effect(directory, gpu, host.failure(gpu.uuid, "reset"))
        ended_ns = time.monotonic_ns()
        lines = [
            ResetLine(uuid, began_ns, ended_ns, os.getpid(), host.failure(uuid, "reset"), held)
            for uuid, held in over.items()
        ]
        _log(directory, lines)
    return _end_of(host, gpus)


def _hang_while_told(directory: Path, uuids: Sequence[str]) -> None:
    """Hang, deaf to every signal but SIGKILL, until host.toml says otherwise or the simulation ends."""
    while True:
        host = read_simulated_host(directory)
        if not any(host.failure(uuid, "reset") == "hang" for uuid in uuids):
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        if not host.all_processes:
            read_keeper_pid(directory)  # raises when the keeper is gone: nothing outlives the simulation
        time.sleep(HANG_POLL_SECONDS)


def _refusal(
    directory: Path, host: SimulatedHost, gpus: Sequence[SimulatedGpu], root: int | None
) -> SmiEnd | None:
    reasons = {gpu.uuid: _why_not(directory, host, gpu, root) for gpu in gpus}
    if any(reasons.values()):
        return _refused([(gpu, reasons[gpu.uuid]) for gpu in gpus if reasons[gpu.uuid]])
    missing = _missing_peers(directory, host, gpus)
    if not missing:
        return None
    # The vendor's manual says that the tool lists the additional GPUs; its exact words are not public.
    listed = "\n".join(f"  GPU {vendor_bus_id(gpu.pci)}" for gpu in missing)
    return SmiEnd(
        OTHER,
        f"GPU reset couldn't run because the following additional GPUs must be reset with it:\n{listed}\n",
    )


def _why_not(directory: Path, host: SimulatedHost, gpu: SimulatedGpu, root: int | None) -> str:
    told = host.failure(gpu.uuid, "reset")
    if told == "not_supported" or gpu.mig_pending or not _is_offered(gpu):
        return NOT_SUPPORTED
    if told == CARELESS:
        return ""
    # Drained, the driver lets nobody in, the tool neither; a display is a client of the kernel's own.
    busy = told == "in_use" or gpu.drain_state or gpu.display_active
    return IN_USE if busy or is_in_use(directory, gpu, root) else ""


def _is_offered(gpu: SimulatedGpu) -> bool:
    """Tell whether the driver offers a reset: not in a guest's vGPU, nor passed through with NVLink."""
    match Virtualisation(gpu.virtualisation):
        case Virtualisation.VGPU_GUEST:
            return False
        case Virtualisation.PASSTHROUGH:
            return not gpu.peers and not gpu.switched
        case Virtualisation.NONE | Virtualisation.VGPU_HOST:
            return True
        case other:
            assert_never(other)


def _missing_peers(
    directory: Path, host: SimulatedHost, gpus: Sequence[SimulatedGpu]
) -> tuple[SimulatedGpu, ...]:
    """Return the GPUs that would have to be named too (NVLink before Ampere; Ampere's switch alone)."""
    named = {gpu.uuid for gpu in gpus}
    needed = set(named)
    queue = list(gpus)
    fabric_manager = is_unit_active(directory, FABRIC_MANAGER)
    while queue:
        gpu = queue.pop()
        fresh = _bound_to(gpu, host, fabric_manager=fabric_manager) - needed
        needed |= fresh
        queue += [each for each in host.gpus if each.uuid in fresh]
    return tuple(gpu for gpu in host.gpus if gpu.uuid in needed - named)


def _bound_to(gpu: SimulatedGpu, host: SimulatedHost, *, fabric_manager: bool) -> set[str]:
    switched = {each.uuid for each in host.gpus if each.switched and gpu.switched}
    match Generation(gpu.generation):
        case Generation.BEFORE_AMPERE:
            return set(gpu.peers) | switched
        case Generation.AMPERE:
            return set() if fabric_manager else switched
        case Generation.LATER:
            return set()
        case other:
            assert_never(other)


def _refused(reasons: Sequence[tuple[SimulatedGpu, str]]) -> SmiEnd:
    lines = ["The following GPUs could not be reset:"]
    lines += [f"  GPU {vendor_bus_id(gpu.pci)}: {why}" for gpu, why in reasons]
    busy = sum(why == IN_USE for _, why in reasons)
    lines += ["", busy_text(busy)] if busy else [""]
    return SmiEnd(OTHER, "\n".join(lines))


def busy_text(count: int) -> str:
    """Return the vendor's paragraph about devices in use."""
    those = "1 device is" if count == 1 else f"{count} devices are"
    return (
        f"{those} currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
        "application, graphics application such as an X server, or a monitoring application such as "
        "another instance of nvidia-smi). Please first kill all processes using this device and all "
        "compute applications running in the system."
    )


def _take_effect(directory: Path, gpu: SimulatedGpu, how: str) -> None:
    """Do to one GPU what a reset does, and what goes wrong with it."""
    leaked_bytes = sum(claim.used_bytes for claim in leaked_claims(directory) if claim.gpu == gpu.uuid)
    fresh = replace(
        gpu,
        recovery_action=RecoveryAction.NONE.value,
        residue_bytes=0,
        utilisation_percent=0,
        power_limit=SETTING_DEFAULTS[SettingKind.POWER_LIMIT],
        compute_mode=SETTING_DEFAULTS[SettingKind.COMPUTE_MODE],
        accounting_mode=SETTING_DEFAULTS[SettingKind.ACCOUNTING_MODE],
        application_clocks=SETTING_DEFAULTS[SettingKind.APPLICATION_CLOCKS],
    )
    match how:
        case "lost" | "lost_after":
            fresh = replace(fresh, lost=True)
            remove_device(directory, gpu.pci)
        case "residue":
            fresh = replace(fresh, residue_bytes=max(gpu.residue_bytes + leaked_bytes, RESIDUE_BYTES))
        case "recovery_after":
            fresh = replace(fresh, recovery_action=RecoveryAction.NODE_REBOOT.value)
        case "xid_after":
            write_xid(directory, gpu.pci, XID_AFTER)
        case "ecc_after":
            fresh = replace(fresh, uncorrected_ecc=gpu.uncorrected_ecc + 1)
    forget_leaks(directory, gpu.uuid)
    change_simulated_host(directory, lambda host: _with_gpu(host, fresh, last=how == "other_index"))


def _with_gpu(host: SimulatedHost, fresh: SimulatedGpu, *, last: bool) -> SimulatedHost:
    """Return the host with one GPU changed; with `last` it comes back behind all others."""
    if last:
        others = tuple(gpu for gpu in host.gpus if gpu.uuid != fresh.uuid)
        return replace(host, gpus=(*others, fresh))
    return replace(host, gpus=tuple(fresh if gpu.uuid == fresh.uuid else gpu for gpu in host.gpus))


def _log(directory: Path, lines: Sequence[ResetLine]) -> None:
    """Append one line for each GPU, in one durable write."""
    with (directory / RESETS_LOG).open("a", encoding="utf-8") as log:
        log.write("".join(f"{json.dumps(asdict(line))}\n" for line in lines))
        log.flush()
        os.fsync(log.fileno())


def _end_of(host: SimulatedHost, gpus: Sequence[SimulatedGpu]) -> SmiEnd:
    failures = [host.failure(gpu.uuid, "reset") for gpu in gpus]
    assert all(each in {"", CARELESS, *RESET_AFTERMATHS} for each in failures)  # noqa: S101 - refusals ended before
    if "lost" in failures:
        lost = [(gpu, "GPU is lost") for gpu, how in zip(gpus, failures, strict=True) if how == "lost"]
        return replace(_refused(lost), code=FELL_OFF_THE_BUS)
    if "silent" in failures:
        return SmiEnd(OK, "Operation completed.")
    done = [f"GPU {vendor_bus_id(gpu.pci)} was successfully reset." for gpu in gpus]
    return SmiEnd(OK, "\n".join([*done, "All done."]))


def driver_is_gone(error: ReclaimerdError) -> str:
    """Return the vendor's words for a driver that does not answer."""
    return f"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. {error}"
