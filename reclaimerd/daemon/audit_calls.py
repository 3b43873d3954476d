"""The call by which `audit export` asks for leave: who takes the log away as a whole is on record first.

The log's files are read by the command itself. This is no lock: who may read the files may copy them.
"""

from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.http_server import Answer
from reclaimerd.daemon.service import Service
from reclaimerd.model.audit_record import RecordKind

TEXT = "the audit log is exported"


async def export_call(service: Service, caller: Caller) -> Answer:
    """Put on record who exports the log. Raises RecordError when that can't be."""
    await service.cycle.write(None, (of_host(RecordKind.NOTE, TEXT, caller.actor),))
    return Answer(200, {"recorded": True})
