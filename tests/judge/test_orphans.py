"""Processes that outlived their login session: told as a sign, and nobody acts on it."""

from dataclasses import replace

import pytest

from reclaimerd.judge.conditions import DoesNotHold, Holds
from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.orphans import orphan_condition
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.model.policy import RuleKind
from reclaimerd.model.process import ProcessReading
from reclaimerd.model.reading import Unreadable
from reclaimerd.model.verdict import Ruling
from tests.builders import GIB, GPU_A, GPU_B, OURS, a_busy_snapshot, a_holder, a_policy, a_process, a_rule
from tests.judge.ending_builders import a_session_process

ORPHAN = a_session_process()
ROWS = (a_holder(300, GPU_A), a_holder(300, GPU_B, used_bytes=Unreadable("hangs")))


def test_a_process_of_a_session_that_init_adopted() -> None:
    """The text says that it is a sign; what is known to be held is the excess."""
    found = orphan_condition(ORPHAN, ROWS, a_busy_snapshot(ORPHAN))
    assert isinstance(found, Holds)
    assert found == Holds(found.text, (GPU_A, GPU_B), 8 * GIB)
    assert "session 42 of uid 1000" in found.text
    assert "a sign that it was left behind, and no proof" in found.text


def test_a_process_that_the_users_own_manager_adopted() -> None:
    """It adopts orphans as init does; any other parent is a parent."""
    child = a_session_process(ppid=77)
    manager = a_session_process(77, comm="systemd")
    assert isinstance(orphan_condition(child, ROWS, a_busy_snapshot(child, manager)), Holds)
    for other in (
        replace(manager, comm="tmux: server"),
        replace(manager, ppid=50),
        replace(manager, uids=(2000, 2000, 2000, 2000)),
    ):
        found = orphan_condition(child, ROWS, a_busy_snapshot(child, other))
        assert found == DoesNotHold("its parent, pid 77, is there")
    assert isinstance(orphan_condition(child, ROWS, a_busy_snapshot(child)), DoesNotHold)


@pytest.mark.parametrize(
    "reading",
    [
        a_process(ppid=1),
        a_session_process(uid=0),
        a_session_process(uid=107),
        a_session_process(workload=replace(ORPHAN.workload, trusted=False)),
        a_session_process(
            workload=replace(ORPHAN.workload, path="/user.slice/user-1000.slice/user@1000.service")
        ),
    ],
)
def test_services_system_users_and_user_units_are_no_orphans(reading: ProcessReading) -> None:
    """Init is the parent of all of them, and nobody was left behind."""
    found = orphan_condition(reading, ROWS, a_busy_snapshot(reading))
    assert found == DoesNotHold("it is in no login session of an ordinary user")


def test_it_is_told_and_never_acted_on() -> None:
    """Also by a rule that would enforce, and none of its GPUs none of its business."""
    rule = a_rule("left", kind=RuleKind.ORPHAN, large_jobs=True)
    context = JudgeContext(OURS, lambda _pattern, _text: False, {})
    (verdict,) = evaluate(a_busy_snapshot(ORPHAN), a_policy(rule), (), context).verdicts
    assert verdict.ruling is Ruling.WATCH
    assert "its parent is gone" in verdict.reasons[-1].text
    assert orphan_condition(ORPHAN, (), a_busy_snapshot(ORPHAN)) == DoesNotHold(
        "the rule does not concern it"
    )
