"""The simulated host's description, DIR/host.toml: read anew at each call, written whole.

It says what hardware there is and how it misbehaves. Who holds memory is not here: that is
`claims`' business, and true of real processes. It may not start or signal anything.
"""

import contextlib
import fcntl
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.model.reset_facts import Generation, SettingKind, Virtualisation
from reclaimerd.model.snapshot import RecoveryAction
from reclaimerd.simulation.failures import FAILING_CALLS, RESET_FAILURES
from reclaimerd.simulation.toml_table import Table

HOST_FILE = "host.toml"
HOST_LOCK = ".host.lock"
SETTING_DEFAULTS = {
    SettingKind.POWER_LIMIT: "700.00",
    SettingKind.COMPUTE_MODE: "0",
    SettingKind.ACCOUNTING_MODE: "0",
    SettingKind.APPLICATION_CLOCKS: "2619,1980",
}
SETTING_FORMS = {
    SettingKind.POWER_LIMIT: re.compile(r"\d{1,4}\.\d\d"),
    SettingKind.COMPUTE_MODE: re.compile(r"[0-3]"),
    SettingKind.ACCOUNTING_MODE: re.compile(r"[01]"),
    SettingKind.APPLICATION_CLOCKS: re.compile(r"\d{1,5},\d{1,5}"),
}


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One simulated GPU; `device` is the path of the node whose number stands for the GPU's.

    `recovery_action` may be a word that the model does not know: it reads as unknown. `peers` are
    UUIDs at the other ends of its NVLinks, `switched` that a switch is there. `residue_bytes` are used
    and nobody's. `lost`: it fell off the bus, and neither NVML nor DIR/sys has it. The settings are
    written as `model.reset_facts.GpuSetting` has them.
    """

    uuid: str
    name: str
    total_bytes: int
    pci: str = ""
    reserved_bytes: int = 0
    device: str = ""
    recovery_action: str = RecoveryAction.NONE.value
    persistence: bool = False
    mig: bool = False
    utilisation_percent: int = 0
    generation: str = Generation.LATER.value
    peers: tuple[str, ...] = ()
    switched: bool = False
    fabric: str = ""
    virtualisation: str = Virtualisation.NONE.value
    display_active: bool = False
    drain_state: bool = False
    mig_pending: bool = False
    uncorrected_ecc: int = 0
    remapped_rows: int = 0
    remap_failed: bool = False
    power_limit: str = SETTING_DEFAULTS[SettingKind.POWER_LIMIT]
    compute_mode: str = SETTING_DEFAULTS[SettingKind.COMPUTE_MODE]
    accounting_mode: str = SETTING_DEFAULTS[SettingKind.ACCOUNTING_MODE]
    application_clocks: str = SETTING_DEFAULTS[SettingKind.APPLICATION_CLOCKS]
    residue_bytes: int = 0
    lost: bool = False


_KEYS: Mapping[str, str] = {
    "total_bytes": "total",
    "reserved_bytes": "reserved",
    "utilisation_percent": "utilisation",
    "residue_bytes": "residue",
}
"""Fields whose key in the file is another word."""


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """All of host.toml. `fail` maps a GPU's UUID to {call: why}; `block_on` is read at each call.

    `slow_reset_seconds` is how long a reset takes; whoever opens a GPU meanwhile waits.
    """

    gpus: tuple[SimulatedGpu, ...]
    fail: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared_devices: tuple[str, ...] = ()
    slow_seconds: float = 0.0
    hang: bool = False
    block_on: str = ""
    all_processes: bool = False
    driver_version: str = "595.45.04"
    slow_reset_seconds: float = 0.0

    def failure(self, uuid: str, call: str) -> str:
        """Return why this call fails on this GPU, or "" when it works."""
        return self.fail.get(uuid, {}).get(call, "")


def read_simulated_host(directory: Path) -> SimulatedHost:
    """Return DIR/host.toml; raises UnsuitableHostError that names every fault at once."""
    path = directory / HOST_FILE
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnsuitableHostError(
            f"no simulated host in {directory}: {error.strerror}",
            "start one first, or leave --simulate out",
        ) from error
    except ValueError as error:
        raise UnsuitableHostError(f"{path}: not TOML: {error}", "mend the file") from error
    faults: list[str] = []
    host = _host_from(entries, faults)
    if faults:
        raise UnsuitableHostError(f"{path}: {'; '.join(faults)}", "mend the file")
    return host


def _host_from(entries: Mapping[str, object], faults: list[str]) -> SimulatedHost:
    table = Table("", entries, faults)
    gpus = _gpus_from(table.left.pop("gpu", []), faults)
    uuids = [gpu.uuid for gpu in gpus]
    if len(set(uuids)) != len(uuids):
        table.fault("gpu", "two GPUs have the same uuid")
    faults.extend(
        f"gpu {index}: peers: {peer!r} is no other GPU of this host"
        for index, gpu in enumerate(gpus)
        for peer in gpu.peers
        if peer == gpu.uuid or peer not in uuids
    )
    fail = _fail_from(table.left.pop("fail", {}), frozenset(uuids), faults)
    host = SimulatedHost(
        gpus=gpus,
        fail=fail,
        shared_devices=table.texts("shared_devices"),
        slow_seconds=table.number("slow"),
        hang=table.flag("hang"),
        block_on=table.text("block_on", ""),
        all_processes=table.flag("all_processes"),
        driver_version=table.text("driver_version", "595.45.04"),
        slow_reset_seconds=table.number("slow_reset"),
    )
    table.finish()
    return host


def _gpus_from(value: object, faults: list[str]) -> tuple[SimulatedGpu, ...]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        faults.append("gpu: must be [[gpu]] tables")
        return ()
    return tuple(_gpu_from(index, row, faults) for index, row in enumerate(value))


def _gpu_from(index: int, row: Mapping[str, object], faults: list[str]) -> SimulatedGpu:
    table = Table(f"gpu {index}: ", row, faults)
    gpu = SimulatedGpu(
        uuid=table.text("uuid"),
        name=table.text("name", "Simulated GPU"),
        total_bytes=table.size("total"),
        pci=table.text("pci", f"0000:{index + 1:02x}:00.0"),
        reserved_bytes=table.size("reserved", 0),
        device=table.text("device"),
        recovery_action=table.text("recovery_action", RecoveryAction.NONE.value),
        persistence=table.flag("persistence"),
        mig=table.flag("mig"),
        utilisation_percent=int(table.number("utilisation")),
        generation=table.word("generation", frozenset(Generation), Generation.LATER.value),
        peers=table.texts("peers"),
        switched=table.flag("switched"),
        fabric=table.text("fabric", ""),
        virtualisation=table.word("virtualisation", frozenset(Virtualisation), Virtualisation.NONE.value),
        display_active=table.flag("display_active"),
        drain_state=table.flag("drain_state"),
        mig_pending=table.flag("mig_pending"),
        uncorrected_ecc=int(table.number("uncorrected_ecc")),
        remapped_rows=int(table.number("remapped_rows")),
        remap_failed=table.flag("remap_failed"),
        residue_bytes=table.size("residue", 0),
        lost=table.flag("lost"),
        **{
            kind.value: table.pattern(kind.value, form, SETTING_DEFAULTS[kind])
            for kind, form in SETTING_FORMS.items()
        },
    )
    table.finish()
    return gpu


def _fail_from(value: object, uuids: frozenset[str], faults: list[str]) -> dict[str, dict[str, str]]:
    if not isinstance(value, dict):
        faults.append("fail: must be a table of GPU UUIDs")
        return {}
    fail: dict[str, dict[str, str]] = {}
    for uuid, calls in value.items():
        if uuid not in uuids or not isinstance(calls, dict):
            faults.append(f"fail.{uuid}: must be the uuid of a [[gpu]], with a table of calls")
            continue
        fail[uuid] = {str(call): str(why) for call, why in calls.items()}
        faults.extend(
            f"fail.{uuid}.{call}: no such call; one of {', '.join(sorted(FAILING_CALLS))}"
            for call in fail[uuid]
            if call not in FAILING_CALLS
        )
        if fail[uuid].get("reset", "hang") not in RESET_FAILURES:
            faults.append(f"fail.{uuid}.reset: one of {', '.join(sorted(RESET_FAILURES))}")
    return fail


def change_simulated_host(directory: Path, change: Callable[[SimulatedHost], SimulatedHost]) -> None:
    """Read, change and write DIR/host.toml; two that do so at once take turns, and none is lost."""
    with _host_lock(directory):
        write_simulated_host(directory, change(read_simulated_host(directory)))


@contextlib.contextmanager
def _host_lock(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / HOST_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_simulated_host(directory: Path, host: SimulatedHost) -> None:
    """Write DIR/host.toml in one step: a reader sees the old text or the new, never half."""
    fresh = directory / f".{HOST_FILE}.{os.getpid()}"
    fresh.write_text(host_toml(host), encoding="utf-8")
    fresh.replace(directory / HOST_FILE)


def host_toml(host: SimulatedHost) -> str:
    """Return the description as TOML text."""
    lines = _assignments(
        {
            "driver_version": host.driver_version,
            "shared_devices": list(host.shared_devices),
            "slow": host.slow_seconds,
            "hang": host.hang,
            "block_on": host.block_on,
            "all_processes": host.all_processes,
            "slow_reset": host.slow_reset_seconds,
        },
    )
    for gpu in host.gpus:
        lines.append("\n[[gpu]]")
        lines += _assignments({_KEYS.get(name, name): getattr(gpu, name) for name in gpu.__slots__})
    for uuid, calls in host.fail.items():
        lines.append(f"\n[fail.{json.dumps(uuid)}]")
        lines += _assignments(dict(calls))
    return "\n".join(lines) + "\n"


def _assignments(entries: Mapping[str, object]) -> list[str]:
    """Return `key = value` lines; a JSON string, list, number or boolean is a TOML one too."""
    return [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
