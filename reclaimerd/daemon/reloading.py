"""Take the policy file anew, by SIGHUP or by a call: a bad one keeps the old in force, and says why."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from reclaimerd.config.load import LoadedPolicy
from reclaimerd.daemon.access import Caller
from reclaimerd.daemon.entries import of_host
from reclaimerd.daemon.http_server import Answer, refusal
from reclaimerd.daemon.past import Reader
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ConfigError, ExitCode, ReclaimerdError
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.incident import Actor
from reclaimerd.model.policy import AccessSettings
from reclaimerd.record import logs

STAYS = "the old policy stays in force"


@dataclass(slots=True)
class Reload:
    """Reads the file in a thread (`read`), and lets engine and door take it; one at a time.

    A disk that does not answer ends it after a while: the old policy stays, and another can be asked for.
    """

    service: Service
    read: Callable[[], LoadedPolicy]
    open_to: Callable[[AccessSettings], Awaitable[None]]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reader: Reader = field(default_factory=Reader)

    async def take(self, actor: Actor | None = None) -> LoadedPolicy:
        """Let the file's policy hold from the next pass on. Raises ReclaimerdError: it was not taken."""
        async with self._turn:
            self.service.life_signs.reload_began()
            try:
                return await self._taken(actor)
            finally:
                self.service.life_signs.reload_ended()
                self.service.pacing.wake()

    async def _taken(self, actor: Actor | None) -> LoadedPolicy:
        try:
            loaded = await self._reader.read(self.read, "reading the policy")
        except ReclaimerdError as error:
            logs.error("reload_refused", error=str(error), effect=STAYS)
            await self._note(RecordKind.NOTE, f"reload refused, {STAYS}: {error}", actor)
            raise
        for warning in loaded.warnings:
            logs.warning("policy_warning", text=warning)
        self.service.engine.take_policy(loaded)
        await self.open_to(loaded.policy.access)
        text = f"policy {loaded.policy.source} {loaded.policy.digest}"
        await self._note(RecordKind.POLICY_LOADED, text, actor)
        return loaded

    async def _note(self, kind: RecordKind, text: str, actor: Actor | None) -> None:
        with suppress(ReclaimerdError):
            await self.service.cycle.write(None, (of_host(kind, text, actor),))


async def reload_call(reload: Reload | None, caller: Caller) -> Answer:
    """Take the policy file anew; a file with faults is answered with all of them, and changes nothing."""
    if reload is None:
        text = "no daemon runs, and each command reads the policy anew"
        return refusal(409, text, "there is nothing to reload", ExitCode.REFUSED)
    try:
        loaded = await reload.take(caller.actor)
    except ConfigError as error:
        body = {"error": error.message, "mend": STAYS, "exit_code": int(error.exit_code)}
        return Answer(422, {**body, "faults": list(error.faults)})
    policy = loaded.policy
    rules = len(policy.rules) + len(policy.fault_rules)
    body = {"policy": policy.source or policy.digest, "digest": policy.digest, "mode": policy.mode.value}
    return Answer(200, {**body, "rules": rules, "warnings": list(loaded.warnings)})
