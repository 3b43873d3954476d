"""The form of `[drain]` in the policy file and of the tables in it: when a drain is asked for, and of whom.

A table of a target that is not written is a target that is not asked; each default is the model's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, with_config

from reclaimerd.config import drain_values, values
from reclaimerd.config.daemon_tables import CLOSED
from reclaimerd.config.value_kinds import (
    DomainWord,
    Duration,
    HookPath,
    Percent,
    PositiveCount,
    PositiveDuration,
)
from reclaimerd.model import drain_policy as model
from reclaimerd.model.drain_policy import Arbiter, NodeMark

_DRAIN = model.DrainSettings()
_FLEET = model.FleetSettings()
_WEBHOOK = model.WebhookTarget("")
_COMMAND = model.CommandTarget("")
_UNIT = model.UnitTarget()
_SLURM = model.SlurmTarget()
_KUBERNETES = model.KubernetesTarget()

CallLimit = Annotated[float, BeforeValidator(drain_values.call_limit)]


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTable:
    """`[drain.fleet]`: how many nodes of the fleet may be drained by us at once, and who counts them.

    The smaller of `nodes` and `percent` holds, and at least one node.
    """

    arbiter: Annotated[
        Arbiter,
        BeforeValidator(values.choice(*Arbiter)),
        Field(
            description='Who counts. "none": nobody, and only the file is written. "receiver": whoever gets '
            "the requests keeps a limit of their own."
        ),
    ] = _FLEET.arbiter
    nodes: Annotated[PositiveCount, Field(description="At most so many nodes.")] = _FLEET.nodes
    percent: Annotated[Percent, Field(description="At most this share of all nodes.")] = _FLEET.percent
    same_code_nodes: Annotated[
        PositiveCount,
        Field(description="So many nodes for one reason within `same_code_within` stop all further ones."),
    ] = _FLEET.same_code_nodes
    same_code_seconds: Annotated[
        PositiveDuration,
        Field(alias="same_code_within", description="The time of `same_code_nodes`."),
    ] = _FLEET.same_code_seconds
    lease_namespace: Annotated[
        str,
        BeforeValidator(drain_values.namespace),
        Field(description='Where the Lease lies that "kubernetes" counts under.'),
    ] = _FLEET.lease_namespace


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class PostTable:
    """What every address has to which we post: the keys of `WebhookTarget`."""

    url: Annotated[
        str,
        BeforeValidator(drain_values.web_address),
        Field(description="Its address; https. Must be given. No redirect is followed, no proxy used."),
    ] = _WEBHOOK.url
    secret_file: Annotated[
        HookPath,
        Field(description='File of the key that signs, root\'s, mode 0600; "" sends it unsigned.'),
    ] = _WEBHOOK.secret_file
    ca_file: Annotated[
        HookPath,
        Field(description='PEM file of whom TLS trusts; "" is the host\'s own authorities.'),
    ] = _WEBHOOK.ca_file
    seconds: Annotated[
        CallLimit,
        Field(alias="within", description="One try may take so long, all together three times that."),
    ] = _WEBHOOK.seconds
    plain_http: Annotated[
        StrictBool,
        Field(description="true: also without TLS, to a loopback address such as 127.0.0.1."),
    ] = _WEBHOOK.plain_http


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTable(PostTable):
    """`[drain.webhook]`: a signed POST of JSON to whoever moves the work away."""


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandTable:
    """`[drain.command]`: a program of root's that gets `request`, `withdraw` or `status`, and JSON."""

    program: Annotated[
        str,
        BeforeValidator(drain_values.program_path),
        Field(description="Its whole path. Must be given. No shell is used."),
    ] = _COMMAND.program
    seconds: Annotated[
        CallLimit,
        Field(alias="within", description="It may take so long; past it, it is killed and run again later."),
    ] = _COMMAND.seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTable:
    """`[drain.unit]`: a systemd target that is started for a request, and stopped when it is withdrawn."""

    name: Annotated[
        str,
        BeforeValidator(drain_values.drain_target),
        Field(description="The target's full name; units of yours hang on it."),
    ] = _UNIT.name


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmDrainTable:
    """`[drain.slurm]`: the node is drained by `scontrol`."""

    node: Annotated[
        str,
        BeforeValidator(drain_values.slurm_node),
        Field(description='This node\'s name in Slurm; "" finds it.'),
    ] = _SLURM.node
    seconds: Annotated[
        CallLimit, Field(alias="within", description="One call of scontrol may take so long.")
    ] = _SLURM.seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesDrainTable:
    """`[drain.kubernetes]`: marks on the Node object, by the credentials of `[cluster]`."""

    marks: Annotated[
        tuple[Annotated[NodeMark, BeforeValidator(values.choice(*NodeMark))], ...],
        Field(description="What is set, always in this order. evict: only the pod that is stuck."),
    ] = _KUBERNETES.marks
    no_execute: Annotated[
        StrictBool,
        Field(description="true: the taint also evicts every pod, whatever its disruption budget says."),
    ] = _KUBERNETES.no_execute
    evict_seconds: Annotated[
        PositiveDuration,
        Field(alias="evict_within", description="So long a disruption budget is waited for."),
    ] = _KUBERNETES.evict_seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTable:
    """`[drain]`: when and how a drain is asked for. Whom it is asked of stands in its own tables."""

    fault_domains: Annotated[
        tuple[DomainWord, ...],
        Field(description='Whose fault a stuck task must be. With "workload" users could stop nodes.'),
    ] = _DRAIN.fault_domains
    file: Annotated[
        StrictBool,
        Field(description="true: a file is written for agents of this host, and counts as a report alone."),
    ] = _DRAIN.file
    directory: Annotated[
        HookPath,
        Field(description='Folder of the request files; "" is `drain` below the state directory.'),
    ] = _DRAIN.directory
    driver_alarm_seconds: Annotated[
        PositiveDuration,
        Field(alias="driver_alarm", description="Without any answer of the driver for so long: an alarm."),
    ] = _DRAIN.driver_alarm_seconds
    driver_drain_seconds: Annotated[
        PositiveDuration,
        Field(
            alias="driver_drain_after",
            description="Without any answer of the driver for so long: one drain request.",
        ),
    ] = _DRAIN.driver_drain_seconds
    auto_withdraw: Annotated[
        StrictBool,
        Field(description="true: taken back by itself when every cause is over and the GPUs are well."),
    ] = _DRAIN.auto_withdraw
    settling_seconds: Annotated[
        Duration,
        Field(alias="settling", description="They must have been so long, before it is."),
    ] = _DRAIN.settling_seconds
    fleet: Annotated[FleetTable, Field(description="The fleet's limit.")] = field(default_factory=FleetTable)
    webhook: Annotated[WebhookTable | None, Field(description="A web server.")] = None
    command: Annotated[CommandTable | None, Field(description="A program.")] = None
    unit: Annotated[UnitTable | None, Field(description="A systemd target.")] = None
    slurm: Annotated[SlurmDrainTable | None, Field(description="Slurm.")] = None
    kubernetes: Annotated[KubernetesDrainTable | None, Field(description="Kubernetes.")] = None


SETTINGS_OF: Mapping[type, type] = {
    FleetTable: model.FleetSettings,
    WebhookTable: model.WebhookTarget,
    CommandTable: model.CommandTarget,
    UnitTable: model.UnitTarget,
    SlurmDrainTable: model.SlurmTarget,
    KubernetesDrainTable: model.KubernetesTarget,
}
"""What each table inside of `[drain]` becomes."""
