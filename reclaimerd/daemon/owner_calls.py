"""What an owner may order: a kill of processes all four of whose uids are theirs, and nothing else.

Whether a process is theirs is asked here so that a foreign one is denied at once; it is asked again when
the order is taken up and once more just before each signal.
"""

from dataclasses import dataclass, field

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.asking import DEFAULT_MOST_TARGETS, OrderFault
from reclaimerd.daemon.denials import NeedsRoleError
from reclaimerd.daemon.limits import Buckets
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.service import Service
from reclaimerd.errors import ExitCode, ReclaimerdError

ORDERS_PER_SECOND = 0.1
ORDERS_AT_ONCE = 5.0
"""Each order is on record: everybody's together must not fill it."""
LOOK_SECONDS = 12.0


class TooManyOrdersError(ReclaimerdError):
    """One user ordered too much in a short time."""

    exit_code = ExitCode.REFUSED


@dataclass(slots=True)
class Owners:
    """Lets owners' orders pass, or says why not."""

    service: Service
    _orders: Buckets = field(init=False)
    _looks: Buckets = field(init=False)

    def __post_init__(self) -> None:
        clock = self.service.cycle.joints.clock
        self._orders = Buckets(ORDERS_PER_SECOND, ORDERS_AT_ONCE, clock)
        self._looks = Buckets(ORDERS_PER_SECOND, ORDERS_AT_ONCE, clock)

    def demand_look(self, pids: tuple[int, ...], caller: Caller) -> None:
        """Raise OrderFault or TooManyOrdersError where an owner may not ask who goes along with these."""
        if len(pids) > DEFAULT_MOST_TARGETS:
            raise OrderFault(
                f"an owner may ask about {DEFAULT_MOST_TARGETS} processes at once", "ask for fewer"
            )
        if self._looks.take(caller.actor.uid or 0) < 0.0:
            raise TooManyOrdersError("too many looks of yours in a short time", "wait some ten seconds")

    async def check(self, orders: tuple[Order, ...], caller: Caller) -> None:
        """Raise NeedsRoleError for a process that is not theirs, OrderFault or TooManyOrdersError."""
        if len(orders) > DEFAULT_MOST_TARGETS:
            raise OrderFault(
                f"an owner may name {DEFAULT_MOST_TARGETS} processes at once", "ask for some of them first"
            )
        if self._orders.take(caller.actor.uid or 0) < 0.0:
            raise TooManyOrdersError("too many orders of yours in a short time", "wait some ten seconds")
        unseen = tuple(one.pid for one in orders if self._uids(one.pid) is None)
        if unseen:
            await self.service.look(pids=unseen, seconds=LOOK_SECONDS)
        for order in orders:
            uids = self._uids(order.pid)
            if uids is not None and set(uids) != {caller.actor.uid}:
                raise NeedsRoleError(f"process {order.pid} is not yours by all four uids", Role.OPERATOR)

    def _uids(self, pid: int) -> tuple[int, ...] | None:
        snapshot = self.service.cycle.state.snapshot
        reading = None if snapshot is None else snapshot.processes.get(pid)
        return None if reading is None else reading.uids
