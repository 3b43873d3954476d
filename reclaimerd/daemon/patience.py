"""The patience with what leaves, and the known places in the kernel, by the policy in force."""

from collections.abc import Callable

from reclaimerd.judge.plight import PlightSettings
from reclaimerd.model.policy import Policy, Signature


def settings_by_policy() -> Callable[[Policy], PlightSettings]:
    """Return a function that gives the patience and the known places by the policy in force."""
    known: dict[tuple[Signature, ...], tuple[Signature, ...]] = {}
