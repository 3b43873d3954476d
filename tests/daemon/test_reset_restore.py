"""Everything is put back, whatever can or cannot be written meanwhile."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.errors import CorruptStoreError, ReclaimerdError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.identity import AttemptId
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.ports import Look, ToolEnded, ToolVanished
from reclaimerd.model.reset_run import ChangeState, ResetPhase, ResetResult
from tests.daemon.reset_ends import assert_ended, assert_refused_and_restored, run
from tests.daemon.reset_host import CHANGES, DCGM, EXPORTER, NVSM, RUN, SUCCESS, FakeHost, a_disk_error

UNDONE = tuple(
    f"restore: {words}" for words in ("start ", "persistence mode on again", "write ", "let go of")
)


def test_what_cannot_be_put_back_is_left_with_an_alarm_and_the_rest_is_put_back() -> None:
    """Three tries, then a person; the end comes all the same."""
    host = FakeHost(fails={f"undo {EXPORTER}": 99})
    run(host)
    assert host.acts.count(f"undo {EXPORTER}") == 3
    assert (host.run.phase, host.run.result) == (ResetPhase.DONE, ResetResult.VERIFIED)
    assert [change.state for change in host.run.changes if change.name == EXPORTER] == [ChangeState.LEFT]
    assert host.units[DCGM] == "active"
    assert not host.fenced
    (alarm,) = host.of_kind(RecordKind.ALARM)
    assert EXPORTER in alarm.reason
    assert "(before: active): it would not" in alarm.reason
    assert host.texts[-1] == "restore: not everything could be put back"


@pytest.mark.parametrize("end", [ToolEnded(15, "Unable to reset"), ToolVanished("gone"), SUCCESS, None])
def test_the_fence_stays_where_the_gpu_is_not_seen_to_be_well(end: ToolEnded | ToolVanished | None) -> None:
    """No job may land on it: failed, not verified or left alone; one alarm, and nobody comes back to it."""
    host = FakeHost(faults_left=10**6 if end == SUCCESS else 0)
    host.tool.end = end
    life = host.a_life()
    run(host, life)
    host.tool.end = end or SUCCESS
    host.now += host.tool.seconds
    run(host, life)
    run(host)
    assert host.fenced
    assert "undo node-1" not in host.acts
    (fence,) = [change for change in host.run.changes if change.state is ChangeState.LEFT]
    assert fence.text == "kept: the GPU is not well; release it by hand or by the drain's end"
    assert len([one for one in host.of_kind(RecordKind.ALARM) if fence.text in one.reason]) == 1
    assert host.is_as_before()
    assert host.texts[-1].endswith("is put back but the scheduler's fence, which is kept")


@pytest.mark.parametrize("error", [ReclaimerdError("no"), KeyError("no")], ids=["known", "bug"])
def test_an_undoing_that_breaks_does_not_keep_the_others_from_being_done(error: Exception) -> None:
    """It is left with an alarm as one that fails is."""
    host = FakeHost()
    host.undo_errors = {EXPORTER: error}
    run(host)
    assert host.run.phase is ResetPhase.DONE
    assert host.units[DCGM] == "active"
    assert not host.fenced
    assert [change.name for change in host.run.changes if change.state is ChangeState.LEFT] == [EXPORTER]
    assert len(host.of_kind(RecordKind.ALARM)) == 1


def test_a_bug_in_the_restoring_itself_is_told_and_the_next_start_restores() -> None:
    """The run stays where it is, on record."""
    host = FakeHost()
    life = ResetProcedure(replace(host.a_life()._joints, grip=_BrokenGrip(host)))
    with pytest.raises(KeyError):
        run(host, life)
    phases = [host.run.phase]
    run(host)
    assert [*phases, host.run.phase] == [ResetPhase.RESTORE, ResetPhase.DONE]
    assert host.is_as_before()


class _BrokenGrip:
    def __init__(self, host: FakeHost) -> None:
        self.let_go = host.let_go
        self.host = host

    def take_back(self) -> None:
        """Work once, for the verification."""
        if self.host.grips[-1:] == ["take back"]:
            raise KeyError("a bug")
        self.host.take_back()


def test_an_undoing_that_succeeds_at_last_is_no_alarm() -> None:
    """Two failures, and a third try."""
    host = FakeHost(fails={f"undo {DCGM}": 2})
    run(host)
    assert_ended(host, ResetResult.VERIFIED, "the GPU is back and well")
    assert host.of_kind(RecordKind.ALARM) == []


def _writes_of_a_reset() -> int:
    host = FakeHost()
    run(host)
    return host.writes


@pytest.mark.parametrize("count", range(1, _writes_of_a_reset() + 1))
def test_a_record_that_cannot_be_written_ends_the_way_forward_and_everything_is_put_back(count: int) -> None:
    """At any write: no act that needed it follows, all is put back, and the record is made up for later."""
    host = FakeHost(write_errors={count: a_disk_error()})
    run(host)
    assert host.run.phase is ResetPhase.DONE
    assert host.is_as_before()
    assert not host.sins
    assert host.tool.runs <= 1
    assert host.run.result is (ResetResult.VERIFIED if host.tool.runs else ResetResult.REFUSED)
    if host.run.result is ResetResult.REFUSED:
        assert any("Input/output error" in line for line in host.texts)
    assert len(host.ledger.past_resets) == 1
    undone = [line for line in host.texts if line.startswith(UNDONE)]
    assert len(undone) == len([act for act in host.acts if act.startswith("undo")])


def _cut_off() -> FakeHost:
    """Return a host whose daemon ended when both clients were stopped and the tool was not started."""
    changes = tuple(replace(one, state=ChangeState.MADE) for one in CHANGES)
    host = FakeHost(units={DCGM: "inactive", EXPORTER: "inactive", NVSM: "inactive"}, persistence=False)
    stands = replace(host.run, phase=ResetPhase.LOOK_AGAIN, changes=changes)
    host.ledger = replace(host.ledger, resets=(stands,))
    return host


def test_in_haste_every_unit_is_asked_for_before_anything_is_waited_for() -> None:
    """A unit that starts slowly, or a vendor's tool that hangs, must not keep the next unit down."""
    host = _cut_off()
    asyncio.run(host.a_life().put_back(RUN))
    assert host.acts[0] == f"ask for {EXPORTER}, {DCGM}"
    assert host.is_as_before()
    assert (
        f"restore: start all that was stopped, without waiting (asked for: {EXPORTER}, {DCGM})" in host.texts
    )
    usual = _cut_off()
    asyncio.run(usual.a_life().run(RUN))
    assert not [act for act in usual.acts if act.startswith("ask")], "a daemon that lives has the time"


