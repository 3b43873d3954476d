"""Memory as the passes use it, and a log line for each record once it is durable.

May not decide what is recorded, and logs nothing that is not on record yet.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.ports import Batch
from reclaimerd.record import logs

_FOR_A_PERSON = frozenset({RecordKind.ALARM, RecordKind.BREAKER_TRIPPED, RecordKind.CHAIN_BROKEN})


class RecordingPort(Protocol):
    """`model.ports.RecorderPort`, and whom its last fault binds."""

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable, or raise RecordError (CorruptStoreError: the store is damaged)."""
        ...

    def fault(self) -> str:
        """Return why the last commit failed, or "" when records are durable."""
        ...

    def fault_for_operators(self) -> str:
        """Return the fault that binds operators too; a full disk alone does not."""
        ...


@dataclass(frozen=True, slots=True)
class LoggedRecorder:
    """A recorder whose records are also the daemon's log, each after it became durable."""

    recorder: RecordingPort

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable, then log each of its records."""
        await self.recorder.commit(batch)
        for entry in batch.entries:
            tell = logs.error if entry.kind in _FOR_A_PERSON else logs.event
            tell(entry.kind.value, **fields_of(entry))

    def fault(self) -> str:
        """Return the recorder's fault."""
        return self.recorder.fault()

    def fault_for_operators(self) -> str:
        """Return the recorder's fault that binds operators too."""
        return self.recorder.fault_for_operators()


@dataclass(frozen=True, slots=True)
class HeardRecorder:
    """A recorder whose durable batches somebody hears of; a batch that failed is heard of by nobody."""

    recorder: RecordingPort
    hear: Callable[[Batch], None]

    async def commit(self, batch: Batch) -> None:
        """Make the batch durable, then let it be heard."""
        await self.recorder.commit(batch)
        self.hear(batch)

    def fault(self) -> str:
        """Return the recorder's fault."""
        return self.recorder.fault()

    def fault_for_operators(self) -> str:
        """Return the recorder's fault that binds operators too."""
        return self.recorder.fault_for_operators()


def fields_of(entry: AuditEntry) -> Mapping[str, object]:
    """Return what a log line says of a record; what the record leaves empty is left out."""
    fields = {
        "incident": entry.incident,
        "pid": None if entry.target is None else entry.target.root.pid,
        "actor": None if entry.actor is None else f"{entry.actor.kind} {entry.actor.name}",
        "action": entry.action,
        "outcome": None if entry.outcome is None else entry.outcome.kind.value,
        "end": entry.end,
        "reason": entry.reason,
    }
    return {key: value for key, value in fields.items() if value not in (None, "")}
