"""The call of Slurm's UnkillableStepProgram: a step's processes did not end, so the whole host is looked at.

It acts on nobody: what is stuck is found by the look, and judged by the policy like anything else.
"""

import asyncio
import re

from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import OrderFault
from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.http_server import Answer, Body, Call
from reclaimerd.daemon.rows import Json
from reclaimerd.daemon.service import Service
from reclaimerd.errors import CorruptStoreError, RecordError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import Actor
from reclaimerd.model.process import ProcessReading, WorkloadKind
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.record import logs

LOOK_SECONDS = 3.0
"""Slurm waits for its program, which answers within 5 s; the look goes on past this."""
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
STEP_NAMES = {4294967290: "interactive", 4294967291: "batch", 4294967292: "extern"}
"""slurm.h: steps that no srun started have the highest numbers (SLURM_BATCH_SCRIPT and its neighbours)."""


async def unkillable_call(service: Service, call: Call, caller: Caller) -> Answer:
    """Put on record that Slurm can't end a step, and look at the whole host at once.

    The look does not wait for the record, and a record that fails stops no look. Raises OrderFault.
    """
    job, step = _id_of(call.body, "job"), _id_of(call.body, "step")
    name = STEP_NAMES.get(int(step), step)
    text = f"Slurm says that step {name} of job {job} can't be killed: the whole host is looked at"
    looked, recorded = await asyncio.gather(
        service.look(full_scan=True, seconds=LOOK_SECONDS), _note(service, text, caller.actor)
    )
    snapshot = service.cycle.state.snapshot
    holders = [] if snapshot is None else _holders(snapshot, job)
    answer = {"job": job, "step": name, "looked": looked, "recorded": recorded, "holders": holders}
    return Answer(200, answer)


def _id_of(body: Body, key: str) -> str:
    """Return a number of Slurm's as it is written. Raises OrderFault that names the field."""
    value = str(body.get(key) if body.get(key) is not None else "")
    if not _NUMBER.fullmatch(value):
        raise OrderFault(f"{key} must be a number of Slurm's", "as in SLURM_JOB_ID and SLURM_STEP_ID")
    return value


async def _note(service: Service, text: str, actor: Actor) -> bool:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await service.cycle.write(None, (of_host(RecordKind.NOTE, text, actor),))
    except (RecordError, CorruptStoreError, TimeoutError) as error:
        logs.error("unkillable_not_recorded", text=text, error=str(error))
        return False
    return True


def _holders(snapshot: Snapshot, job: str) -> list[Json]:
    """Return the job's processes that hold a GPU, with what is said of those that leave or wait."""
    rows: list[Json] = []
    for ref in dict.fromkeys(holder.ref for holder in snapshot.holders):
        reading = snapshot.process(ref)
        if reading is None or not _is_of(reading, job):
            continue
        plight = snapshot.plights.get(ref)
        gpus = [holder.gpu for holder in snapshot.holders if holder.ref == ref]
        rows.append({"pid": ref.pid, "gpus": gpus, "text": "" if plight is None else plight.text})
    return rows


def _is_of(reading: ProcessReading, job: str) -> bool:
    place = reading.workload
    names = place.names
    is_job = place.kind is WorkloadKind.SLURM_JOB and place.trusted
    return is_job and names is not None and names.job_id == job
