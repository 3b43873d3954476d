"""One GPU, one holder, one process as plain JSON: rows of what people read. Pure."""

from dataclasses import asdict

from reclaimerd.judge.exit_path import state_word
from reclaimerd.model.incident import Actor
from reclaimerd.model.process import ProcessReading, Workload
from reclaimerd.model.reading import Known, Unreadable, known_or_none, text_of
from reclaimerd.model.snapshot import (
    GpuReading,
    Holder,
    Snapshot,
)
from reclaimerd.model.step import Reason
from reclaimerd.model.verdict import Verdict

Json = dict[str, object]


def gpu_row(gpu: GpuReading, snapshot: Snapshot) -> Json:
    """Return one GPU in one row; what could not be read is None, never 0."""
    memory = gpu.memory.value if isinstance(gpu.memory, Known) else None
    use = gpu.utilisation.value if isinstance(gpu.utilisation, Known) else None
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "name": gpu.name,
        "pci": gpu.pci_address,
        "used_bytes": None if memory is None else memory.used_bytes,
        "total_bytes": None if memory is None else memory.total_bytes,
        "utilisation_percent": None if use is None else use.gpu_percent,
        "holders": len(snapshot.holders_of(gpu.uuid)),
        "recovery_action": text_of(gpu.recovery_action),
        "note": text_of(gpu.memory)
        if memory is None
        else text_of(gpu.processes)
        if isinstance(gpu.processes, Unreadable)
        else "",
    }


def holder_row(holder: Holder, gpu: GpuReading, verdict: Verdict | None, snapshot: Snapshot) -> Json:
    """Return one holder of one GPU in one row."""
    reading = snapshot.process(holder.ref)
    used = known_or_none(holder.used_bytes)
    total = gpu.memory.value.total_bytes if isinstance(gpu.memory, Known) else None
    row: Json = {
        "gpu": gpu.uuid,
        "gpu_index": gpu.index,
        "pid": holder.ref.pid,
        "ref": str(holder.ref),
        "used_bytes": used,
        "share_percent": None if used is None or not total else round(100.0 * used / total, 1),
        "utilisation_percent": gpu.utilisation.value.gpu_percent
        if isinstance(gpu.utilisation, Known)
        else None,
        "sm_percent": _sm_percent(holder, gpu),
        "how": how_seen(holder),
        "note": note_on(holder),
        "verdict": "watch" if verdict is None else verdict.ruling.value,
        "verdict_text": "" if verdict is None else "; ".join(one.text for one in verdict.reasons),
    }
    if reading is None:
        why = snapshot.unreadable.get(holder.ref.pid, "not seen in this look")
        return row | {
            "uid": None,
            "age_seconds": None,
            "state": f"unreadable ({why})",
            "workload": "",
            "names": {},
            "comm": "",
            "command": "",
        }
    return row | {
        "uid": reading.uids[0],
        "age_seconds": reading.age_seconds,
        "state": state_word(reading),
        "workload": reading.workload.best_name,
        "names": names_row(reading.workload),
        "comm": reading.comm,
        "command": " ".join(reading.cmdline.value)
        if isinstance(reading.cmdline, Known)
        else f"[{reading.comm}]",
    }


def _sm_percent(holder: Holder, gpu: GpuReading) -> int | None:
    """Return what the process used of its GPU, None where no rule asked for it or it is not known."""
    listed = gpu.processes.value if isinstance(gpu.processes, Known) else ()
    return next((known_or_none(one.sm_percent) for one in listed if one.pid == holder.ref.pid), None)


def names_row(workload: Workload) -> Json:
    """Return all names that are known of a workload, empty when there are none."""
    names = workload.names
    if names is None:
        return {}
    told = {
        key: value
        for key, value in asdict(names).items()
        if key not in ("labels", "labels_whole", "mark_known", "spread_known")
    }
    known = {key: value for key, value in told.items() if value not in (None, "", ())}
    return known | ({"labels": dict(names.labels)} if names.labels else {})


def how_seen(holder: Holder) -> str:
    """Return by which signs a holder was found."""
    if holder.heir_of is not None:
        return "heir"
    if holder.remembered:
        return "remembered"
    if holder.shared_node_only:
        return "shared node"
    return "+".join(word for word, yes in (("listed", holder.listed), ("node", holder.node)) if yes)


def note_on(holder: Holder) -> str:
    """Return what a person should know of a holder's figures."""
    if holder.heir_of is not None:
        return f"holds the context of {holder.heir_of}, which is dead"
    return "" if isinstance(holder.used_bytes, Known) else text_of(holder.used_bytes)


def actor_text(actor: Actor) -> str:
    """Return who asked in words: by which right, as whom, and who had logged in."""
    login = f" (logged in as {actor.login})" if actor.login else ""
    return f"{'owner' if actor.is_owner else actor.kind} {actor.name}{login}"


def reason_row(reason: Reason) -> Json:
    """Return one refusal: its kind, the sentence, the mend, and who is concerned."""
    return {
        "kind": reason.kind.value,
        "text": reason.text,
        "mend": reason.mend,
        "gpu": reason.gpu,
        "pids": [ref.pid for ref in reason.processes],
        "refs": [str(ref) for ref in reason.processes],
    }


def process_row(reading: ProcessReading) -> Json:
    """Return all that was read of one process."""
    return {
        "pid": reading.ref.pid,
        "ref": str(reading.ref),
        "ppid": reading.ppid,
        "uids": list(reading.uids),
        "comm": reading.comm,
        "command": " ".join(reading.cmdline.value)
        if isinstance(reading.cmdline, Known)
        else f"[{reading.comm}]",
        "exe": text_of(reading.exe),
        "state": reading.tasks[0].state if reading.tasks else "",
        "state_text": state_word(reading),
        "threads": reading.thread_count,
        "tasks": [{"tid": t.tid, "state": t.state, "exiting": t.is_exiting} for t in reading.tasks[:256]],
        "workload": reading.workload.best_name,
        "names": names_row(reading.workload),
        "cgroup": reading.cgroup,
        "ns_pids": list(reading.ns_pids),
        "age_seconds": reading.age_seconds,
        "kill_pending": reading.kill_pending,
        "dumping_core": reading.dumping_core,
        "tracer_pid": reading.tracer_pid,
    }


def plight_view(snapshot: Snapshot, reading: ProcessReading) -> Json | None:
    """Return what is to be said of a process that leaves, waits or is held; None while it runs."""
    plight = snapshot.plights.get(reading.ref)
    if plight is None:
        return None
    return {
        "text": plight.text,
        "condition": plight.condition.value,
        "leaving": plight.leaving.value,
        "signature": plight.signature,
        "fault_domain": plight.fault_domain.value,
        "culprit": None if plight.culprit is None else str(plight.culprit),
        "since_seconds": round(max(0.0, snapshot.at - plight.since), 3),
        "quiet_seconds": round(max(0.0, snapshot.at - plight.released_at), 3),
        "looks": plight.looks,
        "evidence": list(plight.evidence),
    }
