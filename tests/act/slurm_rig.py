"""Drain targets over a real Slurm's programs, and over stand-ins that answer as a test wants."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reclaimerd.act.drain_slurm import DrainSlurm
from reclaimerd.act.fleet_slurm import SlurmFleet
from reclaimerd.host.slurm_drain_text import SlurmPlace
from reclaimerd.model.drain_policy import FleetSettings, SlurmTarget
from reclaimerd.model.drain_ports import NotAsked
from tests.rigs.slurm import NODE, SCONTROL, SINFO, Slurm

SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Found:
    """A place that is found at once."""

    place: SlurmPlace | NotAsked

    async def find(self) -> SlurmPlace | NotAsked:
        """Return it."""
        return self.place


@dataclass(slots=True)
class Pauses:
    """Writes down how long somebody would have slept, and lets nobody wait."""

    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Return at once."""
        self.slept.append(seconds)


def place_in(slurm: Slurm, root: Path, node: str = NODE) -> SlurmPlace:
    """Return a node's place, with programs below `root` that speak to this Slurm and no other."""
    slurm.install(root)
    return SlurmPlace(node, f"{root}{SCONTROL}", f"{root}{SINFO}")


def target_of(
    place: SlurmPlace | NotAsked, fleet: FleetSettings | None = None, seconds: float = SECONDS
) -> DrainSlurm:
    """Return the target for one node; with `fleet` Slurm is the arbiter."""
    return DrainSlurm(Found(place).find, SlurmTarget(seconds=seconds), fleet)


def fleet_of(place: SlurmPlace | NotAsked, settings: FleetSettings) -> SlurmFleet:
    """Return the arbiter as one node asks it."""
    return SlurmFleet(Found(place).find, settings, SlurmTarget(seconds=SECONDS))


def stand_in(folder: Path, name: str, lines: Sequence[str]) -> str:
    """Write a program of root's that runs these lines of shell; each call is written down in `calls`."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", f'echo "{name} $*" >> {folder}/calls', *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


def calls_in(folder: Path) -> list[str]:
    """Return what the stand-ins were called with."""
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []
