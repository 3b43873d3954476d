"""The form of the settings in the policy file about what is known of holders and their owners."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StrictBool, with_config

from reclaimerd.config.daemon_tables import CLOSED
from reclaimerd.config.value_kinds import (
    AbsolutePath,
    Digest,
    Duration,
    HookPath,
    Interval,
    NameGlob,
    Port,
    PositiveDuration,
    Word,
)
from reclaimerd.model.policy import Policy

_POLICY = Policy()
_ATTRIBUTION = _POLICY.attribution
_MARKS = _POLICY.marks
_WARN = _POLICY.warn
_MINER = _POLICY.miner


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionTable:
    """`[attribution]`: who says which pod or job was given which GPU."""

    kubelet_socket: Annotated[
        HookPath,
        Field(description='The kubelet\'s pod-resources socket; "" asks nobody.'),
    ] = _ATTRIBUTION.kubelet_socket
    runtime_sockets: Annotated[
        tuple[AbsolutePath, ...],
        Field(
            description="Sockets of container runtimes: they show when a runtime was started anew, and tell"
            " by CRI what the cluster's API does not tell of a pod."
        ),
    ] = _ATTRIBUTION.runtime_sockets
    refresh_seconds: Annotated[
        Interval,
        Field(
            alias="refresh",
            description="How often the list is read; older than two of these it says nothing.",
        ),
    ] = _ATTRIBUTION.refresh_seconds
    steady_seconds: Annotated[
        Duration,
        Field(
            alias="steady",
            description="So long after a start of the kubelet or a runtime nobody counts as unallocated.",
        ),
    ] = _ATTRIBUTION.steady_seconds
    system_namespaces: Annotated[
        tuple[Word, ...],
        Field(description="Their pods watch and serve the GPUs, and hold some without having asked for one."),
    ] = _ATTRIBUTION.system_namespaces
    scontrol: Annotated[
        HookPath,
        Field(description='Slurm\'s scontrol; "" looks where packages put it.'),
    ] = _ATTRIBUTION.scontrol
    slurmd: Annotated[
        HookPath,
        Field(description='slurmd, which tells the node\'s GRES; "" looks where packages put it.'),
    ] = _ATTRIBUTION.slurmd


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class MarksTable:
    """`[marks]`: whose own marks that ask to be spared count. As shipped nobody's."""

    namespaces: Annotated[
        tuple[NameGlob, ...],
        Field(description="Globs on namespaces whose pods may carry the annotation."),
    ] = _MARKS.namespaces
    users: Annotated[
        tuple[Word, ...],
        Field(description="Users whose units may carry the property."),
    ] = _MARKS.users


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WarnTable:
    """`[warn]`: how the owner of a process is warned."""

    terminals: Annotated[
        StrictBool,
        Field(description="true: a few lines on the owner's terminals."),
    ] = _WARN.terminals
    hook: Annotated[
        HookPath,
        Field(description='A program of root\'s that tells them in your own way; "" is none.'),
    ] = _WARN.hook
    seconds: Annotated[
        PositiveDuration,
        Field(alias="within", description="All ways of one warning together may take so long."),
    ] = _WARN.seconds


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class MinerTable:
    """`[miner]`: what you know of miners, besides what is built in."""

    names: Annotated[
        tuple[Word, ...],
        Field(description="Names of programs."),
    ] = _MINER.names
    sha256: Annotated[
        tuple[Digest, ...],
        Field(description="SHA-256 of programs' files."),
    ] = _MINER.sha256
    ports: Annotated[
        tuple[Port, ...],
        Field(description="TCP ports of mining pools."),
    ] = _MINER.ports
