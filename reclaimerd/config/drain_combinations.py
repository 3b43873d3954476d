"""What one value of `[drain]` and its tables says about another; pure."""

from collections.abc import Iterator

from reclaimerd.config.faults import Flaw, Refused
from reclaimerd.config.lines import KeyPath
from reclaimerd.host.web_address import plain_fault
from reclaimerd.model.drain_policy import Arbiter, DrainSettings, KubernetesTarget, NodeMark, WebhookTarget
from reclaimerd.model.policy import Policy

_WEBHOOK: KeyPath = ("drain", "webhook")
_COMMAND: KeyPath = ("drain", "command")
_KUBERNETES: KeyPath = ("drain", "kubernetes")
_ARBITER: KeyPath = ("drain", "fleet", "arbiter")


def drain_flaws(drain: DrainSettings, seen: Refused) -> Iterator[Flaw]:
    """Return what the targets lack, and what their values make impossible."""
    if drain.webhook is not None:
        yield from address_flaws(drain.webhook, _WEBHOOK, seen)
    command = drain.command
    if command is not None and not command.program and not seen.touches((*_COMMAND, "program")):
        yield Flaw((*_COMMAND, "program"), "it names no program", 'add program = "/..."')
    if drain.kubernetes is not None:
        yield from _kubernetes_flaws(drain.kubernetes, seen)
    counted_by_slurm = drain.fleet.arbiter is Arbiter.SLURM and not seen.touches(_ARBITER, ("drain", "slurm"))
    if counted_by_slurm and drain.slurm is None:
        yield Flaw(
            _ARBITER,
            "Slurm counts the nodes that it drains for us, and without [drain.slurm] it drains none",
            "add [drain.slurm], or choose another arbiter",
        )


def address_flaws(webhook: WebhookTarget, table: KeyPath, seen: Refused) -> Iterator[Flaw]:
    """Yield what is wrong with the address to which a table of the policy posts."""
    key: KeyPath = (*table, "url")
    if seen.touches(key):
        return
    if not webhook.url:
        yield Flaw(key, "it has no address", 'add url = "https://..."')
        return
    fault = plain_fault(webhook.url, allowed=webhook.plain_http)
    if fault and not seen.touches((*table, "plain_http")):
        yield Flaw(key, fault, "write https://, or plain_http = true and a loopback address")


def _kubernetes_flaws(target: KubernetesTarget, seen: Refused) -> Iterator[Flaw]:
    key: KeyPath = (*_KUBERNETES, "marks")
    if seen.touches(key):
        return
    if not target.marks:
        yield Flaw(key, "it sets nothing", 'list at least one, such as "taint"')
    if len(set(target.marks)) < len(target.marks):
        yield Flaw(key, "a mark stands there twice", "list each mark once")
    if target.no_execute and NodeMark.TAINT not in target.marks:
        yield Flaw(
            (*_KUBERNETES, "no_execute"), 'it is the taint that evicts, and marks has no "taint"', "add it"
        )


def drain_warnings(policy: Policy) -> Iterator[str]:
    """Return what is allowed but may not be meant, a sentence each."""
    drain = policy.drain
    asked = {
        "webhook": drain.webhook,
        "command": drain.command,
        "unit": drain.unit,
        "slurm": drain.slurm,
        "kubernetes": drain.kubernetes,
    }
    named = [f"[drain.{name}]" for name, target in asked.items() if target is not None]
    if named and drain.fleet.arbiter is Arbiter.NONE:
        targets = ", ".join(named)
        yield f'{targets} will never be asked: [drain.fleet] arbiter is "none", so nobody counts the nodes'
    if not named and not drain.file:
        yield "[drain] asks nobody, and its file is not written either: a drain request reaches no one"
    if drain.webhook is not None and not drain.webhook.secret_file:
        yield "[drain.webhook] has no secret_file: its receiver can't tell who asks"
    by_cluster = drain.kubernetes is not None or drain.fleet.arbiter is Arbiter.KUBERNETES
    if by_cluster and not policy.cluster.credentials:
        yield "[drain] is to ask Kubernetes, but [cluster] has no credentials"
