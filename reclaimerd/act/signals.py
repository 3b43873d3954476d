"""Send one signal to known processes, each through a pidfd that was opened before the last look.

It may not decide, wait for a death, or send again. A process group can't be expressed here: kill(2)
reads pid 0 and -1 as "everyone", and no call in this file takes such a number.
"""

import asyncio
import errno
import os
import select
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import assert_never

from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import OutcomeKind, TargetOutcome
from reclaimerd.model.ports import LastLook, LookAgainPort, NoLongerRight, StillRight
from reclaimerd.model.step import Step

SIDE_BY_SIDE = 32
"""Targets looked at together: their looks stay fresh, and their descriptors stay few."""

_NO_PROCESS = frozenset({errno.ESRCH, errno.EINVAL, errno.ENOENT})
"""What pidfd_open(2) says of a pid that is at most a thread's, or of a group whose leader was reaped."""


@dataclass(frozen=True, slots=True)
class SignalOrder:
    """Which signal, and how far to go.

    `resume`: SIGCONT follows the signal through the same pidfd, as systemd does after its SIGTERM,
    since SIGTERM only pends on a stopped process. `dry_run`: everything but the last call.
    """

    number: signal.Signals
    resume: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class _Sight:
    """One target whose pidfd is open; closing it is `send`'s business."""

    ref: ProcessRef
    pidfd: int


async def send(
    step: Step,
    refs: Sequence[ProcessRef],
    order: SignalOrder,
    *,
    look_again: LookAgainPort,
    boot_id: str,
) -> tuple[TargetOutcome, ...]:
    """Signal each process that is still the same one, in the given order, and return what came of each.

    For each: pidfd_open, then `look_again`, then pidfd_send_signal. Looks go side by side, signals
    one after another. Raises ValueError, and sends nothing, when a ref names a process group, PID 1
    or ourselves; every other failure is that target's outcome.
    """
    for ref in refs:
        _require_one_process(ref)
    outcomes: list[TargetOutcome] = []
    for chunk in _chunks(refs):
        sights = [_open(ref, boot_id) for ref in chunk]
        try:
            looks = await asyncio.gather(*(_last_look(step, sight, look_again) for sight in sights))
            outcomes += [_finish(sight, look, order) for sight, look in zip(sights, looks, strict=True)]
        finally:
            _close(sights)
    return tuple(outcomes)


def _require_one_process(ref: ProcessRef) -> None:
    """Raise ValueError for what kill(2) would read as a group, for init and for ourselves."""
    if ref.pid <= 1:
        raise ValueError(f"pid {ref.pid} is no process that may be signalled: a group, everyone, or init")
    if ref.pid == os.getpid():
        raise ValueError(f"pid {ref.pid} is our own")


def _chunks(refs: Sequence[ProcessRef]) -> Iterator[tuple[ProcessRef, ...]]:
    """Return the refs in order, at most SIDE_BY_SIDE together, each only once."""
    rest = iter(dict.fromkeys(refs))
    while chunk := tuple(islice(rest, SIDE_BY_SIDE)):
        yield chunk


def _open(ref: ProcessRef, boot_id: str) -> _Sight | TargetOutcome:
    """Open the pidfd of one target, or return why there is nothing to signal."""
    if ref.boot_id != boot_id:
        return TargetOutcome(ref, OutcomeKind.IDENTITY_CHANGED, "seen in another boot of this machine")
    try:
        return _Sight(ref, os.pidfd_open(ref.pid))
    except OSError as error:
        if error.errno in _NO_PROCESS:
            return TargetOutcome(ref, OutcomeKind.ALREADY_GONE, "no such process")
        text = f"pidfd_open failed ({error.strerror}); nothing was sent"
        return TargetOutcome(ref, OutcomeKind.FAILED, text)


async def _last_look(
    step: Step,
    sight: _Sight | TargetOutcome,
    look_again: LookAgainPort,
) -> LastLook | TargetOutcome:
    """Look at an opened target once more; a look that breaks off is a no, and hides no other target."""
    if isinstance(sight, TargetOutcome):
        return sight
    try:
        return await look_again(step, sight.ref)
    except Exception as error:  # noqa: BLE001 - a bug in the look must not lose what was sent to others
        text = f"the last look broke off ({error!r}); nothing was sent"
        return TargetOutcome(sight.ref, OutcomeKind.FAILED, text)


def _finish(
    sight: _Sight | TargetOutcome,
    look: LastLook | TargetOutcome,
    order: SignalOrder,
) -> TargetOutcome:
    """Signal one target if the last look allows it, and return what came of it."""
    if isinstance(sight, TargetOutcome):
        return sight
    match look:
        case TargetOutcome():
            return look
        case NoLongerRight(why=why, changed=True):
            return TargetOutcome(sight.ref, OutcomeKind.IDENTITY_CHANGED, why)
        case NoLongerRight(why=why):
            return TargetOutcome(sight.ref, OutcomeKind.WITHHELD, why)
        case StillRight():
            return _signal(sight, order)
        case _:
            assert_never(look)


def _signal(sight: _Sight, order: SignalOrder) -> TargetOutcome:
    """Make the last call for one target, unless it is dead already or this is a dry run."""
    if _is_dead(sight.pidfd):
        # To a dead process that nobody reaped a signal "succeeds": it must not read as sent.
        return TargetOutcome(sight.ref, OutcomeKind.ALREADY_GONE, "dead before the signal")
    if order.dry_run:
        return TargetOutcome(sight.ref, OutcomeKind.DRY_RUN, f"would send {_text(order)}")
    try:
        signal.pidfd_send_signal(sight.pidfd, order.number)
    except ProcessLookupError:
        return TargetOutcome(sight.ref, OutcomeKind.ALREADY_GONE, "gone before the signal")
    except PermissionError:
        return TargetOutcome(sight.ref, OutcomeKind.NOT_PERMITTED, _not_permitted(sight.ref, order))
    except OSError as error:
        text = f"pidfd_send_signal failed ({error.strerror}); nothing was sent"
        return TargetOutcome(sight.ref, OutcomeKind.FAILED, text)
    return TargetOutcome(sight.ref, OutcomeKind.SENT, _resumed(sight.pidfd, order))


def _resumed(pidfd: int, order: SignalOrder) -> str:
    """Send the SIGCONT that follows, if ordered, and return the words for what was sent."""
    if not order.resume:
        return _text(order)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGCONT)
    except ProcessLookupError:
        return order.number.name
    except OSError as error:
        return f"{order.number.name}; the SIGCONT after it failed ({error.strerror})"
    return _text(order)


def _text(order: SignalOrder) -> str:
    """Return the names of the ordered signals."""
    return f"{order.number.name} and SIGCONT" if order.resume else order.number.name


def _not_permitted(ref: ProcessRef, order: SignalOrder) -> str:
    """Return the sentence for EPERM, with its mend."""
    return (
        f"the kernel does not let uid {os.geteuid()} send {order.number.name} to {ref}; "
        "run as root with CAP_KILL, in the host's user namespace"
    )


def _is_dead(pidfd: int) -> bool:
    """Tell whether the last thread is gone: only then is a pidfd readable (pidfd_open(2))."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _close(sights: Sequence[_Sight | TargetOutcome]) -> None:
    """Close every pidfd that was opened."""
    for sight in sights:
        if isinstance(sight, _Sight):
            os.close(sight.pidfd)
