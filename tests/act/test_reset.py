"""Claims about the vendor's reset tool, with real programs that print what the tool prints."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.placement import Placed, SystemdPlace
from reclaimerd.act.reset import tool_fault
from reclaimerd.act.reset_files import Claim, Started, Trace, leave_started, read_trace, take_claim
from reclaimerd.act.reset_texts import CODES, TEXTS, outcome_of_tool
from reclaimerd.host import child as children
from reclaimerd.model.identity import AttemptId, GpuUuid, ProcessRef
from reclaimerd.model.incident import OutcomeKind
from reclaimerd.model.ports import (
    ToolEnded,
    ToolNeverRan,
    ToolRuns,
    ToolState,
    ToolUnknown,
    ToolVanished,
)
from tests.act.reset_tools import BOOT_ID, RUN, SUCCESS, Gate, begin, program, reset_tool, runs
from tests.builders import GPU_A, GPU_B

IN_USE = (
    "The following GPUs could not be reset:\n"
    "  GPU 00000000:1A:00.0: In use by another client\n\n"
    "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
    "application, graphics application such as an X server, or a monitoring application such as "
    "another instance of nvidia-smi). Please first kill all processes using this device and all "
    "compute applications running in the system.\n"
)


HANGS = """import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: print("signalled", number))
open("{}").readline()
print("unharmed")
"""


@pytest.mark.parametrize(
    ("code", "text", "kind", "words"),
    [
        (0, SUCCESS, OutcomeKind.RESET_DONE, "GPU 00000000:1A:00.0 was successfully reset."),
        (255, IN_USE, OutcomeKind.RESET_REFUSED, "GPU 00000000:1A:00.0: In use by another client"),
        (255, "GPU 1 is currently in use by another process.", OutcomeKind.RESET_REFUSED, "currently in use"),
        (255, "  GPU 0: Not Supported\n", OutcomeKind.RESET_REFUSED, "GPU 0: Not Supported"),
        (4, "Insufficient Permissions", OutcomeKind.RESET_REFUSED, "Insufficient Permissions"),
        (0, "", OutcomeKind.RESET_NOT_VERIFIED, "ended well and said: "),
        (0, "All done.", OutcomeKind.RESET_NOT_VERIFIED, "ended well and said: "),
        (0, SUCCESS + IN_USE, OutcomeKind.RESET_NOT_VERIFIED, "ended well and said: "),
        (255, SUCCESS, OutcomeKind.FAILED, "ended with 255"),
        (255, SUCCESS + IN_USE, OutcomeKind.FAILED, "ended with 255"),
        (255, "GPU is primary", OutcomeKind.FAILED, "ended with 255 and said: GPU is primary"),
        (15, "", OutcomeKind.FAILED, "ended with 15 (the GPU has fallen off the bus)"),
        (-9, SUCCESS, OutcomeKind.FAILED, "ended by signal 9"),
        (-9, IN_USE, OutcomeKind.FAILED, "ended by signal 9"),
    ],
)
def test_only_code_and_text_together_are_a_success(
    code: int,
    text: str,
    kind: OutcomeKind,
    words: str,
) -> None:
    """Exit 0 with the success text is done, with others not verified; a known refusal is one; else FAILED."""
    outcome = outcome_of_tool(code, text)
    assert outcome.kind is kind
    assert words in outcome.detail


def test_every_text_has_its_source() -> None:
    """The one table names a source for each text, and no text stands in it twice."""
    assert all(row.source for row in TEXTS)
    assert len({row.words for row in TEXTS}) == len(TEXTS)
    assert 0 not in CODES
    assert 255 not in CODES


def test_what_the_tool_prints_is_shown_safely() -> None:
    """Control characters and endless lines of the tool do not reach the record."""
    outcome = outcome_of_tool(255, "\x1b[2J" + "x" * 10_000)
    assert "\x1b" not in outcome.detail
    assert len(outcome.detail) < 400


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return a gate that a tool may wait at; what still waits at the end is let go."""
    made = Gate(tmp_path / "go")
    yield made
    made.close()


def _tool(tmp_path: Path, body: str) -> str:
    return program(tmp_path / "nvidia-smi", body)


def _reset(tmp_path: Path, tool: str, gpus: tuple[GpuUuid, ...] = (GPU_A,)) -> ToolState:
    """Start the tool and wait for its end."""

    async def work() -> ToolState:
        hands = reset_tool(tmp_path / "resets", tool)
        state = await begin(hands, gpus)
        return await hands.wait(RUN, 20.0) if isinstance(state, ToolRuns) else state

    return runs(work)


