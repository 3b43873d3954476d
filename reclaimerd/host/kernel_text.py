"""Pure parsers of what the kernel says of itself: a task's stack, its switches, and log records.

The text of a log line may repeat a name that a process chose (`task COMM:PID`), so it is read from
the right and only where the kernel itself wrote the line. Nothing here reads a file; a line that is
none of ours is left out and never raises.
"""

import re
from dataclasses import dataclass

from reclaimerd.host.proc_text import printable
from reclaimerd.model.kernel import Frame

MOST_FRAMES = 64
"""As deep as the kernel itself writes a stack (fs/proc/base.c, MAX_STACK_TRACE_DEPTH)."""
_FRAME = re.compile(
    r"\s*(?:\[<(?:0x)?[0-9a-f]+>\]\s*)?(?P<question>\?\s+)?(?P<symbol>[^\s\[\]?+]+)"
    r"(?:\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?)?(?:\s+\[(?P<module>[A-Za-z0-9_\-]+)[^\]]*\])?\s*",
)
_ADDRESS = re.compile(r"0x[0-9a-f]+", re.ASCII)
_END_OF_STACK = "0xffffffffffffffff"
"""What kernels before 5.3 wrote below the last frame."""

_RECORD = re.compile(r"(?P<prio>\d{1,10}),(?P<seq>\d{1,20}),(?P<stamp>\d{1,20}),[^;\n]*;(?P<text>[^\n]*)")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_HUNG = re.compile(
    r"INFO: task (?P<comm>.*):(?P<pid>\d{1,10}) (?:<[^>]*> )?"
    r"(?:blocked|is blocked)(?: on [^:]*| in I/O wait)? for more than (?P<seconds>\d{1,10}) seconds\.?",
    re.DOTALL,
)
_DRIVER = re.compile(r"NVRM:|nvidia(?:[-_ :]|$)|Nvidia|uvm_|nvlink", re.IGNORECASE)
_TROUBLE = re.compile(
    r"INFO: task .* is blocked on a|BUG:|Oops[: ]|general protection fault|soft lockup|hard LOCKUP"
    r"|rcu:? .*(?:stall|self-detected)"
    r"|Call Trace:|RIP: |Kernel panic|hung_task|task:\S.* state:[A-Za-z]",
)


def parse_stack(text: str) -> tuple[Frame, ...]:
    """Return the frames of one /proc/PID/task/TID/stack, innermost first, at most 64.

    Takes every form that kernels write: `[<0>] sym+0x1/0x2 [module]`, with an address in place of 0,
    bare symbols, and `? sym` where the unwinder is not sure. An address without a name is kept as a
    frame that is not reliable.
    """
    frames: list[Frame] = []
    for line in text.split("\n"):
        found = _FRAME.fullmatch(line)
        if found is None or found["symbol"] == _END_OF_STACK:
            continue
        symbol = found["symbol"]
        reliable = found["question"] is None and _ADDRESS.fullmatch(symbol) is None
        frames.append(Frame(printable(symbol), found["module"] or "", reliable))
        if len(frames) == MOST_FRAMES:
            break
    return tuple(frames)


def parse_switches(status_text: str) -> tuple[int, int]:
    """Return a task's voluntary and involuntary context switches from its status file; 0 where absent."""
    return (
        _count(status_text, "\nvoluntary_ctxt_switches:"),
        _count(status_text, "\nnonvoluntary_ctxt_switches:"),
    )


def _count(text: str, key: str) -> int:
    found = text.rfind(key)  # from the end: these are the last lines
    words = text[found + len(key) : found + len(key) + 24].split() if found >= 0 else []
    return int(words[0]) if words and words[0].isascii() and words[0].isdigit() else 0


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of /dev/kmsg (Documentation/ABI/testing/dev-kmsg): `stamp_seconds` since boot.

    `from_kernel` is false for what a program wrote there (facility not 0): it proves nothing.
    """

    sequence: int
    stamp_seconds: float
    level: int
    from_kernel: bool
    text: str


def parse_record(record: str) -> LogRecord | None:
    """Return one record's head and text, without the dictionary lines that follow it; None for garbage."""
    found = _RECORD.match(record)
    if found is None:
        return None
    priority = int(found["prio"])
    text = _ESCAPED.sub(lambda one: chr(int(one[1], 16)), found["text"])
    return LogRecord(
        sequence=int(found["seq"]),
        stamp_seconds=int(found["stamp"]) / 1e6,
        level=priority & 7,
        from_kernel=priority >> 3 == 0,
        text=printable(text),
    )


@dataclass(frozen=True, slots=True)
class HungTask:
    """What the kernel's hung task watch says: this task sleeps uninterruptibly for that long."""

    comm: str
    pid: int
    seconds: int


def parse_hung_task(text: str) -> HungTask | None:
    """Return the task that a line `INFO: task COMM:PID blocked for more than N seconds` names.

    Read from the right (kernel/hung_task.c): a comm may hold colons, brackets and spaces, and may
    itself read like such a line.
    """
    found = _HUNG.fullmatch(text[text.find("INFO: task ") :] if "INFO: task " in text else "")
    if found is None:
        return None
    return HungTask(printable(found["comm"]), int(found["pid"]), int(found["seconds"]))


def topic_of(text: str) -> str:
    """Return what a kernel log line is about: `hung_task`, `nvidia`, `trouble`, or "" for other things."""
    if parse_hung_task(text) is not None:
        return "hung_task"
    if _DRIVER.search(text) is not None:
        return "nvidia"
    return "trouble" if _TROUBLE.search(text) is not None else ""
