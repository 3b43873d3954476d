"""What the keys of `[metrics]`, `[[notify]]` and `[anchor_webhook]` say about each other; pure."""

from collections.abc import Iterator
from ipaddress import ip_address

from reclaimerd.config.drain_combinations import address_flaws
from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.outlet_values import split_address
from reclaimerd.model.outlets import AnchorWebhook, NotifyTarget
from reclaimerd.model.policy import Policy

_LISTEN: KeyPath = ("metrics", "listen")
_ANY: KeyPath = ("metrics", "any_address")
_ANCHOR: KeyPath = ("anchor_webhook",)


def outlet_flaws(policy: Policy, seen: Refused) -> Iterator[Flaw]:
    """Yield every fault that no single value shows."""
    metrics = policy.metrics
    if metrics.listen and not metrics.any_address and not seen.touches(_LISTEN, _ANY):
        host, _ = split_address(metrics.listen)
        if not ip_address(host).is_loopback:
            yield Flaw(
                _LISTEN,
                f"other hosts reach {host}, and whoever can connect there may read",
                "write a loopback address such as 127.0.0.1:9485, or any_address = true",
            )
    if policy.anchor_webhook != AnchorWebhook():
        yield from address_flaws(policy.anchor_webhook.webhook, _ANCHOR, seen)
    for index, target in enumerate(policy.notices):
        yield from _notify_flaws(target, ("notify", index), seen)


def _notify_flaws(target: NotifyTarget, base: KeyPath, seen: Refused) -> Iterator[Flaw]:
    if seen.touches(base):
        return
    if not target.name and not seen.touches((*base, "name")):
        yield Flaw((*base, "name"), "the receiver has no name", 'add name = "..."')
    if not target.severities and not seen.touches((*base, "severities")):
        yield Flaw((*base, "severities"), "it is told of nothing", 'list at least one, such as "critical"')
    yield from address_flaws(target.webhook, base, seen)


def outlet_warnings(policy: Policy) -> Iterator[str]:
    """Yield what is allowed but may not be meant, a sentence each."""
    for target in policy.notices:
        if not target.secret_file:
            yield f'[[notify]] "{target.name}" has no secret_file: its receiver can\'t tell who sends'
    anchor = policy.anchor_webhook
    if anchor.url and not anchor.secret_file:
        yield "[anchor_webhook] has no secret_file: its receiver can't tell whose heads it keeps"