@pytest.mark.process
def test_the_tool_is_asked_for_these_gpus_by_uuid(tmp_path: Path) -> None:
    """The tool gets exactly `--gpu-reset -i UUID,UUID`, once, and its end is known."""
    tool = _tool(tmp_path, f'echo "$@" >> {tmp_path}/args; printf "{SUCCESS}"')
    assert _reset(tmp_path, tool, (GPU_A, GPU_B)) == ToolEnded(0, SUCCESS)
    assert (tmp_path / "args").read_text() == f"--gpu-reset -i {GPU_A},{GPU_B}\n"


@pytest.mark.process
def test_what_the_driver_refuses_comes_back_whole(tmp_path: Path) -> None:
    """The exit code and both outputs come back, whatever they mean."""
    (tmp_path / "text").write_text(IN_USE)
    state = _reset(tmp_path, _tool(tmp_path, f"cat {tmp_path}/text; echo also >&2; exit 255"))
    assert state == ToolEnded(255, IN_USE + "also\n")


@pytest.mark.process
def test_a_second_start_under_one_name_runs_nothing(tmp_path: Path) -> None:
    """It is not made ready again, and another word changes nothing: the same end, and the tool ran once."""
    tool = _tool(tmp_path, f'echo ran >> {tmp_path}/ran; printf "{SUCCESS}"')
    assert _reset(tmp_path, tool) == ToolEnded(0, SUCCESS)
    assert _reset(tmp_path, tool) == ToolNeverRan(f"run {RUN} was made ready before")

    async def another_word() -> ToolState:
        hands = reset_tool(tmp_path / "resets", tool)
        assert isinstance(await hands.start(RUN, time.monotonic() + 10.0), ToolRuns)
        return await hands.wait(RUN, 20.0)

    assert runs(another_word) == ToolEnded(0, SUCCESS)
    assert (tmp_path / "ran").read_text() == "ran\n"


@pytest.mark.process
def test_a_tool_that_hangs_is_left_alone_and_never_signalled(tmp_path: Path, gate: Gate) -> None:
    """At the deadline the answer is ToolRuns with its stack; the tool runs on to its own end, found later."""
    tool = _tool(tmp_path, "")
    # A shell can't trap what it was started with as ignored; this tool answers every signal that comes.
    Path(tool).write_text(f"#!{sys.executable}\n{HANGS.format(gate.path)}")

    async def work() -> tuple[ToolState, float, ToolState]:
        hands = reset_tool(tmp_path / "resets", tool)
        assert isinstance(await begin(hands, (GPU_A,)), ToolRuns)
        before = time.monotonic()
        state = await hands.wait(RUN, 0.5)
        took = time.monotonic() - before
        gate.open()
        return state, took, await hands.wait(RUN, 20.0)

    state, took, end = runs(work)
    assert isinstance(state, ToolRuns)
    started = read_trace(tmp_path / "resets", RUN).started
    assert started is not None
    pid = started.tool_pid
    assert state.evidence == f"pid {pid}: stack of {pid}"
    assert 0.4 < took < 5
    assert end == ToolEnded(0, "unharmed\n")


@pytest.mark.process
def test_another_life_of_ours_finds_the_tool_again(tmp_path: Path, gate: Gate) -> None:
    """A loop that ended in mid-tool loses nothing: the next one waits for the same tool by its pidfd."""
    tool = _tool(tmp_path, f"read x < {gate.path}; echo well")

    async def first() -> ToolState:
        return await begin(reset_tool(tmp_path / "resets", tool), (GPU_A,))

    async def second() -> tuple[ToolState, ToolState]:
        hands = reset_tool(tmp_path / "resets", tool)
        meanwhile = await hands.wait(RUN, 0.0)
        gate.open()
        return meanwhile, await hands.wait(RUN, 20.0)

    began = runs(first)
    assert isinstance(began, ToolRuns)
    meanwhile, end = runs(second)
    assert isinstance(meanwhile, ToolRuns)
    assert meanwhile.ref == began.ref
    assert end == ToolEnded(0, "well\n")


