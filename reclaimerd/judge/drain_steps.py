"""A drain request's phases as a table: which fact moves it from which phase to which.

This file is the order of the steps, whole. A fact that stands not in a phase's row is illegal: it raises and
changes nothing. Nothing is asked before the fleet's slot is ours, and the slot is given back last.
`docs/drain.md` has the table.
"""

from collections.abc import Mapping

from reclaimerd.errors import IllegalTransitionError
from reclaimerd.model.drain import DrainFact, DrainPhase, NodeDrain

_ORDERED = {DrainFact.WITHDRAWAL_ORDERED: DrainPhase.WITHDRAW}

PHASES: Mapping[DrainPhase, Mapping[DrainFact, DrainPhase]] = {
    DrainPhase.SLOT: {DrainFact.SLOT_TAKEN: DrainPhase.ASK, **_ORDERED},
    DrainPhase.ASK: {DrainFact.ALL_ANSWERED: DrainPhase.STANDS, **_ORDERED},
    DrainPhase.STANDS: {**_ORDERED},
    DrainPhase.WITHDRAW: {DrainFact.ALL_WITHDRAWN: DrainPhase.DONE},
    DrainPhase.DONE: {},
}


def next_phase(phase: DrainPhase, fact: DrainFact) -> DrainPhase:
    """Return the phase that `fact` leads to; raise IllegalTransitionError when it may not happen here."""
    try:
        return PHASES[phase][fact]
    except KeyError:
        text = f"the fact {fact} may not happen in a drain request's phase {phase}"
        raise IllegalTransitionError(text) from None


def may_join(drain: NodeDrain | None) -> bool:
    """Tell whether a request of this node stands that a further incident joins: it costs no budget."""
    return drain is not None and drain.withdrawal is None and drain.phase is not DrainPhase.DONE


def is_leaving(drain: NodeDrain) -> bool:
    """Tell whether this node's request is being taken back: a further incident waits until it is gone."""
    return drain.withdrawal is not None and drain.phase is not DrainPhase.DONE


def as_markdown() -> str:
    """Return the table as it stands in docs/drain.md."""
    lines = ["| phase | fact | next phase |", "|---|---|---|"]
    for phase, row in PHASES.items():
        lines += [f"| {phase} | {fact} | {after} |" for fact, after in row.items()]
        if not row:
            lines.append(f"| {phase} | (the end) | |")
    return "\n".join(lines) + "\n"
