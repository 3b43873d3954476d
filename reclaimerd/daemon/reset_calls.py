"""The calls about a reset: what the gate says now, and an operator's order for one.

Both look at the whole host first, which takes its time. Neither waits without a bound for anything but the
order's own end.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.asking import reset_order
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.http_server import Answer, Body, Call, refusal
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.rows import reason_row
from reclaimerd.daemon.service import Service
from reclaimerd.daemon.telling import result_row
from reclaimerd.errors import ExitCode, RecordError
from reclaimerd.judge.gates import explain
from reclaimerd.judge.reset_plan import ResetAnswer
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Stage

RESET_LOOK_SECONDS = 20.0
"""A whole look with what a reset needs: `answer_within` once for each question, and a margin."""
_LOOKS = 3
"""The next pass may take the place of the look that was asked for before we read it."""

Followed = Callable[[list[Ticket], Service], AsyncGenerator[Body, None]]


async def explain_call(service: Service, call: Call) -> Answer:
    """Return the gate's whole answer for one GPU, as for an operator who asks now."""
    gpu = GpuUuid(call.query.get("gpu", ""))
    missing = _unknown_gpu(service, gpu)
    if missing is not None:
        return missing
    checked = await _check(service, gpu, force=call.query.get("force") == "1")
    return _no_look() if checked is None else Answer(200, checked.body)


async def reset_call(service: Service, call: Call, caller: Caller, followed: Followed) -> Answer:
    """Check the gate, put the answer on record, and reset the GPU where it permits and this is no dry run."""
    order, gpu = reset_order(call.body, caller.actor)
    missing = _unknown_gpu(service, gpu)
    if missing is not None:
        return missing
    checked = await _check(service, gpu, force=order.force)
    if checked is None:
        return _no_look()
    return Answer(200, {}, lines=_ordered(service, order, checked, followed))


def _unknown_gpu(service: Service, gpu: GpuUuid) -> Answer | None:
    snapshot = service.cycle.state.snapshot
    if snapshot is None or snapshot.gpu(gpu) is not None:
        return None
    return refusal(404, f"there is no GPU {gpu!r}", "see reclaimctl status", ExitCode.NO_TARGET)


@dataclass(frozen=True, slots=True)
class _Checked:
    """The gate's answer, and why the vendor's tool can't be run here ("" when it can)."""

    gpu: GpuUuid
    told: ResetAnswer
    tool_fault: str

    @property
    def body(self) -> dict[str, object]:
        """Return it as people and programs read it."""
        told = self.told
        return {
            "gpu": self.gpu,
            "gpus": list(told.gpus),
            "permitted": told.permitted,
            "reasons": [reason_row(reason) for reason in told.reasons],
            "steps": list(told.steps),
            "runnable": {
                "ok": not self.tool_fault,
                "text": self.tool_fault or "the vendor's tool can be run",
            },
        }


def _no_look() -> Answer:
    text = f"no fresh look came within {RESET_LOOK_SECONDS:g} s"
    return refusal(409, text, "see reclaimctl status", ExitCode.REFUSED)


async def _check(service: Service, gpu: GpuUuid, *, force: bool) -> _Checked | None:
    """Return the gate's answer after a fresh, whole look; None when none came in time."""
    for _ in range(_LOOKS):
        if not await service.look(full_scan=True, reset=True, seconds=RESET_LOOK_SECONDS):
            return None
        context = service.cycle.context()
        facts = None if context is None else context.snapshot.reset_facts
        if context is not None and facts is not None:
            return _Checked(gpu, explain(gpu, context, force=force), facts.tool_fault)
    return None


async def _ordered(
    service: Service, order: Order, checked: _Checked, followed: Followed
) -> AsyncGenerator[Body, None]:
    yield {"event": "checked", **checked.body}
    texts = [reason.text for reason in checked.told.reasons]
    texts += [checked.tool_fault] if checked.tool_fault else []
    if texts:
        text = "; ".join(texts)
        record = entries.of_host(RecordKind.REFUSED, f"reset of {checked.gpu} refused: {text}", order.actor)
        record = replace(record, action=Stage.RESET.value, refusals=checked.told.reasons)
        unwritten = await _unwritten(service, record)
        yield _result(ExitCode.REFUSED, f"refused: {text}{unwritten}", checked)
        return
    if order.dry_run or service.cycle.joints.dry_run:
        text = f"dry run: {', '.join(checked.told.gpus)} would be reset now"
        unwritten = await _unwritten(service, entries.of_host(RecordKind.PLANNED, text, order.actor))
        yield _result(ExitCode.REFUSED if unwritten else ExitCode.OK, f"{text}{unwritten}", checked)
        return
    ticket = Ticket(order)
    async with aclosing(followed([ticket], service)) as lines:
        async for line in lines:
            if line.get("event") != "result":
                yield line
    yield {**_result(ticket.exit_code or ExitCode.OK, ticket.text, checked), **_of_ticket(ticket)}


async def _unwritten(service: Service, record: AuditEntry) -> str:
    """Put an answer on record; return what to add to it where that can't be, or ""."""
    try:
        await service.cycle.write(None, (record,))
    except RecordError as error:
        return f"; and nothing can be put on record: {error}"
    return ""


def _of_ticket(ticket: Ticket) -> dict[str, object]:
    code = ExitCode.INTERNAL if ticket.exit_code is None else ticket.exit_code
    return {**result_row(ticket), "exit_code": int(code)}


def _result(code: ExitCode, text: str, checked: _Checked) -> dict[str, object]:
    body = checked.body
    reasons = body["reasons"]
    return {
        "event": "result",
        "exit_code": int(code),
        "text": text,
        "gpu": checked.gpu,
        "answer": body,
        "reasons": reasons,
    }
