"""What people ask of the daemon, by its own calls; the oracle is told what they were told."""

from reclaimerd.daemon.access import Caller, Peer, Role
from reclaimerd.daemon.desk import Ticket
from reclaimerd.daemon.drain_calls import undrain_call
from reclaimerd.daemon.http_server import Answer, Call
from reclaimerd.daemon.opening import Order
from reclaimerd.daemon.pause_calls import pause_call, resume_call
from reclaimerd.daemon.rule_calls import resume_rule_call, suspend_call
from reclaimerd.errors import ConfigError
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Actor, ActorKind, ActorRole
from reclaimerd.model.policy import Policy
from tests.machine.life import Life
from tests.machine.world import Proc

ADMIN = Actor(ActorKind.OPERATOR, "root", uid=0, pid=4000, role=ActorRole.ADMIN)
_CALLER = Caller(Role.ADMIN, ADMIN)
_OK = 200
FOREVER = float("inf")


def _call(path: str = "", **body: object) -> Call:
    told = {key: value for key, value in body.items() if value is not None}
    return Call("POST", path, {}, told, Peer(4000, 0, frozenset()))


def order_kill(life: Life, proc: Proc, *, force: bool, dry_run: bool) -> bool:
    """Order the end of exactly this process."""
    order = Order(
        pid=proc.ref.pid,
        actor=ADMIN,
        start_ticks=proc.ref.start_ticks,
        force=force,
        dry_run=dry_run,
        reason="it must go",
    )
    life.service.cycle.desk.place(Ticket(order))
    if not dry_run:
        life.host.oracle.ordered.add(proc.ref)
    return True


def order_reset(life: Life, gpu: GpuUuid, *, force: bool) -> bool:
    """Order the reset of a GPU."""
    life.service.cycle.desk.place(Ticket(Order(0, ADMIN, gpu=gpu, force=force, reason="it is ill")))
    return True


def pause(life: Life, seconds: float | None) -> bool:
    """Stop what rules do."""
    until = FOREVER if seconds is None else life.host.world.time() + seconds
    answer = life.run(pause_call(life.service, _call(for_seconds=seconds, reason="a look"), _CALLER))
    if answer.status == _OK:
        life.host.oracle.stops.paused_until = until
    return answer.status == _OK


def resume(life: Life) -> bool:
    """Let it go on, and close the breaker; what was asked may hold though nobody was told so."""
    life.host.oracle.stops.paused_until = None
    return life.run(resume_call(life.service, _call(reason="looked"), _CALLER)).status == _OK


def suspend(life: Life, seconds: float | None) -> bool:
    """Let the rule only observe."""
    until = FOREVER if seconds is None else life.host.world.time() + seconds
    call = _call("/v1/rules/over-cap/suspend", for_seconds=seconds, reason="a look")
    answer = life.run(suspend_call(life.service, call, _CALLER))
    if answer.status == _OK:
        life.host.oracle.stops.suspended_until = until
    return answer.status == _OK


def resume_rule(life: Life) -> bool:
    """Let the rule go on."""
    life.host.oracle.stops.suspended_until = None
    call = _call("/v1/rules/over-cap/resume", reason="looked")
    return life.run(resume_rule_call(life.service, call, _CALLER)).status == _OK


def undrain(life: Life) -> bool:
    """Take the drain request back."""
    drain = life.service.cycle.state.ledger.drain
    name = "" if drain is None else drain.id
    answer: Answer = life.run(undrain_call(life.service, _call(incident=name, reason="mended"), _CALLER))
    return answer.status == _OK


def reload(life: Life, policy: Policy | None) -> bool:
    """Take the policy file anew; None: it has faults, and the old one must stay in force."""
    life.wanted[:] = [] if policy is None else [policy]
    try:
        loaded = life.run(life.reload.take(ADMIN))
    except ConfigError:
        return False
    life.host.oracle.policy = loaded.policy
    return True
