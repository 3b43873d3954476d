"""Denied calls: counted each, on record once for a uid and hour, so that a flood of them costs nothing."""

from dataclasses import dataclass, field, replace

from reclaimerd.daemon import entries
from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.http_server import Answer, Call, refusal
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode, NotAllowedError, ReclaimerdError
from reclaimerd.model.audit_record import RecordKind

_EVERY_SECONDS = 3600.0
_MOST_UIDS = 256
"""Uids whose denials are told apart in one hour: one user namespace can bring 65536 of them."""


class NeedsRoleError(NotAllowedError):
    """What was asked for needs another role than the caller's."""

    def __init__(self, message: str, role: Role) -> None:
        super().__init__(message, f"it needs the role {role.word}: ask root")
        self.role = role


def unknown_caller() -> Answer:
    """Return 503: who calls can't be told now, so nothing is done, and nobody is denied for it."""
    text = "who you are can't be told at the moment; nothing was done"
    mend = "try again in a second; if it stays so, the daemon's log tells why"
    return replace(refusal(503, text, mend, ExitCode.REFUSED), headers=(("Retry-After", "1"),))


@dataclass(slots=True)
class Denials:
    """Answers calls that are denied, and remembers which uid is on record for this hour."""

    service: Service
    _noted: dict[int, float] = field(default_factory=dict)

    async def answer(self, call: Call, caller: Caller, error: NeedsRoleError) -> Answer:
        """Return 403 with the role that is missing; it is counted, and on record once in an hour."""
        self.service.cycle.state.denied += 1
        await self._note(f"{call.method} {call.path[:64]}: {error.message}", caller)
        body = {
            "error": f"not allowed: {error.message}",
            "mend": error.mend,
            "needs_role": error.role.word,
            "exit_code": int(ExitCode.NOT_ALLOWED),
        }
        return Answer(403, body)

    async def _note(self, text: str, caller: Caller) -> None:
        uid = caller.actor.uid or 0
        now = self.service.cycle.joints.clock()
        last = self._noted.get(uid)
        if last is not None and now < last + _EVERY_SECONDS:
            return
        self._noted = {one: at for one, at in self._noted.items() if now < at + _EVERY_SECONDS}
        if len(self._noted) >= _MOST_UIDS:
            return
        self._noted[uid] = now
        record = entries.of_host(RecordKind.DENIED, text, caller.actor)
        try:
            await self.service.cycle.write(None, (record,))
        except ReclaimerdError:
            self._noted.pop(uid, None)
