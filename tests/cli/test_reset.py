"""`reclaimctl reset`, `explain reset`, `resume --gpu` and the words of `status` about resets."""

import json
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli import report
from reclaimerd.cli.main import run
from reclaimerd.errors import ExitCode
from tests.cli.canned import Answer, canned

UUID = "GPU-11111111-2222-3333-4444-555555555555"
PEER = "GPU-11111111-9999-3333-4444-555555555555"
GATE: dict[str, Any] = {
    "gpu": UUID,
    "gpus": [UUID],
    "permitted": True,
    "reasons": [],
    "steps": ["stop the unit nvidia-dcgm.service", "look again"],
    "runnable": {"ok": True, "text": "the vendor's tool can be run"},
}
NO = {
    **GATE,
    "permitted": False,
    "reasons": [
        {"kind": "holders", "text": "pid 9 holds it", "mend": "end it", "pids": [9], "refs": ["9@1"]}
    ],
}


def a_result(code: int, text: str, gate: dict[str, Any] = GATE) -> dict[str, Any]:
    """Return the last line of an answer."""
    return {"event": "result", "exit_code": code, "text": text, "gpu": UUID, "answer": gate, "reasons": []}


def lines(
    *middle: dict[str, Any], code: int = 0, text: str = "verified", gate: dict[str, Any] = GATE
) -> Answer:
    """Return a whole answer."""
    return Answer(lines=({"event": "checked", **gate}, *middle, a_result(code, text, gate)))


def reset(folder: Path, answer: Answer, *words: str) -> tuple[int, list[Any]]:
    """Run `reset` against a canned answer; return the exit code and what was asked."""
    with canned(folder / "s", {"POST /v1/resets": answer}) as server:
        code = run(["reset", "--gpu", UUID, *words, "--socket", str(folder / "s")])
    return code, [asked.body for asked in server.asked]


def test_reset_prints_the_checklist_what_happens_and_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order in which it comes; `accepted` is no news to a person."""
    code, asked = reset(
        tmp_path,
        lines(
            {"event": "accepted", "text": "1 to look at"},
            {"event": "opened", "pid": 0, "text": "incident i1: GPU 0", "incident": "i1"},
            {"event": "waiting", "pid": 0, "text": "reset: verify", "elapsed_seconds": 3, "stage": "pending"},
            {"event": "step", "pid": 0, "stage": "reset", "outcome": "reset_done", "text": "it is back"},
        ),
        "--reason",
        "broken",
    )
    assert (code, asked) == (0, [{"gpu": UUID, "force": False, "reason": "broken", "dry_run": False}])
    out = capsys.readouterr().out
    wanted = [f"GPU {UUID}: a reset would be permitted", "[ok] step 2: look again", "GPU  incident i1"]
    wanted += ["reset: verify", "GPU reset done: it is back", "verified"]
    places = [out.index(text) for text in wanted]
    assert places == sorted(places)
    assert "1 to look at" not in out


@pytest.mark.parametrize("code", [0, 3, 5, 6, 8])
def test_the_exit_code_is_the_answers(tmp_path: Path, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not OK goes to stderr."""
    assert reset(tmp_path, lines(code=code, text="so it ended"))[0] == code
    said = capsys.readouterr()
    assert "so it ended" in (said.err if code else said.out)


def test_a_refusal_names_every_reason_like_a_checklist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3."""
    assert reset(tmp_path, lines(code=3, text="refused: pid 9 holds it", gate=NO), "--force")[0] == 3
    said = capsys.readouterr()
    assert "  [no] holders: pid 9 holds it\n       mend: end it\n" in said.out
    assert "[--] step 1" in said.out
    assert "refused: pid 9 holds it" in said.err


def test_json_is_one_object_with_the_gates_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every reason with its kind, the pids and the mend; no lines besides."""
    code, asked = reset(tmp_path, lines(code=3, text="refused", gate=NO), "--json", "--dry-run", "--force")
    assert code == 3
    assert asked == [{"gpu": UUID, "force": True, "reason": "", "dry_run": True}]
    told = json.loads(capsys.readouterr().out)
    assert "event" not in told
    assert told["answer"]["reasons"][0] == NO["reasons"][0]


