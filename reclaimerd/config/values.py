"""What one value of the policy file may be; each takes what TOML gave and returns it typed.

Every refusal is a BadValueError with its mend, so that the caller can show all of them at once.
Nothing here reads the world: whether a user or a file exists is not a value's form.
"""

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches

from reclaimerd.config.units import (
    DURATION_MEND,
    PERCENT_MEND,
    SIZE_MEND,
    BadValueError,
    format_duration,
    parse_duration,
    parse_percent,
    parse_size,
    quoted,
)
from reclaimerd.config.user_patterns import refusal_of
from reclaimerd.model.fault import FaultClass
from reclaimerd.model.policy import Threshold
from reclaimerd.model.snapshot import RecoveryAction

RESET_CLASSES = (FaultClass.RESET.word, FaultClass.DRAIN_AND_RESET.word)
REBOOT_CLASSES = (FaultClass.REBOOT.word, FaultClass.LOST.word)
RESET_ACTIONS = (RecoveryAction.GPU_RESET, RecoveryAction.DRAIN_AND_RESET)
REBOOT_ACTIONS = (RecoveryAction.NODE_REBOOT, RecoveryAction.BUS_RESET, RecoveryAction.SYSTEM_REBOOT)
"""What a fault rule may wait for: what a reset mends, and what only a drain answers."""
MOST_UID = 2**32 - 2
"""The largest uid: 2^32 - 1 means "no uid" (setreuid(2))."""
LEAST_INTERVAL_SECONDS = 0.2
"""One look costs up to 10 ms of CPU: below this the watch is itself a load."""
LEAST_FILE_BYTES = 4096
"""One audit record is up to some KiB: a smaller file would rotate at each record."""
_LEAST_READINGS = 2
"""One reading is a moment, not a time."""
_MOST_COUNT = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_RANGE = re.compile(r"(\d{1,10})-(\d{1,10})", re.ASCII)
_GPU = re.compile(r"GPU-[0-9A-Za-z-]+", re.ASCII)
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.(?:service|scope|slice)", re.ASCII)


def shape_of(value: object) -> str:
    """Return what TOML made of a value, in words."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {quoted(value)}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or a time"


def suggestion(word: str, allowed: tuple[str, ...]) -> str:
    """Return `did you mean "X"? ` for a misspelt word, or nothing."""
    close = get_close_matches(word, allowed, n=1, cutoff=0.7)
    return f'did you mean "{close[0]}"? ' if close else ""


def _text(value: object, wanted: str) -> str:
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a text", wanted)
    return value


def duration(value: object) -> float:
    """Return seconds, zero or more."""
    return parse_duration(_text(value, DURATION_MEND))


def positive_duration(value: object) -> float:
    """Return seconds, more than zero."""
    seconds = duration(value)
    if seconds <= 0:
        raise BadValueError("it is zero, which waits for nothing", "give it a time, at least a millisecond")
    return seconds


def interval(value: object) -> float:
    """Return seconds between two passes, at least 200 ms."""
    seconds = duration(value)
    if seconds < LEAST_INTERVAL_SECONDS:
        least = format_duration(LEAST_INTERVAL_SECONDS)
        raise BadValueError(f"{quoted(value)} is shorter than {least}", f"look at most every {least}")
    return seconds


def file_size(value: object) -> int:
    """Return bytes, enough for some records."""
    size = parse_size(_text(value, SIZE_MEND))
    if size < LEAST_FILE_BYTES:
        raise BadValueError(f"{quoted(value)} is too small for a log file", "give it at least 4KiB")
    return size


def threshold(value: object) -> Threshold:
    """Return a cap: a size, or a share of the GPU's memory."""
    mend = 'write a size or a share, such as "8GiB" or "70%"'
    text = _text(value, mend)
    if text.strip().endswith("%"):
        share = parse_percent(text)
        if share == 0:
            raise BadValueError("a cap of 0% takes every holder", mend)
        return Threshold(above_percent=share)
    size = parse_size(text)
    if size == 0:
        raise BadValueError("a cap of zero takes every holder", mend)
    return Threshold(above_bytes=size)


