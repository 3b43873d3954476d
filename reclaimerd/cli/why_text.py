"""The answer to "who killed my job?" in sentences. Opens nothing, and tells only what was found on record.

A record may have been edited by anybody who could write the log: nothing in it is taken to have its form.
"""

from collections.abc import Iterator
from typing import Final

from reclaimerd.cli.audit_text import Json, tables, words
from reclaimerd.cli.render import ATTENTION, age_text, moment_text, user_text

_EXACT_SECONDS: Final = 10.0
_SIGNALS: Final = {
    "sigterm": "SIGTERM",
    "sigkill": "SIGKILL",
    "suspended": "SIGSTOP",
    "warned": "the warning",
}
_ACTORS: Final = {"rule": "rule", "operator": "operator", "watch": "the daemon's own"}
ANSWERS: Final = {
    "signalled": "Yes: reclaimerd sent a signal to {}.",
    "unknown": "It is not known whether reclaimerd sent a signal to {}: an attempt has no outcome on record.",
    "acted": "No signal: reclaimerd sent none to {}, but it did do what stands below.",
    "nothing_done": "No: reclaimerd had {} in view, and nothing was done to it.",
    "named": "No: as far as its record goes, reclaimerd did nothing to {}.",
    "not_on_record": "No: as far as its record goes, it was not reclaimerd; no record is about {}.",
}
_ENDS: Final = {
    "stood_down": "then it was left alone",
    "handed_over": "it still held its GPU, and the matter was handed over",
}
_NONE_OF_OWN: Final = "No: what is on record about your own processes says nothing of {}."
HEADS: Final = {
    "signalled": "signalled {}",
    "unknown": "began to signal {}, and it is not known whether that happened",
    "acted": "acted on {} without a signal",
    "nothing_done": "wanted {}, and nothing was done",
}


def answer_lines(subject: str, found: Json, elsewhere: str) -> Iterator[str]:
    """Yield the answer: yes or no first, then each incident, then what the record covers."""
    answer, faults = str(found.get("answer")), words(found, "faults")
    if found.get("chain") == "broken":
        where = faults[0] if faults else "by its chain"
        yield f"{ATTENTION}the record is broken ({where}), so this answer can't be trusted"
    of_own = found.get("only_uid") is not None
    yield (_NONE_OF_OWN if of_own and answer == "not_on_record" else ANSWERS.get(answer, "{}:")).format(
        subject
    )
    if of_own:
        yield f"Only records about processes of uid {found['only_uid']} were looked at."
    named = words(found, "named_by")
    if named:
        yield f"It is named as in the way of another's step by {', '.join(named)} (reclaimctl audit show ID)."
    incidents, processes = tables(found, "incidents"), tables(found, "processes")
    if len(processes) > 1:
        yield f"{len(processes)} processes had this number, each for itself:"
    for process in processes if len(processes) > 1 else ():
        yield ""
        yield f"{_process_words(process)}: {_did_words(process)}"
        own = words(process, "incidents")
        yield from _incidents_lines([one for one in incidents if one.get("incident") in own])
    if len(processes) <= 1:
        yield from _incidents_lines(incidents)
    if found.get("more"):
        yield ""
        what = f"Only the newest {len(incidents)} incidents are told, and there are more"
        yield f"{what}: --limit, or `reclaimctl audit list`."
    yield ""
    yield from _span_lines(found)
    if answer not in {"signalled", "unknown"}:
        yield f"Elsewhere to look: {elsewhere}."


def _process_words(process: Json) -> str:
    started = process.get("started_at")
    since = f", started {moment_text(started)}" if started is not None else f", of boot {process.get('boot')}"
    return f"{process.get('process')}{since}"


def _did_words(process: Json) -> str:
    return ANSWERS.get(str(process.get("answer")), "{}").format("it").rstrip(".")


def _incidents_lines(incidents: list[Json]) -> Iterator[str]:
    for one in incidents:
        yield ""
        yield from incident_lines(one)


def incident_lines(one: Json) -> Iterator[str]:
    """Yield one incident: a sentence, then why, whom, what held it back, and the command for all of it."""
    whom = str(one.get("process") or "it")
    head = HEADS.get(str(one.get("answer")), "acted on {}").format(whom)
    refused = (_refused_words(word) for word in tables(one, "words") if word.get("kind") == "refused")
    steps = (_step_words(step) for step in tables(one, "steps"))
    done = "; ".join([*dict.fromkeys(refused), *steps, _end_words(one)])
    yield f"{moment_text(one.get('opened_at'))}: {_who_words(one)} {head}: {done}."
    yield f"  why       {one.get('why') or 'no reason on record'}"
    yield f"  target    {_target_words(one)}"
    for word in tables(one, "words"):
        yield from _word_lines(word)
    if one.get("left_out"):
        yield f"  more      {one['left_out']} further records"
    yield f"  story     reclaimctl audit show {one.get('incident')}"


