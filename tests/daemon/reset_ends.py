"""What a reset on the fake host does from end to end, and what must hold when it has ended."""

import asyncio

from reclaimerd.daemon.reset_changes import KEPT
from reclaimerd.daemon.reset_procedure import ResetProcedure
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.reset_run import ChangeKind, ChangeState, ResetPast, ResetPhase, ResetResult
from tests.builders import GPU_A
from tests.daemon.reset_host import DCGM, EXPORTER, RUN, UNWELL, FakeHost

SETTING = f"{GPU_A} power_limit"
MADE = ["make node-1", f"make {DCGM}", f"make {EXPORTER}", f"make {GPU_A}"]
UNDONE = [f"undo {GPU_A}", f"undo {SETTING}", f"undo {EXPORTER}", f"undo {DCGM}", "undo node-1"]


def run(host: FakeHost, life: ResetProcedure | None = None) -> None:
    """Drive the host's reset as far as one life goes."""
    asyncio.run((host.a_life() if life is None else life).run(RUN))


def assert_put_back(host: FakeHost, where: str = "") -> None:
    """Check that every change is undone and the record says so; a fence that is kept has one alarm."""
    kept = [change for change in host.run.changes if change.state is ChangeState.LEFT]
    is_kept = host.run.result in UNWELL and bool(host.run.changes)
    assert [change.kind for change in kept] == [ChangeKind.FENCE] * is_kept, where
    assert {change.text for change in kept} <= {KEPT}, where
    alarms = [one for one in host.of_kind(RecordKind.ALARM) if KEPT in one.reason]
    assert len(alarms) == len(kept), where
    others = [change for change in host.run.changes if change not in kept]
    assert {change.state for change in others} <= {ChangeState.PLANNED, ChangeState.UNDONE}, where
    but = " but the scheduler's fence, which is kept" if kept else ""
    assert host.texts[-1] == f"restore: everything that was changed is put back{but}", where


def assert_refused_and_restored(host: FakeHost, text: str) -> None:
    """Check that nothing was reset, all is as before, and the record says why, to the end."""
    assert host.resets == host.tool.runs == 0
    assert_ended(host, ResetResult.REFUSED, text)


def assert_ended(host: FakeHost, result: ResetResult, text: str) -> None:
    """Check that the run is done with this result, everything is as it was, and the record tells it."""
    assert (host.run.phase, host.run.result) == (ResetPhase.DONE, result)
    assert text in host.run.text
    assert host.is_as_before()
    assert not host.sins
    assert any(text in line for line in host.texts)
    assert_put_back(host)
    assert host.grips[-1] == "take back"
    assert host.ledger.past_resets == (ResetPast((GPU_A,), result, host.ledger.past_resets[0].at),)
