"""Claims about the vendor's reset tool, with real programs that print what the tool prints."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from reclaimerd.act.reset import VendorReset, outcome_of_tool, tool_fault
from reclaimerd.host.child import run_bounded
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Outcome, OutcomeKind
from tests.builders import GPU_A

SUCCESS = "GPU 00000000:1A:00.0 was successfully reset.\nAll done.\n"
IN_USE = (
    "The following GPUs could not be reset:\n"
    "  GPU 00000000:1A:00.0: In use by another client\n\n"
    "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
    "application, graphics application such as an X server, or a monitoring application such as "
    "another instance of nvidia-smi). Please first kill all processes using this device and all "
    "compute applications running in the system.\n"
)


@pytest.mark.parametrize(
    ("code", "text", "kind", "words"),
    [
        (0, SUCCESS, OutcomeKind.RESET_DONE, "GPU 00000000:1A:00.0 was successfully reset."),
        (255, IN_USE, OutcomeKind.RESET_REFUSED, "GPU 00000000:1A:00.0: In use by another client"),
        (255, "GPU 1 is currently in use by another process.", OutcomeKind.RESET_REFUSED, "currently in use"),
        (255, "  GPU 0: Not Supported\n", OutcomeKind.RESET_REFUSED, "GPU 0: Not Supported"),
        (4, "Insufficient Permissions", OutcomeKind.RESET_REFUSED, "Insufficient Permissions"),
        (0, "", OutcomeKind.FAILED, "not verified"),
        (0, "All done.", OutcomeKind.FAILED, "not verified"),
        (0, SUCCESS + IN_USE, OutcomeKind.FAILED, "not verified"),
        (255, SUCCESS, OutcomeKind.FAILED, "ended with 255"),
        (255, SUCCESS + IN_USE, OutcomeKind.FAILED, "ended with 255"),
        (255, "GPU is primary", OutcomeKind.FAILED, "ended with 255 and said: GPU is primary"),
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
    """Exit 0 with the success text is done; a known refusal is refused; all else FAILED, in its words."""
    outcome = outcome_of_tool(code, text)
    assert outcome.kind is kind
    assert words in outcome.detail


def test_what_the_tool_prints_is_shown_safely() -> None:
    """Control characters and endless lines of the tool do not reach the record."""
    outcome = outcome_of_tool(255, "\x1b[2J" + "x" * 10_000)
    assert "\x1b" not in outcome.detail
    assert len(outcome.detail) < 400


def _tool(tmp_path: Path, body: str) -> str:
    """Return a program that plays the tool."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def _reset(tool: str, *, gpu: str = GPU_A, seconds: float = 20.0, placed: bool = True) -> Outcome:
    """Run the reset with the real runner."""
    hands = VendorReset(tool, seconds, run_bounded, placed_outside=placed, simulated=os.geteuid() != 0)
    return asyncio.run(hands.reset(GpuUuid(gpu)))


@pytest.mark.process
def test_the_tool_is_asked_for_this_gpu_by_uuid(tmp_path: Path) -> None:
    """The tool gets exactly `--gpu-reset -i UUID`, once."""
    tool = _tool(tmp_path, f'echo "$@" >> {tmp_path}/args; printf "{SUCCESS}"')
    assert _reset(tool).kind is OutcomeKind.RESET_DONE
    assert (tmp_path / "args").read_text() == f"--gpu-reset -i {GPU_A}\n"


@pytest.mark.process
def test_a_refusal_of_the_driver_is_an_ordinary_answer(tmp_path: Path) -> None:
    """Exit 255 with "In use by another client" is RESET_REFUSED with that sentence."""
    (tmp_path / "text").write_text(IN_USE)
    outcome = _reset(_tool(tmp_path, f"cat {tmp_path}/text; exit 255"))
    assert outcome == Outcome(OutcomeKind.RESET_REFUSED, "GPU 00000000:1A:00.0: In use by another client")


