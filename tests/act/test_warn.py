"""Claims about warnings to owners, on real terminals, with a real child that writes and real hooks."""

import asyncio
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.terminals import MOST_TERMINALS, Answer, Order, message_bytes, order_of, tell
from reclaimerd.act.warn import Notice, NotTold, Told, Warner, hook_text, terminal_text
from reclaimerd.judge.steps import step_of
from reclaimerd.judge.warnings import warning_of
from reclaimerd.model.identity import GpuUuid, IncidentId
from reclaimerd.model.incident import Outcome, OutcomeKind, Plan, Stage
from reclaimerd.model.policy import WarnSettings
from reclaimerd.model.process import WorkloadKind
from reclaimerd.model.step import Step
from tests.act.reset_tools import program
from tests.act.terminals import OWNER, device_of, terminal_of
from tests.builders import (
    GPU_A,
    RULE_ACTOR,
    WALL,
    a_plan,
    a_process,
    a_target,
    a_workload,
    an_incident,
)

ROOT = os.geteuid() == 0
pytestmark = [pytest.mark.process]
PLAN = a_plan(warn_seconds=600.0)


def warning(uid: int = OWNER, **target: object) -> Step:
    """Return the step that warns the owner of pid 100."""
    incident = an_incident(replace(a_target(), uid=uid, **target), plan=PLAN)  # type: ignore[arg-type]
    return step_of(incident, Stage.WARNED, incident.processes)


def warner(
    *, terminals: bool = False, hook: str = "", seconds: float = 20.0, devices: tuple[int, ...] = ()
) -> Warner:
    """Return the ways of a host; hooks may be anybody's where we are not root."""
    settings = WarnSettings(terminals=terminals, hook=hook, seconds=seconds)
    return Warner("node-7", lambda: settings, lambda: WALL, any_owner=not ROOT, devices=lambda: devices)


def told(ways: Warner, step: Step, *, dry_run: bool = False) -> Outcome:
    """Return what came of one warning."""
    return asyncio.run(ways.warn(step, dry_run=dry_run))


# Terminals


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="a terminal is given away by root alone")
def test_the_owner_reads_it_and_nobody_else_does() -> None:
    """Every word arrives on the owner's terminal, by lines that fit; the neighbour's stays empty."""
    with terminal_of() as own, terminal_of(OWNER + 1) as other:
        outcome = told(warner(terminals=True), warning())
        shown = own.read("inc-1.")
        assert outcome.kind is OutcomeKind.DELIVERED
        assert f"terminals: told {own.path}" in outcome.detail
        assert other.path not in outcome.detail
        assert other.read() == ""
    lines = re.split(r"\r+\n", shown)
    assert lines[1] == "Message from reclaimerd on node-7, 2027-01-15 08:00 UTC:"
    assert all(len(line) <= 78 for line in lines)
    words = " ".join(lines)
    assert "Your process 100 holds" in words
    assert GPU_A in words
    assert 'rule "over-cap"' in words
    assert "asked to end (SIGTERM) in 10 min at the earliest, and 30 s later" in words
    assert "train.py" not in words


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="a terminal is given away by root alone")
@pytest.mark.parametrize("how", ["fill", "stop_output"])
def test_a_terminal_that_nobody_reads_is_no_delivery(how: str) -> None:
    """A full buffer or stopped output holds nobody up and is not told; with a second one it is delivered."""
    with terminal_of() as stuck:
        getattr(stuck, how)()
        outcome = told(warner(terminals=True), warning())
        assert outcome.kind is OutcomeKind.NOT_DELIVERED
        assert f"not {stuck.path}: nobody reads it" in outcome.detail
        with terminal_of() as own:
            outcome = told(warner(terminals=True), warning())
            assert outcome.kind is OutcomeKind.DELIVERED
            assert f"told {own.path}, not {stuck.path}" in outcome.detail


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="a terminal is given away by root alone")
def test_a_dry_run_names_the_terminal_and_writes_nothing() -> None:
    """The same road up to the last call."""
    with terminal_of() as own:
        outcome = told(warner(terminals=True), warning(), dry_run=True)
        assert outcome.kind is OutcomeKind.DRY_RUN
        assert f"would tell {own.path}" in outcome.detail
        assert own.read() == ""


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="a terminal is given away by root alone")
def test_a_gpu_of_a_simulated_host_is_no_terminal_of_anybody() -> None:
    """Its node is a terminal and may be the owner's: it is never opened."""
    with terminal_of() as gpu:
        outcome = told(warner(terminals=True, devices=(device_of(gpu.path),)), warning())
        assert outcome.kind is OutcomeKind.NOT_DELIVERED
        assert f"uid {OWNER} has no terminal here" in outcome.detail
        assert gpu.read() == ""


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="a terminal is given away by root alone")
@pytest.mark.parametrize(
    ("settings", "kind", "why"),
    [
        (False, WorkloadKind.UNIT, "the policy uses none"),
        (True, WorkloadKind.CONTAINER, f"uid {OWNER} in a container is no login of this host"),
        (True, WorkloadKind.POD, f"uid {OWNER} in a container is no login of this host"),
    ],
)
def test_terminals_that_are_not_the_owner_s_way(settings: bool, kind: WorkloadKind, why: str) -> None:  # noqa: FBT001 - a parameter of the test
    """A uid inside a container is not the host's user of that number: that user reads nothing of it."""
    with terminal_of() as own:
        step = warning(workload=a_workload(kind=kind))
        outcome = told(warner(terminals=settings), step)
        assert outcome.kind is OutcomeKind.NOT_DELIVERED
        assert f"terminals: {why}" in outcome.detail
        assert own.read() == ""


