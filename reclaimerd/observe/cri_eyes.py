"""Joins what a container runtime says of pods to each look, and never makes a look wait for the runtime.

It is asked beside the passes, once for each container whose pod the cluster's API has not told of. What it
says was true when the pod was made and does not change, so it is kept; without an answer it is asked again
after five minutes. It only fills what others left open, and where the cluster is to be asked it does not
stand in for it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reclaimerd.host.wire import Decoder
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe.probe import Answered, Probe, Silent
from reclaimerd.observe.recent import Recent

AGAIN_SECONDS = 300.0
"""How long a container that no runtime knew, or told of in time, is not asked for again."""
MOST_ASKED = 16
"""Containers of one question: each takes two calls. The rest are asked for in the next."""
_CALL_SHARE = 0.8
"""The calls' own deadline, of `answer_within`: the runtime's silence must not look like the worker's."""
_MOST_REMEMBERED = 4096
_NAMES: Decoder[WorkloadNames] = Decoder(WorkloadNames)

_Key = tuple[str, str]
"""A container: its id, and its pod's uid."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What was told of one container (None: nothing), and when it was asked for (monotonic)."""

    names: WorkloadNames | None
    at: float


class CriEyes:
    """Implements `model.ports.SamplerPort`: another sampler's look, with the runtime's words in it.

    `patience_seconds` is how long a look waits for the first answer: 0 for passes.
    """

    __slots__ = ("_clock", "_known", "_patience_seconds", "_policy", "_sampler", "_task", "_worker")

    def __init__(
        self,
        sampler: SamplerPort,
        worker: Probe,
        policy: Callable[[], Policy],
        clock: Callable[[], float],
        *,
        patience_seconds: float = 0.0,
    ) -> None:
        self._sampler = sampler
        self._worker = worker
        self._policy = policy
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._known: Recent[_Key, _Known] = Recent(_MOST_REMEMBERED)
        self._task: asyncio.Task[None] | None = None

    async def sample(self, look: Look) -> Snapshot:
        """Return the look with what is known by now; before a reset nobody is asked: it must stay fresh."""
        snapshot = await self._sampler.sample(look)
        if self._task is None and not (look.reset or look.without_driver):
            self._begin(snapshot.processes)
        if self._task is not None and self._patience_seconds > 0:
            await asyncio.wait({self._task}, timeout=self._patience_seconds)
        alone = isinstance(snapshot.cluster, Absent)
        processes = {pid: self._joined(one, alone=alone) for pid, one in snapshot.processes.items()}
        return snapshot if processes == snapshot.processes else replace(snapshot, processes=processes)

    def _begin(self, processes: Mapping[int, ProcessReading]) -> None:
        """Ask about what is due, if there is anything, and a runtime to be asked."""
        keys = dict.fromkeys(key for one in processes.values() if (key := _key_of(one.workload)) is not None)
        due = [key for key in keys if self._is_due(key)][:MOST_ASKED]
        sockets = [one for one in self._policy().attribution.runtime_sockets if _stands(one)] if due else []
        if sockets:
            self._task = asyncio.ensure_future(self._ask(sockets, due))

    def _is_due(self, key: _Key) -> bool:
        known = self._known.get(key)
        return known is None or (known.names is None and self._clock() >= known.at + AGAIN_SECONDS)

    async def _ask(self, sockets: Sequence[str], due: Sequence[_Key]) -> None:
        now = self._clock()
        for key in due:
            self._known.put(key, _Known(None, now))
        within = self._policy().workers.answer_within_seconds
        asked = {"sockets": [*sockets], "asked": [[*key] for key in due], "seconds": within * _CALL_SHARE}
        try:
            answer = await self._worker.ask("names", asked, answer_within=within)
            for part in answer.parts if isinstance(answer, Answered) else ():
                self._take(part, due, now)
            if not isinstance(answer, Silent):
                # Asked so rarely that its memory is better given back.
                await self._worker.close()
        finally:
            self._task = None

    def _take(self, part: object, due: Sequence[_Key], now: float) -> None:
        """Remember one container's names, if it is one that was asked for."""
        match part:
            case {"container": str(container), "pod_uid": str(uid), "names": told} if (container, uid) in due:
                try:
                    self._known.put((container, uid), _Known(_NAMES.from_object(told), now))
                except ValueError:
                    return
            case _:
                return

    def _joined(self, reading: ProcessReading, *, alone: bool) -> ProcessReading:
        key = _key_of(reading.workload)
        known = None if key is None else self._known.get(key)
        names = reading.workload.names
        if known is None or known.names is None or names is None:
            return reading
        filled = replace(_filled(names, known.names), spread_known=alone)
        return replace(reading, workload=replace(reading.workload, names=filled))


def _key_of(workload: Workload) -> _Key | None:
    """Return the container of a proven pod that the cluster has not just told of."""
    names = workload.names
    if workload.kind is not WorkloadKind.POD or not workload.trusted or names is None or names.mark_known:
        return None
    return (workload.container_id, names.pod_uid) if workload.container_id and names.pod_uid else None


def _filled(names: WorkloadNames, told: WorkloadNames) -> WorkloadNames:
    """Return names with what they lack from what the runtime told."""
    is_named = names.namespace is not None and names.pod is not None
    return replace(
        names,
        namespace=names.namespace if is_named else told.namespace,
        pod=names.pod if is_named else told.pod,
        container=names.container or told.container,
        labels=names.labels or told.labels,
        hosts=names.hosts or told.hosts,
        spare_mark=names.spare_mark or told.spare_mark,
    )


def _stands(path: str) -> bool:
    """Tell whether there is something at a socket's path: no worker is started for a host without one."""
    try:
        Path(path).lstat()
    except OSError:
        return False
    return True
