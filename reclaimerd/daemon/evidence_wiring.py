"""Join evidence and the search for stuck tasks to one engine: its workers, its last look, its verdicts.

Decides nothing. The search runs in a worker of its own, one at a time, so that no pass waits for it.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence

from reclaimerd.config.signatures import load_signatures
from reclaimerd.daemon.engine import Engine
from reclaimerd.daemon.evidence import EvidencePorts, collect
from reclaimerd.daemon.evidence_pages import as_json, as_text
from reclaimerd.daemon.rows import how_seen
from reclaimerd.daemon.stuck_scan import StuckSettings, find_stuck_here, simulated_devices
from reclaimerd.daemon.views import driver_view
from reclaimerd.errors import RecordError
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.kernel import Plight
from reclaimerd.model.process import (
    ProcessLook,
    ProcessReading,
)
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.answers import Answered, UnreadableProcess
from reclaimerd.observe.kernel_log import KernelLog
from reclaimerd.observe.kernel_looks import KernelAnswer, ask_kernel_log, ask_kernel_looks
from reclaimerd.observe.probe import Probe
from reclaimerd.record.evidence_store import KeptEvidence, keep_evidence

Json = dict[str, object]


class Investigator:
    """Evidence and searches for one engine; one of each at a time, whoever asks."""

    __slots__ = ("_collecting", "_engine", "_searching")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._searching = asyncio.Lock()
        self._collecting = asyncio.Lock()

    async def evidence(self, pid: int) -> Json:
        """Return the evidence of one process as JSON; raises NoTargetError."""
        async with self._collecting:
            return as_json(await collect(pid, evidence_ports(self._engine)))

    async def keep(self, subject: str, pid: int) -> KeptEvidence:
        """Collect evidence and keep it on disk under this subject (an incident's id or `PID@START`).

        Raises NoTargetError, and RecordError where it can't be written.
        """
        page = await self.evidence(pid)
        pages = (json.dumps(page, indent=1), as_text(page))
        state_dir, wall = self._engine.paths.state_dir, time.time()
        recorder = self._engine.recorder
        if recorder is None:
            raise RecordError("this engine only reads and keeps no evidence")
        try:
            return await recorder.off_loop(
                lambda: keep_evidence(state_dir, subject, pages, wall=wall), "keeping evidence"
            )
        except OSError as error:
            why = f"record: evidence can't be kept in {state_dir}: {error.strerror or error}"
            raise RecordError(why, "look at the disk and its mount") from error

    async def stuck(self) -> Json:
        """Return every task of the host that is stuck and touches a driver; raises ReclaimerdError."""
        simulate = self._engine.paths.simulate
        devices = () if simulate is None else await asyncio.to_thread(simulated_devices, simulate)
        settings = StuckSettings(signatures=load_signatures(self._engine.cycle.policy.signatures))
        async with self._searching:
            return (await find_stuck_here(devices, settings)).as_json()


def evidence_ports(engine: Engine) -> EvidencePorts:
    """Return where the evidence of this engine's processes comes from."""
    probe, cycle = engine.procfs, engine.cycle

    async def looks(pids: Sequence[int]) -> Mapping[int, KernelAnswer]:
        return await ask_kernel_looks(probe, pids)

    async def process(pid: int) -> ProcessReading | str:
        return await _process(probe, pid)

    async def children(pid: int) -> Sequence[int]:
        answer = await probe.ask("descendants", {"pid": pid})
        match answer:
            case Answered(parts=({"pids": list(pids)}, *_)):
                return [int(one) for one in pids]
            case _:
                return ()

    async def log() -> KernelLog:
        return await ask_kernel_log(probe)

    def driver() -> Json:
        snapshot = cycle.state.snapshot
        return {"state": "not read yet"} if snapshot is None else driver_page(snapshot)

    def plight(ref: ProcessRef) -> Plight | None:
        snapshot = cycle.state.snapshot
        return None if snapshot is None else snapshot.plights.get(ref)

    signatures = load_signatures(cycle.policy.signatures)
    return EvidencePorts(looks, process, children, log, driver, plight, signatures)


async def _process(probe: Probe, pid: int) -> ProcessReading | str:
    """Return a process as the worker reads it, its command line masked, or why it can't be read."""
    look = (await probe.ask_each([pid])).get(pid)
    match look:
        case ProcessLook(reading=reading):
            return reading
        case UnreadableProcess(why=why):
            return why
        case _:
            return "there is no such process any more"


def driver_page(snapshot: Snapshot) -> Json:
    """Return how the driver answers, and who holds which GPU, as the last look saw it."""
    holders = []
    for one in snapshot.holders:
        reading = snapshot.process(one.ref)
        comm = "" if reading is None else reading.comm
        holders.append({"gpu": one.gpu, "ref": str(one.ref), "comm": comm, "how": how_seen(one)})
    dead = [{"gpu": one.gpu, "pid": one.pid, "how": "listed, but dead"} for one in snapshot.dead_listings]
    return {
        **driver_view(snapshot.driver, snapshot.at),
        "gpus": [{"uuid": gpu.uuid, "name": gpu.name, "pci": gpu.pci_address} for gpu in snapshot.gpus],
        "holders": holders + dead,
    }
