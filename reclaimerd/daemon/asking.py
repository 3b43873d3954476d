"""Read an operator's order from the API's body: every field checked, nothing guessed."""

from collections.abc import Mapping

from reclaimerd.daemon.opening import Order
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.model.incident import Actor
from reclaimerd.model.policy import Scope

DEFAULT_MOST_TARGETS = 8
MOST_TARGETS = 4096
MOST_SECONDS = 86400.0


class OrderFault(ReclaimerdError):  # noqa: N818  # a fault of the order, in the API's own word
    """The order can't be read."""

    exit_code = ExitCode.USAGE


def orders_of(body: Mapping[str, object], actor: Actor) -> tuple[Order, ...]:
    """Return one order for each target of the body. Raises OrderFault that names the field."""
    targets = body.get("targets")
    if not isinstance(targets, list) or not targets:
        raise OrderFault("targets must be a list with at least one process", "give --pid")
    most = _whole(body, "max_targets") or DEFAULT_MOST_TARGETS
    if len(targets) > min(most, MOST_TARGETS):
        raise OrderFault(
            f"{len(targets)} processes are more than {most}", "if you mean it, raise --max-targets"
        )
    scope = body.get("scope") or Scope.PROCESS.value
    if scope not in [one.value for one in Scope]:
        raise OrderFault(f"scope {scope!r} is not known", "use process, tree or workload")
    orders = tuple(_order(target, body, actor, Scope(scope)) for target in targets)
    if len({order.pid for order in orders}) < len(orders):
        raise OrderFault("a process is named twice", "name each once")
    return orders


def _order(target: object, body: Mapping[str, object], actor: Actor, scope: Scope) -> Order:
    if not isinstance(target, dict):
        raise OrderFault("a target must be an object with pid", "")
    pid = target.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1:
        raise OrderFault(f"{pid!r} is no process that can be a target", "a pid is a number over 1")
    return Order(
        pid=pid,
        actor=actor,
        start_ticks=_whole(target, "start_ticks"),
        force=body.get("force") is True,
        dry_run=body.get("dry_run") is True,
        reason=str(body.get("reason") or "")[:500],
        grace_seconds=_seconds(body, "grace_seconds"),
        timeout_seconds=_seconds(body, "timeout_seconds"),
        scope=scope,
        expect_uid=_whole(body, "expect_user"),
    )


def _whole(body: Mapping[str, object], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise OrderFault(f"{key} must be a whole number", "")
    return value


def _seconds(body: Mapping[str, object], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS
    if not good or not isinstance(value, int | float):
        raise OrderFault(f"{key} must be between 0 and {MOST_SECONDS:.0f} seconds", "")
    return float(value)
