"""The calls of the control API over fakes: roles, answers, and that a refused call does nothing."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.daemon.access import Caller, Peer, Role
from reclaimerd.daemon.api import Api, followed
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.pacing import Pacing
from reclaimerd.daemon.service import Service
from reclaimerd.errors import CorruptStoreError, ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Breaker, Ledger, Pause
from reclaimerd.model.policy import Scope
from reclaimerd.model.reset_run import GpuBreaker
from tests.builders import (
    GIB,
    GPU_A,
    GPU_B,
    OPERATOR,
    WALL,
    a_busy_snapshot,
    a_policy,
    a_process,
    a_ref,
    a_rule,
)
from tests.fakes import Rig, a_disk_error, a_rig
from tests.judge.reset_builders import ready

ROOT = Caller(Role.ADMIN, OPERATOR)
MEMBER = Caller(Role.VIEWER, replace(OPERATOR, name="ann", uid=1000))
NOBODY = Caller(Role.NONE, replace(OPERATOR, name="nobody", uid=65534), "you are neither")
PEER = Peer(4000, 0, frozenset())
ACTING = [
    ("POST", "/v1/reclaims"),
    ("POST", "/v1/resets"),
    ("POST", "/v1/pause"),
    ("POST", "/v1/resume"),
    ("POST", "/v1/release-driver"),
    ("POST", "/v1/drain"),
    ("POST", "/v1/undrain"),
    ("POST", "/v1/breakers/close"),
    ("POST", "/v1/unkillable"),
    ("POST", "/v1/audit/exports"),
]
READING = [
    ("GET", "/v1/status"),
    ("GET", "/v1/ps"),
    ("GET", "/v1/processes/100"),
    ("GET", "/v1/incidents"),
    ("GET", "/v1/explain/reset"),
    ("GET", "/v1/reclaims/candidates"),
]


@dataclass(slots=True)
class Desk:
    """Stands for the service: a cycle over fakes whose passes the test runs."""

    rig: Rig
    paths: Paths
    pacing: Pacing
    fresh: bool = True
    looked: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def cycle(self) -> Any:
        """Return the cycle."""
        return self.rig.cycle

    @property
    def engine(self) -> Any:
        """Return what the API reads of the engine: its paths."""
        return self

    def wall(self) -> float:
        """Return now."""
        return WALL

    def facts(self) -> Mapping[str, object]:
        """Return the service's own facts."""
        return {"pid": 7}

    async def look(
        self, *, pids: tuple[int, ...] = (), full_scan: bool = False, reset: bool = False, seconds: float
    ) -> bool:
        """Make one pass, if a fresh one can be had."""
        del seconds
        self.looked.append(pids)
        if self.fresh:
            self.cycle.state.wants_full_scan = full_scan
            self.cycle.state.wants_reset_look = reset
            await self.cycle.run_pass()
        return self.fresh

    async def family(self, order: Order) -> tuple[int, ...]:
        """Return nobody beyond the process."""
        del order
        return ()

    async def off_loop(self, work: Any, what: str) -> Any:
        """Do the work here."""
        del what
        return work()


@dataclass(slots=True)
class Story:
    """One API and what stands behind it."""

    rig: Rig
    desk: Desk
    api: Api

    async def call(
        self,
        method: str,
        path: str,
        caller: Caller = ROOT,
        query: Mapping[str, str] | None = None,
        **body: object,
    ) -> Answer:
        """Make one call."""
        return await self.api.answer(Call(method, path, query or {}, body, PEER), caller)


def a_story(rig: Rig | None = None, folder: Path = Path("/nonexistent")) -> Story:
    """Return an API over a host with one holder under every cap."""
    made = a_rig(a_busy_snapshot(), a_policy(a_rule(above=70 * GIB))) if rig is None else rig
    desk = Desk(made, Paths(folder / "state", folder / "log", folder / "s"), Pacing(lambda: made.now[0]))
    return Story(made, desk, Api(cast("Service", desk)))


def ask(method: str, path: str, caller: Caller = ROOT, **body: object) -> tuple[int, dict[str, Any]]:
    """Make one call on a fresh API; return status and body."""
    answer = asyncio.run(a_story().call(method, path, caller, None, **body))
    return answer.status, dict(answer.body)


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v2/status", "/v1/status/", "/v1/status/x", "/v1/../etc/passwd", "/v1/incidents/../../x",
     "/v1/processes/", "/v1/processes/1/2", "/V1/STATUS", ""],
)  # fmt: skip
def test_a_path_that_is_no_call_is_404(path: str) -> None:
    """No path leads out of the table, whatever its dots."""
    assert ask("GET", path)[0] == 404


