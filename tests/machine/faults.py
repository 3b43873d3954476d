"""Faults that are planted into the daemon, one at a time: the machine must find each of them.

Each takes away one thing that stands between the daemon and a wrong act, wherever it stands.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon import (
    admission,
    cycle,
    drafting,
    drains,
    last_look,
    reset_gates,
    service,
    wiring,
)
from reclaimerd.daemon.state import State
from reclaimerd.judge import budgets, drain_steps, endings, gates, target_gates
from reclaimerd.judge.proof import Proven, StillHeld
from reclaimerd.model.incident import Incident, Proof, ProofKind
from reclaimerd.model.policy import Mode
from reclaimerd.model.ports import Batch, StillRight
from reclaimerd.observe.driver_grip import DriverGrip
from reclaimerd.record.recorder import Recorder
from tests.machine.story import Plant


def _nothing(*_args: object, **_words: object) -> tuple[()]:
    return ()


def _nobody(*_args: object, **_words: object) -> None:
    return None


def no_last_look(patches: pytest.MonkeyPatch) -> None:
    """Let whoever has the pid at the last look be signalled."""
    patches.setattr(last_look, "_compared", lambda *_: StillRight())


def no_protection(patches: pytest.MonkeyPatch) -> None:
    """Let nobody be protected from an operator's order."""
    patches.setattr(target_gates, "protection_of", _nobody)
    patches.setattr(last_look, "protection_of", _nobody)


def no_stops(patches: pytest.MonkeyPatch) -> None:
    """Let neither pause, HOLD nor breaker stop a rule."""
    patches.setattr(gates, "_stop_reasons", _nothing)


def no_modes(patches: pytest.MonkeyPatch) -> None:
    """Let rules act in every mode."""
    for module in (gates, reset_gates):
        patches.setattr(module, "effective_mode", lambda *_: Mode.ENFORCE)


def no_settling(patches: pytest.MonkeyPatch) -> None:
    """Let rules act right after a start."""
    patches.setattr(gates, "_rule_reasons", _nothing)


def no_spends(patches: pytest.MonkeyPatch) -> None:
    """Let what is done cost no budget."""
    patches.setattr(admission, "spends_of", _nothing)


def forgotten_spends(patches: pytest.MonkeyPatch) -> None:
    """Let a start forget what was spent before it."""

    def forgetful(**words: Any) -> State:
        return State(**{**words, "ledger": replace(words["ledger"], spends=())})

    patches.setattr(wiring, "State", forgetful)


def no_reset_gate(patches: pytest.MonkeyPatch) -> None:
    """Let a GPU be reset whoever is on it."""
    patches.setattr(gates, "reset_reasons", _nothing)
    patches.setattr(reset_gates, "again", _nothing)
    patches.setattr(reset_gates, "last_reasons", _nothing)


def open_driver(patches: pytest.MonkeyPatch) -> None:
    """Let our own client of the driver stay open through a reset."""

    async def let_go(_grip: DriverGrip) -> bool:
        return True

    patches.setattr(DriverGrip, "let_go", let_go)


def no_proof(patches: pytest.MonkeyPatch) -> None:
    """Let whoever is gone be reclaimed, whatever of the memory is back."""

    def proven(incident: Incident, _snapshot: object) -> object:
        gone = incident.gone_mono is not None
        return Proven(Proof(ProofKind.EXCLUSIVE, "gone")) if gone else StillHeld("it lives")

    patches.setattr(endings, "finding_of", proven)


def intent_after_act(patches: pytest.MonkeyPatch) -> None:
    """Let what is permitted be done before it is on record."""
    make_durable, act = cycle.Cycle._make_durable, cycle.Cycle._act
    late: list[Batch] = []

    async def later(self: cycle.Cycle, draft: Any, work: list[Any], taken: list[Any]) -> list[Any]:
        if not work:
            return await make_durable(self, draft, work, taken)
        self._take(draft)
        late.append(Batch(entries=tuple(draft.entries)))
        return work

    async def first(self: cycle.Cycle, work: list[Any], context: Any) -> None:
        await act(self, work, context)
        while late:
            await self.joints.recorder.commit(late.pop())

    patches.setattr(cycle.Cycle, "_make_durable", later)
    patches.setattr(cycle.Cycle, "_act", first)


def no_unknown(patches: pytest.MonkeyPatch) -> None:
    """Let an attempt that a death cut off have no outcome for ever."""
    patches.setattr(service, "resumed", lambda incident, *_: (incident, []))
    patches.setattr(drafting, "settle_broken_off", _nobody)


def sent_again(patches: pytest.MonkeyPatch) -> None:
    """Let a start forget the attempts that have no outcome, and send again."""

    def forgetful(incident: Incident, *_: object) -> tuple[Incident, list[Any]]:
        kept = tuple(one for one in incident.attempts if one.outcome is not None)
        return replace(incident, attempts=kept), []

    patches.setattr(service, "resumed", forgetful)


def many_drains(patches: pytest.MonkeyPatch) -> None:
    """Let each incident ask for a drain of its own."""
    for module in (admission, budgets, drains, drain_steps):
        patches.setattr(module, "may_join", lambda _drain: False)
    for name in ("drain_budget_reasons", "cause_reasons"):
        patches.setattr(budgets, name, _nothing)


def no_handing_over(patches: pytest.MonkeyPatch) -> None:
    """Let what has run out of steps stay open."""
    patches.setattr(admission, "_run_out", _nobody)


def no_catching_up(patches: pytest.MonkeyPatch) -> None:
    """Let a record that a death took between store and log be lost."""
    patches.setattr(Recorder, "_catch_up", _nobody)


PLANTED: Mapping[str, tuple[Plant, str]] = {
    "no last look": (no_last_look, "it changed since it was judged"),
    "no protection": (no_protection, "it is protected"),
    "no stops": (no_stops, "while (paused|a HOLD file stands|the breaker is open)"),
    "no modes": (no_modes, "its rule may not act"),
    "no settling": (no_settling, "it is settling still"),
    "no spends": (no_spends, "workloads within|a busy wait"),
    "forgotten spends": (forgotten_spends, "workloads within"),
    "no reset gate": (no_reset_gate, "holds it"),
    "open driver": (open_driver, "our own client of the driver is open"),
    "no proof": (no_proof, "is reclaimed, and"),
    "intent after act": (intent_after_act, "no intent of it is durable"),
    "no unknown": (no_unknown, "has an intent and no outcome"),
    "sent again": (sent_again, "sent a second time"),
    "many drains": (many_drains, "requests stand"),
    "no catching up": (no_catching_up, "in the store alone|no intent of it"),
    "no handing over": (no_handing_over, "has run out of steps"),
}
"""Each with the words by which it is to be found."""
