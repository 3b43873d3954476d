"""Pure parsers of what Slurm's own programs print about drained nodes, and whose a drain is.

A reason is an administrator's text and may hold anything: it is ours only by its beginning and its id.
Times are asked for in seconds (SLURM_TIME_FORMAT=%s). No text makes a parser raise.
"""

import re
from dataclasses import dataclass

from reclaimerd.host.proc_text import is_number

OURS = "reclaimerd: "
"""How every reason of ours begins, on every node of a fleet."""
MARK_FORMAT = "%H|%u|%T|%N|%64E"
"""sinfo(1): when, by whom, state, nodes, and the beginning of the reason: it has the code and the id."""
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")
"""One node, and no list of nodes (`gpu[1-9]`)."""
_OURS = re.compile(rf"{OURS}(?P<code>[a-z_]{{1,64}}) id=(?P<id>[A-Za-z0-9._:-]{{1,128}})(?![^\s])")
_STATE = re.compile(r"^\s+State=(\S{1,256})(?!\S)", re.MULTILINE)
_START = re.compile(r"(?<!\S)SlurmdStartTime=(\d{1,12})(?!\S)")
_REASON = re.compile(r"^\s+Reason=(.{0,4096})$", re.MULTILINE)
_SET = re.compile(r"(?P<reason>.*) \[(?P<by>[^\s\[\]@]{1,64})@(?P<at>\d{1,12}|[^\s\[\]]{1,64})\]")
_WHEN = re.compile(r"[0-9]{1,12}")
_WORD = re.compile(r"[A-Z_]+|\*")
_UNDRAINED_DOWN = frozenset({"down", "down*"})


@dataclass(frozen=True, slots=True)
class SlurmPlace:
    """This host in Slurm: its node's name, and the programs that may be run for it as root.

    `started_at` is when its slurmd started (wall clock), None where that is not known.
    """

    node: str
    scontrol: str
    sinfo: str
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class OurReason:
    """A reason of ours: the drain's code, and the request that it belongs to."""

    code: str
    id: str


@dataclass(frozen=True, slots=True)
class NodeStands:
    """What the controller says of one node: its state's words, its reason, who gave it, and when.

    `at` is in wall-clock seconds of the controller's, `started_at` when the node's slurmd told that it
    started; None where it is not told.
    """

    node: str
    state: str
    words: frozenset[str]
    reason: str = ""
    by: str = ""
    at: float | None = None
    started_at: float | None = None

    @property
    def ours(self) -> OurReason | None:
        """Return whose request of ours the reason is, None for a reason of anybody else's."""
        return parse_ours(self.reason)

    @property
    def drained(self) -> bool:
        """Tell whether the node takes no new jobs until somebody undrains it."""
        return "DRAIN" in self.words


@dataclass(frozen=True, slots=True)
class MarkRow:
    """Nodes that we drained for one request or several, as sinfo folds them (`gpu[01-03]`)."""

    nodes: str
    code: str
    at: float


def parse_ours(reason: str) -> OurReason | None:
    """Return the code and the request in a reason of ours; None for any other text."""
    found = _OURS.match(reason)
    return None if found is None else OurReason(found["code"], found["id"])


def parse_stands(text: str, node: str) -> NodeStands | None:
    """Return what `scontrol show node NAME` says; None when it is about no such node, or has no state."""
    if not text.startswith(f"NodeName={node} "):
        return None
    states = _STATE.findall(text)
    if len(states) != 1:
        return None
    words = frozenset("NOT_RESPONDING" if word == "*" else word for word in _WORD.findall(states[0]))
    starts = _START.findall(text)
    started_at = float(starts[0]) if len(starts) == 1 else None
    told = _REASON.search(text)
    reason = "" if told is None else told[1].rstrip()
    found = _SET.fullmatch(reason)
    if found is None:
        return NodeStands(node, states[0], words, reason, started_at=started_at)
    at = float(found["at"]) if _WHEN.fullmatch(found["at"]) else None
    return NodeStands(node, states[0], words, found["reason"], found["by"], at, started_at)


def parse_marks(text: str) -> tuple[MarkRow, ...] | None:
    """Return the rows of `sinfo -R` in MARK_FORMAT that are drains of ours; None when one can't be read.

    A node that is down and not drained keeps the reason of a drain that was taken back: no mark.
    """
    rows = []
    for line in text.splitlines():
        when, _, rest = line.partition("|")
        _by, _, rest = rest.partition("|")
        state, _, rest = rest.partition("|")
        nodes, _, reason = rest.partition("|")
        if not reason.startswith(OURS) or state in _UNDRAINED_DOWN:
            continue
        found = parse_ours(reason.rstrip())
        if not nodes or _WHEN.fullmatch(when) is None:
            return None
        rows.append(MarkRow(nodes, "" if found is None else found.code, float(when)))
    return tuple(rows)


def parse_total(text: str) -> int | None:
    """Return how many nodes `sinfo -o %D` counts; None when it does not say."""
    words = text.split()
    return sum(map(int, words)) if words and all(map(is_number, words)) else None


def parse_nodes(text: str) -> tuple[str, ...] | None:
    """Return the names that `scontrol show hostnames` or `show aliases` prints; None for anything else."""
    names = tuple(text.split())
    return names if names and all(map(NODE_NAME.fullmatch, names)) else None
