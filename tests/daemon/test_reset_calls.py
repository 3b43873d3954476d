"""What the API says and does about a reset: the gate's answer first, on record, then at most one reset."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon import reset_calls
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.ledger import Ledger, Pause, Spend, SpendKind
from reclaimerd.model.reset_run import GpuBreaker, ResetResult
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GPU_A, GPU_B, WALL, a_busy_snapshot, a_snapshot
from tests.daemon.reset_rigs import a_reset_rig, let_end, only_run
from tests.daemon.test_api import MEMBER, ROOT, Story, a_story
from tests.fakes import Rig, a_disk_error
from tests.judge.reset_builders import a_unit, ready, with_units

Line = dict[str, Any]
SPENT = Ledger(spends=(Spend(SpendKind.RESET, GPU_A, WALL - 60.0),))


def told(rig: Rig, meanwhile: Callable[[Rig], None] | None = None, **body: object) -> list[Line]:
    """Order a reset of GPU A and return every line; passes are made until the answer ends."""

    async def scene() -> list[Line]:
        story = a_story(rig)
        answer = await story.call("POST", "/v1/resets", ROOT, None, **({"gpu": GPU_A} | body))
        assert answer.lines is not None
        lines: list[Line] = []
        reading = asyncio.ensure_future(_into(lines, answer.lines))
        for _ in range(20):
            for _ in range(10):
                await asyncio.sleep(0)
            if reading.done():
                break
            await rig.passes()
            if meanwhile is not None:
                meanwhile(rig)
        async with asyncio.timeout(5.0):
            await reading
        return lines

    return asyncio.run(scene())


async def _into(lines: list[Line], source: Any) -> None:
    async for line in source:
        lines.append(dict(line))  # noqa: PERF401  # they must be there as they come


def ending(result: ResetResult) -> Callable[[Rig], None]:
    """Return what lets a reset that has begun end so."""

    def end(rig: Rig) -> None:
        if rig.cycle.state.ledger.resets and only_run(rig).result is None:
            let_end(rig, result)

    return end


def explained(snapshot: Snapshot | None = None, ledger: Ledger | None = None, **query: str) -> Line:
    """Ask for the gate's answer."""
    rig = a_reset_rig(snapshot)
    rig.cycle.state.ledger = Ledger() if ledger is None else ledger
    answer = asyncio.run(a_story(rig).call("GET", "/v1/explain/reset", query={"gpu": GPU_A} | query))
    return {"status": answer.status} | dict(answer.body)


def test_explain_permits_and_lists_the_steps() -> None:
    """What would be stopped is a step of the plan, not a refusal; it changes nothing and is not on record."""
    rig = a_reset_rig(with_units(a_unit()))
    answer = asyncio.run(a_story(rig).call("GET", "/v1/explain/reset", query={"gpu": GPU_A}))
    body: Line = dict(answer.body)
    assert (answer.status, body["permitted"], body["reasons"]) == (200, True, [])
    assert (body["gpu"], body["gpus"]) == (GPU_A, [GPU_A])
    assert any("stop the unit nvidia-dcgm.service" in step for step in body["steps"])
    assert body["runnable"] == {"ok": True, "text": "the vendor's tool can be run"}
    assert rig.recorder.entries == []
    assert rig.cycle.state.ledger.resets == ()


def test_explain_names_each_reason_with_its_kind_pids_and_mend() -> None:
    """Those of the host, of the ledger, and what a person stopped, all at once."""
    ledger = replace(
        SPENT, pause=Pause("root", "", WALL), gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL),)
    )
    body = explained(ready(a_busy_snapshot()), ledger)
    assert body["permitted"] is False
    reasons = {reason["kind"]: reason for reason in body["reasons"]}
    assert {"holders", "paused", "breaker", "budget"} <= set(reasons)
    assert reasons["holders"]["pids"] == [100]
    assert reasons["breaker"]["mend"].endswith(f"reclaimctl breaker close --reason TEXT --gpu {GPU_A}")
    assert all(reason["mend"] for reason in body["reasons"])


