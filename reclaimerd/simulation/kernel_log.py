"""DIR/kmsg: Xid lines of the simulated driver, one record a line as /dev/kmsg gives them.

The kernel's own log can't be written as the kernel; so whoever wants a simulated Xid reads this file.
"""

import fcntl
import os
import time
from pathlib import Path

from reclaimerd.host.kernel_text import parse_record
from reclaimerd.host.xid_text import parse_xid
from reclaimerd.model.fault import KernelNews

KERNEL_LOG = "kmsg"
ERROR_OF_THE_KERNEL = 3
"""Facility 0, level 3 (printk's KERN_ERR), as the driver prints an Xid."""


def write_xid(directory: Path, pci: str, code: int, text: str = "pid='<unknown>', name=<unknown>") -> int:
    """Append one Xid of a GPU (`0000:3b:00.0`) and return its sequence number."""
    address = pci.lower().rpartition(".")[0]
    path = directory / KERNEL_LOG
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        seq = path.read_bytes().count(b"\n")
        stamp_us = time.monotonic_ns() // 1000
        line = f"{ERROR_OF_THE_KERNEL},{seq},{stamp_us},-;NVRM: Xid (PCI:{address}): {code}, {text}\n"
        os.write(descriptor, line.encode("ascii"))
    finally:
        os.close(descriptor)
    return seq


class SimulatedKernelLog:
    """The simulated driver's lines from our place on; a first start begins at the end of what is there."""

    def __init__(self, directory: Path, after: int | None) -> None:
        self._path = directory / KERNEL_LOG
        self.fault = ""
        lines = self._lines()
        self._read = len(lines) if after is None else min(after + 1, len(lines))

    def read(self) -> KernelNews:
        """Return the Xids since the last look."""
        lines = self._lines()
        fresh = [parse_record(line) for line in lines[self._read :]]
        self._read = len(lines)
        xids = (parse_xid(record) for record in fresh if record is not None)
        return KernelNews(tuple(xid for xid in xids if xid is not None), self._read - 1 if lines else None)

    def fileno(self) -> int | None:
        """Return None: a file is not waited for, the next look finds what is new."""
        return None

    def close(self) -> None:
        """Do nothing: the file is opened for each look."""

    def _lines(self) -> list[str]:
        """Return the whole lines that are there."""
        try:
            return self._path.read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            return []
