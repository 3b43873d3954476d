"""Whom a kill may be asked for: every holder, the names that people choose by, and what speaks against it.

It only tells: the order itself is judged anew when it comes, by who orders it, by protection and identity.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import LARGEST_PID, OrderFault
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.rows import Json, how_seen, names_row
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.views import driver_view
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Unreadable, known_or_none, text_of
from reclaimerd.model.snapshot import Holder, Snapshot

MOST_PIDS = 1024
"""As many as fit into the head of a request (`http_server`)."""
LOOK_SECONDS = 12.0
_PIDS = re.compile(r"[0-9]{1,7}(,[0-9]{1,7})*", re.ASCII)
_NO_READING: Json = {"uid": None, "comm": "", "workload": "", "kind": "", "names": {}, "container_id": ""}


async def candidates_call(service: Service, query: Mapping[str, str], caller: Caller) -> Json:
    """Return every holder, and the processes of `pids` that hold nothing. Raises OrderFault.

    Who may not look at the host gets what the last look saw: they shall not make us look again.
    """
    pids = named_pids(query)
    snapshot = service.cycle.state.snapshot
    missing = tuple(pid for pid in pids if snapshot is None or pid not in snapshot.processes)
    if (snapshot is None or missing) and caller.role >= Role.VIEWER:
        await service.look(pids=missing, seconds=LOOK_SECONDS)
    return candidates_view(service.cycle, pids, caller)


def named_pids(query: Mapping[str, str]) -> tuple[int, ...]:
    """Return the pids of the query, each once. Raises OrderFault."""
    text = query.get("pids", "")
    if not text:
        return ()
    pids = tuple(dict.fromkeys(int(word) for word in text.split(","))) if _PIDS.fullmatch(text) else ()
    if not pids or len(pids) > MOST_PIDS or not all(1 < pid <= LARGEST_PID for pid in pids):
        mend = f"at most {MOST_PIDS} numbers from 2 to {LARGEST_PID}, with commas between them"
        raise OrderFault(f"pids={text[:64]!r} names no processes", mend)
    return pids


def candidates_view(cycle: Cycle, pids: tuple[int, ...], caller: Caller) -> Json:
    """Return the rows by the last look; of others' processes an owner reads no names."""
    snapshot = cycle.state.snapshot
    view: Json = {
        "grace_seconds": cycle.policy.ladder.operator_sigterm_seconds,
        "require_reason": cycle.policy.access.require_reason,
        "driver": {"state": "not read yet", "text": "no look yet"},
        "gpus": [],
        "rows": [],
        "skipped": [],
    }
    if snapshot is None:
        return view
    rows = _Rows(cycle, snapshot, caller)
    known = {gpu.uuid for gpu in snapshot.gpus}
    holders = [one for one in snapshot.holders if one.gpu in known]
    held = {one.ref for one in holders}
    named = [snapshot.processes[pid] for pid in pids if pid in snapshot.processes]
    return view | {
        "driver": driver_view(snapshot.driver, snapshot.at),
        "gpus": [
            {
                "uuid": gpu.uuid,
                "index": gpu.index,
                "name": gpu.name,
                "note": text_of(gpu.processes) if isinstance(gpu.processes, Unreadable) else "",
            }
            for gpu in snapshot.gpus
        ],
        "rows": [
            *(rows.of_holder(one) for one in holders),
            *(rows.of(one.ref) for one in named if one.ref not in held),
        ],
        "skipped": list(snapshot.scan.skipped),
    }


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows for one caller."""

    cycle: Cycle
    snapshot: Snapshot
    caller: Caller

    def of_holder(self, holder: Holder) -> Json:
        """Return one holder of one GPU in one row."""
        gpu = self.snapshot.gpu(holder.gpu)
        return self.of(holder.ref) | {
            "gpu": holder.gpu,
            "gpu_index": None if gpu is None else gpu.index,
            "used_bytes": known_or_none(holder.used_bytes),
            "how": how_seen(holder),
        }

    def of(self, ref: ProcessRef) -> Json:
        """Return one process as one that holds nothing."""
        reading = self.snapshot.process(ref)
        row: Json = {
            "pid": ref.pid,
            "ref": str(ref),
            "gpu": "",
            "gpu_index": None,
            "used_bytes": None,
            "how": "",
        }
        if reading is None:
            why = self.snapshot.unreadable.get(ref.pid, "not seen in this look")
            return row | _NO_READING | {"refused": {"kind": "unreadable", "text": f"it can't be read: {why}"}}
        row |= {"refused": self._refused(reading)}
        if self.caller.role < Role.VIEWER and not self._is_own(reading):
            return row | _NO_READING | {"uid": reading.uids[0]}
        work = reading.workload
        return row | {
            "uid": reading.uids[0],
            "comm": reading.comm,
            "workload": work.best_name,
            "kind": work.kind.value,
            "names": names_row(work),
            "container_id": work.container_id if work.trusted else "",
        }

    def _refused(self, reading: ProcessReading) -> Json | None:
        """Return why an order for this process would be refused, as far as can be told now."""
        if self.caller.role < Role.OPERATOR and not self.caller.may_own:
            return {"kind": "role", "text": f"it takes the role {Role.OPERATOR.word}"}
        if self.caller.role < Role.OPERATOR and not self._is_own(reading):
            return {"kind": "role", "text": "not yours by all four uids"}
        protection = self.cycle.protection_of(reading)
        if protection is not None:
            return {"kind": "protected", "text": f"protected by {protection.by}: {protection.text}"}
        return None

    def _is_own(self, reading: ProcessReading) -> bool:
        return set(reading.uids) == {self.caller.actor.uid}
