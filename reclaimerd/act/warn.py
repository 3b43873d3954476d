"""Warn the owner of a process: on their terminals, by a program of root's, and by an event on their pod.

It decides nothing and signals nobody. All ways go side by side and have a limit; one that took the warning
makes it delivered. What the log and the record say is no delivery.
"""

import asyncio
import json
import sys
import textwrap
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from reclaimerd.act.programs import Said, ask, program_fault
from reclaimerd.host.child import Overran, run_bounded
from reclaimerd.model.incident import Outcome, OutcomeKind
from reclaimerd.model.policy import WarnSettings
from reclaimerd.model.process import Workload, WorkloadKind
from reclaimerd.model.step import OwnerWarning, Step

SCHEMA = 1
"""Of what the hook reads on stdin."""
_MARGIN_SECONDS = 1.0
_WIDTH = 78
_MOST_NAMED = 4
_OWN_USERS = frozenset(
    {WorkloadKind.POD, WorkloadKind.CONTAINER, WorkloadKind.NOMAD, WorkloadKind.MACHINE},
)
"""Inside these a uid need not be the host's user of that number: no terminal here is its owner's."""


@dataclass(frozen=True, slots=True)
class Told:
    """One way took the warning, or would in a dry run."""

    text: str


@dataclass(frozen=True, slots=True)
class NotTold:
    """One way did not; `text` says why."""

    text: str