def _who_words(one: Json) -> str:
    """Return who asked, each once; more than one where a person took a rule's incident over."""
    return ", then ".join(_actor_words(actor) for actor in tables(one, "actors")) or "nobody on record"


def _actor_words(actor: Json) -> str:
    kind = _ACTORS.get(str(actor.get("kind")), str(actor.get("kind")))
    if actor.get("role") == "owner":
        kind = "its owner"
    login = f" (logged in as {actor['login']})" if actor.get("login") else ""
    return f"{kind} {actor.get('name')}{login}"


def _refused_words(word: Json) -> str:
    kinds = ", ".join(str(reason.get("kind")) for reason in tables(word, "reasons"))
    action = str(word.get("action") or "")
    return f"{_SIGNALS.get(action, action)} refused".strip() + (f" ({kinds})" if kinds else "")


def _step_words(step: Json) -> str:
    """Return one step with what came of it, as in `SIGTERM and SIGCONT sent after 3.0 s`."""
    action, detail = str(step.get("action")), str(step.get("detail") or "")
    name = _SIGNALS.get(action, action)
    match step.get("outcome"):
        case "sent" | "accepted" | "delivered" | "reset_done" as outcome:
            what = f"{detail or name} {'sent' if action in _SIGNALS else outcome}".replace("_", " ")
        case "" | None | "unknown":
            what = f"{name} begun, and no outcome is on record" + (f" ({detail})" if detail else "")
        case "dry_run":
            what = f"dry run, {detail or f'would do {name}'}"
        case "planned":
            what = f"{name} only planned" + (f" ({detail})" if detail else "")
        case "not_sent_to_it":
            what = f"{name} not sent to this process"
        case outcome:
            what = f"{name} not sent, {str(outcome).replace('_', ' ')}" + (f" ({detail})" if detail else "")
    after = step.get("after_seconds")
    return f"{what} after {seconds_text(after)}" if isinstance(after, int | float) and after > 0 else what


def _end_words(one: Json) -> str:
    """Return how it ended, and how soon after the last signal that was sent."""
    end, reason = str(one.get("end") or ""), str(one.get("end_reason") or "")
    if not end:
        return "no end is on record: it is open, or its end was cut off"
    if end not in {"reclaimed", "unverified"}:
        kind, _, to = end.partition(" to ")
        what = _ENDS.get(kind, f"it ended as {kind.replace('_', ' ')}") + (f" to {to}" if to else "")
        return what + (f" ({reason})" if reason else "")
    sent = [
        step for step in tables(one, "steps") if step.get("did") == "yes" and step.get("action") in _SIGNALS
    ]
    after = one.get("end_after_seconds")
    soon = ""
    if sent and isinstance(after, int | float):
        began = sent[-1].get("after_seconds")
        within = after - began if isinstance(began, int | float) else after
        soon = f" within {seconds_text(within)} of {_SIGNALS[str(sent[-1]['action'])]}"
    proven = (
        "its GPUs are proven free" if end == "reclaimed" else "the return of its memory could not be verified"
    )
    return f"it was gone{soon}, and {proven}"


def seconds_text(seconds: object) -> str:
    """Return a duration for people, short ones by tenths."""
    if isinstance(seconds, int | float) and 0 <= seconds < _EXACT_SECONDS:
        return f"{seconds:.1f} s"
    return age_text(seconds)


def _target_words(one: Json) -> str:
    """Return who was concerned, and by which names."""
    several = one.get("processes")
    more = f" and {several - 1} more ({one.get('scope')})" if isinstance(several, int) and several > 1 else ""
    names = words(one, "workload")
    within = f", {', '.join(names)}" if names else ""
    return f"{one.get('process')}{more} of {user_text(one.get('uid'))}{within}: {one.get('command')}"


def _word_lines(word: Json) -> Iterator[str]:
    """Yield why something was not done, or a note."""
    if word.get("kind") != "refused":
        yield f"  note      {word.get('text')}"
        return
    for reason in tables(word, "reasons"):
        text = f": {reason['text']}" if reason.get("text") else ""
        mend = f"; {reason['mend']}" if reason.get("mend") else ""
        yield f"  refused   {word.get('action')} ({reason.get('kind')}){text}{mend}"


def _span_lines(found: Json) -> Iterator[str]:
    """Yield from when until when the record was looked at, and whether there was more."""
    covers = found.get("covers")
    covers = covers if isinstance(covers, dict) else {}
    yield f"The record was looked at from {moment_text(covers.get('looked_from_at'))} until now."
    if covers.get("older_removed"):
        first = covers.get("first_seq")
        last = first - 1 if isinstance(first, int) else "?"
        begins = f"It begins {moment_text(covers.get('first_at'))}"
        yield f"{begins}: the records before (1 to {last}) were removed by retention."
