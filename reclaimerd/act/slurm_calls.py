"""The few questions and orders that a drain needs of Slurm, each one bounded child of its own programs.

Which node, and whether at all, is not decided here. A drain is never set on a list of nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reclaimerd.act.fleet_limit import Fleet
from reclaimerd.act.programs import Said, ask
from reclaimerd.host.child import OUTPUT_LIMIT_BYTES
from reclaimerd.host.slurm_drain_text import (
    MARK_FORMAT,
    MarkRow,
    NodeStands,
    SlurmPlace,
    parse_marks,
    parse_nodes,
    parse_stands,
    parse_total,
)
from reclaimerd.model.drain_policy import FleetMark, FleetSettings
from reclaimerd.model.drain_ports import NotAsked

ENV = ("/usr/bin/env", "-u", "SLURM_CLUSTERS", "-u", "SINFO_PARTITION", "LC_ALL=C", "SLURM_TIME_FORMAT=%s")
"""Starts each program: it may lie on a network file system. No word of ours may come from the environment."""
_UNKNOWN_NODE = ("Invalid node name", " not found")
_NO_RIGHTS = ("Invalid user id", "Access/permission denied", "Operation not permitted")
_MOST_ROWS = 256
SLACK_SECONDS = 300.0
"""How far slurmd's start may lie from what its controller knows: another cluster may have such a node."""


@dataclass(frozen=True, slots=True)
class SlurmCalls:
    """Asks about one node; each program may take `seconds`."""

    place: SlurmPlace
    seconds: float

    async def stands(self) -> NodeStands | NotAsked:
        """Return how this host's node stands."""
        node = self.place.node
        said = await self._run(self.place.scontrol, "show", "node", node)
        if isinstance(said, NotAsked):
            return said
        found = parse_stands(said.out, node)
        if found is None:
            return NotAsked(f"scontrol does not tell how the node {node} stands")
        here, there = self.place.started_at, found.started_at
        if here is not None and there is not None and abs(here - there) > SLACK_SECONDS:
            return NotAsked(
                f"the controller knows another slurmd of the name {node}, not the one that runs here "
                "(if it is this one, whose configuration was read again, restart slurmd)"
            )
        return found

    async def drain(self, reason: str) -> NotAsked | None:
        """Drain the node; return why that failed. One without an answer in time may be carried out still."""
        said = await self._run(*drain_words(self.place.scontrol, self.place.node, reason))
        return said if isinstance(said, NotAsked) else None

    async def undrain(self) -> NotAsked | None:
        """Undrain the node; return why that failed."""
        words = ("update", f"nodename={self.place.node}", "state=undrain")
        said = await self._run(self.place.scontrol, *words)
        return said if isinstance(said, NotAsked) else None

    async def fleet(self, settings: FleetSettings) -> Fleet | NotAsked:
        """Return every node that carries a drain of ours, of how many: the whole of it, or why not."""
        if not self.place.sinfo:
            return NotAsked("no sinfo that is root's alone lies beside scontrol: nobody counts", lasting=True)
        said = await self._run(self.place.sinfo, "-a", "-R", "-h", "-o", MARK_FORMAT)
        if isinstance(said, NotAsked):
            return said
        rows = None if len(said.out) >= OUTPUT_LIMIT_BYTES else parse_marks(said.out)
        if rows is None or len(rows) > _MOST_ROWS:
            return NotAsked("sinfo -R does not tell which nodes are drained by us")
        total = await self._run(self.place.sinfo, "-a", "-h", "-o", "%D")
        if isinstance(total, NotAsked):
            return total
        nodes = parse_total(total.out)
        if nodes is None:
            return NotAsked("sinfo does not tell how many nodes there are")
        marks = await self._marks(rows)
        return marks if isinstance(marks, NotAsked) else Fleet(marks, nodes, settings)

    async def _marks(self, rows: Sequence[MarkRow]) -> tuple[FleetMark, ...] | NotAsked:
        marks: dict[str, FleetMark] = {}
        for row in rows:
            names: tuple[str, ...] | None = (row.nodes,)
            if "[" in row.nodes or "," in row.nodes:
                said = await self._run(self.place.scontrol, "show", "hostnames", row.nodes)
                if isinstance(said, NotAsked):
                    return said
                names = None if len(said.out) >= OUTPUT_LIMIT_BYTES else parse_nodes(said.out)
            if names is None:
                return NotAsked(f"scontrol show hostnames does not tell which nodes {row.nodes[:100]} are")
            marks |= {name: FleetMark(name, row.code, row.at) for name in names}
        return tuple(marks.values())

    async def _run(self, *words: str) -> Said | NotAsked:
        """Return what a program said and did without fault, or the fault in its own words."""
        said = await ask([*ENV, *words], self.seconds)
        if isinstance(said, str):
            return NotAsked(f"Slurm: {said.removeprefix(' '.join(ENV) + ' ')}")
        if said.code == 0:
            return said
        if any(text in said.words for text in _UNKNOWN_NODE):
            mend = "name this host's node in [drain.slurm] node"
            return NotAsked(f"Slurm knows no node {self.place.node} ({said.words}): {mend}", lasting=True)
        if any(text in said.words for text in _NO_RIGHTS):
            mend = "root on this host must be Slurm's administrator (SlurmUser, or AdminLevel=Administrator)"
            return NotAsked(f"Slurm refuses: {said.words}: {mend}", lasting=True)
        return NotAsked(f"Slurm: {said.words}")


def drain_words(scontrol: str, node: str, reason: str) -> tuple[str, ...]:
    """Return the command that drains one node; scontrol takes it without a shell."""
    return (scontrol, "update", f"nodename={node}", "state=drain", f"reason={reason}")
