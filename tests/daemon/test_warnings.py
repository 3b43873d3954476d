"""Warnings through whole passes: beside them, on record, before any act and never in place of one."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from reclaimerd.daemon.following import resumed, unsure_of
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.views import incident_row
from reclaimerd.daemon.warning_tasks import WarningTasks
from reclaimerd.judge.warnings import RETRY_SECONDS, warning_of
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.incident import Attempt, Incident, Outcome, OutcomeKind, Recipient, Stage
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import (
    BreakerSettings,
    GateSettings,
    Mode,
    RuleAction,
    Selector,
)
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.step import Permit
from tests.builders import (
    BOOT,
    GIB,
    MONO,
    WALL,
    a_busy_snapshot,
    a_plan,
    a_policy,
    a_process,
    a_ref,
    a_rule,
    an_incident,
)
from tests.fakes import FakeExecutor, Rig, a_disk_error, a_rig

BEFORE = a_rule(warn_before_seconds=60.0)
ONLY = a_rule(action=RuleAction.WARN)
SETTLED = GateSettings(settling_seconds=0.0, workload_cooldown_seconds=0.0)
CALM = a_policy(gates=SETTLED, breaker=BreakerSettings(workloads_per_pass=50, gpu_percent=100.0))
SMALL = a_busy_snapshot(used=1 * GIB)


def answering(warning: OutcomeKind) -> Callable[[Permit], OutcomeKind]:
    """Return what the hands say: this to a warning, SENT to a signal."""
    return lambda permit: warning if permit.step.stage is Stage.WARNED else OutcomeKind.SENT


def a_warning_rig(*rules: Any, warning: OutcomeKind = OutcomeKind.DELIVERED) -> Rig:
    """Return a rig over one busy process, whose warnings come to this."""
    rig = a_rig(a_busy_snapshot(), replace(CALM, rules=rules or (BEFORE,)))
    rig.executor.answer = answering(warning)
    return rig


@dataclass(slots=True)
class SlowHands:
    """Hands whose warnings wait until the test lets them go on."""

    own: FakeExecutor
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, permit: Permit) -> Outcome:
        """Wait, and do it."""
        await self.gate.wait()
        return await self.own.execute(permit)

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Wait, and do them."""
        await self.gate.wait()
        return await self.own.execute_all(permits)


def with_slow_warnings(rig: Rig) -> SlowHands:
    """Let this rig's warnings take their time."""
    hands = SlowHands(rig.executor)
    rig.cycle.joints = replace(rig.cycle.joints, warnings=WarningTasks(hands, lambda: None))
    return hands


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run one test's work in a loop of its own."""
    asyncio.run(work)


def the_incident(rig: Rig) -> Incident:
    """Return the one that is open."""
    (incident,) = rig.cycle.state.incidents.values()
    return incident


def stages(rig: Rig) -> list[str]:
    """Return what the hands were given, in order."""
    return [permit.step.stage.value for permit in rig.executor.permits]


