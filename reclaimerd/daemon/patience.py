"""The patience with what leaves, and the known places in the kernel, by the policy in force."""

from collections.abc import Callable

from reclaimerd.config.signatures import load_signatures
from reclaimerd.judge.plight import PlightSettings
from reclaimerd.model.policy import Policy, Signature


def settings_by_policy() -> Callable[[Policy], PlightSettings]:
    """Return a function that gives the patience and the known places by the policy in force."""
    known: dict[tuple[Signature, ...], tuple[Signature, ...]] = {}

    def settings(policy: Policy) -> PlightSettings:
        if policy.signatures not in known:
            known.clear()
            known[policy.signatures] = load_signatures(policy.signatures)
        ladder = policy.ladder
        return PlightSettings(
            exit_grace_seconds=ladder.exit_grace_seconds,
            core_grace_seconds=ladder.core_grace_seconds,
            signatures=known[policy.signatures],
        )

    return settings
