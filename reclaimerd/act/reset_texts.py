"""What the vendor's reset tool says, and what each text and exit code means: one table with its sources.

Texts that stand in no source are not guessed at: with exit 0 they are not verified, else a failure in the
tool's own words. It runs nothing.
"""

from dataclasses import dataclass

from reclaimerd.act.programs import sentence
from reclaimerd.model.incident import Outcome, OutcomeKind


@dataclass(frozen=True, slots=True)
class ToolText:
    """Words in the tool's output, what they mean, and where they were seen."""

    words: str
    meaning: OutcomeKind
    source: str


_DONE, _NO = OutcomeKind.RESET_DONE, OutcomeKind.RESET_REFUSED
_NVML = "NVML's error string, printed for each GPU (nvmlErrorString)"
TEXTS = (
    ToolText("was successfully reset", _DONE, "NVIDIA/NVSentinel #1690; then `All done.`, exit 0"),
    ToolText("In use by another client", _NO, f"{_NVML}; NVIDIA/NVSentinel #1690, NVIDIA/gpu-operator #2376"),
    ToolText(
        "currently in use by another process", _NO, "older drivers; cupy/cupy #1930, NVIDIA/gpu-operator #118"
    ),
    ToolText("currently being used by one or more other processes", _NO, "NVIDIA/gpu-operator #118, #2376"),
    ToolText("Not Supported", _NO, f"{_NVML}; seen in guests with passed-through NVLink"),
    ToolText("Insufficient Permissions", _NO, f"{_NVML}; documented as exit code 4"),
)
"""The driver's refusals end with 255; nothing was reset then."""

CODES = {
    2: "an argument is invalid",
    3: "not available on this device",
    4: "no permission",
    6: "no such device",
    8: "external power cables are not attached",
    9: "the driver is not loaded",
    10: "an interrupt issue with a GPU",
    12: "the NVML library is not there",
    13: "the NVML library lacks a function",
    14: "the infoROM is corrupt",
    15: "the GPU has fallen off the bus",
}
"""Documented return values of nvidia-smi (its manual, RETURN VALUE); 255 is any other error."""


def outcome_of_tool(code: int, text: str) -> Outcome:
    """Return what the tool's exit code and text mean; only both together are a success.

    After exit 0 with other words the GPU may have been reset: then no look removes the doubt.
    """
    done = next((row.words for row in TEXTS if row.meaning is _DONE and row.words in text), None)
    refusal = next((row.words for row in TEXTS if row.meaning is _NO and row.words in text), None)
    if code == 0 and done is not None and refusal is None:
        return Outcome(_DONE, sentence(text, done))
    if code > 0 and done is None and refusal is not None:
        return Outcome(_NO, sentence(text, refusal))
    if code == 0:
        return Outcome(OutcomeKind.RESET_NOT_VERIFIED, f"the tool ended well and said: {sentence(text)}")
    known = f" ({CODES[code]})" if code in CODES else ""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}{known}"
    return Outcome(OutcomeKind.FAILED, f"the reset tool {how} and said: {sentence(text)}")
