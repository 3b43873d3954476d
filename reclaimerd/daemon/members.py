"""Who goes along with a target, and whether whoever ordered it agreed to as many and to whom.

Pure: the same members are shown before a question, bound by what was agreed to, and taken up.
"""

from collections.abc import Iterable

from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.opening import Consent
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.policy import Scope
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.snapshot import Snapshot

GROWTH = 2
"""A job that forks is not refused for it; one with more than so many times who was shown is another one."""


def unagreed(tickets: Iterable[Ticket], snapshot: Snapshot) -> dict[int, str]:
    """Return why orders go beyond what was agreed to, by the id() of each ticket; all of one call or none."""
    calls: dict[int, list[Ticket]] = {}
    for ticket in tickets:
        if ticket.consent is not None:
            calls.setdefault(id(ticket.consent), []).append(ticket)
    why = {call: _beyond(own[0].consent, _signalled(own, snapshot)) for call, own in calls.items()}
    return {id(ticket): why[call] for call, own in calls.items() for ticket in own if why[call]}


def _signalled(tickets: list[Ticket], snapshot: Snapshot) -> dict[ProcessRef, ProcessReading]:
    """Return everybody whom the orders of one call would signal; of a call that is all dry, would have."""
    found: dict[ProcessRef, ProcessReading] = {}
    for ticket in [one for one in tickets if not one.order.dry_run] or tickets:
        root = snapshot.processes.get(ticket.order.pid)
        if root is None or root.is_released:
            continue
        for ref in members_of(root, ticket.order.scope, snapshot, ticket.members):
            reading = snapshot.process(ref)
            if reading is not None:
                found[ref] = reading
    return found


def _beyond(consent: Consent | None, meant: dict[ProcessRef, ProcessReading]) -> str:
    if consent is None:
        return ""
    count = len(meant)
    if count > consent.most:
        text = f"{count} processes would be signalled, more than {consent.most}; nothing was done"
        return f"{text}: with what goes along; if you mean it, --max-targets {count}"
    again = "nothing was done: ask again to see everybody, or --yes"
    if consent.shown is not None and count > GROWTH * consent.shown:
        return f"{consent.shown} processes were shown, and {count} would be signalled by now; {again}"
    for ref, reading in meant.items():
        if consent.uids is not None and reading.uids[0] not in consent.uids:
            whose = f"pid {ref.pid} of uid {reading.uids[0]}"
            return f"{whose} goes along, and nobody of that user was shown; {again}"
    return ""


def members_of(
    root: ProcessReading, scope: Scope, snapshot: Snapshot, pids: tuple[int, ...] = ()
) -> tuple[ProcessRef, ...]:
    """Return the members of a target, deepest first, the root last.

    `pids`: what the procfs worker named as the root's descendants or its workload's members when the
    scope was decided; only those that this look saw, by identity, and not dead, become members.
    """
    if scope is Scope.PROCESS:
        return (root.ref,)
    named = set(pids) if pids else _family(root, scope, snapshot)
    readings = [snapshot.processes[pid] for pid in named if pid in snapshot.processes]
    others = [one for one in readings if one.ref != root.ref and not one.is_released]
    others.sort(key=lambda one: (_depth(one, snapshot), one.ref.start_ticks), reverse=True)
    return (*(one.ref for one in others), root.ref)


def _family(root: ProcessReading, scope: Scope, snapshot: Snapshot) -> set[int]:
    if scope is Scope.WORKLOAD:
        own = root.workload
        return {
            pid
            for pid, one in snapshot.processes.items()
            if own.path and (one.workload.controller, one.workload.path) == (own.controller, own.path)
        }
    found = {root.ref.pid}
    grown = True
    while grown:
        more = {pid for pid, one in snapshot.processes.items() if one.ppid in found} - found
        grown = bool(more)
        found |= more
    return found


def _depth(reading: ProcessReading, snapshot: Snapshot) -> int:
    depth, pid = 0, reading.ppid
    seen = {reading.ref.pid}
    while pid in snapshot.processes and pid not in seen:
        seen.add(pid)
        depth, pid = depth + 1, snapshot.processes[pid].ppid
    return depth
