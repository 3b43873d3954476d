"""Small readings of a pass's answers: who is listed, who is gone, what a part of an answer holds."""

from collections.abc import Mapping
from dataclasses import replace

from reclaimerd.model.identity import FileIdentity, ProcessRef
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessLook
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import GpuReading, HostGpus
from reclaimerd.observe.answers import Answered, Failed
from reclaimerd.observe.proc_files import read_whole


def read_children(pid: int) -> tuple[int, ...]:
    """Return the children of a process's leader (proc(5), task/TID/children); none when it is gone."""
    try:
        text = read_whole(b"/proc/%d/task/%d/children" % (pid, pid))
    except OSError:
        return ()
    return tuple(int(word) for word in text.split())


def version_of(host: HostGpus | None) -> Reading[str]:
    """Return the driver's version as it was read last."""
    return Absent("never read") if host is None else Known(host.driver_version)


def listed_pids(gpus: tuple[GpuReading, ...]) -> set[int]:
    """Return every pid that NVML lists on any GPU."""
    return {row.pid for gpu in gpus if isinstance(gpu.processes, Known) for row in gpu.processes.value}


def exited_in(
    watched: set[ProcessRef], looks: Mapping[int, ProcessLook], gone: frozenset[int]
) -> set[ProcessRef]:
    """Return the watched processes that this pass's looks show to be gone: absent, replaced, or all dead."""
    found = set()
    for ref in watched:
        seen = looks.get(ref.pid)
        if ref.pid in gone or (seen is not None and (seen.reading.ref != ref or seen.reading.is_released)):
            found.add(ref)
    return found


NOT_TOLD = "the procfs worker was not told which devices to look for"
NOT_ASKED = Failed("failed", NOT_TOLD)


def without_nodes(looks: Mapping[int, ProcessLook]) -> dict[int, ProcessLook]:
    """Return the looks of a worker that knew no devices: what it found of them is unreadable, never none."""
    return {pid: replace(one, nodes=Unreadable(NOT_TOLD)) for pid, one in looks.items()}


def stacks_wanted(look: Look, looks: Mapping[int, ProcessLook], gone: frozenset[int]) -> tuple[int, ...]:
    """Return whose kernel stacks a look is to have: whoever was asked about, and who is in the kernel.

    The latter for a reset alone: those who leave, or wait in D, on whatever GPU. Who is gone has none; the
    first such question costs the reader its modules, which no proof of an end should wait for.
    """
    inside = (pid for pid, one in looks.items() if look.reset and _is_in_kernel(one))
    wanted = dict.fromkeys((*look.kernel, *inside))
    return tuple(pid for pid in wanted if pid not in gone and not _is_released(looks.get(pid)))


def _is_released(look: ProcessLook | None) -> bool:
    return look is not None and look.reading.is_released


def _is_in_kernel(look: ProcessLook) -> bool:
    return look.reading.is_leaving or any(task.state == "D" for task in look.reading.tasks)


def last_scan(answer: Answered) -> object:
    """Return the scan of an answer: its last part, after the marks of progress."""
    last = answer.parts[-1]
    return last["scan"] if isinstance(last, dict) else last


def files_of(part: object) -> Mapping[FileIdentity, str]:
    """Return the host's program files by identity."""
    rows = part["files"] if isinstance(part, dict) else []
    return {FileIdentity(device, inode): path for path, device, inode in rows}
