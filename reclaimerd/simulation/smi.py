"""The simulated host's `nvidia-smi`: reset, persistence mode, settings and a few queries.

`python -m reclaimerd.simulation.smi DIR --gpu-reset -i UUID[,UUID]`. It changes host.toml and nothing
else, and says so: after the vendor's lines comes one of ours.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.reset_facts import SettingKind
from reclaimerd.simulation.host import (
    SETTING_FORMS,
    SimulatedGpu,
    SimulatedHost,
    change_simulated_host,
    read_simulated_host,
)
from reclaimerd.simulation.nvml import misbehave, read_keeper_pid
from reclaimerd.simulation.smi_reset import (
    OK,
    OTHER,
    SmiEnd,
    driver_is_gone,
    reset_gpus,
    vendor_bus_id,
)

INVALID_ARGUMENT = 2
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LABEL = "(simulation: no real GPU was asked or changed)"
COMPUTE_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
QUERIES: Mapping[str, Callable[[int, SimulatedGpu], str]] = {
    "index": lambda index, _gpu: str(index),
    "uuid": lambda _index, gpu: gpu.uuid,
    "name": lambda _index, gpu: gpu.name,
    "pci.bus_id": lambda _index, gpu: vendor_bus_id(gpu.pci),
    "persistence_mode": lambda _index, gpu: _enabled(gpu.persistence),
    "accounting.mode": lambda _index, gpu: _enabled(gpu.accounting_mode == "1"),
    "compute_mode": lambda _index, gpu: COMPUTE_MODES[int(gpu.compute_mode)],
    "power.limit": lambda _index, gpu: f"{gpu.power_limit} W",
    "clocks.applications.memory": lambda _index, gpu: gpu.application_clocks.partition(",")[0] + " MHz",
    "clocks.applications.graphics": lambda _index, gpu: gpu.application_clocks.partition(",")[2] + " MHz",
}
SETTING_WORDS = {
    SettingKind.POWER_LIMIT: "Power limit for GPU {gpu} was set to {value} W from {before} W.",
    SettingKind.COMPUTE_MODE: "Set compute mode to {value} for GPU {gpu}.",
    SettingKind.ACCOUNTING_MODE: "Set Accounting Mode to {value} for GPU {gpu}.",
    SettingKind.APPLICATION_CLOCKS: 'Applications clocks set to "({value})" for GPU {gpu}',
}


def _enabled(flag: bool) -> str:  # noqa: FBT001 - one flag, and its word
    return "Enabled" if flag else "Disabled"


def main(argv: Sequence[str]) -> int:
    """Run the tool; return its exit code."""
    directory = Path(argv[0])
    asked = _asked(argv[1:])
    if asked is None:
        _say("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.", LABEL)
        return INVALID_ARGUMENT
    try:
        end = _do(directory, asked)
    except ReclaimerdError as error:
        end = SmiEnd(DRIVER_NOT_LOADED, driver_is_gone(error))
    if asked.query_gpu is not None and end.code == OK:
        _say(end.text)  # read by programs, which want nothing else
    else:
        _say(end.text, LABEL)
    return end.code


def _asked(words: Sequence[str]) -> argparse.Namespace | None:
    """Return the options, or None when they are not exactly one thing that the simulation knows."""
    parser = argparse.ArgumentParser(prog="nvidia-smi", add_help=False, allow_abbrev=False)
    parser.add_argument("--gpu-reset", "-r", action="store_true", default=None, dest="gpu_reset")
    parser.add_argument("--persistence-mode", "-pm", choices=("0", "1"))
    parser.add_argument("--power-limit", "-pl", dest=SettingKind.POWER_LIMIT.value)
    parser.add_argument("--compute-mode", "-c", dest=SettingKind.COMPUTE_MODE.value)
    parser.add_argument("--accounting-mode", "-am", dest=SettingKind.ACCOUNTING_MODE.value)
    parser.add_argument("--applications-clocks", "-ac", dest=SettingKind.APPLICATION_CLOCKS.value)
    parser.add_argument("--query-gpu")
    parser.add_argument("--format", default="csv")
    parser.add_argument("--id", "-i", default="")
    parser.error = _refuse_words  # type: ignore[method-assign, assignment]  # else it prints and exits by itself
    try:
        asked = parser.parse_args(words)
    except ValueError:
        return None
    verbs = [asked.gpu_reset, asked.persistence_mode, asked.query_gpu]
    verbs += [getattr(asked, kind.value) for kind in SettingKind]
    is_read = asked.query_gpu is not None
    one = sum(verb is not None for verb in verbs) == 1
    return asked if one and (asked.id or is_read) else None


def _refuse_words(message: str) -> None:
    raise ValueError(message)


def _do(directory: Path, asked: argparse.Namespace) -> SmiEnd:
    host = read_simulated_host(directory)
    if not host.all_processes:
        read_keeper_pid(directory)
    names = [name for name in str(asked.id).split(",") if name]
    present = [(index, gpu) for index, gpu in enumerate(gpu for gpu in host.gpus if not gpu.lost)]
    chosen = present if not names else []
    for name in names:
        found = [one for one in present if name in _names_of(*one)]
        if not found:
            return SmiEnd(NOT_FOUND, f"No devices were found for {name}")
        chosen += found
    gpus = [gpu for _, gpu in chosen]
    if asked.gpu_reset:
        return reset_gpus(directory, [gpu.uuid for gpu in gpus])
    misbehave(host)  # all but the reset asks the driver as NVML does
    if asked.query_gpu is not None:
        return _query(chosen, asked.query_gpu.split(","), asked.format.split(","))
    if asked.persistence_mode is not None:
        return _set_persistence(directory, host, gpus, asked.persistence_mode == "1")
    return _set(directory, host, gpus, asked)


def _names_of(index: int, gpu: SimulatedGpu) -> frozenset[str]:
    return frozenset({gpu.uuid, gpu.pci, vendor_bus_id(gpu.pci), str(index)})


def _query(chosen: Sequence[tuple[int, SimulatedGpu]], fields: Sequence[str], forms: Sequence[str]) -> SmiEnd:
    unknown = [name for name in fields if name.strip() not in QUERIES]
    if unknown or "csv" not in forms:
        return SmiEnd(
            INVALID_ARGUMENT, f'Field "{unknown[0] if unknown else forms[0]}" is not a valid field.'
        )
    rows = [] if "noheader" in forms else [", ".join(name.strip() for name in fields)]
    rows += [", ".join(QUERIES[name.strip()](*one) for name in fields) for one in chosen]
    return SmiEnd(OK, "\n".join(rows))


def _set_persistence(
    directory: Path,
    host: SimulatedHost,
    gpus: Sequence[SimulatedGpu],
    wanted: bool,  # noqa: FBT001 - the mode
) -> SmiEnd:
    lines = []
    for gpu in gpus:
        bus_id = vendor_bus_id(gpu.pci)
        why = host.failure(gpu.uuid, "set_persistence")
        if why not in {"", "silent"}:
            return SmiEnd(OTHER, f"Unable to set persistence mode for GPU {bus_id}: {why}")
        if gpu.persistence == wanted:
            lines.append(f"Persistence mode is already {_enabled(wanted)} for GPU {bus_id}.")
            continue
        if not why:
            _change_gpu(directory, gpu.uuid, persistence=wanted)
        lines.append(f"{_enabled(wanted)} persistence mode for GPU {bus_id}.")
    return SmiEnd(OK, "\n".join([*lines, "All done."]))


def _set(
    directory: Path, host: SimulatedHost, gpus: Sequence[SimulatedGpu], asked: argparse.Namespace
) -> SmiEnd:
    kind = next(kind for kind in SettingKind if getattr(asked, kind.value) is not None)
    value = str(getattr(asked, kind.value))
    if kind is SettingKind.POWER_LIMIT and value.replace(".", "", 1).isdigit():
        value = f"{float(value):.2f}"
    if not SETTING_FORMS[kind].fullmatch(value):
        return SmiEnd(INVALID_ARGUMENT, f"Invalid value: {value}")
    lines = []
    for gpu in gpus:
        bus_id = vendor_bus_id(gpu.pci)
        why = host.failure(gpu.uuid, "set_settings")
        if why not in {"", "silent"}:
            return SmiEnd(OTHER, f"Changing {kind.value} is not possible for GPU {bus_id}: {why}")
        if not why:
            _change_gpu(directory, gpu.uuid, **{kind.value: value})
        before = getattr(gpu, kind.value)
        lines.append(SETTING_WORDS[kind].format(gpu=bus_id, value=value, before=before))
    return SmiEnd(OK, "\n".join([*lines, "All done."]))


def _change_gpu(directory: Path, uuid: str, **changes: object) -> None:
    def changed(host: SimulatedHost) -> SimulatedHost:
        gpus = (
            replace(gpu, **changes) if gpu.uuid == uuid else gpu  # type: ignore[arg-type]  # its own fields
            for gpu in host.gpus
        )
        return replace(host, gpus=tuple(gpus))

    change_simulated_host(directory, changed)


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)  # noqa: T201 - a command line tool


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