def test_force_waives_the_budget_alone() -> None:
    """In the answer and in the act."""
    assert explained(ledger=SPENT)["permitted"] is False
    assert explained(ledger=SPENT, force="1")["permitted"] is True
    tripped = replace(SPENT, gpu_breakers=(GpuBreaker(GPU_A, "failed twice", WALL),))
    kinds = [reason["kind"] for reason in explained(ledger=tripped, force="1")["reasons"]]
    assert kinds == ["breaker"]


def test_explain_asks_again_when_another_pass_took_the_looks_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And says so when no whole look comes."""
    monkeypatch.setattr(reset_calls, "_LOOKS", 2)
    story = a_story(a_reset_rig(replace(ready(), reset_facts=None)))
    answer = asyncio.run(story.call("GET", "/v1/explain/reset", query={"gpu": GPU_A}))
    assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)
    assert len(story.desk.looked) == 2


@pytest.mark.parametrize("name", [None, 7, "", "GPU", "MIG-1", f"{GPU_A}\n", "GPU-" + "a" * 65, "GPU-a;b"])
def test_a_name_that_is_no_gpu_is_a_wrong_order(name: object) -> None:
    """Before anybody looks at anything."""
    story = a_story(a_reset_rig())
    answer = asyncio.run(story.call("POST", "/v1/resets", ROOT, None, gpu=name))
    assert (answer.status, answer.body["exit_code"]) == (400, ExitCode.USAGE)
    assert story.desk.looked == []


def test_a_gpu_that_is_not_there_is_no_target() -> None:
    """For the question and for the order."""

    async def scene(story: Story) -> list[int]:
        await story.rig.passes()
        answers = [
            await story.call("GET", "/v1/explain/reset", query={"gpu": GPU_B}),
            await story.call("POST", "/v1/resets", ROOT, None, gpu=GPU_B),
        ]
        assert {answer.body["exit_code"] for answer in answers} == {ExitCode.NO_TARGET}
        return [answer.status for answer in answers]

    assert asyncio.run(scene(a_story(a_reset_rig(ready(a_snapshot()))))) == [404, 404]


def test_who_may_only_read_resets_nothing() -> None:
    """And the denial is on record."""
    rig = a_reset_rig()
    answer = asyncio.run(a_story(rig).call("POST", "/v1/resets", MEMBER, None, gpu=GPU_A))
    assert (answer.status, answer.body["exit_code"]) == (403, ExitCode.NOT_ALLOWED)
    assert [entry.kind for entry in rig.recorder.entries] == [RecordKind.DENIED]
    assert rig.sampler.looks == []


def test_an_order_without_a_look_is_refused() -> None:
    """An old look is no ground to reset on."""
    story = a_story(a_reset_rig())
    story.desk.fresh = False
    answer = asyncio.run(story.call("POST", "/v1/resets", ROOT, None, gpu=GPU_A))
    assert (answer.status, answer.body["exit_code"]) == (409, ExitCode.REFUSED)


def test_a_refusal_is_on_record_with_every_reason_and_opens_nothing() -> None:
    """Exit 3; who asked, and each reason typed."""
    rig = a_reset_rig(ready(a_busy_snapshot(), tool_fault="no tool"))
    lines = told(rig)
    assert [line["event"] for line in lines] == ["checked", "result"]
    assert (lines[-1]["exit_code"], lines[0]["permitted"]) == (ExitCode.REFUSED, False)
    assert lines[-1]["text"].startswith("refused: ")
    assert lines[-1]["text"].endswith("; no tool")
    assert [reason["pids"] for reason in lines[-1]["reasons"] if reason["kind"] == "holders"] == [[100]]
    (entry,) = rig.recorder.entries
    assert (entry.kind, entry.action, entry.actor) == (RecordKind.REFUSED, "reset", ROOT.actor)
    assert "holders" in {reason.kind.value for reason in entry.refusals}
    assert rig.cycle.state.incidents == {}


def test_a_tool_that_cannot_run_refuses_a_permitted_reset() -> None:
    """Told apart from the gate's own word."""
    lines = told(a_reset_rig(ready(tool_fault="it is not root's")))
    assert (lines[0]["permitted"], lines[0]["runnable"]["ok"]) == (True, False)
    assert (lines[-1]["exit_code"], lines[-1]["text"]) == (ExitCode.REFUSED, "refused: it is not root's")