@pytest.mark.parametrize("method", ["PUT", "HEAD", "DELETE", "PATCH", "OPTIONS", "get"])
def test_another_method_is_405(method: str) -> None:
    """And names the one that it takes."""
    status, body = ask(method, "/v1/status")
    assert (status, body["exit_code"]) == (405, ExitCode.USAGE)
    assert "GET" in body["error"]


@pytest.mark.parametrize(("method", "path"), ACTING)
@pytest.mark.parametrize("caller", [MEMBER, NOBODY])
def test_who_may_not_act_changes_nothing(method: str, path: str, caller: Caller) -> None:
    """403 with exit 4; no order, no pause, one record of the denial."""
    story = a_story()
    answer = asyncio.run(story.call(method, path, caller, targets=[{"pid": 100}]))
    assert (answer.status, answer.body["exit_code"]) == (403, ExitCode.NOT_ALLOWED)
    asyncio.run(story.rig.passes())
    assert story.rig.executor.permits == []
    assert story.rig.cycle.state.ledger.pause is None
    assert [entry.kind for entry in story.rig.recorder.entries] == [RecordKind.DENIED]


@pytest.mark.parametrize(("method", "path"), READING)
def test_a_member_reads_and_nobody_does_not(method: str, path: str) -> None:
    """The group may look; a stranger gets 403 for every path."""
    assert ask(method, path, NOBODY)[0] == 403
    assert ask(method, path, MEMBER)[0] != 403


def test_denials_are_recorded_once_per_uid_and_hour() -> None:
    """A flood costs one record; another uid has its own; an hour later one more."""
    story = a_story()

    async def flood(caller: Caller) -> None:
        for _ in range(20):
            await story.call("GET", "/v1/ps", caller)

    asyncio.run(flood(NOBODY))
    asyncio.run(flood(replace(NOBODY, actor=replace(OPERATOR, uid=5))))
    assert len(story.rig.recorder.of_kind(RecordKind.DENIED)) == 2
    story.rig.age(3601.0)
    asyncio.run(flood(NOBODY))
    assert len(story.rig.recorder.of_kind(RecordKind.DENIED)) == 3


def test_denials_of_many_uids_are_bounded() -> None:
    """A user namespace brings 65536 uids: they fill neither the log nor the memory."""
    story = a_story()

    async def flood() -> None:
        for uid in range(100_000, 101_000):
            await story.call("GET", "/v1/ps", replace(NOBODY, actor=replace(OPERATOR, uid=uid)))

    asyncio.run(flood())
    assert len(story.rig.recorder.of_kind(RecordKind.DENIED)) == 256


def test_a_denial_that_could_not_be_recorded_is_tried_again() -> None:
    """The caller is denied all the same."""
    story = a_story()
    story.rig.recorder.errors = [a_disk_error()]
    assert asyncio.run(story.call("GET", "/v1/ps", NOBODY)).status == 403
    assert asyncio.run(story.call("GET", "/v1/ps", NOBODY)).status == 403
    assert len(story.rig.recorder.of_kind(RecordKind.DENIED)) == 1


def test_status_and_ps_answer_before_the_first_look_and_after() -> None:
    """Neither makes a pass."""
    story = a_story()
    assert asyncio.run(story.call("GET", "/v1/status")).body["pid"] == 7
    assert asyncio.run(story.call("GET", "/v1/ps")).body["rows"] == []
    assert story.rig.sampler.looks == []


def test_a_known_process_is_shown_and_an_unknown_one_is_looked_for() -> None:
    """A look is asked for with its pid; one that is not there is exit 6."""
    story = a_story()
    assert asyncio.run(story.call("GET", "/v1/processes/100")).status == 200
    assert story.desk.looked == [(100,)]
    answer = asyncio.run(story.call("GET", "/v1/processes/4242"))
    assert (answer.status, answer.body["exit_code"]) == (404, ExitCode.NO_TARGET)


@pytest.mark.parametrize("text", ["abc", "-1", "1e3", "\u00b2", "\u0665", "9" * 5000, "0x10", "%31"])
def test_what_is_no_pid_is_400_and_never_a_bug(text: str) -> None:
    """Digits of other scripts and numbers without end are no pids."""
    assert ask("GET", f"/v1/processes/{text}")[0] == 400


@pytest.mark.parametrize("limit", ["\u00b2", "9" * 5000, "-5", "x", "0", "7"])
def test_a_faulty_limit_is_the_default(limit: str, tmp_path: Path) -> None:
    """Reading never fails for it."""
    story = a_story(folder=tmp_path)
    answer = asyncio.run(story.call("GET", "/v1/incidents", query={"limit": limit}))
    assert (answer.status, answer.body) == (200, {"incidents": []})


