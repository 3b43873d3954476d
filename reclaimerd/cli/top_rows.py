"""What `top` knows: the daemon's answers as rows, and what was seen of the daemon itself.

Pure but for names of users, which are looked up once, where the answers come in. A field that an
older or newer daemon leaves out is unknown, never a traceback.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import Block, age_text, size_text, user_text
from reclaimerd.errors import ReclaimerdError

NOT_READ = "-"


@dataclass(frozen=True, slots=True)
class Held:
    """One process on one GPU; None is what could not be read, never 0."""

    ref: str
    pid: int | None
    user: str
    gpu: int | None
    gpu_uuid: str
    used_bytes: float | None
    sm_percent: float | None
    age_seconds: float | None
    state: str
    verdict: str
    workload: str
    command: str
    why: str

    @property
    def key(self) -> str:
        """Return what tells this row from every other, also after the next look."""
        return f"{self.ref} {self.gpu_uuid}"

    def cells(self) -> tuple[str, ...]:
        """Return the row's cells, in the order of the table's columns."""
        return (
            NOT_READ if self.pid is None else str(self.pid),
            self.user,
            NOT_READ if self.gpu is None else str(self.gpu),
            size_text(self.used_bytes),
            NOT_READ if self.sm_percent is None else f"{self.sm_percent:.0f}",
            age_text(self.age_seconds),
            self.state,
            self.verdict,
            self.workload or NOT_READ,
            self.command,
            self.why,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One pair of answers: `status` and `ps`, with the holders as rows."""

    status: Json
    ps: Json
    rows: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was answered about one process: blocks as `inspect` prints them, or why there are none."""

    ref: str
    blocks: tuple[Block, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """All that came of the daemon so far; instants are monotonic seconds.

    `asked_at`: since when an answer is waited for. `over`: an error after which no other answer comes.
    """

    figures: Figures | None = None
    answered_at: float | None = None
    asked_at: float | None = None
    trouble: str = ""
    inspected: Inspected | None = None
    over: ReclaimerdError | None = None


def figures_of(status: Json, ps: Json) -> Figures:
    """Return two answers with the holders as rows."""
    rows = [row for row in _list(ps.get("rows")) if isinstance(row, Mapping)]
    users = {uid: user_text(uid) for uid in {row.get("uid") for row in rows if _is_number(row.get("uid"))}}
    return Figures(status, ps, tuple(_held(row, users) for row in rows))


def _held(row: Mapping[str, object], users: Mapping[object, str]) -> Held:
    pid, gpu, uid = row.get("pid"), row.get("gpu_index"), row.get("uid")
    notes = [str(row["note"])] if row.get("note") else []
    why = "; ".join([*([str(row["verdict_text"])] if row.get("verdict_text") else []), *notes])
    return Held(
        ref=str(row.get("ref") or pid),
        pid=pid if isinstance(pid, int) else None,
        user=users.get(uid, "unknown") if _is_number(uid) else "unknown",
        gpu=gpu if isinstance(gpu, int) else None,
        gpu_uuid=str(row.get("gpu")),
        used_bytes=_number(row.get("used_bytes")),
        sm_percent=_number(row.get("sm_percent")),
        age_seconds=_number(row.get("age_seconds")),
        state=str(row.get("state") or "unknown"),
        verdict=str(row.get("verdict") or "unknown"),
        workload=str(row.get("workload") or ""),
        command=str(row.get("command") or row.get("comm") or ""),
        why=why,
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