def devices(tmp_path: Path, *names: str) -> Path:
    """Return a folder like /dev with plain files of these names."""
    (tmp_path / "pts").mkdir()
    for name in names:
        (tmp_path / name).write_text("")
    return tmp_path


def test_what_is_no_terminal_is_never_written_to(tmp_path: Path) -> None:
    """A plain file and a link under a terminal's name, and what is missing, are passed by."""
    folder = devices(tmp_path, "pts/3", "tty7")
    (folder / "pts" / "4").symlink_to("/dev/null")
    order = Order(os.geteuid(), "hello", device_dir=str(folder))
    assert list(tell(order)) == []
    assert (folder / "pts" / "3").read_text() == ""
    assert list(tell(replace(order, device_dir=str(tmp_path / "nowhere")))) == []


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="only root makes device nodes")
def test_a_device_that_is_no_terminal_takes_no_message() -> None:
    """A character device of another driver under a terminal's name: said, and not told."""
    with tempfile.TemporaryDirectory(dir="/dev") as name:
        folder = devices(Path(name))
        os.mknod(folder / "pts" / "3", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        answers = list(tell(Order(0, "hello", device_dir=name)))
    assert answers == [Answer(f"{folder}/pts/3", "it takes no message (Inappropriate ioctl for device)")]


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="only root makes device nodes")
def test_so_many_terminals_are_told_and_no_more() -> None:
    """Of 66 of one user 64 are told, in the order of their numbers, and the rest are named."""
    with ExitStack() as stack:
        own = [stack.enter_context(terminal_of()) for _ in range(MOST_TERMINALS + 2)]
        answers = list(tell(Order(OWNER, "hi")))
        own.sort(key=lambda one: int(one.path.removeprefix("/dev/pts/")))
        assert [one.terminal for one in answers] == [one.path for one in own]
        assert ["hi" in one.read() for one in own] == [True] * MOST_TERMINALS + [False] * 2
    assert {one.why for one in answers[:MOST_TERMINALS]} == {""}
    assert {one.why for one in answers[MOST_TERMINALS:]} == {"only 64 terminals of a user are told"}


