"""The parent's end of the kernel reader: ask a procfs worker, and get looks, never an exception.

It knows the worker's answers and decides nothing. A process that makes the reader hang costs 200 ms
and a new worker; the others are looked at all the same.
"""

from collections.abc import Sequence
from typing import Protocol

from reclaimerd.host.wire import Decoder
from reclaimerd.model.kernel import KernelLook
from reclaimerd.observe.answers import Answer, Answered, Gone, Silent, UnreadableProcess
from reclaimerd.observe.kernel_log import KernelLog
from reclaimerd.observe.kernel_scan import KernelScan

KernelAnswer = KernelLook | Gone | UnreadableProcess
MOST_KIN = 64
"""Members of one PID namespace that are looked at for the one its init waits for."""
_MOST_PIDS = 32
"""Pids of one request: with 256 tasks each the answer must stay below the probe's limit."""

_LOOK: Decoder[KernelLook] = Decoder(KernelLook)
_SCAN: Decoder[KernelScan] = Decoder(KernelScan)
_LOG: Decoder[KernelLog] = Decoder(KernelLog)


class Asking(Protocol):
    """A procfs probe, as far as it is needed here."""

    async def ask(
        self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the answer to one question."""
        ...


async def ask_kernel_looks(
    probe: Asking, pids: Sequence[int], *, answer_within: float | None = None
) -> dict[int, KernelAnswer]:
    """Return a kernel look at each process, or why there is none."""
    found: dict[int, KernelAnswer] = {}
    wanted = list(dict.fromkeys(pids))
    for start in range(0, len(wanted), _MOST_PIDS):
        some = wanted[start : start + _MOST_PIDS]
        answer = await probe.ask("kernel", {"pids": some}, answer_within=answer_within)
        told = {one.get("pid"): one for one in answer.parts} if isinstance(answer, Answered) else {}
        why = why_not(answer)
        for pid in some:
            found[pid] = _look_of(told[pid]) if pid in told else UnreadableProcess(why)
    return found


async def ask_with_kin(probe: Asking, pids: Sequence[int]) -> dict[int, KernelLook]:
    """Return looks at these processes, and at those whom the init of a PID namespace may wait for."""
    found = await ask_kernel_looks(probe, pids)
    looks = {pid: look for pid, look in found.items() if isinstance(look, KernelLook)}
    for pid in [pid for pid, look in looks.items() if len(look.ns_pids) > 1 and look.ns_pids[-1] == 1]:
        answer = await probe.ask("descendants", {"pid": pid})
        named = answer.parts[0].get("pids", []) if isinstance(answer, Answered) else []
        kin = await ask_kernel_looks(probe, [one for one in named if one not in looks][:MOST_KIN])
        looks |= {one: look for one, look in kin.items() if isinstance(look, KernelLook)}
    return looks


def _look_of(part: dict[str, object]) -> KernelAnswer:
    match part:
        case {"kernel": dict(look)}:
            try:
                return _LOOK.from_object(look)
            except ValueError as error:
                return UnreadableProcess(str(error))
        case {"gone": True}:
            return Gone()
        case {"unreadable": str(why)}:
            return UnreadableProcess(why)
        case _:
            return UnreadableProcess("the worker's answer could not be understood")


async def ask_kernel_scan(
    probe: Asking, *, seconds: float, devices: Sequence[tuple[int, int]] = ()
) -> KernelScan | str:
    """Return the search of the whole host, or why there is none; takes at most 5 s more than `seconds`.

    `devices` count as a driver's besides the real ones (a simulated host's).
    """
    args: dict[str, object] = {"seconds": seconds, "devices": [list(pair) for pair in devices]}
    answer = await probe.ask("kernel_scan", args, answer_within=seconds + 5.0)
    match answer:
        case Answered(parts=({"kernel_scan": scan}, *_)):
            try:
                return _SCAN.from_object(scan)
            except ValueError as error:
                return str(error)
        case _:
            return why_not(answer)


async def ask_kernel_log(probe: Asking) -> KernelLog:
    """Return the kernel's newest lines that matter, or in `missing` why there are none."""
    answer = await probe.ask("kernel_log", {})
    match answer:
        case Answered(parts=({"kernel_log": log}, *_)):
            try:
                return _LOG.from_object(log)
            except ValueError as error:
                return KernelLog((), str(error))
        case _:
            return KernelLog((), why_not(answer))


def why_not(answer: Answer) -> str:
    """Return why an answer is none, in words."""
    match answer:
        case Answered():
            return "the worker left it out"
        case Silent(why=why):
            return why
        case _:
            return answer.message
