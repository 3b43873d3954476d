"""Read an operator's order from the API's body: every field checked, nothing guessed."""

import math
import re
from collections.abc import Mapping

from reclaimerd.daemon.opening import Consent, Order
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Actor
from reclaimerd.model.policy import Scope

DEFAULT_MOST_TARGETS = 8
MOST_TARGETS = 4096
MOST_SECONDS = 86400.0
MOST_PAUSE_SECONDS = 366 * 86400.0
_GPU = re.compile(r"GPU-[0-9A-Za-z][0-9A-Za-z-]{0,63}", re.ASCII)
LARGEST_PID = 4_194_304
"""PID_MAX_LIMIT of a 64-bit kernel (include/linux/threads.h)."""


class OrderFault(ReclaimerdError):  # noqa: N818  # a fault of the order, in the API's own word
    """The order can't be read."""

    exit_code = ExitCode.USAGE


def orders_of(body: Mapping[str, object], actor: Actor) -> tuple[Order, ...]:
    """Return one order for each target of the body. Raises OrderFault that names the field."""
    targets = body.get("targets")
    if not isinstance(targets, list) or not targets:
        raise OrderFault("targets must be a list with at least one process", "give --pid")
    most = consent_of(body).most
    if len(targets) > min(most, MOST_TARGETS):
        raise OrderFault(
            f"{len(targets)} processes are more than {most}", "if you mean it, raise --max-targets"
        )
    scope = scope_of(body.get("scope"))
    orders = tuple(_order(target, body, actor, scope) for target in targets)
    if len({order.pid for order in orders}) < len(orders):
        raise OrderFault("a process is named twice", "name each once")
    return orders


def scope_of(value: object) -> Scope:
    """Return what a target takes along, itself alone where nothing is said. Raises OrderFault."""
    scope = value or Scope.PROCESS.value
    if scope not in [one.value for one in Scope]:
        raise OrderFault(f"scope {str(scope)[:64]!r} is not known", "use process, tree or workload")
    return Scope(scope)


def consent_of(body: Mapping[str, object]) -> Consent:
    """Return what whoever orders agreed to: how many at most, and who was shown. Raises OrderFault."""
    most = _whole(body, "max_targets") or DEFAULT_MOST_TARGETS
    shown = body.get("shown")
    if shown is None:
        return Consent(most)
    fault = OrderFault(
        "shown must be an object with the number of processes and their uids", "or leave it out"
    )
    if not isinstance(shown, dict):
        raise fault
    processes, uids = shown.get("processes"), shown.get("uids")
    if not _is_whole(processes) or not isinstance(uids, list) or len(uids) > MOST_TARGETS:
        raise fault
    if not all(_is_whole(uid) for uid in uids):
        raise fault
    return Consent(most, processes, frozenset(uids))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def resumed_gpu(body: Mapping[str, object]) -> GpuUuid | None:
    """Return the GPU whose own breaker is to be closed, None for the host's. Raises OrderFault."""
    gpu = body.get("gpu")
    if gpu is None:
        return None
    if not isinstance(gpu, str) or not _GPU.fullmatch(gpu):
        raise OrderFault(f"{str(gpu)[:64]!r} is no UUID of a whole GPU", "see reclaimctl status")
    return GpuUuid(gpu)


def seen_opening(body: Mapping[str, object]) -> float | None:
    """Return when the breaker opened that the caller saw (wall seconds), None unsaid. Raises OrderFault."""
    value = body.get("since")
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise OrderFault(
            "since must be wall-clock seconds since 1970", "take it from reclaimctl breaker --json"
        )
    return float(value)


def reset_order(body: Mapping[str, object], actor: Actor) -> tuple[Order, GpuUuid]:
    """Return the order for a reset of one whole GPU, and that GPU. Raises OrderFault that names the field."""
    gpu = body.get("gpu")
    if not isinstance(gpu, str) or not _GPU.fullmatch(gpu):
        raise OrderFault(f"{str(gpu)[:64]!r} is no UUID of a whole GPU", "see reclaimctl status")
    order = Order(
        pid=0,
        actor=actor,
        force=body.get("force") is True,
        dry_run=body.get("dry_run") is True,
        reason=reason_of(body),
        gpu=GpuUuid(gpu),
    )
    return order, GpuUuid(gpu)


def drain_order(body: Mapping[str, object], actor: Actor) -> Order:
    """Return the order for a drain of this node by hand. Raises OrderFault that names the field."""
    reason = reason_of(body).strip()
    if not reason:
        raise OrderFault("a drain by hand needs a reason", "say why: --reason TEXT")
    return Order(
        pid=0,
        actor=actor,
        dry_run=body.get("dry_run") is True,
        reason=reason,
        timeout_seconds=_seconds(body, "timeout_seconds"),
        node=True,
    )


def reason_of(body: Mapping[str, object]) -> str:
    """Return why, in the caller's own words, cut to 500 characters; "" where none is given."""
    return str(body.get("reason") or "")[:500]


def demand_reason(body: Mapping[str, object]) -> None:
    """Raise OrderFault where the order gives no reason, unless it is a dry run."""
    if not reason_of(body).strip() and body.get("dry_run") is not True:
        raise OrderFault("the policy wants a reason for each act (require_reason)", "say why: --reason TEXT")


def demand_waiting() -> None:
    """Raise OrderFault: nobody is left to carry on what a command in the foreground began."""
    raise OrderFault(
        "no daemon would carry it on when this command ends, so --no-wait can't be had; nothing was done",
        "leave --no-wait out, or start the daemon (systemctl start reclaimerd)",
    )


def pause_seconds(body: Mapping[str, object]) -> float | None:
    """Return how long a pause is to last, None until resumed. Raises OrderFault that names the field."""
    value = body.get("for_seconds")
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not number or not 0 < value <= MOST_PAUSE_SECONDS:
        raise OrderFault(
            f"for_seconds must be over 0 and at most {MOST_PAUSE_SECONDS:.0f}",
            "leave it out to pause until resumed",
        )
    return float(value)


def _order(target: object, body: Mapping[str, object], actor: Actor, scope: Scope) -> Order:
    if not isinstance(target, dict):
        raise OrderFault("a target must be an object with pid", "")
    pid = target.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 1 < pid <= LARGEST_PID:
        mend = f"a pid is a number from 2 to {LARGEST_PID}"
        raise OrderFault(f"{str(pid)[:64]!r} is no process that can be a target", mend)
    return Order(
        pid=pid,
        actor=actor,
        start_ticks=_whole(target, "start_ticks"),
        force=body.get("force") is True,
        dry_run=body.get("dry_run") is True or target.get("dry_run") is True,
        reason=reason_of(body),
        grace_seconds=_seconds(body, "grace_seconds"),
        timeout_seconds=_seconds(body, "timeout_seconds"),
        scope=scope,
        expect_uid=_whole(body, "expect_user"),
    )


def _whole(body: Mapping[str, object], key: str) -> int | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not _is_whole(value):
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
