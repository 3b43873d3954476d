"""Pure parser of the driver's fault lines (Xid) in the kernel log.

Which GPU and which code it is comes from the head of the line alone, which the driver writes before
anything that a process chose. A process's name may hold commas, brackets and this very line's words:
what follows the head is text for people, and the pid in it a hint. It reads nothing and never raises.
"""

import re

from reclaimerd.host.kernel_text import LogRecord
from reclaimerd.model.fault import XidLine

FALLEN_OFF_THE_BUS = 79
"""The code that the driver gives to a GPU that does not answer on its bus any more."""
_MOST_CHARACTERS = 512
_ADDRESS = r"(?P<domain>[0-9a-fA-F]{4,8}):(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.[0-7])?"
# The head as the driver writes it (open-gpu-kernel-modules, kernel/gpu/rc/kernel_rc.c).
_XID = re.compile(
    rf"NVRM: Xid \(PCI:{_ADDRESS}"
    r"(?: GPU-I:(?P<gpu_instance>[0-9]{1,6})(?: GPU-CI:(?P<compute_instance>[0-9]{1,6}))?)?"
    r"\): (?P<code>[0-9]{1,5})(?![0-9])(?:, )?",
)
_PID = re.compile(r"pid='?(?P<pid>[0-9]{1,10})'?(?![0-9])")
# Two lines that speak of the same fault and have no code; neither of them holds a process's name.
_FALLEN = re.compile(rf"NVRM: GPU (?:at PCI:)?{_ADDRESS}: GPU has fallen off the bus")
_NO_ANSWER = re.compile(
    rf"NVRM: The NVIDIA GPU {_ADDRESS}(?![0-9a-fA-F]).{{0,200}}?fallen off the bus", re.DOTALL
)


def parse_xid(record: LogRecord) -> XidLine | None:
    """Return the Xid that one record of the kernel log tells of, or None for any other line.

    Only the kernel's own records count (a program can write any text into the log, but not as the
    kernel), and only where the line begins with the driver's head. A GPU that fell off the bus
    without an Xid of its own has code 79.
    """
    if not record.from_kernel:
        return None
    found = _XID.match(record.text)
    if found is not None:
        return _line(record, found, int(found["code"]), record.text[found.end() :])
    lost = _FALLEN.match(record.text) or _NO_ANSWER.match(record.text)
    return (
        None if lost is None else _line(record, lost, FALLEN_OFF_THE_BUS, record.text.removeprefix("NVRM: "))
    )


def _line(record: LogRecord, head: re.Match[str], code: int, text: str) -> XidLine:
    parts = head.groupdict()
    pid = _PID.match(text)
    return XidLine(
        seq=record.sequence,
        at=record.stamp_seconds,
        pci=f"{int(head['domain'], 16):04x}:{head['bus']}:{head['device']}.0".lower(),
        code=code,
        text=text[:_MOST_CHARACTERS],
        gpu_instance=_number(parts.get("gpu_instance")),
        compute_instance=_number(parts.get("compute_instance")),
        pid_hint=None if pid is None else int(pid["pid"]),
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
