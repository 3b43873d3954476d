"""The simulated host's description, DIR/host.toml: read anew at each call, written whole.

It says what hardware there is and how it misbehaves. Who holds memory is not here: that is
`claims`' business, and true of real processes. It may not start or signal anything.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.model.snapshot import RecoveryAction

HOST_FILE = "host.toml"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
FAILING_CALLS = frozenset(
    {
        "handle",
        "identity",
        "memory",
        "processes",
        "process_memory",
        "utilisation",
        "mig",
        "persistence",
        "recovery_action",
        "reset",
    },
)
RESET_FAILURES = frozenset({"in_use", "hang", "not_supported", "lost"})


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One simulated GPU; `device` is the path of the node whose number stands for the GPU's.

    `recovery_action` may be a word that the model does not know: it reads as unknown.
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


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """All of host.toml. `fail` maps a GPU's UUID to {call: why}; `block_on` is read at each call."""

    gpus: tuple[SimulatedGpu, ...]
    fail: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared_devices: tuple[str, ...] = ()
    slow_seconds: float = 0.0
    hang: bool = False
    block_on: str = ""
    all_processes: bool = False
    driver_version: str = "595.45.04"

    def failure(self, uuid: str, call: str) -> str:
        """Return why this call fails on this GPU, or "" when it works."""
        return self.fail.get(uuid, {}).get(call, "")


def size_bytes(text: str) -> int:
    """Return "16GiB", "512 MiB" or "123" in bytes; raises ValueError with the sentence to show."""
    digits = text.strip()
    unit = digits.lstrip("0123456789.")
    number = digits[: len(digits) - len(unit)]
    factor = UNITS.get(unit.strip() or "B")
    if factor is None or not number or number.count(".") > 1 or number == ".":
        raise ValueError(f"{text!r} is no size: write a number and one of {', '.join(UNITS)}")
    return int(float(number) * factor) if "." in number else int(number) * factor


class _Table:
    """One TOML table while it is read: gives typed keys out and collects every fault."""

    def __init__(self, where: str, entries: Mapping[str, object], faults: list[str]) -> None:
        self.where = where
        self.left = dict(entries)
        self.faults = faults

    def fault(self, key: str, text: str) -> None:
        """Note one fault of one key."""
        self.faults.append(f"{self.where}{key}: {text}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; without a default the key must be there."""
        value = self.left.pop(key, default)
        if isinstance(value, str):
            return value
        self.fault(key, "must be a string" if value is not None else "is missing")
        return ""

    def flag(self, key: str) -> bool:
        """Return a boolean, false when it is not there."""
        value = self.left.pop(key, False)
        if isinstance(value, bool):
            return value
        self.fault(key, "must be true or false")
        return False

    def number(self, key: str) -> float:
        """Return a number that is not negative, 0 when it is not there."""
        value = self.left.pop(key, 0)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self.fault(key, "must be a number, not negative")
        return 0.0

    def size(self, key: str, default: int | None = None) -> int:
        """Return a size in bytes, written as a number or as "16GiB"."""
        value = self.left.pop(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str):
            try:
                return size_bytes(value)
            except ValueError as error:
                self.fault(key, str(error))
                return 0
        self.fault(key, "must be a size such as 16GiB" if value is not None else "is missing")
        return 0

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, empty when it is not there."""
        value = self.left.pop(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.fault(key, "must be a list of strings")
        return ()

    def finish(self) -> None:
        """Count every key that nobody asked for as a fault."""
        for key in self.left:
            self.fault(key, "is not a key of the simulation")


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
    table = _Table("", entries, faults)
    gpus = _gpus_from(table.left.pop("gpu", []), faults)
    uuids = [gpu.uuid for gpu in gpus]
    if len(set(uuids)) != len(uuids):
        table.fault("gpu", "two GPUs have the same uuid")
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
    )
    table.finish()
    return host


def _gpus_from(value: object, faults: list[str]) -> tuple[SimulatedGpu, ...]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        faults.append("gpu: must be [[gpu]] tables")
        return ()
    return tuple(_gpu_from(index, row, faults) for index, row in enumerate(value))


def _gpu_from(index: int, row: Mapping[str, object], faults: list[str]) -> SimulatedGpu:
    table = _Table(f"gpu {index}: ", row, faults)
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
        },
    )
    for gpu in host.gpus:
        lines.append("\n[[gpu]]")
        lines += _assignments(
            {
                "uuid": gpu.uuid,
                "name": gpu.name,
                "pci": gpu.pci,
                "total": gpu.total_bytes,
                "reserved": gpu.reserved_bytes,
                "device": gpu.device,
                "recovery_action": gpu.recovery_action,
                "persistence": gpu.persistence,
                "mig": gpu.mig,
                "utilisation": gpu.utilisation_percent,
            },
        )
    for uuid, calls in host.fail.items():
        lines.append(f"\n[fail.{json.dumps(uuid)}]")
        lines += _assignments(dict(calls))
    return "\n".join(lines) + "\n"


def _assignments(entries: Mapping[str, object]) -> list[str]:
    """Return `key = value` lines; a JSON string, list, number or boolean is a TOML one too."""
    return [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
