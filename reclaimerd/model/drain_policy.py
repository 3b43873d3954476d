"""What the administrator decided about drain requests: when, of whom, and how many in a fleet."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum


class FaultDomain(StrEnum):
    """Whose fault a stuck task is; by default only the first two may lead to a drain request."""

    DRIVER = "driver"
    HARDWARE = "hardware"
    WORKLOAD = "workload"
    UNKNOWN = "unknown"


_SHOWN = 8
"""Names of nodes in one sentence."""


class NodeMark(StrEnum):
    """What the Kubernetes target sets on the node, in the order in which it is set."""

    CORDON = "cordon"
    TAINT = "taint"
    CONDITION = "condition"
    EVENT = "event"
    EVICT = "evict"


class Arbiter(StrEnum):
    """Who counts the drained nodes of the fleet.

    NONE: nobody, so nothing but reports (the file) leaves the host. RECEIVER: whoever receives our requests
    keeps the limit themselves, and the administrator says so.
    """

    NONE = "none"
    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    RECEIVER = "receiver"


@dataclass(frozen=True, slots=True)
class FleetMark:
    """One node of the fleet that carries our mark: its drain's code, and since when (wall-clock seconds)."""

    node: str
    code: str
    at: float


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """At most so many nodes drained by us at once: the smaller of the two, and at least one.

    `same_code_nodes` nodes with one reason within `same_code_seconds` stop further slots until a person
    says that they may go on.
    """

    arbiter: Arbiter = Arbiter.NONE
    nodes: int = 5
    percent: float = 1.0
    same_code_nodes: int = 3
    same_code_seconds: float = 1800.0
    lease_namespace: str = "reclaimerd"

    def limit(self, nodes: int) -> int:
        """Return how many of so many nodes may be drained by us at once: at least one, at most all."""
        return max(1, min(self.nodes, int(nodes * self.percent / 100.0)))

    def why_full(self, node: str, code: str, marks: Collection[FleetMark], nodes: int) -> str:
        """Return why a node gets no place for this code among `nodes` beside those marked, "" when it does.

        Marks of its own don't count against it. Several nodes with one code that came together stop every
        further node with that code for as long as they all stand: a person ends that by taking one back.
        """
        others = [mark for mark in marks if mark.node != node]
        limit = self.limit(nodes)
        if len(others) >= limit:
            names = ", ".join(sorted(mark.node for mark in others)[:_SHOWN])
            return (
                f"{len(others)} of {nodes} nodes are drained by us ({names}), and the limit is {limit} "
                "([drain.fleet] nodes, percent)"
            )
        times = sorted(mark.at for mark in others if mark.code == code)
        spans = zip(times, times[self.same_code_nodes - 1 :], strict=False)
        if any(last - first <= self.same_code_seconds for first, last in spans):
            minutes = self.same_code_seconds / 60.0
            return (
                f"{self.same_code_nodes} nodes asked for {code} within {minutes:g} min: "
                "a person looks first (reclaimctl undrain on one of them, or raise same_code_nodes)"
            )
        return ""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A POST of JSON; `secret_file` holds the key of its HMAC-SHA256 signature, `ca_file` whom TLS trusts.

    `plain_http`: also without TLS, for a receiver on this very host.
    """

    url: str
    secret_file: str = ""
    ca_file: str = ""
    seconds: float = 10.0
    plain_http: bool = False


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """A program of root's with the words `request`, `withdraw` or `status`, and JSON on its input."""

    program: str
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class UnitTarget:
    """A systemd target that is started for a request, and stopped when it is withdrawn."""

    name: str = "reclaimerd-drain.target"


@dataclass(frozen=True, slots=True)
class SlurmTarget:
    """The node is drained by scontrol, in Slurm's own words for it; "" finds the node's name by itself."""

    node: str = ""
    seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class KubernetesTarget:
    """What is set on the Node object, by the credentials of `ClusterSettings`.

    `no_execute`: the taint also evicts, without regard for disruption budgets. `evict_seconds`: so long a
    disruption budget is waited for.
    """

    marks: tuple[NodeMark, ...] = (NodeMark.TAINT, NodeMark.CONDITION, NodeMark.EVENT)
    no_execute: bool = False
    evict_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class DrainSettings:
    """When and how a drain is asked for; a target that is None is not asked."""

    fault_domains: tuple[FaultDomain, ...] = (FaultDomain.DRIVER, FaultDomain.HARDWARE)
    directory: str = ""
    """Folder of the request files, which agents of this host watch; "" is `drain` in the state directory."""
    file: bool = True
    """Whether the file is written at all."""
    driver_alarm_seconds: float = 120.0
    """Without any answer of the driver for this long: an alarm."""
    driver_drain_seconds: float = 900.0
    """Without any answer of the driver for this long: one drain request."""
    auto_withdraw: bool = False
    """Our request is taken back by itself when every cause is over and the GPUs are well."""
    settling_seconds: float = 600.0
    """So long they must be."""
    fleet: FleetSettings = field(default_factory=FleetSettings)
    webhook: WebhookTarget | None = None
    command: CommandTarget | None = None
    unit: UnitTarget | None = None
    slurm: SlurmTarget | None = None
    kubernetes: KubernetesTarget | None = None
