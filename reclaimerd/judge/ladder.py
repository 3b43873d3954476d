"""The ladder as a table: which fact moves an incident from which stage to which.

This file is the machine, whole. A fact that stands not in a stage's row is illegal: it raises and
changes nothing. Ends have empty rows. `docs/ladder.md` is made from it.
"""

from collections.abc import Mapping

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.model.incident import ENDS, Fact, Stage

_GONE = {
    Fact.PROVEN: Stage.RECLAIMED,
    Fact.GONE_UNMEASURED: Stage.UNVERIFIED,
    Fact.ENDED_BY_ITSELF: Stage.STOOD_DOWN,
}
_LEAVE = {Fact.OUT_OF_STEPS: Stage.HANDED_OVER}
_WITHDRAW = {Fact.VERDICT_WITHDRAWN: Stage.STOOD_DOWN}

TRANSITIONS: Mapping[Stage, Mapping[Fact, Stage]] = {
    Stage.PENDING: {
        Fact.WARNING_DELIVERED: Stage.WARNED,
        Fact.SUSPENDED: Stage.SUSPENDED,
        Fact.TERM_SENT: Stage.SIGTERM,
        Fact.KILL_SENT: Stage.SIGKILL,
        Fact.RESET_TRIED: Stage.RESET,
        Fact.DRAIN_ASKED: Stage.DRAIN,
        **_GONE,
        **_WITHDRAW,
        **_LEAVE,
    },
    Stage.WARNED: {
        Fact.SUSPENDED: Stage.SUSPENDED,
        Fact.TERM_SENT: Stage.SIGTERM,
        Fact.KILL_SENT: Stage.SIGKILL,
        Fact.RESET_TRIED: Stage.RESET,
        Fact.DRAIN_ASKED: Stage.DRAIN,
        **_GONE,
        **_WITHDRAW,
        **_LEAVE,
    },
    Stage.SUSPENDED: {
        Fact.EVICTED: Stage.EVICTED,
        Fact.TERM_SENT: Stage.SIGTERM,
        Fact.KILL_SENT: Stage.SIGKILL,
        **_GONE,
        **_WITHDRAW,
        **_LEAVE,
    },
    Stage.SIGTERM: {
        Fact.TERM_SENT: Stage.SIGTERM,
        Fact.KILL_SENT: Stage.SIGKILL,
        Fact.RESET_TRIED: Stage.RESET,
        Fact.DRAIN_ASKED: Stage.DRAIN,
        **_GONE,
        **_WITHDRAW,
        **_LEAVE,
    },
    Stage.SIGKILL: {
        Fact.KILL_SENT: Stage.SIGKILL,
        Fact.RESET_TRIED: Stage.RESET,
        Fact.DRAIN_ASKED: Stage.DRAIN,
        **_GONE,
        **_LEAVE,
    },
    Stage.RESET: {
        Fact.DRAIN_ASKED: Stage.DRAIN,
        **_GONE,
        **_LEAVE,
    },
    Stage.DRAIN: {
        Fact.DRAIN_ACCEPTED: Stage.HANDED_OVER,
        **_GONE,
        **_LEAVE,
    },
    **{end: {} for end in sorted(ENDS)},
}


def next_stage(stage: Stage, fact: Fact) -> Stage:
    """Return the stage that `fact` leads to; raise IllegalTransitionError when it may not happen here."""
    try:
        return TRANSITIONS[stage][fact]
    except KeyError:
        raise IllegalTransitionError(f"the fact {fact} may not happen at stage {stage}") from None


def as_markdown() -> str:
    """Return the table and its picture as the page docs/ladder.md."""
    lines = [
        "# The ladder",
        "",
        "This page is made from `reclaimerd/judge/ladder.py` by `make docs`; a test holds the two together.",
        "An incident stands at one stage; a fact that is not in its row is illegal and changes nothing.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> pending",
    ]
    for stage, row in TRANSITIONS.items():
        lines += [f"    {stage} --> {after}: {fact}" for fact, after in row.items()]
    lines += [f"    {end} --> [*]" for end in sorted(ENDS)]
    lines += ["```", "", "| stage | fact | next stage |", "|---|---|---|"]
    for stage, row in TRANSITIONS.items():
        lines += [f"| {stage} | {fact} | {after} |" for fact, after in row.items()]
        if not row:
            lines.append(f"| {stage} | (an end) | |")
    return "\n".join(lines) + "\n"
