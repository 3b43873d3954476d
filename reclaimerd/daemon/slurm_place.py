"""Which node of Slurm's this host is, and which programs may be run for it; found anew for each order.

Changes nothing. A name that the policy has must be one of this host's: one policy file that is copied to
many hosts must not let them all drain one node.
"""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Protocol

from reclaimerd.host.child import Finished, run_bounded
from reclaimerd.host.slurm_drain_text import NODE_NAME, SlurmPlace, parse_nodes
from reclaimerd.host.wire import Decoder
from reclaimerd.model.drain_ports import NotAsked
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.observe.answers import Answer, Answered
from reclaimerd.observe.slurm_host import SlurmHost, SlurmPlaces
from reclaimerd.observe.units import RunPort

ALIASES_SECONDS = 5.0
_HOST: Decoder[SlurmHost] = Decoder(SlurmHost)
_MEND = "name this host's node in [drain.slurm] node"


class Asking(Protocol):
    """A procfs probe, as far as it is needed here."""

    async def ask(
        self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the answer to one question."""
        ...


@dataclass(frozen=True, slots=True)
class SlurmFinder:
    """Finds this host's place in Slurm; `node` is the policy's name, "" where it has none."""

    procfs: Asking
    settings: Callable[[], AttributionSettings]
    node: str
    root: str = "/"
    run: RunPort = run_bounded
    wall: Callable[[], float] = time.time

    async def find(self) -> SlurmPlace | NotAsked:
        """Return the place; what a person must mend is lasting."""
        settings = self.settings()
        places = SlurmPlaces(self.root, settings.scontrol, settings.slurmd)
        match await self.procfs.ask("slurm", asdict(places)):
            case Answered(parts=({"slurm": dict(told)}, *_)):
                host = _HOST.from_object(told)
            case _:
                return NotAsked("which slurmd and scontrol this host has could not be read")
        if not host.scontrol:
            text = "no scontrol that is root's alone was found: name it in [attribution] scontrol"
            return NotAsked(text, lasting=True)
        named = [one.node for one in host.daemons if one.node]
        # A slurmd that names its node is believed; the configuration is asked for any other.
        sure = len(host.daemons) == 1 and len(named) == 1 and self.node in ("", named[0])
        aliases = () if sure else await self._aliases(host.scontrol)
        node = node_of(self.node, named, aliases, os.environ.get("SLURMD_NODENAME", ""))
        if isinstance(node, NotAsked):
            return node
        started = self.wall() - host.daemons[0].age_seconds if sure else None
        return SlurmPlace(node, host.scontrol, host.sinfo, started)

    async def _aliases(self, scontrol: str) -> tuple[str, ...]:
        """Return the nodes that Slurm's configuration has for this host's name; () when it does not say."""
        words = ["/usr/bin/env", "-u", "SLURM_CLUSTERS", "LC_ALL=C", scontrol, "show", "aliases"]
        try:
            ended = await self.run(words, deadline_seconds=ALIASES_SECONDS)
        except (OSError, ValueError):
            return ()
        return (parse_nodes(ended.out) or ()) if isinstance(ended, Finished) and ended.code == 0 else ()


def node_of(
    wanted: str, named: Collection[str], aliases: Collection[str], environment: str
) -> str | NotAsked:
    """Return the one node that this host is; pure.

    `named` are the names that running slurmds have by `-N`, `aliases` those of Slurm's configuration for
    the host's name; `environment` (SLURMD_NODENAME) chooses among them, and is no proof by itself.
    """
    known = {*named, *aliases}
    if wanted:
        if wanted in known:
            return wanted
        here = ", ".join(sorted(known)) or "none that can be told"
        return NotAsked(
            f"{wanted} is no node of this host's ({here}): {_MEND}, or leave it empty", lasting=True
        )
    found = set(named) or ({environment} if environment in known else set(aliases))
    if len(found) == 1 and NODE_NAME.fullmatch(node := found.pop()):
        return node
    if not found:
        return NotAsked(
            "which of Slurm's nodes this host is can't be told: no slurmd has -N, no alias is one"
        )
    return NotAsked(
        f"this host is several of Slurm's nodes ({', '.join(sorted(found))}): {_MEND}", lasting=True
    )