def test_warned_first_and_signalled_after_its_time() -> None:
    """Intent with its words, outcome, then nothing for 60 s, then SIGTERM."""

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes(2)
        incident = the_incident(rig)
        assert incident.stage is Stage.WARNED
        assert incident_row(incident, rig.sampler.snapshot)["follows"] == (
            "its owner was warned; sigterm follows in 59 s at the earliest"
        )
        (intent,) = rig.recorder.of_kind(RecordKind.INTENT)
        assert intent.action == "warned"
        assert intent.evidence == (str(a_ref()), *(f"says: {one}" for one in warning_of(incident).lines))
        (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
        assert outcome.outcome is not None
        assert outcome.outcome.kind is OutcomeKind.DELIVERED
        assert rig.cycle.state.ledger.spends == ()
        await rig.passes(58)
        assert stages(rig) == ["warned"]
        await rig.passes(2)
        assert stages(rig) == ["warned", "sigterm"]
        assert len(rig.cycle.state.ledger.spends) == 1

    run(work())


def test_no_pass_waits_for_a_warning() -> None:
    """While a hook hangs the passes go on, an operator's order with them, and nobody is warned twice."""
    two = a_busy_snapshot(a_process(100), a_process(101))

    async def work() -> None:
        rig = a_rig(two, replace(CALM, rules=(replace(BEFORE, match=Selector(cgroup=("*train-100*",))),)))
        rig.executor.answer = answering(OutcomeKind.DELIVERED)
        hands = with_slow_warnings(rig)
        await rig.passes(3)
        rig.order(101)
        await rig.passes(3)
        assert stages(rig) == ["sigterm"]
        warned = next(one for one in rig.cycle.state.incidents.values() if one.target.root.pid == 100)
        assert warned.stage is Stage.PENDING
        hands.gate.set()
        await rig.passes(2)
        assert stages(rig) == ["sigterm", "warned"]
        assert rig.cycle.state.incidents[warned.id].stage is Stage.WARNED
        assert [one.action for one in rig.recorder.of_kind(RecordKind.INTENT)] == ["warned", "sigterm"]

    run(work())


def test_a_warning_in_vain_three_times_ends_with_a_person_and_no_act() -> None:
    """A minute apart; then handed over, and no rule takes the process up again."""

    async def work() -> None:
        rig = a_warning_rig(warning=OutcomeKind.NOT_DELIVERED)
        await rig.passes(300, step=1.0)
        assert stages(rig) == ["warned"] * 3
        (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
        assert ended.end == "handed_over to person"
        assert ended.reason.startswith("nobody could be warned in 3 tries, so nothing is done: ")
        (handed,) = rig.cycle.state.handed.values()
        assert handed.handed_to is Recipient.PERSON
        tries = [attempt.intent_at for attempt in handed.attempts]
        assert [later - first for first, later in pairwise(tries)] == pytest.approx(
            [RETRY_SECONDS] * 2, abs=2.0
        )

    run(work())


def test_a_rule_that_only_warns_does_no_more_and_ends_with_its_verdict() -> None:
    """Hours later nothing followed; when the rule no longer holds it stands down, and nothing cools down."""

    async def work() -> None:
        rig = a_warning_rig(ONLY)
        await rig.passes(100, step=2.0)
        assert stages(rig) == ["warned"]
        assert the_incident(rig).plan.stages == ()
        rig.show(SMALL)
        await rig.passes()
        (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
        assert ended.end == "stood_down"
        assert rig.cycle.state.ledger.ended == ()
        assert rig.recorder.of_kind(RecordKind.PASSED_OVER) == []

    run(work())


def test_a_verdict_that_is_withdrawn_after_the_warning_ends_it() -> None:
    """The owner let go of the memory: no signal follows."""

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes(10)
        rig.show(SMALL)
        await rig.passes(100)
        assert stages(rig) == ["warned"]
        (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
        assert ended.end == "stood_down"

    run(work())


def test_a_rule_that_can_t_tell_any_more_signals_nobody() -> None:
    """After the warning what it holds can't be read: refused until it can be."""

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes(10)
        seen = a_busy_snapshot()
        dark = tuple(replace(one, used_bytes=Unreadable("no figure")) for one in seen.holders)
        rig.show(replace(seen, holders=dark))
        await rig.passes(100)
        assert stages(rig) == ["warned"]
        assert "does not ask for it in this look" in the_incident(rig).last_refusal
        rig.show(seen)
        await rig.passes(5)
        assert stages(rig) == ["warned", "sigterm"]

    run(work())


def test_a_dry_run_goes_on_as_if_delivered() -> None:
    """WARNED, and after its time the whole plan on record; no warning and no signal was real."""

    async def work() -> None:
        rig = a_warning_rig(replace(BEFORE, mode=Mode.DRY_RUN))
        await rig.passes(2)
        assert the_incident(rig).stage is Stage.WARNED
        await rig.passes(60)
        assert stages(rig)[:2] == ["warned", "sigterm"]
        assert rig.executor.sent == {}
        planned = [entry.action for entry in rig.recorder.of_kind(RecordKind.PLANNED)]
        assert planned == ["sigkill", "drain"]

    run(work())


def test_a_dry_warning_is_given_once_and_not_each_pass() -> None:
    """A rule that only warns, dry: one record, however many passes."""

    async def work() -> None:
        rig = a_warning_rig(replace(ONLY, mode=Mode.DRY_RUN))
        await rig.passes(50)
        assert stages(rig) == ["warned"]
        assert rig.executor.sent == {}

    run(work())


def test_a_rule_that_comes_to_enforce_warns_anew() -> None:
    """What was planned dry stands down; the warning that counts is a real one."""

    async def work() -> None:
        rig = a_warning_rig(replace(BEFORE, mode=Mode.DRY_RUN))
        await rig.passes(5)
        rig.cycle.policy = replace(CALM, rules=(BEFORE,))
        await rig.passes(4)
        assert stages(rig) == ["warned", "warned"]
        assert rig.executor.sent == {a_ref(): ["warned"]}
        assert the_incident(rig).stage is Stage.WARNED

    run(work())


def test_an_operator_needs_no_warning() -> None:
    """A process that was only warned is the operator's at once, whatever the rule's plan was."""

    async def work() -> None:
        for rule in (ONLY, BEFORE):
            rig = a_warning_rig(rule)
            await rig.passes(3)
            rig.order()
            await rig.passes(2)
            assert stages(rig) == ["warned", "sigterm"]

    run(work())


def test_a_rule_that_reclaims_goes_further_than_one_that_warns() -> None:
    """The open warning stands down for it; the other way round nothing gives way."""
    stern = a_rule("stern", above=6 * GIB, priority=9)

    async def work() -> None:
        rig = a_warning_rig(replace(ONLY, name="mild"))
        await rig.passes(3)
        rig.cycle.policy = replace(CALM, rules=(replace(ONLY, name="mild"), stern))
        await rig.passes(3)
        assert stages(rig) == ["warned", "sigterm"]
        (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
        assert (ended.end, ended.reason) == ("stood_down", "rule stern goes further")

    run(work())


def test_what_an_owner_was_told_of_an_act_stands() -> None:
    """A second rule that also reclaims, in the same mode, cuts the time of nobody who was warned."""
    stern = a_rule("stern", above=6 * GIB, priority=9)

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes(3)
        rig.cycle.policy = replace(CALM, rules=(BEFORE, stern))
        await rig.passes(10)
        assert stages(rig) == ["warned"]
        assert the_incident(rig).actor.name == "over-cap"

    run(work())


def test_warnings_alone_trip_no_breaker() -> None:
    """Many at once are only told; with an act to follow they trip it before anybody is told."""
    many = a_busy_snapshot(*(a_process(100 + number) for number in range(5)))

    async def work() -> None:
        strict = replace(CALM, breaker=BreakerSettings())
        for rule, told in ((ONLY, 5), (BEFORE, 0)):
            rig = a_rig(many, replace(strict, rules=(rule,)))
            rig.executor.answer = answering(OutcomeKind.DELIVERED)
            await rig.passes(2)
            assert stages(rig) == ["warned"] * told
            assert (rig.cycle.state.ledger.breaker is None) is (told > 0)

    run(work())


def test_an_outcome_that_could_not_be_written_is_written_later() -> None:
    """The disk fails while the owner is told: not told twice, and on record once it works again."""

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes()
        assert stages(rig) == ["warned"]
        rig.recorder.errors += [a_disk_error(), a_disk_error()]
        await rig.passes()
        assert rig.recorder.of_kind(RecordKind.OUTCOME) == []
        assert the_incident(rig).stage is Stage.PENDING
        await rig.passes(2)
        assert stages(rig) == ["warned"]
        assert len(rig.recorder.of_kind(RecordKind.OUTCOME)) == 1
        assert the_incident(rig).stage is Stage.WARNED

    run(work())


def test_an_outcome_that_comes_after_the_end_is_on_record() -> None:
    """The incident is over by then: its record says what came of the warning, and nothing changes."""

    async def work() -> None:
        rig = a_warning_rig()
        hands = with_slow_warnings(rig)
        await rig.passes()
        rig.show(SMALL)
        await rig.passes()
        assert rig.cycle.state.incidents == {}
        hands.gate.set()
        await rig.passes(3)
        (outcome,) = rig.recorder.of_kind(RecordKind.OUTCOME)
        assert (outcome.action, outcome.reason) == ("warned", "delivered by the fake")
        assert rig.cycle.state.incidents == {}
        assert rig.cycle.joints.warnings.under_way == frozenset()

    run(work())


def test_an_outcome_that_comes_in_the_pass_of_the_end_is_on_record() -> None:
    """Withdrawn in the look in which the outcome is taken: stood down, and both are told."""

    async def work() -> None:
        rig = a_warning_rig()
        await rig.passes()
        rig.show(SMALL)
        await rig.passes(2)
        assert len(rig.recorder.of_kind(RecordKind.OUTCOME)) == 1
        (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
        assert ended.end == "stood_down"

    run(work())


def test_a_death_in_mid_warning_means_warning_again() -> None:
    """A start finds an intent without outcome: UNKNOWN, no stage, and the next try in a minute."""
    attempt = Attempt(AttemptId("inc-1.1"), Stage.WARNED, (a_ref(),), WALL)
    incident = an_incident(plan=a_plan(warn_seconds=60.0), attempts=(attempt,))
    found, records = resumed(incident, BOOT, Ledger(), Moment(MONO + 3.0, WALL + 3.0))
    assert (found.stage, found.stage_mono) == (Stage.PENDING, MONO + 3.0)
    assert found.attempts[0].outcome == Outcome(
        OutcomeKind.UNKNOWN, "we ended between intent and outcome; it is given again"
    )
    assert [record.kind for record in records] == [RecordKind.OUTCOME]


def test_stopping_lets_go_of_a_warning() -> None:
    """The engine ends though a way hangs; the attempt has no outcome, and the next start knows that."""

    async def work() -> None:
        rig = a_warning_rig()
        with_slow_warnings(rig)
        await rig.passes(2)
        assert len(rig.cycle.joints.warnings.under_way) == 1
        await rig.cycle.joints.warnings.stop()
        assert rig.cycle.joints.warnings.under_way == frozenset()
        assert the_incident(rig).attempts[0].outcome is None
        assert stages(rig) == []

    run(work())


def test_nobody_is_unsure_before_the_first_look() -> None:
    """Without an evaluation there is nothing to say."""
    assert unsure_of([an_incident()], None) == {}


@dataclass(slots=True)
class BreakingHands:
    """Hands that break off when they are told to let go."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, permit: Permit) -> Outcome:
        """Wait for ever."""
        raise AssertionError(f"one by one: {permit}")

    async def execute_all(self, permits: Sequence[Permit]) -> tuple[Outcome, ...]:
        """Wait for ever, and end badly."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError(f"{len(permits)} left") from None
        raise AssertionError("nobody sets it")


def test_hands_that_break_off_do_not_keep_the_daemon_from_its_end() -> None:
    """What the workers and the store need at the end still happens; the attempt has no outcome."""
    rig = a_warning_rig()
    hands = BreakingHands()
    warnings = WarningTasks(hands, lambda: None)
    rig.cycle.joints = replace(rig.cycle.joints, warnings=warnings)

    async def run() -> None:
        await rig.cycle.run_pass()
        await hands.begun.wait()
        await warnings.stop()

    asyncio.run(run())
    assert (warnings.under_way, warnings.finished()) == (frozenset(), ())