def test_an_answer_that_breaks_off_says_that_the_reset_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No result, no success."""
    answer = Answer(lines=({"event": "checked", **GATE}, {"event": "accepted"}))
    assert reset(tmp_path, answer)[0] != 0
    assert "goes on" in capsys.readouterr().err


def test_an_unknown_exit_code_is_no_success(tmp_path: Path) -> None:
    """A newer daemon's code counts as an internal error."""
    assert reset(tmp_path, lines(code=77))[0] == ExitCode.INTERNAL


def test_a_gpu_is_found_by_its_index_before_anything_is_asked_for(tmp_path: Path) -> None:
    """The daemon is asked for the UUID, which alone names a GPU."""
    status = Answer({"gpus": [{"uuid": PEER, "index": 0}, {"uuid": UUID, "index": 1}]})
    with canned(tmp_path / "s", {"GET /v1/status": status, "POST /v1/resets": lines()}) as server:
        assert run(["reset", "--gpu", "1", "--socket", str(tmp_path / "s")]) == 0
    assert server.asked[-1].body["gpu"] == UUID


def test_resume_with_a_gpu_closes_that_breaker_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said in words and in JSON; no open breaker is exit 6."""
    answer = {"POST /v1/resume": Answer({"gpu": UUID, "breaker": None})}
    with canned(tmp_path / "s", answer) as server:
        assert run(["resume", "--gpu", UUID, "--socket", str(tmp_path / "s")]) == 0
        assert capsys.readouterr().out == f"the breaker of {UUID} is closed: it may be reset again\n"
        assert run(["resume", "--gpu", UUID, "--json", "--socket", str(tmp_path / "s")]) == 0
    assert json.loads(capsys.readouterr().out) == {"gpu": UUID, "breaker": None}
    assert [asked.body for asked in server.asked] == [{"gpu": UUID}] * 2
    none = Answer({"error": "no breaker is open", "mend": "", "exit_code": 6}, status=404)
    with canned(tmp_path / "t", {"POST /v1/resume": none}):
        assert run(["resume", "--gpu", UUID, "--socket", str(tmp_path / "t")]) == ExitCode.NO_TARGET


def test_resume_without_a_gpu_names_none(tmp_path: Path) -> None:
    """The host's pause and breaker, as ever."""
    with canned(tmp_path / "s", {"POST /v1/resume": Answer({"paused": None})}) as server:
        assert run(["resume", "--socket", str(tmp_path / "s")]) == 0
    assert [asked.body for asked in server.asked] == [{}]


def test_explain_may_be_asked_as_with_force(tmp_path: Path) -> None:
    """Only then the query says so."""
    with canned(tmp_path / "s", {"GET /v1/explain/reset": Answer(GATE)}) as server:
        for words in ([], ["--force"]):
            assert run(["explain", "reset", "--gpu", UUID, *words, "--socket", str(tmp_path / "s")]) == 0
    assert [asked.target for asked in server.asked] == [
        f"/v1/explain/reset?gpu={UUID}",
        f"/v1/explain/reset?gpu={UUID}&force=1",
    ]


def test_peers_that_go_with_it_are_named() -> None:
    """In the checklist."""
    text = "\n".join(map(str, report.explain_blocks({**GATE, "gpus": [UUID, PEER]})))
    assert f"  with it, in one command: {PEER}" in text


def test_status_tells_of_resets_and_of_what_is_not_watched() -> None:
    """Where a reset stands, what can't be watched; an incident of a GPU has no pid."""
    body = {
        "resets": [{"gpus": [UUID], "phase": "verify", "since": 1700000000.0, "text": "looks well"}],
        "not_watched": ["the kernel's log can't be read: permission denied"],
        "incidents": [{"id": "i1", "pid": 0, "stage": "pending", "target": "GPU 0", "gpus": [UUID]}],
        "attention": [f"DO NOT TOUCH {UUID}: it hangs; reboot the node"],
    }
    blocks = list(report.status_blocks(body))
    text = "\n".join(str(block) for block in blocks)
    assert f"reset of {UUID}: verify since 20" in text
    assert "not watched: the kernel's log can't be read: permission denied" in text
    assert f"ATTENTION: DO NOT TOUCH {UUID}: it hangs; reboot the node" in text
    (table,) = [block for block in blocks if not isinstance(block, str)]
    assert table.rows[0][:2] == ("i1", "-")
