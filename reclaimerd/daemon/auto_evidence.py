"""Keep evidence by itself when a task is judged stuck: once for each process, in the background.

No pass waits for it; what can't be collected or kept is logged, and changes nothing else.
"""

import asyncio
from dataclasses import dataclass, field, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.evidence_wiring import Investigator
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.identity import IncidentId, ProcessRef
from reclaimerd.model.incident import Incident
from reclaimerd.model.kernel import Leaving
from reclaimerd.record import logs

_STUCK = frozenset({Leaving.STUCK_BLOCKED, Leaving.STUCK_SPINNING, Leaving.NO_RELEASE})
MOST_KEPT = 1024
"""So many are remembered as done; the oldest is forgotten first."""


@dataclass(slots=True)
class AutoEvidence:
    """Collects evidence of what is stuck, beside the passes."""

    investigator: Investigator
    _done: dict[tuple[IncidentId, ProcessRef], None] = field(default_factory=dict)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def start(self, cycle: Cycle) -> None:
        """Begin to collect for every process of an incident that was judged stuck and has none yet."""
        snapshot = cycle.state.snapshot
        if snapshot is None or not snapshot.plights:
            return
        for incident in (*cycle.state.incidents.values(), *cycle.state.handed.values()):
            for ref in incident.processes:
                plight = snapshot.plights.get(ref)
                if plight is None or plight.leaving not in _STUCK or (incident.id, ref) in self._done:
                    continue
                self._note_done(incident, ref)
                task = asyncio.get_running_loop().create_task(self._keep(cycle, incident, ref))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def finish(self, seconds: float) -> None:
        """Wait for what is under way, at most this long, and cut the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()

    async def _keep(self, cycle: Cycle, incident: Incident, ref: ProcessRef) -> None:
        try:
            kept = await self.investigator.keep(incident.id, ref.pid)
            record = entries.note(incident, f"evidence of pid {ref.pid}: {kept.json_path.name}")
            record = replace(record, evidence=(f"sha256:{kept.digest}", kept.json_path.name))
            await cycle.write(None, (record,))
        except ReclaimerdError as error:
            logs.warning("evidence_not_kept", incident=incident.id, pid=ref.pid, error=str(error))

    def _note_done(self, incident: Incident, ref: ProcessRef) -> None:
        self._done[incident.id, ref] = None
        while len(self._done) > MOST_KEPT:
            del self._done[next(iter(self._done))]
