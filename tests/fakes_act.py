"""Fakes of what `act` is handed: they note what was asked and give a set answer."""

from dataclasses import dataclass, field

from reclaimerd.act.members import Admitted, NotAdmitted
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Outcome, OutcomeKind
from reclaimerd.model.step import Step


@dataclass(frozen=True, slots=True)
class FakeJudge:
    """Admits the members it knows, unless it has a reason not to; an unknown pid is no."""

    known: dict[int, ProcessRef] = field(default_factory=dict)
    refusal: str = ""
    asked: list[tuple[int, ...]] = field(default_factory=list)

    async def __call__(self, step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
        """Note the pids and answer."""
        del step
        self.asked.append(pids)
        if self.refusal:
            return NotAdmitted(self.refusal)
        unknown = [pid for pid in pids if pid not in self.known]
        if unknown:
            return NotAdmitted(f"nobody judged {unknown}")
        return Admitted(tuple(self.known[pid] for pid in pids))


@dataclass(frozen=True, slots=True)
class FakeWarner:
    """Notes whom it was to warn, and delivers."""

    asked: list[tuple[Step, bool]] = field(default_factory=list)

    async def warn(self, step: Step, *, dry_run: bool) -> Outcome:
        """Note the step and whether it is a dry run."""
        self.asked.append((step, dry_run))
        return Outcome(OutcomeKind.DELIVERED, "told")