@pytest.mark.process
def test_a_runner_that_is_gone_without_an_end_has_vanished(tmp_path: Path, gate: Gate) -> None:
    """Nobody knows how the tool ended, and that is what is said."""
    tool = _tool(tmp_path, f"read x < {gate.path}")

    async def work() -> ToolState:
        hands = reset_tool(tmp_path / "resets", tool)
        state = await begin(hands, (GPU_A,))
        assert isinstance(state, ToolRuns)
        seen = children.adopt(state.ref.pid)
        assert seen is not None
        children.send_kill(seen)
        end = await hands.wait(RUN, 20.0)
        children.let_go(seen)
        return end

    state = runs(work)
    assert isinstance(state, ToolVanished)
    assert "left no end" in state.why


def _ref(pid: int, ticks: int = 1, boot_id: str = BOOT_ID) -> ProcessRef:
    return ProcessRef(boot_id, pid, ticks)


@pytest.mark.parametrize(
    "runner",
    [_ref(os.getpid()), _ref(os.getpid(), boot_id="another"), _ref(4_000_000)],
    ids=["a pid used again", "another boot", "no such pid"],
)
def test_a_runner_is_known_by_more_than_its_pid(tmp_path: Path, runner: ProcessRef) -> None:
    """A pid used again, another boot, or no process at all is never waited for, nor called running."""
    take_claim(tmp_path, RUN, Claim(runner))
    assert isinstance(runs(lambda: reset_tool(tmp_path, "/bin/true").wait(RUN, 5.0)), ToolVanished)
    leave_started(tmp_path, RUN, Started(1, 1.0, 0.1))
    assert isinstance(runs(lambda: reset_tool(tmp_path, "/bin/true").wait(RUN, 5.0)), ToolVanished)


def test_a_runner_that_can_not_be_told_apart_is_taken_for_running(tmp_path: Path) -> None:
    """Start ticks that can't be read are no sign of an end: a GPU in mid-reset must not be touched."""

    async def unreadable(_pid: int) -> int | None:
        return None

    take_claim(tmp_path, RUN, Claim(_ref(os.getpid())))
    hands = replace(reset_tool(tmp_path, "/bin/true"), start_ticks_of=unreadable)
    assert isinstance(runs(lambda: hands.wait(RUN, 0.1)), ToolRuns)


@pytest.mark.process
def test_a_run_that_nobody_began_never_will(tmp_path: Path) -> None:
    """Waiting for a tool that never started claims its name: a start that comes late runs nothing."""
    tool = _tool(tmp_path, f"touch {tmp_path}/ran")
    assert isinstance(runs(lambda: reset_tool(tmp_path / "resets", tool).wait(RUN, 5.0)), ToolNeverRan)
    assert isinstance(_reset(tmp_path, tool), ToolNeverRan)
    assert not (tmp_path / "ran").exists()


@pytest.mark.process
def test_a_place_that_failed_is_claimed_before_it_is_said(tmp_path: Path) -> None:
    """Where the place says no, the reason comes back and the name is taken: it can't start after all."""

    class Broken:
        outside_of = ""

        def fault(self) -> str:
            return ""

        async def start(self, _run: AttemptId, _argv: object) -> Placed:
            return Placed(why="systemd-run ended with 1: no")

    tool = _tool(tmp_path, f"touch {tmp_path}/ran")
    hands = replace(reset_tool(tmp_path / "resets", tool), place=Broken())
    assert runs(lambda: hands.prepare(RUN, (GPU_A,))) == "systemd-run ended with 1: no"
    assert read_trace(tmp_path / "resets", RUN) == Trace(claim=Claim(None, "systemd-run ended with 1: no"))
    assert isinstance(runs(lambda: hands.start(RUN, time.monotonic() + 0.2)), ToolNeverRan)
    assert not (tmp_path / "ran").exists()


def test_a_tool_that_would_die_with_us_is_not_started(tmp_path: Path) -> None:
    """Where systemd is not the host's init the tool can't be placed outside our cgroup: nothing runs."""
    tool = _tool(tmp_path, f"touch {tmp_path}/ran")
    place = SystemdPlace("/system.slice/reclaimerd.service", booted=tmp_path / "none")
    hands = replace(reset_tool(tmp_path / "resets", tool), place=place)
    assert "outside our cgroup" in hands.fault()
    assert "outside our cgroup" in runs(lambda: hands.prepare(RUN, (GPU_A,)))
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "resets").exists()


@pytest.mark.parametrize("gpu", ["0", "", "-r", "MIG-aaaa", "GPU-a b", "GPU-aaaa,GPU-bbbb", "GPU-\n"])
def test_only_a_whole_gpu_by_uuid_is_reset(tmp_path: Path, gpu: str) -> None:
    """An index, a list, a MIG instance or an option never reaches the tool."""
    state = _reset(tmp_path, _tool(tmp_path, f"touch {tmp_path}/ran"), (GpuUuid(gpu),))
    assert isinstance(state, ToolNeverRan)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("gpus", [(), (GPU_A, GPU_A)])
