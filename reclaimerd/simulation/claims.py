"""Who holds memory of a simulated GPU: one locked file for each allocation.

A claim is DIR/claims/NAME.json, locked by flock for as long as any process has its descriptor.
So the kernel itself keeps the driver's rules: a forked child keeps its dead parent's claim, a
task stuck in its exit path keeps its claim, and the last close frees it. A claim never changes;
growth is another claim. A claim that leaks stays used after its last close, nobody's, until a reset:
the driver lost count of it.
"""

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from reclaimerd.model.snapshot import ContextKind

CLAIMS = "claims"
LEAK_SUFFIX = ".leak.json"
CLAIM_BYTES = 4096
"""More than a claim has."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One allocation: the owner stays its owner after death, as in the driver's list."""

    gpu: str
    pid: int
    start_ticks: int
    used_bytes: int
    context: ContextKind
    sm_percent: int = 0
    """What its owner uses of the GPU's multiprocessors."""


class OutOfGpuMemoryError(Exception):
    """The allocation does not fit beside the living ones."""


def read_start_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot, or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[19])


def own_claim(gpu: str, used_bytes: int, context: ContextKind) -> Claim:
    """Return a claim of the calling process, under the pid that the host's /proc gives it."""
    pid = int(Path("/proc/self").readlink().name)
    return Claim(gpu, pid, read_start_ticks(pid) or 0, used_bytes, context)


def take_claim(directory: Path, claim: Claim, limit_bytes: int, *, leaks: bool = False) -> int:
    """Allocate: make the claim, lock it, and return its descriptor, to be kept open for life.

    With `leaks` its bytes stay used when the last holder is gone. Raises OutOfGpuMemoryError when all
    claims on the GPU that count would exceed `limit_bytes`.
    """
    folder = directory / CLAIMS
    with _allocation_lock(folder):
        all_claims = (*live_claims(directory), *leaked_claims(directory))
        used_bytes = sum(each.used_bytes for each in all_claims if each.gpu == claim.gpu)
        if used_bytes + claim.used_bytes > limit_bytes:
            raise OutOfGpuMemoryError(
                f"out of memory on {claim.gpu}: {used_bytes} bytes used of {limit_bytes}, "
                f"{claim.used_bytes} asked for",
            )
        name = f"{claim.pid}-{uuid.uuid4().hex}"
        fresh = folder / f".{name}"
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, json.dumps(asdict(claim)).encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # before it has its name: no reader sees it unlocked
        fresh.rename(folder / f"{name}{LEAK_SUFFIX if leaks else '.json'}")
        return descriptor


@contextlib.contextmanager
def _allocation_lock(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def live_claims(directory: Path, known: dict[str, Claim] | None = None) -> tuple[Claim, ...]:
    """Return every claim that somebody still holds; raises ValueError for a broken one.

    `known` are claims by path that were read before, brought up to date here: a claim never changes,
    so only whether it is held is looked at again. Raises FileNotFoundError without the folder: no
    claims known is not "none".
    """
    before = {} if known is None else dict(known)
    held: dict[str, Claim] = {}
    with os.scandir(directory / CLAIMS) as entries:
        for path in sorted(entry.path for entry in entries if not entry.name.startswith(".")):
            text = _text_if_held(path)
            if text is not None:
                held[path] = before.get(path) or _claim_from(text, path)
    if known is not None:
        known.clear()
        known.update(held)
    return tuple(held.values())


def leaked_claims(directory: Path) -> tuple[Claim, ...]:
    """Return the claims that leaked and that nobody holds any more; raises ValueError for a broken one."""
    return tuple(_claim_from(path.read_bytes(), str(path)) for path in _leaked_paths(directory))


def forget_leaks(directory: Path, gpu: str) -> None:
    """Free what leaked on one GPU: a reset does."""
    for path in _leaked_paths(directory):
        if _claim_from(path.read_bytes(), str(path)).gpu == gpu:
            path.unlink()


def _leaked_paths(directory: Path) -> list[Path]:
    paths = sorted((directory / CLAIMS).glob(f"*{LEAK_SUFFIX}"))
    return [path for path in paths if _text_if_held(str(path)) is None]


def _text_if_held(path: str) -> bytes | None:
    """Return the file's text when its lock is held, else None."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        # Shared, so that two readers never take each other for an owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, CLAIM_BYTES)
    finally:
        os.close(descriptor)
    return None


def _claim_from(text: bytes, path: str) -> Claim:
    try:
        entries = json.loads(text)
        return Claim(
            gpu=str(entries["gpu"]),
            pid=int(entries["pid"]),
            start_ticks=int(entries["start_ticks"]),
            used_bytes=int(entries["used_bytes"]),
            context=ContextKind(entries["context"]),
            sm_percent=int(entries.get("sm_percent", 0)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: a broken claim: {error}") from error
