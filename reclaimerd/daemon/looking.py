"""What the next look is to see: open incidents, orders that wait, whoever somebody asked about."""

import asyncio

from reclaimerd.daemon.desk import Desk
from reclaimerd.daemon.plights import pids_in_exit
from reclaimerd.daemon.state import State
from reclaimerd.judge.series import wants_freezers, wants_signs, wants_utilisation
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import Incident
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import Look, SamplerPort
from reclaimerd.model.snapshot import Snapshot


class OneAtATime:
    """A sampler for several askers, the passes and a reset beside them: one look at a time."""

    __slots__ = ("_sampler", "_turn")

    def __init__(self, sampler: SamplerPort) -> None:
        self._sampler = sampler
        self._turn = asyncio.Lock()

    async def sample(self, look: Look) -> Snapshot:
        """Return one look at the host, after those that were asked for before it."""
        async with self._turn:
            return await self._sampler.sample(look)


def followed(state: State) -> tuple[Incident, ...]:
    """Return every incident whose processes are watched: open ones, and those handed over."""
    return (*state.incidents.values(), *state.handed.values())


def watched(state: State) -> frozenset[ProcessRef]:
    """Return every process whose end is watched."""
    return frozenset(ref for one in followed(state) for ref in one.processes)


def take_look(state: State, desk: Desk, policy: Policy) -> Look:
    """Return what the next look is to see, and count what was asked for as taken up.

    An order for a reset needs the whole look at once: holders anywhere, and all that a reset must know.
    """
    asked, state.asked_pids = state.asked_pids, set()
    reset = state.wants_reset_look or any(one.order.gpu is not None for one in desk.waiting)
    full_scan = state.wants_full_scan or reset
    every, state.wants_every_reading = state.wants_every_reading, False
    state.wants_full_scan = state.wants_reset_look = False
    return Look(
        watch=tuple(sorted(watched(state))),
        pids=(*desk.pids(), *sorted(asked)),
        kernel=(*pids_in_exit(followed(state), state.snapshot), *sorted(asked)),
        reset=reset,
        full_scan=full_scan,
        deep=full_scan,
        utilisation=every or wants_utilisation(policy),
        freezers=every or wants_freezers(policy),
        signs=every or wants_signs(policy),
    )
