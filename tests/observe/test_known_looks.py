"""What both ends of the procfs worker remember: short lines that can never make a wrong look."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.process import (
    NodeHolding,
    ProcessLook,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe.known_looks import KnownLooks, SentLooks
from reclaimerd.observe.recent import IDLE_ROUNDS
from tests.builders import a_process, a_task

NODES = Known((NodeHolding(DeviceNumber(195, 0)),))
LOOK = ProcessLook(a_process(tasks=(a_task(),), whole=False), NODES)
PID = LOOK.reading.ref.pid
WORKER = object()


class Pair:
    """Both ends, joined as the socket joins them."""

    def __init__(self) -> None:
        self.sent = SentLooks()
        self.known = KnownLooks()

    def tell(self, look: ProcessLook, worker: object = WORKER) -> Any:
        """Return the part that the worker sends for this look, asked by this parent."""
        numbers = self.known.numbers(worker, [PID])
        known = numbers[0][1] if numbers else None
        return json.loads(json.dumps(self.sent.told(look, known)))

    def pass_on(self, look: ProcessLook) -> tuple[Any, ProcessLook]:
        """Return the part, and the look that the parent makes of it."""
        part = self.tell(look)
        return part, self.known.look_of(part)


def test_a_look_that_has_not_changed_is_told_short_and_read_the_same() -> None:
    """The first look is told whole; the same again is one short line and the same look."""
    pair = Pair()
    first, made_first = pair.pass_on(LOOK)
    second, made_second = pair.pass_on(LOOK)
    assert "look" in first
    assert "look" not in second
    assert made_first == made_second == LOOK


def test_what_moves_in_a_healthy_process_arrives_in_the_short_line() -> None:
    """Age, resident memory, state letter, flags and CPU time of the leader are never the old ones."""
    pair = Pair()
    pair.pass_on(LOOK)
    task = replace(LOOK.reading.tasks[0], state="R", flags=0x440, cpu_ticks=77)
    moved = replace(LOOK, reading=replace(LOOK.reading, age_seconds=99.5, resident_bytes=4, tasks=(task,)))
    part, made = pair.pass_on(moved)
    assert "look" not in part
    assert made == moved


@pytest.mark.parametrize(
    "change",
    [
        {"uids": (0, 0, 0, 0)},
        {"exe": Known("/usr/bin/other")},
        {"cgroup": "0::/elsewhere"},
        {"ref": replace(LOOK.reading.ref, start_ticks=LOOK.reading.ref.start_ticks + 1)},
        {"kill_pending": True},
        {"thread_count": 9},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_else_that_changes_is_told_whole(change: dict[str, Any]) -> None:
    """Program, uid, cgroup, identity and all the rest of a look are told again when they change."""
    pair = Pair()
    pair.pass_on(LOOK)
    other = replace(LOOK, reading=replace(LOOK.reading, **change))
    part, made = pair.pass_on(other)
    assert "look" in part
    assert made == other


def test_nodes_that_change_are_told_whole() -> None:
    """A device that was closed is no longer in the next look."""
    pair = Pair()
    pair.pass_on(LOOK)
    closed = replace(LOOK, nodes=Known(()))
    part, made = pair.pass_on(closed)
    assert "look" in part
    assert made == closed


def test_an_answer_that_never_arrived_is_never_built_upon() -> None:
    """The worker told a change, the parent did not get it: the next look is told whole."""
    pair = Pair()
    pair.pass_on(LOOK)
    other = replace(LOOK, reading=replace(LOOK.reading, uids=(5, 5, 5, 5)))
    pair.tell(other)  # lost
    part, made = pair.pass_on(other)
    assert "look" in part
    assert made == other


def test_another_workers_looks_are_forgotten() -> None:
    """The numbers of a worker that was replaced are never named to its successor."""
    pair = Pair()
    pair.pass_on(LOOK)
    assert pair.known.numbers(WORKER, [PID]) != []
    assert pair.known.numbers(object(), [PID]) == []


def test_a_short_line_about_a_look_that_we_do_not_have_is_refused() -> None:
    """A number that does not match makes no look at all."""
    pair = Pair()
    pair.pass_on(LOOK)
    part = pair.tell(LOOK)
    with pytest.raises(ValueError, match="do not have"):
        pair.known.look_of(part | {"same": part["same"] + 1})
    with pytest.raises(ValueError, match="do not have"):
        KnownLooks().look_of(part)


def test_a_look_at_every_task_is_always_told_whole() -> None:
    """Tasks are the evidence of an exit: they are told each time, and change nothing in what is kept."""
    pair = Pair()
    pair.pass_on(LOOK)
    whole = replace(LOOK, reading=replace(LOOK.reading, whole=True, tasks=(a_task(), a_task(101))))
    for _ in range(2):
        part, made = pair.pass_on(whole)
        assert "look" in part
        assert made == whole
    part, made = pair.pass_on(LOOK)
    assert "look" not in part
    assert made == LOOK


def test_looks_of_processes_that_went_do_not_pile_up() -> None:
    """Two thousand holders come and go beside one that stays: its look is told short, theirs are let go."""
    pair = Pair()
    pair.pass_on(LOOK)
    for pid in range(PID + 1, PID + 2001):
        reading = replace(LOOK.reading, ref=replace(LOOK.reading.ref, pid=pid))
        pair.known.look_of(json.loads(json.dumps(pair.sent.told(replace(LOOK, reading=reading), None))))
        part, made = pair.pass_on(LOOK)
        assert "same" in part
        assert made == LOOK
    left = pair.known.numbers(WORKER, range(PID, PID + 2001))
    assert left[0][0] == PID
    assert len(left) <= 2 + IDLE_ROUNDS