def test_root_has_no_console_where_nobody_is_logged_in(tmp_path: Path) -> None:
    """/dev/ttyN belongs to root when it is nobody's: only pseudo-terminals count for root."""
    folder = devices(tmp_path)
    (folder / "tty5").symlink_to("/dev/null")
    assert list(tell(Order(0, "hello", device_dir=str(folder)))) == []


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "\x9b31m", "a\rb", "\u202egnp"])
def test_no_sequence_reaches_a_terminal(text: str) -> None:
    """Whatever a text holds, a terminal is given printable ASCII and line ends of ours."""
    written = message_bytes(f"{text}\nend")
    assert re.fullmatch(rb"(\r\n[ -~]*)+\r\n", written)
    assert written.endswith(b"\r\nend\r\n")


@pytest.mark.parametrize("asked", [{"uid": "0", "text": "a"}, {"uid": 1, "text": 2}, {"text": "a"}])
def test_an_order_that_is_none_raises(asked: dict[str, object]) -> None:
    """The child writes nothing by an order that it does not understand."""
    with pytest.raises((KeyError, TypeError)):
        order_of(asked)


# Hooks


def test_a_hook_is_given_all_of_it_and_no_command_line(tmp_path: Path) -> None:
    """JSON on stdin, schema 1; exit 0 is a delivery."""
    hook = program(tmp_path / "hook", f"cat > {tmp_path}/said")
    outcome = told(warner(hook=hook), warning())
    assert outcome.kind is OutcomeKind.DELIVERED
    assert f"hook: {hook} took it" in outcome.detail
    said = json.loads((tmp_path / "said").read_text())
    text = said.pop("text")
    assert said == {
        "schema": 1,
        "host": "node-7",
        "incident": "inc-1",
        "rule": "over-cap",
        "pid": 100,
        "start": 1,
        "uid": OWNER,
        "gpus": [GPU_A],
        "workload": "train-100.service",
        "seconds": 600.0,
    }
    assert "asked to end (SIGTERM)" in text
    assert "train.py" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('echo "no such user" >&2; exit 3', "ended with 3 and said: no such user"),
        ("exec sleep 60", "did not end within 0.5 s"),
    ],
)
def test_a_hook_that_fails_or_hangs_is_no_delivery(tmp_path: Path, body: str, why: str) -> None:
    """Its words are on record; one that hangs is ended at the limit."""
    hook = program(tmp_path / "hook", body)
    outcome = told(warner(hook=hook, seconds=0.5), warning())
    assert outcome.kind is OutcomeKind.NOT_DELIVERED
    assert why in outcome.detail


def test_a_hook_that_is_no_program_is_not_run(tmp_path: Path) -> None:
    """A relative path, and nothing there: named, and no delivery."""
    for hook in ("hook", str(tmp_path / "none")):
        outcome = told(warner(hook=hook), warning())
        assert outcome.kind is OutcomeKind.NOT_DELIVERED
        assert f"hook: {hook}" in outcome.detail


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="only root gives files away")
def test_a_hook_that_others_may_change_is_not_run(tmp_path: Path) -> None:
    """A program of a user's is never run as root."""
    hook = program(tmp_path / "hook", f"touch {tmp_path}/ran")
    Path(hook).chmod(0o777)
    outcome = told(warner(hook=hook), warning())
    assert outcome.kind is OutcomeKind.NOT_DELIVERED
    assert "does not belong to root alone" in outcome.detail
    assert not (tmp_path / "ran").exists()


def test_a_dry_run_runs_no_hook(tmp_path: Path) -> None:
    """It is named and left alone."""
    hook = program(tmp_path / "hook", f"touch {tmp_path}/ran")
    outcome = told(warner(hook=hook), warning(), dry_run=True)
    assert outcome.kind is OutcomeKind.DRY_RUN
    assert f"hook: {hook} would be run" in outcome.detail
    assert not (tmp_path / "ran").exists()


# Pod events