def percent(value: object) -> float:
    """Return percent, 0 to 100, from `25` or `"25%"`."""
    if isinstance(value, str):
        return parse_percent(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValueError(f"{shape_of(value)} stands in the place of a percentage", PERCENT_MEND)
    if not math.isfinite(value) or not 0 <= value <= 100:  # noqa: PLR2004 - the meaning of percent
        raise BadValueError(f"{value} is not between 0 and 100", PERCENT_MEND)
    return float(value)


def _whole(value: object, least: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValueError(f"{shape_of(value)} stands in the place of a whole number", f"write {what}")
    if not least <= value <= _MOST_COUNT:
        raise BadValueError(f"{value} is out of range", f"write {what}")
    return value


def count(value: object) -> int:
    """Return a budget, zero (never) or more."""
    return _whole(value, 0, f"a whole number from 0 (never) to {_MOST_COUNT}")


def positive_count(value: object) -> int:
    """Return a number of things, one or more."""
    return _whole(value, 1, f"a whole number from 1 to {_MOST_COUNT}")


def readings(value: object) -> int:
    """Return how many readings a rule needs, two or more."""
    return _whole(value, _LEAST_READINGS, f"at least {_LEAST_READINGS}: one reading is a moment, not a time")


def name(value: object) -> str:
    """Return a rule's or protection's name: it goes into records, metrics and file names."""
    mend = "use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
    text = _text(value, mend)
    if _NAME.fullmatch(text) is None:
        raise BadValueError(f"{quoted(text)} is not a name", mend)
    return text


def word(value: object) -> str:
    """Return a text without blanks or control characters that is not empty."""
    text = _text(value, "write a text in quotes")
    if not text or not text.isprintable() or any(mark.isspace() for mark in text):
        raise BadValueError(f"{quoted(text)} is empty or has blanks in it", "write one word in quotes")
    return text


def _path_text(value: object, mend: str) -> str:
    text = _text(value, mend)
    if not text or "\0" in text:
        raise BadValueError(f"{quoted(text)} is not a path", mend)
    return text


def absolute_path(value: object) -> str:
    """Return a path from the root: a relative one depends on who started the daemon."""
    mend = 'write the whole path, such as "/usr/bin/nvidia-smi"'
    text = _path_text(value, mend)
    if not text.startswith("/"):
        raise BadValueError(f"{quoted(text)} is not an absolute path", mend)
    return text


def absolute_path_or_empty(value: object) -> str:
    """Return a path from the root, or nothing for the default place."""
    return "" if value == "" else absolute_path(value)


def program_glob(value: object) -> str:
    """Return a program's path or a glob of paths."""
    mend = 'write the program\'s whole path or a glob, such as "/usr/bin/python3*" or "*/bin/trainer"'
    text = _path_text(value, mend)
    if not text.startswith(("/", "*")):
        raise BadValueError(f"{quoted(text)} can never match a whole path", mend)
    return text


def cgroup_glob(value: object) -> str:
    """Return a glob on the whole cgroup path."""
    mend = 'write a glob of the whole path, such as "/system.slice/trainer.service" or "/user.slice/*"'
    text = _path_text(value, mend)
    if not text.startswith(("/", "*")):
        raise BadValueError(f"{quoted(text)} can never match a whole cgroup path", mend)
    return text


def pattern(value: object) -> str:
    """Return a regular expression that RE2 takes."""
    text = _text(value, "write a regular expression in quotes")
    if not text:
        raise BadValueError(
            "an empty pattern matches everything", "write what to look for, or leave the key out"
        )
    refused = refusal_of(text)
    if refused is not None:
        raise BadValueError(
            f"RE2 refuses {quoted(text)}: {refused}",
            "use RE2 syntax (no backreferences, no lookaround, bounded repeats); '...' keeps backslashes",
        )
    return text


def gpu(value: object) -> str:
    """Return a GPU's UUID; an index can come to mean another GPU."""
    mend = 'write its UUID as `nvidia-smi -L` prints it, such as "GPU-5fd4f087-..."'
    text = _text(value, mend)
    if _GPU.fullmatch(text) is None:
        raise BadValueError(f"{quoted(text)} is not a GPU UUID", mend)
    return text


def unit(value: object) -> str:
    """Return a systemd unit's full name."""
    mend = 'write its full name, such as "inference.service"'
    text = _text(value, mend)
    if _UNIT.fullmatch(text) is None:
        raise BadValueError(f"{quoted(text)} is not the name of a service, scope or slice", mend)
    return text


def service(value: object) -> str:
    """Return the full name of a service, the only kind of unit that is stopped and started again."""
    full = unit(value)
    if not full.endswith(".service"):
        raise BadValueError(f"{quoted(full)} is not a service", 'write its full name, such as "dcgm.service"')
    return full


def uid_range(value: object) -> tuple[int, int]:
    """Return an inclusive range of uids from `1000` or `"1000-1999"`."""
    mend = f'write a uid or a range, such as 1000 or "1000-1999", each from 0 to {MOST_UID}'
    if isinstance(value, int) and not isinstance(value, bool):
        low = high = value
    else:
        text = _text(value, mend)
        found = _RANGE.fullmatch(text)
        if found is None:
            raise BadValueError(f"{quoted(text)} is not a range of uids", mend)
        low, high = int(found[1]), int(found[2])
    if low > high:
        raise BadValueError(f"{quoted(value)} runs backwards", mend)
    if low < 0 or high > MOST_UID:
        raise BadValueError(f"{quoted(value)} goes beyond the uids there are", mend)
    return low, high


def listed(value: object) -> object:
    """Return a list for one text that stands in its place: `"reset"` is `["reset"]`."""
    return [value] if isinstance(value, str) else value


def recovery_action(value: object) -> str:
    """Return the driver's word for what it asks for; `reset` is short for `gpu_reset`."""
    chosen = choice("reset", *RESET_ACTIONS, *REBOOT_ACTIONS)(value)
    return RecoveryAction.GPU_RESET if chosen == "reset" else RecoveryAction(chosen)


@dataclass(frozen=True, slots=True)
class Choice:
    """A check that a value is one of these words; it is called with the value."""

    allowed: tuple[str, ...]

    def __call__(self, value: object) -> str:
        """Return the word; raise BadValueError for any other."""
        mend = "write one of " + ", ".join(f'"{word}"' for word in self.allowed)
        text = _text(value, mend)
        if text not in self.allowed:
            raise BadValueError(f"{quoted(text)} is not known here", suggestion(text, self.allowed) + mend)
        return text


def choice(*allowed: str) -> Choice:
    """Return a check that a value is one of these words."""
    return Choice(allowed)
