"""The signs of a miner and what each weighs: a table, and how signs add up to a score. It names nobody.

The weights are judgements, not measurements. Three things about them are tested: no group reaches the
shipped score of 1 by itself, all that a busy training job shows stays below one half, and the two
labelled sets, of miners and of what is taken for them, stay apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class SignGroup(StrEnum):
    """What kind of thing a sign is about: two kinds are needed to reach the shipped score."""

    BEHAVIOUR = "behaviour"
    NETWORK = "network"
    PROGRAM = "program"
    DISGUISE = "disguise"
    ORIGIN = "origin"


class MinerSign(StrEnum):
    """One thing that miners show; others may show it too."""

    FULL_LOAD = "full load"
    NO_IO = "no input or output"
    SMALL_MEMORY = "little memory"
    POOL_ADDRESS = "pool address"
    POOL_PORT = "pool port"
    SHARED_PORT = "port that others use too"
    NEAR_PORT = "such a port inside"
    KNOWN_DIGEST = "known file"
    KNOWN_NAME = "known name"
    TEMPORARY_FILE = "temporary file"
    HIDDEN_FILE = "hidden file"
    DELETED_FILE = "deleted file"
    KERNEL_NAME = "name of a kernel thread"
    PADDED = "padded arguments"
    NO_ARGUMENTS = "no arguments"
    OTHER_NAME = "name of another program"
    NOTEBOOK = "from a notebook"


@dataclass(frozen=True, slots=True)
class Weight:
    """What one sign is worth, in hundredths: sums of these are exact."""

    group: SignGroup
    points: int


WEIGHTS: Mapping[MinerSign, Weight] = {
    # Together below one half: training on a small data set that lies in GPU memory shows all three.
    MinerSign.FULL_LOAD: Weight(SignGroup.BEHAVIOUR, 20),
    MinerSign.NO_IO: Weight(SignGroup.BEHAVIOUR, 15),
    MinerSign.SMALL_MEMORY: Weight(SignGroup.BEHAVIOUR, 10),
    # What hardly anything but a miner shows makes 1 with the whole behaviour.
    MinerSign.POOL_ADDRESS: Weight(SignGroup.NETWORK, 55),
    MinerSign.POOL_PORT: Weight(SignGroup.NETWORK, 55),
    MinerSign.SHARED_PORT: Weight(SignGroup.NETWORK, 30),
    MinerSign.NEAR_PORT: Weight(SignGroup.NETWORK, 15),
    # A known name makes 1 without the little memory: on a small GPU a miner's table fills it.
    MinerSign.KNOWN_DIGEST: Weight(SignGroup.PROGRAM, 90),
    MinerSign.KNOWN_NAME: Weight(SignGroup.PROGRAM, 65),
    # Environments in /tmp, upgraded packages and files with a dot are ordinary: two of them and the whole
    # behaviour stay below 1.
    MinerSign.TEMPORARY_FILE: Weight(SignGroup.PROGRAM, 25),
    MinerSign.HIDDEN_FILE: Weight(SignGroup.PROGRAM, 25),
    MinerSign.DELETED_FILE: Weight(SignGroup.PROGRAM, 25),
    MinerSign.KERNEL_NAME: Weight(SignGroup.DISGUISE, 55),
    MinerSign.PADDED: Weight(SignGroup.DISGUISE, 55),
    MinerSign.NO_ARGUMENTS: Weight(SignGroup.DISGUISE, 40),
    MinerSign.OTHER_NAME: Weight(SignGroup.DISGUISE, 35),
    MinerSign.NOTEBOOK: Weight(SignGroup.ORIGIN, 20),
}
GROUP_POINTS_AT_MOST = 90
"""However many signs of one kind there are, they do not reach the shipped score of 1."""


@dataclass(frozen=True, slots=True)
class FoundSign:
    """One sign that a process shows, in words that hold nothing the process chose."""

    sign: MinerSign
    text: str

    @property
    def points(self) -> int:
        """Return its weight in hundredths."""
        return WEIGHTS[self.sign].points


@dataclass(frozen=True, slots=True)
class Signs:
    """What a process shows, and what could not be known of it: that adds nothing."""

    found: tuple[FoundSign, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Return the score in hundredths: the sum over the groups, each up to its limit."""
        sums: dict[SignGroup, int] = {}
        for sign in self.found:
            weight = WEIGHTS[sign.sign]
            sums[weight.group] = sums.get(weight.group, 0) + weight.points
        return sum(min(points, GROUP_POINTS_AT_MOST) for points in sums.values())

    def text(self) -> str:
        """Return each sign with its weight, and what is not known."""
        listed = "; ".join(f"{sign.text} ({sign.points / 100:.2f})" for sign in self.found)
        if sum(sign.points for sign in self.found) != self.points:
            listed += f"; one kind of sign counts {GROUP_POINTS_AT_MOST / 100:g} at most"
        unknown = f"; not known: {', '.join(self.unknown)}" if self.unknown else ""
        return f"{listed or 'no sign of it'}{unknown}"


def together(parts: Iterable[Signs]) -> Signs:
    """Return the signs of several places as one."""
    found: list[FoundSign] = []
    unknown: dict[str, None] = {}
    for part in parts:
        found.extend(part.found)
        unknown.update(dict.fromkeys(part.unknown))
    return Signs(tuple(found), tuple(unknown))


def shown(sign: MinerSign, text: str) -> Signs:
    """Return one sign."""
    return Signs((FoundSign(sign, text),))


def as_markdown() -> str:
    """Return the table of weights as docs/miners.md has it."""
    rows = (f"| {sign} | {weight.group} | {weight.points / 100:.2f} |" for sign, weight in WEIGHTS.items())
    return "\n".join(("| sign | group | weight |", "| --- | --- | --- |", *rows)) + "\n"
