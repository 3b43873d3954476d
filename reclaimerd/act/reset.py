"""Run the vendor's reset tool for one GPU and say what came of it.

It may not judge whether a reset is due, stop clients, try twice, or signal the tool: a reset that is
cut in the middle leaves the GPU in a state nobody can name. At its deadline the tool is left alone.
"""

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, assert_never

from reclaimerd.host.child import Finished, Overran
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Outcome, OutcomeKind

_UUID = re.compile(r"GPU-[0-9A-Za-z][0-9A-Za-z-]*")
_SUCCESS = "was successfully reset"
_REFUSALS = (
    "In use by another client",
    "currently in use by another process",
    "currently being used by one or more other processes",
    "Not Supported",
    "Insufficient Permissions",
)
"""What the tool prints when the driver said no and nothing was reset: NVML's texts, seen with exit 255."""
_MAX_SENTENCE = 300


class RunTool(Protocol):
    """How the tool is run: `host.child.run_bounded`."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        deadline_seconds: float,
        kill_at_deadline: bool,
    ) -> Finished | Overran:
        """Run a program to its end, or leave it alone at the deadline."""
        ...


@dataclass(frozen=True, slots=True)
class VendorReset:
    """`nvidia-smi --gpu-reset -i UUID`, the vendor's only supported door.

    `placed_outside`: `run` puts the tool outside our cgroup, so that a restart of our unit can't cut
    it off. `simulated`: the tool is the simulation's, so its owner does not matter.
    """

    tool: str
    deadline_seconds: float
    run: RunTool
    placed_outside: bool
    simulated: bool = False

    async def reset(self, gpu: GpuUuid) -> Outcome:
        """Reset one GPU: RESET_DONE, RESET_REFUSED, RESET_ABANDONED at the deadline, or FAILED."""
        refusal = self._refusal(gpu)
        if refusal is not None:
            return refusal
        argv = (self.tool, "--gpu-reset", "-i", gpu)
        try:
            end = await self.run(argv, deadline_seconds=self.deadline_seconds, kill_at_deadline=False)
        except OSError as error:
            return Outcome(
                OutcomeKind.FAILED, f"{self.tool} did not start ({error.strerror}); nothing was reset"
            )
        match end:
            case Finished(code=code, out=out, err=err):
                return outcome_of_tool(code, f"{out}\n{err}")
            case Overran(pid=pid):
                text = f"the reset tool (pid {pid}) did not end within {self.deadline_seconds:g} s"
                return Outcome(OutcomeKind.RESET_ABANDONED, f"{text}; it is left alone: do not touch {gpu}")
            case _:
                assert_never(end)

    def _refusal(self, gpu: GpuUuid) -> Outcome | None:
        """Return why the tool is not started, or None."""
        if not (self.placed_outside or self.simulated):
            text = "the reset tool can't be placed outside our cgroup, where our own end would not cut it off"
            return Outcome(OutcomeKind.RESET_REFUSED, text)
        if not _UUID.fullmatch(gpu):
            return Outcome(OutcomeKind.FAILED, f"{gpu!r} is no UUID of a whole GPU; nothing was reset")
        fault = tool_fault(self.tool, any_owner=self.simulated)
        return Outcome(OutcomeKind.FAILED, f"{fault}; nothing was reset") if fault else None


def tool_fault(tool: str, *, any_owner: bool = False) -> str:
    """Return why this program may not be run as root, or ""."""
    path = Path(tool)
    if not path.is_absolute():
        return f"{tool} is no absolute path; set nvidia_smi"
    try:
        found = path.stat()
    except OSError as error:
        return f"{tool}: {error.strerror}; set nvidia_smi to the vendor's tool"
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & stat.S_IXUSR:
        return f"{tool} is no program; set nvidia_smi to the vendor's tool"
    if not any_owner and (found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return f"{tool} does not belong to root alone; chown it to root and take write permission from others"
    return ""


def outcome_of_tool(code: int, text: str) -> Outcome:
    """Return what the tool's exit code and text mean; only both together are a success."""
    refusal = next((words for words in _REFUSALS if words in text), None)
    if code == 0 and _SUCCESS in text and refusal is None:
        return Outcome(OutcomeKind.RESET_DONE, _sentence(text, _SUCCESS))
    if code > 0 and _SUCCESS not in text and refusal is not None:
        return Outcome(OutcomeKind.RESET_REFUSED, _sentence(text, refusal))
    if code == 0:
        return Outcome(OutcomeKind.FAILED, f"not verified: the tool ended well and said: {_sentence(text)}")
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    return Outcome(OutcomeKind.FAILED, f"the reset tool {how} and said: {_sentence(text)}")


def _sentence(text: str, words: str = "") -> str:
    """Return the line that holds `words` (the first that is not empty by default), cut and printable."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    line = next((line for line in lines if line and words in line), "nothing")
    return "".join(letter if letter.isprintable() else "?" for letter in line[:_MAX_SENTENCE])