@pytest.mark.parametrize(("body", "joints"), [({"dry_run": True}, {}), ({}, {"dry_run": True})])
def test_a_dry_run_is_on_record_and_changes_nothing(body: Line, joints: Line) -> None:
    """Exit 0, the checklist, no incident, nothing spent."""
    rig = a_reset_rig(**joints)
    lines = told(rig, **body)
    assert lines[-1]["exit_code"] == ExitCode.OK
    assert lines[-1]["text"] == f"dry run: {GPU_A} would be reset now"
    assert lines[-1]["answer"]["steps"]
    assert [entry.kind for entry in rig.recorder.entries] == [RecordKind.PLANNED]
    ledger = rig.cycle.state.ledger
    assert (ledger.resets, ledger.spends, ledger.past_resets) == ((), (), ())
    assert rig.cycle.state.incidents == {}


@pytest.mark.parametrize("snapshot", [ready(), ready(a_busy_snapshot())])
def test_an_answer_that_cannot_be_put_on_record_is_given_and_says_so(snapshot: Snapshot) -> None:
    """Exit 3 also for a dry run: the line is the end of the answer, not a broken one."""
    rig = a_reset_rig(snapshot)
    asyncio.run(rig.passes())
    rig.recorder.errors = [a_disk_error()]
    lines = told(rig, dry_run=True)
    assert lines[-1]["exit_code"] == ExitCode.REFUSED
    assert "nothing can be put on record" in lines[-1]["text"]


def test_a_permitted_reset_is_followed_to_its_verified_end() -> None:
    """Checked, opened, the phases, its end; the result holds the gate's answer too."""
    lines = told(a_reset_rig(), ending(ResetResult.VERIFIED), reason="broken")
    events = [line["event"] for line in lines]
    assert events[:3] == ["checked", "accepted", "opened"]
    assert events[-2:] == ["ended", "result"]
    assert "reset: prepare" in [line["text"] for line in lines if line["event"] == "waiting"]
    (step,) = [line for line in lines if line["event"] == "step"]
    assert (step["stage"], step["outcome"]) == ("reset", "reset_done")
    result = lines[-1]
    assert (result["exit_code"], result["end"], result["gpu"]) == (0, "reclaimed", GPU_A)
    assert result["answer"]["permitted"] is True
    assert [row["stage"] for row in result["stages"]] == ["reset"]


def test_a_race_ends_the_order_with_a_refusal() -> None:
    """Exit 3."""
    lines = told(a_reset_rig(), ending(ResetResult.REFUSED))
    assert (lines[-1]["exit_code"], lines[-1]["end"]) == (ExitCode.REFUSED, "handed_over")


def test_a_reader_who_goes_away_stops_no_reset_that_has_begun() -> None:
    """An order that no pass has taken is withdrawn; one that was taken goes on."""

    async def scene(passes: int) -> Rig:
        rig = a_reset_rig()
        answer = await a_story(rig).call("POST", "/v1/resets", ROOT, None, gpu=GPU_A)
        assert answer.lines is not None
        await anext(answer.lines)
        await anext(answer.lines)
        coming = asyncio.ensure_future(anext(answer.lines))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for _ in range(passes):
            await rig.cycle.run_pass()
        coming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await coming
        await answer.lines.aclose()
        await rig.passes(2)
        assert rig.cycle.desk.waiting == rig.cycle.desk.under_way == []
        return rig

    assert asyncio.run(scene(0)).cycle.state.ledger.resets == ()
    assert only_run(asyncio.run(scene(1))).gpus == (GPU_A,)