@pytest.mark.process
def test_a_tool_that_hangs_is_abandoned_and_never_signalled(tmp_path: Path) -> None:
    """At the deadline the answer is RESET_ABANDONED, and the tool runs on to its own end unharmed."""
    os.mkfifo(tmp_path / "go")
    go = os.open(tmp_path / "go", os.O_RDWR)
    body = f"echo $$ > {tmp_path}/pid; read x < {tmp_path}/go; echo unharmed > {tmp_path}/end"
    before = time.monotonic()
    outcome = _reset(_tool(tmp_path, body), seconds=1.0)
    assert outcome.kind is OutcomeKind.RESET_ABANDONED
    assert f"do not touch {GPU_A}" in outcome.detail
    assert time.monotonic() - before < 5
    pid = int((tmp_path / "pid").read_text())
    os.write(go, b"on\n")
    os.waitpid(pid, 0)
    os.close(go)
    assert (tmp_path / "end").read_text() == "unharmed\n"


@pytest.mark.process
def test_a_tool_that_would_die_with_us_is_not_started(tmp_path: Path) -> None:
    """Where the tool can't be placed outside our cgroup the reset is refused, and nothing runs."""
    tool = _tool(tmp_path, f"touch {tmp_path}/ran")
    hands = VendorReset(tool, 5.0, run_bounded, placed_outside=False)
    outcome = asyncio.run(hands.reset(GPU_A))
    assert outcome.kind is OutcomeKind.RESET_REFUSED
    assert "outside our cgroup" in outcome.detail
    assert not (tmp_path / "ran").exists()


@pytest.mark.process
def test_the_simulation_needs_no_place_outside(tmp_path: Path) -> None:
    """The simulation's own tool runs as a plain child."""
    hands = VendorReset(
        _tool(tmp_path, f'printf "{SUCCESS}"'), 20.0, run_bounded, placed_outside=False, simulated=True
    )
    assert asyncio.run(hands.reset(GPU_A)).kind is OutcomeKind.RESET_DONE


@pytest.mark.process
@pytest.mark.parametrize("gpu", ["0", "", "-r", "MIG-aaaa", "GPU-a b", "GPU-aaaa,GPU-bbbb", "GPU-\n"])
def test_only_a_whole_gpu_by_uuid_is_reset(tmp_path: Path, gpu: str) -> None:
    """An index, a list, a MIG instance or an option never reaches the tool."""
    outcome = _reset(_tool(tmp_path, f"touch {tmp_path}/ran"), gpu=gpu)
    assert outcome.kind is OutcomeKind.FAILED
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
def test_what_is_no_program_is_said(tool: str, words: str) -> None:
    """A tool that can't be run is FAILED before anything is started, with what to set."""
    outcome = _reset(tool)
    assert outcome.kind is OutcomeKind.FAILED
    assert words in outcome.detail
    assert "nvidia_smi" in outcome.detail


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_tool_that_others_may_write_is_not_run_as_root(tmp_path: Path) -> None:
    """Only a program that root alone can change is started; the simulation's is exempt."""
    tool = _tool(tmp_path, "exit 0")
    assert tool_fault(tool) == ""
    Path(tool).chmod(0o775)
    assert "root alone" in tool_fault(tool)
    Path(tool).chmod(0o755)
    os.chown(tool, 65534, 65534)
    assert "root alone" in tool_fault(tool)
    assert tool_fault(tool, any_owner=True) == ""


def test_a_tool_that_does_not_start_failed(tmp_path: Path) -> None:
    """A program whose interpreter is missing is FAILED: nothing was reset."""
    path = tmp_path / "nvidia-smi"
    path.write_text("#!/nonexistent/sh\n")
    path.chmod(0o755)
    outcome = _reset(str(path))
    assert outcome.kind is OutcomeKind.FAILED
    assert "nothing was reset" in outcome.detail
