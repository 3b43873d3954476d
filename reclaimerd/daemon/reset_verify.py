"""The looks of a reset: once more before it, without the driver right before it, and after it.

They only look, and let go of our own grip on the driver: an NVML client is a holder. Whatever is not
seen to be right refuses, and is not verified.
"""

from dataclasses import dataclass, replace

from reclaimerd.daemon.reset_book import Moved, ResetJoints, RunBook, refused
from reclaimerd.daemon.reset_ledger import SeenLog
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.ports import Look
from reclaimerd.model.reset_run import ResetFact, ResetResult, ResetRun
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind

START_WITHIN_SECONDS = 0.2
"""So soon after the last look ended the tool is started, or we look again."""
_BETWEEN_LOOKS_SECONDS = 0.2
_BETWEEN_VERIFICATIONS_SECONDS = 0.5
_HOLDING = frozenset(
    {ReasonKind.HOLDERS, ReasonKind.PROTECTED, ReasonKind.LOOKS_PROTECTED, ReasonKind.CLIENT_UNIT}
)
_PASSING = _HOLDING | {
    ReasonKind.EXIT_PATH,
    ReasonKind.UNREADABLE,
    ReasonKind.UNDETERMINED,
    ReasonKind.DRIVER_BLOCKED,
    ReasonKind.DEFERRED_CLOSE,
    ReasonKind.KERNEL_CLIENT,
}
"""What a client that was just stopped may show for a moment, while it ends."""


async def whole_look(joints: ResetJoints, *, without_driver: bool = False) -> Snapshot:
    """Return a look at everything a reset needs; without the driver it is asked nothing and not opened."""
    look = Look(full_scan=True, deep=True, reset=True, without_driver=without_driver)
    return await joints.sampler.sample(look)


def holders_of(snapshot: Snapshot, run: ResetRun) -> frozenset[ProcessRef]:
    """Return everyone who holds a GPU of this run."""
    return frozenset(holder.ref for holder in snapshot.holders if holder.gpu in run.gpus)


async def look_again(book: RunBook) -> Moved:
    """Judge the whole gate again, and let go of the driver; whoever is new refuses at once.

    Clients that were just stopped have a bounded time to vanish.
    """
    joints = book.joints
    limit = joints.clock() + joints.policy().reset.unit_seconds
    while True:
        snapshot = await whole_look(joints)
        reasons = joints.gate(snapshot, book.run)
        if not reasons:
            break
        if book.known is None:
            book.known = holders_of(snapshot, book.run)
        if joints.clock() >= limit or not _may_pass(reasons, book.known):
            return refused("", reasons)
        await joints.sleep(_BETWEEN_LOOKS_SECONDS)
    if not await joints.grip.let_go():
        return refused("our own view of the driver can't be closed, and it is a holder")
    run = replace(book.run, tool_at=joints.wall(), kernel_seq=_last_seq(book, snapshot))
    text = (
        "the whole gate permits, and our own view of the driver is closed; "
        "the tool is made ready, and started after a last look"
    )
    return Moved(ResetFact.CLEAR, text, run=run)


@dataclass(frozen=True, slots=True)
class LastLook:
    """A look right before the tool: when it ended, how long it took, and all that refuses."""

    ended_at: float
    took_seconds: float
    reasons: tuple[Reason, ...]


async def look_last(book: RunBook) -> LastLook:
    """Look at everything that can be seen without the driver, and judge it."""
    joints = book.joints
    began_at = joints.clock()
    snapshot = await whole_look(joints, without_driver=True)
    ended_at = joints.clock()
    return LastLook(ended_at, ended_at - began_at, joints.last_gate(snapshot, book.run))


async def verify(book: RunBook) -> Moved:
    """Look until the GPU is seen to be reset and well, within the policy's limit; never take it for granted.

    The run's text, where it has one, is a doubt that no look removes: how the tool ended is not known.
    """
    joints = book.joints
    joints.grip.take_back()
    limit = joints.clock() + joints.policy().reset.verify_seconds
    faults, seen = await _faults(book)
    while faults and joints.clock() < limit:
        await joints.sleep(_BETWEEN_VERIFICATIONS_SECONDS)
        faults, seen = await _faults(book)
    if book.run.text:
        faults = (book.run.text, *faults)
    if faults:
        text = f"not verified: {'; '.join(faults)}"
        return Moved(ResetFact.NOT_VERIFIED, text, ResetResult.NOT_VERIFIED, evidence=faults)
    return Moved(ResetFact.VERIFIED, "the GPU is back and well", ResetResult.VERIFIED, seen=seen)


def _may_pass(reasons: tuple[Reason, ...], known: frozenset[ProcessRef]) -> bool:
    """Tell whether all that refuses may be clients on their way out, and nobody has come."""
    return all(
        reason.kind in _PASSING and (reason.kind not in _HOLDING or known.issuperset(reason.processes))
        for reason in reasons
    )


def _last_seq(book: RunBook, snapshot: Snapshot) -> int | None:
    """Return the newest record of the kernel log that was seen before the reset."""
    if snapshot.kernel_news.last_seq is not None:
        return snapshot.kernel_news.last_seq
    ledger = book.joints.ledger()
    return ledger.kernel_seq if ledger.kernel_boot == book.run.boot_id else None


async def _faults(book: RunBook) -> tuple[tuple[str, ...], SeenLog | None]:
    """Return what is not as it must be, and how far this look had read the kernel's log."""
    try:
        snapshot = await whole_look(book.joints)
    except ReclaimerdError as error:
        return (f"the host could not be looked at: {error}",), None
    seen = SeenLog(snapshot.kernel_news.last_seq, snapshot.taken_at)
    return book.joints.verify(book.run, snapshot), seen
