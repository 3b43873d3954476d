"""Whom a kill may be asked for: every holder, the names that people choose by, and what speaks against it.

It only tells: the order itself is judged anew when it comes, by who orders it, by protection and identity. An
owner is told of their own processes alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import LARGEST_PID, OrderFault, scope_of
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.members import members_of
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.owner_calls import Owners
from reclaimerd.daemon.rows import Json, how_seen, names_row
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.views import driver_view
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Unreadable, known_or_none, text_of
from reclaimerd.model.snapshot import Holder, Snapshot

MOST_PIDS = 1024
"""As many as fit into the head of a request (`http_server`)."""
LOOK_SECONDS = 12.0
MOST_ALONG = 64
"""Rows of who goes along; beyond it they are counted."""
_PIDS = re.compile(r"[0-9]{1,7}(,[0-9]{1,7})*", re.ASCII)
_NO_READING: Json = {"uid": None, "comm": "", "workload": "", "kind": "", "names": {}, "container_id": ""}


async def candidates_call(service: Service, query: Mapping[str, str], caller: Caller, owners: Owners) -> Json:
    """Return every holder, and the processes of `pids` that hold nothing; with a `scope`, who goes along.

    Who may not look at the host gets what the last look saw: they shall not make us look again, but for who
    goes along, as often as they may order. Raises OrderFault, TooManyOrdersError.
    """
    pids, scope = named_pids(query), scope_of(query.get("scope"))
    if scope is not Scope.PROCESS:
        if not pids:
            raise OrderFault("a scope is of processes", "name them: pids=1234,1235")
        if caller.role >= Role.OPERATOR or caller.may_own:
            if caller.role < Role.OPERATOR:
                owners.demand_look(pids, caller)
            families = await _families(service, pids, scope, caller)
            return candidates_view(service.cycle, pids, caller) | {
                "along": along_view(service.cycle, families, scope, caller)
            }
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
        "along": None,
        "only_uid": None if caller.role >= Role.VIEWER else caller.actor.uid,
    }
    if snapshot is None:
        return view
    rows = _Rows(cycle, snapshot, caller)
    known = {gpu.uuid for gpu in snapshot.gpus}
    holders = [one for one in snapshot.holders if one.gpu in known and rows.are_told(one.ref)]
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
            *(rows.of(one.ref) for one in named if one.ref not in held and rows.are_told(one.ref)),
        ],
        "skipped": _skipped(snapshot, caller),
    }


def _skipped(snapshot: Snapshot, caller: Caller) -> list[str]:
    """Return what the look left out; to an owner only how much: it may be others' processes."""
    left_out = snapshot.scan.skipped
    if caller.role >= Role.VIEWER or not left_out:
        return list(left_out)
    return [f"{len(left_out)} processes or folders of the host"]


async def _families(
    service: Service, pids: tuple[int, ...], scope: Scope, caller: Caller
) -> dict[int, tuple[int, ...]]:
    """Return whom each process takes along, after a look at all of them; an owner's own processes alone."""

    def snapshot() -> Snapshot | None:
        return service.cycle.state.snapshot

    seen = snapshot()
    if caller.role < Role.OPERATOR:
        if seen is None or any(pid not in seen.processes for pid in pids):
            await service.look(pids=pids, seconds=LOOK_SECONDS)
            seen = snapshot()
        own = {} if seen is None else seen.processes
        pids = tuple(pid for pid in pids if pid in own and _is_own(own[pid], caller))
    families = {pid: await service.family(Order(pid, caller.actor, scope=scope)) for pid in pids}
    named = {pid for root, family in families.items() for pid in (root, *family)}
    if named:
        await service.look(pids=tuple(sorted(named)), seconds=LOOK_SECONDS)
    return families


def along_view(cycle: Cycle, families: Mapping[int, tuple[int, ...]], scope: Scope, caller: Caller) -> Json:
    """Return who goes along with these processes by the last look, and how many it is with them in all.

    `foreign` counts who is not the owner's that asks: the order would be refused for them.
    """
    snapshot = cycle.state.snapshot
    if snapshot is None:
        return {"processes": 0, "uids": [], "foreign": 0, "more": 0, "rows": []}
    members: dict[ProcessRef, int] = {}
    for pid, family in families.items():
        root = snapshot.processes.get(pid)
        if root is not None and not root.is_released:
            members = dict.fromkeys(members_of(root, scope, snapshot, family), pid) | members
    readings = {ref: reading for ref in members if (reading := snapshot.process(ref)) is not None}
    told = {ref: one for ref, one in readings.items() if caller.role >= Role.OPERATOR or _is_own(one, caller)}
    rows = _Rows(cycle, snapshot, caller)
    along = [ref for ref in told if ref.pid not in families]
    return {
        "processes": len(readings),
        "uids": sorted({one.uids[0] for one in told.values()}),
        "foreign": len(readings) - len(told),
        "more": max(0, len(along) - MOST_ALONG),
        "rows": [rows.along(ref, members[ref]) for ref in along[:MOST_ALONG]],
    }


def _is_own(reading: ProcessReading, caller: Caller) -> bool:
    return set(reading.uids) == {caller.actor.uid}


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

    def are_told(self, ref: ProcessRef) -> bool:
        """Tell whether the caller reads of this process at all: who may look of each, others of their own."""
        reading = self.snapshot.process(ref)
        return self.caller.role >= Role.VIEWER or (reading is not None and _is_own(reading, self.caller))

    def along(self, ref: ProcessRef, root: int) -> Json:
        """Return one process that goes along with `root`."""
        row = self.of(ref)
        return {key: row[key] for key in ("pid", "ref", "uid", "comm", "refused")} | {"of": root}

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
        work = reading.workload
        return row | {
            "refused": self._refused(reading),
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
        if self.caller.role < Role.OPERATOR and not _is_own(reading, self.caller):
            return {"kind": "role", "text": "not yours by all four uids"}
        protection = self.cycle.protection_of(reading)
        if protection is not None:
            return {"kind": "protected", "text": f"protected by {protection.by}: {protection.text}"}
        return None