def test_an_incident_that_is_not_there_is_six(tmp_path: Path) -> None:
    """No store, no incident, no fault."""
    answer = asyncio.run(a_story(folder=tmp_path).call("GET", "/v1/incidents/inc-x"))
    assert (answer.status, answer.body["exit_code"]) == (404, ExitCode.NO_TARGET)


def test_explain_reset_brings_its_own_whole_look() -> None:
    """Every reason at once, and whether the tool could run, beside it."""
    story = a_story(a_rig(ready(a_busy_snapshot(), tool_fault="no tool"), a_policy(a_rule(above=70 * GIB))))
    answer = asyncio.run(story.call("GET", "/v1/explain/reset", query={"gpu": GPU_A}))
    assert answer.status == 200
    assert answer.body["permitted"] is False
    assert answer.body["runnable"] == {"ok": False, "text": "no tool"}
    assert (story.rig.sampler.looks[-1].full_scan, story.rig.sampler.looks[-1].reset) == (True, True)
    assert asyncio.run(story.call("GET", "/v1/explain/reset", query={"gpu": "GPU-x"})).status == 404


def test_explain_reset_without_a_fresh_look_says_so() -> None:
    """An old look is no answer to this question."""
    story = a_story()
    story.desk.fresh = False
    answer = asyncio.run(story.call("GET", "/v1/explain/reset", query={"gpu": GPU_A}))
    assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)


def test_a_pause_is_on_record_with_who_and_until_when() -> None:
    """Then resume ends it, and closes a breaker with a record of its own."""
    story = a_story()
    body = asyncio.run(story.call("POST", "/v1/pause", reason="lunch", for_seconds=60)).body
    assert body["paused"] == {"by": "root", "reason": "lunch", "since": WALL, "until": WALL + 60}
    assert story.rig.cycle.state.ledger.pause == Pause("root", "lunch", WALL, WALL + 60)
    story.rig.cycle.state.ledger = replace(story.rig.cycle.state.ledger, breaker=Breaker("too many", WALL))
    assert asyncio.run(story.call("POST", "/v1/resume")).status == 200
    ledger = story.rig.cycle.state.ledger
    assert (ledger.pause, ledger.breaker) == (None, None)
    assert [entry.kind for entry in story.rig.recorder.entries] == [
        RecordKind.PAUSED,
        RecordKind.RESUMED,
        RecordKind.BREAKER_CLOSED,
    ]
    assert all(entry.actor == OPERATOR for entry in story.rig.recorder.entries)


@pytest.mark.parametrize("error", [a_disk_error(), CorruptStoreError("damaged")])
def test_a_pause_that_can_not_be_recorded_is_told_and_is_none(error: Exception) -> None:
    """409 with the cause; acts by rule go on as before."""
    story = a_story()
    story.rig.recorder.errors = [error]  # type: ignore[list-item]
    answer = asyncio.run(story.call("POST", "/v1/pause"))
    assert answer.status == 409
    assert story.rig.cycle.state.ledger.pause is None


def test_a_faulty_order_is_400_and_places_nothing() -> None:
    """The field by name, exit 2."""
    story = a_story()
    answer = asyncio.run(story.call("POST", "/v1/reclaims", targets=[{"pid": -1}]))
    assert (answer.status, answer.body["exit_code"]) == (400, ExitCode.USAGE)
    assert story.rig.cycle.desk.waiting == []


def test_an_order_is_followed_line_by_line_to_its_result() -> None:
    """Accepted, opened, step, waiting, ended, and the result of all with the gravest code."""
    story = a_story()

    async def follow() -> list[Mapping[str, object]]:
        body = {"targets": [{"pid": 100}, {"pid": 4242}]}
        answer = await story.call("POST", "/v1/reclaims", ROOT, None, **body)
        assert answer.lines is not None
        lines = [await anext(answer.lines)]
        passes = asyncio.ensure_future(story_of_passes())
        lines += [line async for line in answer.lines]
        await passes
        return lines

    async def story_of_passes() -> None:
        while not story.rig.cycle.desk.waiting:  # noqa: ASYNC110  # one turn of the loop, no time
            await asyncio.sleep(0)
        await story.rig.passes()
        story.rig.show(replace(a_busy_snapshot(), gpus=(), holders=(), exited=frozenset({a_ref()})))
        await story.rig.passes(12)

    lines = asyncio.run(asyncio.wait_for(follow(), 20))
    events = [line["event"] for line in lines]
    assert events[0] == "accepted"
    assert {"opened", "step", "ended", "declined"} <= set(events)
    assert events[-1] == "result"
    assert lines[-1]["exit_code"] == ExitCode.UNVERIFIED
    targets = cast("list[dict[str, Any]]", lines[-1]["targets"])
    assert {target["pid"]: target["exit_code"] for target in targets} == {100: 8, 4242: 6}
    assert story.rig.cycle.desk.under_way == []