@pytest.mark.parametrize("error", [None, KeyError("no")], ids=["it fails", "a bug"])
def test_units_that_can_not_be_asked_for_together_are_started_one_by_one(error: Exception | None) -> None:
    """It is on record, and everything is put back as without it."""
    host = _cut_off()
    host.fails, host.undo_errors = {"ask": 1}, {} if error is None else {"ask": error}
    asyncio.run(host.a_life().put_back(RUN))
    assert [line for line in host.texts if "failed: start all that was stopped" in line]
    assert host.run.phase is ResetPhase.DONE
    assert host.is_as_before()


def test_a_disk_that_comes_back_late_gets_the_whole_record() -> None:
    """From the third write on nothing can be written for a while: everything is put back meanwhile."""
    host = FakeHost(write_errors=dict.fromkeys(range(4, 20), a_disk_error()))
    run(host)
    assert host.acts == ["make node-1", "undo node-1"]
    assert_refused_and_restored(host, "nothing can be put on record")


def test_a_store_that_cannot_be_trusted_is_told_after_everything_was_put_back() -> None:
    """The daemon must end, but the host is as it was."""
    broken = CorruptStoreError("store: damaged")
    host = FakeHost(write_errors=dict.fromkeys(range(8, 200), broken))
    with pytest.raises(CorruptStoreError):
        run(host)
    assert host.tool.runs == 0
    assert host.is_as_before()


def test_a_run_that_is_unknown_or_done_is_let_be() -> None:
    """Nothing is done for it."""
    host = FakeHost()
    run(host)
    acts, records = list(host.acts), len(host.records)
    run(host)
    asyncio.run(host.a_life().run(AttemptId("inc-9/reset/1")))
    asyncio.run(host.a_life().put_back(RUN))
    assert (host.acts, len(host.records)) == (acts, records)
    assert asyncio.run(host.a_life().resume(Ledger())) == ()


def test_that_the_incident_was_told_survives_what_the_run_writes_later() -> None:
    """The cycle's mark is the ledger's; a run in memory never takes it away."""
    host = FakeHost()

    def tell(_count: int, _look: Look) -> None:
        host.ledger = replace(host.ledger, resets=(replace(host.run, told=True),))

    host.on_look = tell
    run(host)
    assert host.run.told
    assert host.run.phase is ResetPhase.DONE