class Events:
    """A cluster that answers as it was told, and notes what it was asked."""

    __slots__ = ("answer", "asked")

    def __init__(self, answer: Callable[[], Told | NotTold]) -> None:
        self.answer = answer
        self.asked: list[Notice] = []

    async def warn(self, notice: Notice) -> Told | NotTold:
        """Note it and answer."""
        self.asked.append(notice)
        return self.answer()


def broken() -> Told | NotTold:
    """Break off, as a bug would."""
    raise RuntimeError("no cluster")


POD = a_workload(kind=WorkloadKind.POD, name="uid-1")


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (lambda: Told("event made"), OutcomeKind.DELIVERED, "pod event: event made"),
        (lambda: NotTold("forbidden"), OutcomeKind.NOT_DELIVERED, "pod event: forbidden"),
        (broken, OutcomeKind.NOT_DELIVERED, "it broke off (RuntimeError('no cluster'))"),
    ],
)
def test_an_event_on_the_pod_is_a_way(
    answer: Callable[[], Told | NotTold], kind: OutcomeKind, text: str
) -> None:
    """One that was made is a delivery; a refusal or a bug is none, and hides no other way."""
    events = Events(answer)
    outcome = told(replace(warner(), pod_events=events), warning(workload=POD))
    assert outcome.kind is kind
    assert text in outcome.detail
    assert [notice.step.incident for notice in events.asked] == ["inc-1"]


def test_no_event_is_made_in_a_dry_run_or_for_what_is_in_no_pod() -> None:
    """The cluster is asked for nothing."""
    events = Events(lambda: Told("event made"))
    ways = replace(warner(), pod_events=events)
    assert told(ways, warning(workload=POD), dry_run=True).kind is OutcomeKind.DRY_RUN
    assert told(ways, warning()).kind is OutcomeKind.NOT_DELIVERED
    assert events.asked == []


def test_without_any_way_nobody_is_told_and_each_says_why() -> None:
    """The record names all three, and why each is none."""
    outcome = told(warner(), warning(workload=POD))
    assert outcome.kind is OutcomeKind.NOT_DELIVERED
    assert outcome.detail == (
        "terminals: the policy uses none; hook: none is set; pod event: no client of the cluster is set up"
    )


def test_a_step_that_says_nothing_is_no_warning() -> None:
    """A step of another stage has no words: nobody is told."""
    step = replace(warning(), warning=None)
    assert told(warner(), step).kind is OutcomeKind.FAILED


def test_the_texts_have_no_word_of_the_process() -> None:
    """Its program, its command line and the rule's reason stay out of both texts."""
    incident = an_incident(a_target(command="evil \x1b[2J", exe="/tmp/evil"), plan=PLAN, reason="evil reason")
    step = step_of(incident, Stage.WARNED, incident.processes)
    notice = Notice("node-7", step, warning_of(incident), WALL)
    for text in (terminal_text(notice), hook_text(notice)):
        assert "evil" not in text


@pytest.mark.parametrize(
    ("rule", "plan"),
    [
        ("idle-notebooks", a_plan(warn_seconds=600.0, sigterm_seconds=300.0)),
        ("over-8-gib", a_plan(stages=(), warn_seconds=0.0, only_warns=True)),
    ],
)
def test_the_manual_shows_what_an_owner_sees_word_by_word(rule: str, plan: Plan) -> None:
    """docs/warnings.md has both messages as they stand on a terminal."""
    gpu = GpuUuid("GPU-5c0e1a8e-0a4f-4c5e-8f0c-0d6f5f8f2b11")
    target = a_target(a_process(4242), gpus=(gpu,))
    actor = replace(RULE_ACTOR, name=rule)
    incident = an_incident(target, actor=actor, plan=plan, id=IncidentId("inc-6b49d200-c06fff"))
    step = step_of(incident, Stage.WARNED, incident.processes)
    shown = terminal_text(Notice("node-7", step, warning_of(incident), WALL))
    manual = Path(__file__).parents[2] / "docs" / "warnings.md"
    assert f"```\n{shown}\n```" in manual.read_text(encoding="utf-8")