def test_a_reader_who_leaves_drops_the_order_and_the_incident_goes_on() -> None:
    """The connection is cut after SIGTERM: no order is left, no task either, the ladder climbs."""
    story = a_story()

    async def leave() -> set[str]:
        ticket = Ticket(Order(100, OPERATOR, force=True, grace_seconds=1.0))
        lines = followed([ticket], cast("Service", story.desk))
        await anext(lines)
        reading = asyncio.ensure_future(anext(lines))
        while not story.rig.cycle.desk.waiting:  # noqa: ASYNC110  # one turn of the loop, no time
            await asyncio.sleep(0)
        await story.rig.passes()
        await reading
        await lines.aclose()
        await story.rig.passes(2)
        await asyncio.sleep(0)
        return {task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(leave()) == set()
    assert story.rig.cycle.desk.under_way == []
    assert story.rig.cycle.desk.waiting == []
    assert story.rig.executor.sent == {a_ref(): ["sigterm", "sigkill"]}


def test_an_order_that_no_pass_has_taken_is_withdrawn_with_its_reader() -> None:
    """Nobody waits and nothing was begun: nothing is begun."""
    story = a_story()

    async def leave() -> None:
        lines = followed([Ticket(Order(100, OPERATOR))], cast("Service", story.desk))
        await anext(lines)
        reading = asyncio.ensure_future(anext(lines))
        while not story.rig.cycle.desk.waiting:  # noqa: ASYNC110  # one turn of the loop, no time
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await story.rig.passes(2)

    asyncio.run(leave())
    assert story.rig.executor.permits == []
    assert story.rig.cycle.state.incidents == {}


def test_a_stream_that_never_began_places_no_order() -> None:
    """The peer was gone before the first byte: nothing is ordered."""
    story = a_story()
    answer = asyncio.run(
        story.call("POST", "/v1/reclaims", targets=[{"pid": 100}], scope=Scope.PROCESS.value)
    )
    assert answer.lines is not None
    asyncio.run(cast("Any", answer.lines).aclose())
    assert story.rig.cycle.desk.waiting == []


def test_a_process_of_the_look_is_plain_json() -> None:
    """What the API shows of a process with an odd name can be sent."""
    story = a_story(a_rig(a_busy_snapshot(a_process(comm="a)\n\udcff")), a_policy(a_rule(above=70 * GIB))))
    assert asyncio.run(story.call("GET", "/v1/processes/100")).status == 200


def test_resume_with_a_gpu_closes_that_gpus_breaker_alone() -> None:
    """On record, by name; the host's pause and breaker stay, and a GPU without one is exit 6."""
    story = a_story()
    ledger = Ledger(
        pause=Pause("root", "", WALL),
        breaker=Breaker("too many", WALL),
        gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL), GpuBreaker(GPU_B, "too", WALL)),
    )
    story.rig.cycle.state.ledger = ledger
    answer = asyncio.run(story.call("POST", "/v1/resume", ROOT, None, gpu=GPU_A))
    assert (answer.status, dict(answer.body)) == (200, {"gpu": GPU_A, "breaker": None})
    assert story.rig.cycle.state.ledger == replace(ledger, gpu_breakers=ledger.gpu_breakers[1:])
    (entry,) = story.rig.recorder.entries
    assert (entry.kind, entry.reason) == (RecordKind.BREAKER_CLOSED, f"{GPU_A}: failed twice")
    again = asyncio.run(story.call("POST", "/v1/resume", ROOT, None, gpu=GPU_A))
    assert (again.status, again.body["exit_code"]) == (404, ExitCode.NO_TARGET)
    wrong = asyncio.run(story.call("POST", "/v1/resume", ROOT, None, gpu="0"))
    assert wrong.status == 400
    assert len(story.rig.recorder.entries) == 1


@pytest.mark.parametrize(("method", "path"), [*READING, *ACTING])
def test_who_can_t_be_told_is_asked_to_try_again(method: str, path: str) -> None:
    """503 with Retry-After and exit 3: no denial, so none is counted or on record, and nothing is done."""
    story = a_story()
    somebody = Caller(Role.NONE, OPERATOR, "where you come from can't be read", unknown=True)
    answer = asyncio.run(story.call(method, path, somebody, targets=[{"pid": 100}]))
    assert (answer.status, answer.body["exit_code"]) == (503, ExitCode.REFUSED)
    assert "who you are can't be told at the moment" in str(answer.body["error"])
    assert "role" not in str(answer.body)
    assert answer.headers == (("Retry-After", "1"),)
    assert (story.rig.cycle.state.denied, story.rig.recorder.entries) == (0, [])
    asyncio.run(story.rig.passes())
    assert story.rig.executor.permits == []
