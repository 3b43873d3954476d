"""Small readings of a pass's answers: who is listed, who is gone, what a part of an answer holds."""

from collections.abc import Mapping

from reclaimerd.model.identity import FileIdentity, ProcessRef
from reclaimerd.model.process import ProcessLook
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import GpuReading
from reclaimerd.observe.answers import Answered
from reclaimerd.observe.proc_files import read_whole


def read_children(pid: int) -> tuple[int, ...]:
    """Return the children of a process's leader (proc(5), task/TID/children); none when it is gone."""
    try:
        text = read_whole(b"/proc/%d/task/%d/children" % (pid, pid))
    except OSError:
        return ()
    return tuple(int(word) for word in text.split())


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


def last_scan(answer: Answered) -> object:
    """Return the scan of an answer: its last part, after the marks of progress."""
    last = answer.parts[-1]
    return last["scan"] if isinstance(last, dict) else last


def files_of(part: object) -> Mapping[FileIdentity, str]:
    """Return the host's program files by identity."""
    rows = part["files"] if isinstance(part, dict) else []
    return {FileIdentity(device, inode): path for path, device, inode in rows}
