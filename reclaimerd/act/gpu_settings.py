"""How the vendor's tool takes a setting of one GPU, and how it reads it back. Pure: it runs nothing.

Options and query fields are those of nvidia-smi's manual (`nvidia-smi --help-query-gpu`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from reclaimerd.model.reset_facts import SettingKind

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_HALF_UNIT = 0.5
"""A power limit reads back in hundredths of a watt, and some drivers round to whole ones."""
_ON_OFF = {"0": "Disabled", "1": "Enabled"}


@dataclass(frozen=True, slots=True)
class GpuCommand:
    """One setting: the option that sets it, the field that reads it; `words` are what it reads for a value.

    Without `words` the values are numbers, with units or without.
    """

    title: str
    option: str
    query: str
    words: Mapping[str, str] = field(default_factory=dict)


PERSISTENCE = GpuCommand("persistence mode", "-pm", "persistence_mode", _ON_OFF)
COMMANDS: Mapping[str, GpuCommand] = {
    SettingKind.POWER_LIMIT: GpuCommand("power limit", "-pl", "power.limit"),
    SettingKind.COMPUTE_MODE: GpuCommand(
        "compute mode",
        "-c",
        "compute_mode",
        {"0": "Default", "1": "Exclusive_Thread", "2": "Prohibited", "3": "Exclusive_Process"},
    ),
    SettingKind.ACCOUNTING_MODE: GpuCommand("accounting mode", "-am", "accounting.mode", _ON_OFF),
    SettingKind.APPLICATION_CLOCKS: GpuCommand(
        "application clocks", "-ac", "clocks.applications.memory,clocks.applications.graphics"
    ),
}


def spoken(command: GpuCommand, value: str) -> str:
    """Return a value as the tool reads it out."""
    return command.words.get(value, value)


def is_same(command: GpuCommand, answer: str, value: str) -> bool:
    """Tell whether the tool's answer to the query is this value."""
    if command.words:
        return answer.strip().casefold() == command.words.get(value, "?").casefold()
    read, wanted = ([float(number) for number in _NUMBER.findall(text)] for text in (answer, value))
    return len(read) == len(wanted) > 0 and all(
        abs(one - other) <= _HALF_UNIT for one, other in zip(read, wanted, strict=True)
    )
