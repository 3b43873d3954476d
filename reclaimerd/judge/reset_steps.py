"""A reset's phases as a table: which fact moves a reset from which phase to which.

This file is the order of the steps, whole. A fact that stands not in a phase's row is illegal: it raises and
changes nothing. Whatever happens, the way to the end leads through `restore`. `docs/reset.md` is made
from it.
"""

from collections.abc import Mapping

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.model.reset_run import ResetFact, ResetPhase

_REBOOTED = {ResetFact.REBOOTED: ResetPhase.RESTORE}
"""A boot puts back most of what was changed, but not the scheduler's fence: that is still ours to undo."""
_REFUSED = {ResetFact.REFUSED: ResetPhase.RESTORE, **_REBOOTED}

PHASES: Mapping[ResetPhase, Mapping[ResetFact, ResetPhase]] = {
    ResetPhase.PREPARE: {ResetFact.PREPARED: ResetPhase.FENCE, **_REFUSED},
    ResetPhase.FENCE: {ResetFact.FENCED: ResetPhase.STOP_CLIENTS, **_REFUSED},
    ResetPhase.STOP_CLIENTS: {ResetFact.STOPPED: ResetPhase.LOOK_AGAIN, **_REFUSED},
    ResetPhase.LOOK_AGAIN: {ResetFact.CLEAR: ResetPhase.RESET, **_REFUSED},
    ResetPhase.RESET: {
        ResetFact.TOOL_ENDED: ResetPhase.VERIFY,
        ResetFact.TOOL_SAID_NO: ResetPhase.RESTORE,
        ResetFact.TOOL_OVERRAN: ResetPhase.LEFT_ALONE,
        **_REFUSED,
    },
    ResetPhase.LEFT_ALONE: {ResetFact.TOOL_ENDED: ResetPhase.RESTORE, **_REBOOTED},
    ResetPhase.VERIFY: {
        ResetFact.VERIFIED: ResetPhase.RESTORE,
        ResetFact.NOT_VERIFIED: ResetPhase.RESTORE,
        **_REBOOTED,
    },
    ResetPhase.RESTORE: {ResetFact.RESTORED: ResetPhase.DONE, **_REBOOTED},
    ResetPhase.DONE: {},
}


def next_phase(phase: ResetPhase, fact: ResetFact) -> ResetPhase:
    """Return the phase that `fact` leads to; raise IllegalTransitionError when it may not happen here."""
    try:
        return PHASES[phase][fact]
    except KeyError:
        raise IllegalTransitionError(f"the fact {fact} may not happen in a reset's phase {phase}") from None


def as_markdown() -> str:
    """Return the table and its picture as the page docs/reset.md."""
    lines = [
        "# The phases of a reset",
        "",
        "This page is made from `reclaimerd/judge/reset_steps.py` by `make docs`; a test holds the two",
        "together. A phase is on record before anything of it is done, and each change before it is made.",
        "Whatever happens, the way to the end leads through `restore`, where all changes are put back. After",
        "a reset that failed, hung or could not be verified the scheduler's fence alone is kept.",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> prepare",
    ]
    for phase, row in PHASES.items():
        lines += [f"    {phase} --> {after}: {fact}" for fact, after in row.items()]
    lines += ["    done --> [*]", "```", "", "| phase | fact | next phase |", "|---|---|---|"]
    for phase, row in PHASES.items():
        lines += [f"| {phase} | {fact} | {after} |" for fact, after in row.items()]
        if not row:
            lines.append(f"| {phase} | (the end) | |")
    return "\n".join(lines) + "\n"
