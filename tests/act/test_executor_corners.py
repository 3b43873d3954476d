"""Corners of performing that a changed line would pass through unseen: see docs/mutation.md."""

import asyncio
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from reclaimerd.act import executor
from reclaimerd.act.cgroup import Cgroup
from reclaimerd.act.executor import Executor, combined
from reclaimerd.act.members import FirstSights, MembersOutcome
from reclaimerd.model.identity import FileIdentity, IncidentId, ProcessRef
from reclaimerd.model.incident import Outcome, OutcomeKind, Stage, TargetOutcome
from reclaimerd.model.policy import Scope
from reclaimerd.model.ports import LookAgainPort, StillRight
from reclaimerd.model.process import Workload
from reclaimerd.model.step import Permit, Step
from tests.act.children import IGNORES, OBEYS, child, children, look_at_ticks
from tests.builders import BOOT, a_ref, a_step, a_target, an_incident
from tests.fakes_act import FakeJudge, FakeWarner


@dataclass(slots=True)
class Sights:
    """Notes what is looked at, and finds one directory."""

    cgroup: Cgroup | None = None
    asked: list[str] = field(default_factory=list)

    def remember(self, incident: IncidentId, workload: Workload) -> None:
        """Note it."""
        self.asked.append(f"{incident} {workload.unit} at SIGTERM")

    def same_as_first(self, incident: IncidentId, workload: Workload) -> Cgroup:
        """Note it, and return the directory."""
        self.asked.append(f"{incident} {workload.unit} at SIGKILL")
        assert self.cgroup is not None
        return self.cgroup


def hands(sights: Sights | None = None, look_again: LookAgainPort = look_at_ticks) -> Executor:
    """Return hands that see these cgroups."""
    seen = cast("FirstSights", sights or Sights())
    return Executor(look_again, FakeJudge(), str, BOOT, FakeWarner(), seen)


def perform(step: Step, sights: Sights | None = None, *, dry_run: bool = False) -> Outcome:
    """Perform one permitted step."""
    return asyncio.run(hands(sights).execute(Permit(step, (), dry_run=dry_run)))


def a_step_of(scope: Scope, stage: Stage, *refs: ProcessRef) -> Step:
    """Return a step of this scope for these."""
    return replace(a_step(an_incident(replace(a_target(), scope=scope)), stage), targets=refs)


@pytest.mark.process
@pytest.mark.parametrize("scope", list(Scope))
def test_a_directory_is_seen_with_a_workload_s_first_signal_alone(scope: Scope) -> None:
    """A workload's is remembered, so that one made again is told; no other step looks at any."""
    sights = Sights()
    with child(*IGNORES) as target:
        assert perform(a_step_of(scope, Stage.SIGTERM, target.ref), sights).kind is OutcomeKind.SENT
        expected = ["inc-1 train-100.service at SIGTERM"] if scope is Scope.WORKLOAD else []
        assert sights.asked == expected
        if scope is not Scope.WORKLOAD:
            assert perform(a_step_of(scope, Stage.SIGKILL, target.ref), sights).kind is OutcomeKind.SENT
            assert sights.asked == []


@pytest.mark.process
@pytest.mark.parametrize("kind", [OutcomeKind.WITHHELD, OutcomeKind.FAILED, None])
def test_a_workload_that_may_not_be_killed_spares_who_is_outside_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: OutcomeKind | None
) -> None:
    """A member that is protected, or a directory that can't be listed: no target goes one by one for it."""
    directory = os.open(tmp_path, os.O_RDONLY)
    sights = Sights(Cgroup(directory, FileIdentity(1, 2), "/box"))

    async def answer(*_given: object, dry_run: bool) -> MembersOutcome:
        assert not dry_run
        return MembersOutcome((), kind, "sshd is a member")

    monkeypatch.setattr(executor, "kill_members", answer)
    with child(*IGNORES) as heir:
        outcome = perform(a_step_of(Scope.WORKLOAD, Stage.SIGKILL, heir.ref), sights)
        if kind is None:
            assert (outcome.kind, heir.end()) == (OutcomeKind.SENT, -9)
        else:
            assert outcome == Outcome(kind, "sshd is a member")
            assert heir.alive()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(directory)


@pytest.mark.process
def test_a_warning_looks_at_the_root_where_it_is_a_target() -> None:
    """Its children come first in a tree; it is the root whose owner is told. Where it is gone, the first."""
    seen: list[ProcessRef] = []

    async def look(step: Step, ref: ProcessRef) -> StillRight:
        del step
        seen.append(ref)
        return StillRight()

    with children(2, *OBEYS) as (root, worker):
        tree = replace(a_target(), root=root.ref, members=(worker.ref, root.ref))
        step = a_step(an_incident(tree), Stage.WARNED)
        for targets in ((worker.ref, root.ref), (worker.ref,)):
            permit = Permit(replace(step, targets=targets), ())
            assert asyncio.run(hands(None, look).execute(permit)).kind is OutcomeKind.DELIVERED
        assert seen == [root.ref, worker.ref]


def test_a_dry_reset_of_no_gpu_would_reset_nothing() -> None:
    """It says so, instead of a sentence without an end."""
    step = a_step(an_incident(replace(a_target(), gpus=())), Stage.RESET)
    expected = Outcome(OutcomeKind.FAILED, "no hand resets no GPU in a step; nothing was done")
    assert perform(step, dry_run=True) == expected


@pytest.mark.parametrize("kind", [OutcomeKind.SENT, OutcomeKind.DRY_RUN, OutcomeKind.ALREADY_GONE])
def test_many_that_went_well_name_no_cause(kind: OutcomeKind) -> None:
    """The tally is all there is to say."""
    targets = tuple(TargetOutcome(a_ref(pid), kind, "SIGTERM") for pid in (5, 6))
    assert combined(targets).detail == f"2 {kind.replace('_', ' ')}"


def sizes(count: int, targets: int = 1) -> list[int]:
    """Return how many permits go side by side, of so many with so many targets each."""
    step = a_step(targets=tuple(a_ref(pid) for pid in range(2, 2 + targets)))
    permits = [Permit(replace(step, incident=IncidentId(f"inc-{number}")), ()) for number in range(count)]
    batches = list(executor._batches(permits))
    assert [one for batch in batches for one in batch] == permits
    return [len(batch) for batch in batches]


def test_steps_go_side_by_side_as_long_as_their_pidfds_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 descriptors together, none left out, none twice; one step opens 32 at once at most."""
    assert [sizes(count) for count in (0, 1, 256, 257, 513)] == [[], [1], [256], [256, 1], [256, 256, 1]]
    assert sizes(17, targets=100) == [8, 8, 1]
    monkeypatch.setattr(executor, "OPEN_AT_ONCE", 16)
    assert sizes(2, targets=100) == [1, 1]


def test_an_end_that_was_asked_for_is_no_outcome() -> None:
    """A daemon that stops in the middle of an act does not go on as if the step had failed."""

    async def stopped(step: Step, ref: ProcessRef) -> StillRight:
        del step, ref
        raise asyncio.CancelledError

    with child(*OBEYS) as target:
        permit = Permit(a_step_of(Scope.PROCESS, Stage.SIGTERM, target.ref), ())
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(hands(None, stopped).execute_all([permit]))
        assert target.alive()
