"""One incident told from its records alone, in words: why, the gates, each step, the evidence, the end.

Opens nothing. It tells what is on record and guesses nothing.
"""

from collections.abc import Iterator

from reclaimerd.cli.audit_text import Json, table, tables, words
from reclaimerd.cli.render import age_text, instant, moment_text, size_text, user_text

_STEP = "    "
_BELOW = " " * 24


def story_lines(name: str, records: list[Json]) -> list[str]:
    """Return the story of an incident; `records` are all of it, oldest first."""
    began = instant(records[0].get("at"))
    ended = next((one for one in records if one.get("kind") == "incident_ended"), None)
    lines = [f"incident {name}: {_end_words(ended)}"]
    took = instant((ended or {}).get("at"))
    for_long = f", took {age_text(took - began)}" if took is not None and began is not None else ""
    lines.append(f"  opened    {moment_text(records[0].get('at'))}{for_long}")
    target = next((table(one, "target") for one in records if table(one, "target")), {})
    lines += [f"  {line}" for line in _target_lines(target)]
    lines += [f"  asked by  {_actor_words(actor)}" for actor in _actors(records)]
    why = next((one.get("reason") for one in records if one.get("kind") == "incident_opened"), None)
    lines += [f"  why       {why}"] if why else []
    lines += ["", "what happened"]
    for one in records:
        lines += list(_record_lines(one, began))
    lines += ["", *_end_lines(ended)]
    return lines


def _end_words(ended: Json | None) -> str:
    return "no end on record: it is open, or its end was cut off" if ended is None else str(ended.get("end"))


def _target_lines(target: Json) -> Iterator[str]:
    """Return who is concerned."""
    if not target:
        yield "target    none on record"
        return
    root, members = table(target, "root"), tables(target, "members")
    others = f", {len(members)} processes in all" if len(members) > 1 else ""
    uid = target.get("uid")
    yield f"target    {_ref(root)} ({target.get('scope')}{others}) of {user_text(uid)} (uid {uid})"
    yield f"program   {target.get('exe')}"
    yield f"command   {target.get('command')}"
    workload = table(target, "workload")
    if workload.get("name"):
        yield f"workload  {workload.get('kind')} {workload.get('name')}"
    held = dict(_of_gpus(target, "held_bytes"))
    for gpu in words(target, "gpus"):
        yield f"GPU       {gpu}, held {size_text(held.get(gpu))}"


def _ref(ref: Json) -> str:
    return f"pid {ref.get('pid')}@{ref.get('start_ticks')}"


def _actors(records: list[Json]) -> list[Json]:
    """Return who asked, each once, in order."""
    found: list[Json] = []
    for one in records:
        actor = table(one, "actor")
        if actor and actor not in found:
            found.append(actor)
    return found


def _actor_words(actor: Json) -> str:
    """Return who asked, with what tells who it was in truth."""
    marks = (
        ("uid", actor.get("uid")),
        ("login", actor.get("login") or None),
        ("login uid", actor.get("loginuid")),
        ("pid", actor.get("pid")),
        ("by", actor.get("comm") or None),
        ("as", actor.get("role")),
        ("policy", str(actor.get("policy_digest") or "")[:12] or None),
    )
    known = ", ".join(f"{name} {value}" for name, value in marks if value is not None)
    return f"{actor.get('kind')} {actor.get('name')}" + (f" ({known})" if known else "")


def _record_lines(record: Json, began: float | None) -> Iterator[str]:
    """Return one record: when, what, and below it each gate, target, refusal and piece of evidence."""
    at = instant(record.get("at"))
    since = f"+{age_text(at - began)}" if at is not None and began is not None else ""
    outcome = table(record, "outcome")
    named = (record.get("kind"), record.get("action"), outcome.get("kind"), record.get("end"))
    what = " ".join(str(word) for word in named if word)
    reason = record.get("reason") or outcome.get("detail")
    number = f"#{record.get('seq')}"
    yield f"{_STEP}{number:<10}{since:<10}{what}" + (f": {reason}" if reason else "")
    if record.get("fault"):
        yield f"{_BELOW}NOT AS IT WAS WRITTEN: {record['fault']}"
    for gate in tables(record, "gates"):
        yield f"{_BELOW}gate {gate.get('gate')}: {gate.get('text')}"
    for refusal in tables(record, "refusals"):
        mend = f"; {refusal['mend']}" if refusal.get("mend") else ""
        yield f"{_BELOW}refused ({refusal.get('kind')}): {refusal.get('text')}{mend}"
    for one in tables(outcome, "targets"):
        detail = f": {one['detail']}" if one.get("detail") else ""
        yield f"{_BELOW}{_ref(table(one, 'ref'))}: {one.get('kind')}{detail}"
    for note in words(record, "evidence"):
        yield f"{_BELOW}{note}"


def _end_lines(ended: Json | None) -> Iterator[str]:
    """Return the end and its proof."""
    if ended is None:
        yield "end: none on record"
        return
    reason = f": {ended['reason']}" if ended.get("reason") else ""
    yield f"end: {ended.get('end')}, {moment_text(ended.get('at'))}{reason}"
    proof = table(ended, "proof")
    if proof:
        yield f"proof: {proof.get('kind')}: {proof.get('text')}"
    for gpu, size in _of_gpus(proof, "residual_bytes"):
        yield f"  left on {gpu}: {size_text(size)}"


def _of_gpus(record: Json, key: str) -> Iterator[tuple[str, object]]:
    """Yield the GPUs of a list of pairs, each with its figure; what has another form is passed over."""
    value = record.get(key)
    for pair in value if isinstance(value, list) else ():
        match pair:
            case [str(gpu), figure]:
                yield gpu, figure