Way = Told | NotTold


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning as every way is given it."""

    host: str
    step: Step
    said: OwnerWarning
    at: float
    """Wall-clock seconds."""

    @property
    def workload(self) -> Workload:
        """Return what the process belongs to."""
        return self.step.target.workload


class PodEventPort(Protocol):
    """Puts an event on the pod of a process; it never raises, and waits no longer than a few seconds."""

    async def warn(self, notice: Notice) -> Told | NotTold:
        """Record the event on exactly this pod."""
        ...


@dataclass(frozen=True, slots=True)
class Warner:
    """The ways of this host. `any_owner`, and `devices` (numbers of GPUs' nodes), are a simulated host's."""

    host: str
    settings: Callable[[], WarnSettings]
    clock: Callable[[], float]
    pod_events: PodEventPort | None = None
    any_owner: bool = False
    devices: Callable[[], tuple[int, ...]] = tuple
    device_dir: str = "/dev"

    async def warn(self, step: Step, *, dry_run: bool) -> Outcome:
        """Give the step's warning every way there is; DELIVERED when one took it.

        In a dry run nobody is told: DRY_RUN when one would be, NOT_DELIVERED when nobody would.
        """
        if step.warning is None:
            return Outcome(OutcomeKind.FAILED, "the step has no warning in it; nobody was told")
        notice = Notice(self.host, step, step.warning, self.clock())
        limit = self.settings().seconds
        calls = {
            "terminals": self._terminals(notice, dry_run=dry_run),
            "hook": self._hook(notice, dry_run=dry_run),
            "pod event": self._pod_event(notice, dry_run=dry_run),
        }
        ways = await asyncio.gather(*(_bounded(call, limit + _MARGIN_SECONDS) for call in calls.values()))
        named = zip(calls, ways, strict=True)
        detail = "; ".join(f"{name}: {way.text}" for name, way in named)
        if not any(isinstance(way, Told) for way in ways):
            return Outcome(OutcomeKind.NOT_DELIVERED, detail)
        return Outcome(OutcomeKind.DRY_RUN if dry_run else OutcomeKind.DELIVERED, detail)

    async def _terminals(self, notice: Notice, *, dry_run: bool) -> Way:
        """Have a child write to the owner's terminals."""
        settings, target = self.settings(), notice.step.target
        if not settings.terminals:
            return NotTold("the policy uses none")
        if target.workload.kind in _OWN_USERS:
            return NotTold(f"uid {target.uid} in a container is no login of this host")
        order = {
            "uid": target.uid,
            "text": terminal_text(notice),
            "dry_run": dry_run,
            "passed_over": self.devices(),
            "device_dir": self.device_dir,
        }
        isolation = "-I" if sys.flags.isolated else "-P"
        argv = (sys.executable, isolation, "-m", "reclaimerd.act.terminals")
        end = await run_bounded(argv, deadline_seconds=settings.seconds, stdin_text=json.dumps(order))
        late = f"the rest did not answer within {settings.seconds:g} s" if isinstance(end, Overran) else ""
        if not late and end.err:
            late = f"the child that writes ended badly ({end.err.strip().splitlines()[-1][:200]})"
        return _of_terminals(end.out, late, f"uid {target.uid} has no terminal here", dry_run=dry_run)

    async def _hook(self, notice: Notice, *, dry_run: bool) -> Way:
        """Run the administrator's program with the warning on its stdin."""
        settings = self.settings()
        if not settings.hook:
            return NotTold("none is set")
        fault = await asyncio.to_thread(program_fault, settings.hook, any_owner=self.any_owner)
        if fault:
            return NotTold(fault)
        if dry_run:
            return Told(f"{settings.hook} would be run")
        said = await ask((settings.hook,), settings.seconds, hook_text(notice))
        match said:
            case Said(code=0):
                return Told(f"{settings.hook} took it")
            case Said(code=code, words=words):
                return NotTold(f"{settings.hook} ended with {code} and said: {words}")
            case why:
                return NotTold(why)

    async def _pod_event(self, notice: Notice, *, dry_run: bool) -> Way:
        """Have an event put on the pod, where there is one and somebody who can."""
        names = notice.workload.names
        if notice.workload.kind is not WorkloadKind.POD:
            return NotTold("it is in no pod")
        if self.pod_events is None:
            return NotTold("no client of the cluster is set up")
        if dry_run:
            where = f"{names.namespace}/{names.pod}" if names is not None else notice.workload.name
            return Told(f"an event on {where} would be made")
        return await self.pod_events.warn(notice)


def terminal_text(notice: Notice) -> str:
    """Return the message as it stands on a terminal: who speaks, when, and what is said."""
    at = datetime.fromtimestamp(notice.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    head = f"Message from reclaimerd on {notice.host}, {at}:"
    return "\n".join((head, *(line for said in notice.said.lines for line in textwrap.wrap(said, _WIDTH))))


def hook_text(notice: Notice) -> str:
    """Return what the hook reads: one JSON object, schema 1. No command line is in it."""
    step, target = notice.step, notice.step.target
    content = {
        "schema": SCHEMA,
        "host": notice.host,
        "incident": step.incident,
        "rule": step.actor.name,
        "pid": target.root.pid,
        "start": target.root.start_ticks,
        "uid": target.uid,
        "gpus": list(target.gpus),
        "workload": target.workload.best_name,
        "text": "\n".join(notice.said.lines),
        "seconds": notice.said.seconds,
    }
    return json.dumps(content) + "\n"


async def _bounded(call: Coroutine[Any, Any, Way], seconds: float) -> Way:
    """Return what one way came to; one that breaks off or overruns hides no other."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError:
        return NotTold(f"no answer within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - a bug in one way must not lose what another delivered
        return NotTold(f"it broke off ({error!r})")


def _of_terminals(out: str, late: str, nobody: str, *, dry_run: bool) -> Way:
    """Return what the child's lines come to; a line that was cut off tells nothing."""
    told, refused = [], []
    for line in out.splitlines():
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        name, why = str(answer["terminal"]), str(answer["why"])
        if why:
            refused.append(f"{name}: {why}")
        else:
            told.append(name)
    parts = [f"{'would tell' if dry_run else 'told'} {_named(told, ', ')}"] if told else []
    parts += [f"not {_named(refused, ', ')}"] if refused else []
    parts += [late] if late else []
    return Told(", ".join(parts)) if told else NotTold(", ".join(parts) or nobody)


def _named(names: list[str], between: str) -> str:
    more = len(names) - _MOST_NAMED
    return between.join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
