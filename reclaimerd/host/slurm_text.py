"""Pure parsers of what Slurm's own programs print about this node: its GPUs, its jobs, its settings.

A job's name, comment and paths are its owner's words and stand in the same text as what Slurm says of it,
with line ends if he likes. So one text is asked for one job, a field that shows two values is not known,
and nobody's words can say anything of another job. No text makes a parser raise. Slurm 22.05 prints no JSON.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from reclaimerd.host.oci_text import only_value, parse_job
from reclaimerd.model.allocation import SlurmJob

UNKNOWN_JOB = "Invalid job id specified"
"""What scontrol says of a job that its controller does not have (any more): ESLURM_INVALID_JOB_ID."""
RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
ENDED = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    }
)  # fmt: skip
"""Words of JobState (squeue(1), JOB STATE CODES)."""
_MOST_INDEX = 1024
_GRES_LINE = re.compile(
    r"Gres Name=(?P<name>\S{1,64}) (?:Type=\S{1,256} )?Count=(?P<count>\d{1,9})\b(?P<rest>.*)"
)
_FILE = re.compile(r" File=(\S+)")
_NODE_FILE = re.compile(r"/(?:[^/,\[\]]+/)*nvidia(?P<minor>\d{1,4})")
"""One GPU's device node, its minor in its name (nvidia-modprobe). A MIG device has several files."""
_RECORD = re.compile(r"^JobId=(\d{1,10}) ", re.MULTILINE)
_UID = re.compile(r"UserId=(?:[^\s(]{1,64}\((?P<value>\d{1,10})\)(?!\S))?")
_STATE = re.compile(r"(?<!\S)JobState=(?:(?P<value>[A-Z_+]{1,128})(?!\S))?")
_END = re.compile(r"(?<!\S)EndTime=(?:(?P<value>\d{1,12})(?!\S))?")
_PLACE = re.compile(
    r"^\s+Nodes=(?P<nodes>\S{1,4096}) CPU_IDs=\S* Mem=\S* GRES=(?P<gres>\S{0,4096})\s*$", re.MULTILINE
)
_ELEMENT = re.compile(r"(?:[^,()]|\([^()]*\))+")
_GRES = re.compile(r"(?P<name>[^:,()]+)(?P<kind>(?::[^:,()]+)*)(?:\((?P<told>[^()]*)\))?")
_SPAN = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?")
_NODE_GRES = re.compile(r"(?<!\S)Gres=(?:(?P<value>\S{1,4096})(?!\S))?")
_NODE_USED = re.compile(r"(?<!\S)GresUsed=(?:(?P<value>\S{1,4096})(?!\S))?")
_NODE_STATE = re.compile(r"(?<!\S)State=(?:(?P<value>\S{1,256})(?!\S))?")
_NODE_START = re.compile(r"(?<!\S)SlurmdStartTime=(?:(?P<value>\d{1,12})(?!\S))?")
_CONFIG = re.compile(
    r"^(KillWait|UnkillableStepTimeout)\s+= (\d{1,9}) sec$|^(SLURM_CONF)\s+= (/\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class GresMap:
    """Which of Slurm's GRES indices is which GPU.

    `count` is how many indices there are; one without a plain device node is not among `devices` (index,
    minor). `sharers` are other resources that stand on the driver's nodes: `mps`, `shard`.
    """

    count: int
    devices: tuple[tuple[int, int], ...] = ()
    sharers: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """What the controller says of one node: GPUs, the words of its state, when its slurmd started.

    `used` are the GRES indices of GPUs that jobs have, None where it is not told.
    """

    gpus: int | None
    used: frozenset[int] | None
    states: frozenset[str]
    started_at: float | None


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How long an ended job's processes may take, and the file that Slurm's programs read."""

    kill_wait_seconds: float
    unkillable_seconds: float
    file: str


def parse_gres(text: str) -> GresMap:
    """Return the map that `slurmd -G` prints.

    An index is the place in this list. The `Index=` in it is none: Slurm takes that from the end of the
    file's name (gres.c, _log_gres_slurmd_conf), and gres.conf may have files in any order.
    """
    devices: list[tuple[int, int]] = []
    sharers: set[str] = set()
    count = 0
    why = ""
    for line in map(_GRES_LINE.search, text.splitlines()):
        if line is None:
            continue
        file = _FILE.search(line["rest"])
        if line["name"] != "gpu":
            sharers |= {line["name"]} if file is not None and "nvidia" in file[1] else set()
            continue
        if int(line["count"]) != 1:
            why = "slurmd -G lists several GPUs in one row: which is which can't be told"
        node = None if file is None else _NODE_FILE.fullmatch(file[1])
        if node is not None:
            devices.append((count, int(node["minor"])))
        count += int(line["count"])
    if not count:
        why = "slurmd -G lists no GPU"
    return GresMap(count, () if why else tuple(devices), frozenset(sharers), why)


def parse_job_here(text: str, job_id: str, node: str, sharers: Collection[str]) -> SlurmJob:
    """Return a job from `scontrol show job -d ID`, with its GPUs on one node.

    Times must be seconds (SLURM_TIME_FORMAT=%s). What is not plain stays None, and its state "".
    """
    record = _record(text, job_id)
    state = None if record is None else only_value(_STATE, record)
    if record is None or state is None:
        return SlurmJob(job_id, "")
    words = frozenset(state.split("+"))
    owner = parse_job(record, job_id)
    uid = only_value(_UID, record)
    ended = only_value(_END, record) if words & ENDED else None
    runs = bool(words & RUNNING) and not words & ENDED
    return SlurmJob(
        job_id,
        state,
        owner.user or "",
        owner.account or "",
        owner.partition or "",
        owner.hosts,
        _indices_on(record, node, sharers) if runs and len(_RECORD.findall(text)) == 1 else None,
        None if ended is None else float(ended),
        None if uid is None else int(uid),
    )


def parse_node(text: str, node: str) -> SlurmNode | None:
    """Return what `scontrol show node NAME -d` says; None when it is about no such node.

    Times must be seconds.
    """
    if not text.startswith(f"NodeName={node} "):
        return None
    gres, used, state, start = (
        only_value(field, text) for field in (_NODE_GRES, _NODE_USED, _NODE_STATE, _NODE_START)
    )
    return SlurmNode(
        None if gres is None else _gpu_count(gres),
        None if used is None else _used_indices(used),
        frozenset(re.findall(r"[A-Z_]+|\*", state or "")),
        None if start is None else float(start),
    )


def parse_config(text: str) -> SlurmConfig | None:
    """Return what `scontrol show config` says of deadlines; None when it does not say all of it."""
    found = {row[0] or row[2]: row[1] or row[3] for row in _CONFIG.findall(text)}
    kill, unkillable = found.get("KillWait"), found.get("UnkillableStepTimeout")
    if kill is None or unkillable is None:
        return None
    return SlurmConfig(float(kill), float(unkillable), found.get("SLURM_CONF", ""))


def names_node(expression: str, node: str) -> bool:
    """Tell whether a host list of Slurm's (`gpu[01-04,7],login1`) names this node."""
    return any(_names(item, node) for item in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", expression))


def _names(item: str, node: str) -> bool:
    parts = re.split(r"\[([^\[\]]*)\]", item)
    pattern = "".join(r"(\d+)" if odd % 2 else re.escape(part) for odd, part in enumerate(parts))
    found = re.fullmatch(pattern, node)
    if found is None:
        return False
    return all(_in_spans(number, spans) for number, spans in zip(found.groups(), parts[1::2], strict=True))


def _in_spans(number: str, spans: str) -> bool:
    """Tell whether a number, with its leading zeros, is in `01-04,7`."""
    for span in map(_SPAN.fullmatch, spans.split(",")):
        if span is None or len(span["first"]) > len(number):
            continue
        last = span["last"] or span["first"]
        padded = number == str(int(number)).zfill(len(span["first"]))
        if padded and int(span["first"]) <= int(number) <= int(last):
            return True
    return False


def _record(text: str, job_id: str) -> str | None:
    """Return the part of the text about this job (an array's other tasks stand beside it), if it is one."""
    starts = [(found[1], found.start()) for found in _RECORD.finditer(text)]
    mine = [place for place, (job, _) in enumerate(starts) if job == job_id]
    if len(mine) != 1:
        return None
    end = starts[mine[0] + 1][1] if mine[0] + 1 < len(starts) else len(text)
    return text[starts[mine[0]][1] : end]


def _indices_on(record: str, node: str, sharers: Collection[str]) -> tuple[int, ...] | None:
    """Return the GRES indices of a running job on one node; None when they are not plain."""
    if "HetJobId=" in record:  # several jobs that act as one: whose steps run where is not told here
        return None
    told = {row["gres"] for row in _PLACE.finditer(record) if names_node(row["nodes"], node)}
    if len(told) != 1:
        return None
    indices: set[int] = set()
    for element in _elements(told.pop()):
        if element is None or element["name"] in sharers:
            return None
        if element["name"] == "gpu":
            found = _told_indices(element["told"] or "")
            if found is None:
                return None
            indices |= found
    return tuple(sorted(indices))


def _elements(gres: str) -> Iterator[re.Match[str] | None]:
    """Yield the parts of `gpu:a100:2(IDX:0-1),nic:1`; None for one in another form."""
    parts = _ELEMENT.findall(gres)
    yield from map(_GRES.fullmatch, parts)
    if ",".join(parts) != gres:
        yield None


def _told_indices(told: str) -> set[int] | None:
    """Return the numbers of `IDX:0-1,3`, None when they are not told."""
    if not told.startswith("IDX:"):
        return None
    found: set[int] = set()
    for span in map(_SPAN.fullmatch, told.removeprefix("IDX:").split(",")):
        last = None if span is None else int(span["last"] or span["first"])
        if span is None or last is None or last > _MOST_INDEX:
            return None
        found |= set(range(int(span["first"]), last + 1))
    return found or None


def _gpu_count(gres: str) -> int | None:
    """Return how many GPUs `gpu:a100:2(S:0),gpu:1` are, None when it is not plain."""
    count = 0
    for element in _elements("" if gres == "(null)" else gres):
        if element is None:
            return None
        if element["name"] == "gpu":
            one = _count_of(element)
            if one is None:
                return None
            count += one
    return count


def _used_indices(gres: str) -> frozenset[int] | None:
    """Return the indices in `gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A)`, None when they are not plain."""
    used: set[int] = set()
    for element in _elements("" if gres == "(null)" else gres):
        if element is None:
            return None
        if element["name"] == "gpu" and _count_of(element) != 0:
            found = _told_indices(element["told"] or "")
            if found is None:
                return None
            used |= found
    return frozenset(used)


def _count_of(element: re.Match[str]) -> int | None:
    last = element["kind"].rpartition(":")[2]
    return int(last) if last.isdecimal() else None