def test_a_reset_names_its_gpus_once(tmp_path: Path, gpus: tuple[GpuUuid, ...]) -> None:
    """Without a GPU, or with one twice, nothing is started."""
    state = _reset(tmp_path, _tool(tmp_path, f"touch {tmp_path}/ran"), gpus)
    assert isinstance(state, ToolNeverRan)


@pytest.mark.parametrize("run", ["", "../x", "-x", "a b", "x" * 200])
def test_a_name_that_can_not_be_a_file_runs_nothing(tmp_path: Path, run: str) -> None:
    """A run's id never leads out of its directory."""
    hands = reset_tool(tmp_path / "resets", _tool(tmp_path, f"touch {tmp_path}/ran"))
    assert "can't name a file" in runs(lambda: hands.prepare(AttemptId(run), (GPU_A,)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("nvidia-smi", "no absolute path"),
        ("/nonexistent/nvidia-smi", "No such file"),
        ("/etc", "no program"),
        ("/dev/null", "no program"),
    ],
)
def test_what_is_no_program_is_said(tmp_path: Path, tool: str, words: str) -> None:
    """A tool that can't be run is told before anything is started, with what to set."""
    state = _reset(tmp_path, tool)
    assert isinstance(state, ToolNeverRan)
    assert words in state.why
    assert "nvidia_smi" in state.why


@pytest.mark.root
def test_a_tool_that_others_may_write_is_not_run_as_root(tmp_path: Path) -> None:
    """Only a program that root alone can change is started, its folders too; the simulation's is exempt."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = program(folder / "nvidia-smi", "exit 0")
    assert tool_fault(tool) == ""
    Path(tool).chmod(0o775)
    assert "root alone" in tool_fault(tool)
    Path(tool).chmod(0o755)
    folder.chmod(0o777)
    assert "root alone" in tool_fault(tool)
    folder.chmod(0o755)
    os.chown(tool, 65534, 65534)
    assert "root alone" in tool_fault(tool)
    assert tool_fault(tool, any_owner=True) == ""


@pytest.mark.process
def test_a_tool_that_does_not_start_never_ran(tmp_path: Path) -> None:
    """A program whose interpreter is missing did not run: nothing was reset."""
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/nonexistent/sh\n")
    path.chmod(0o755)
    state = _reset(tmp_path, str(path))
    assert isinstance(state, ToolNeverRan)
    assert "did not start" in state.why


def test_a_directory_that_can_not_be_read_is_never_called_quiet(tmp_path: Path) -> None:
    """Files that are none of ours say that nobody knows, after the whole wait."""
    (tmp_path / f"{RUN}.started").write_text("{}")
    before = time.monotonic()
    state = runs(lambda: reset_tool(tmp_path, "/bin/true").wait(RUN, 0.3))
    assert isinstance(state, ToolUnknown)
    assert time.monotonic() - before >= 0.3
    assert not (tmp_path / f"{RUN}.claim").exists()


@pytest.mark.process
def test_a_cancelled_wait_leaves_the_tool_alone(tmp_path: Path, gate: Gate) -> None:
    """Our own stop in mid-tool sends nothing: the tool ends by itself."""
    tool = _tool(tmp_path, f"read x < {gate.path}; echo well")

    async def work() -> ToolState:
        hands = reset_tool(tmp_path / "resets", tool)
        await begin(hands, (GPU_A,))
        waiting = asyncio.create_task(hands.wait(RUN, 20.0))
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        gate.open()
        return await hands.wait(RUN, 20.0)

    assert runs(work) == ToolEnded(0, "well\n")


def test_a_unit_says_that_nobody_may_signal_the_tool() -> None:
    """The transient unit has no stop signal and a name of its own, and `$` in a path stays a `$`."""
    place = SystemdPlace("/system.slice/reclaimerd.service")
    words = place.command(AttemptId("a%b.1"), ("/x/$HOME", "--gpu-reset"))
    properties = {words[at + 1] for at, word in enumerate(words) if word == "-p"}
    assert {"KillMode=none", "SendSIGKILL=no", "TimeoutStopSec=infinity", "Restart=no"} <= properties
    assert "--slice=system.slice" in words
    assert "--unit=reclaimerd-reset-a_b.1" in words
    assert words[-3:] == ["--", "/x/$$HOME", "--gpu-reset"]
