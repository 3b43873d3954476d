"""The form of the whole policy file: which tables it has, and what stands in lists of them.

It mirrors `model.policy` key by key and takes every default from there: a table becomes the settings of the
same name. What one value says about another is `combinations`' business; who may write the file is
`source`'s.
"""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, StrictBool, with_config

from reclaimerd.config.access_table import AccessTable
from reclaimerd.config.cluster_table import ClusterTable
from reclaimerd.config.daemon_tables import (
    CLOSED,
    AuditTable,
    BreakerTable,
    BudgetsTable,
    DaemonTable,
    GatesTable,
    LadderTable,
    ResetTable,
    WorkersTable,
)
from reclaimerd.config.drain_tables import DrainTable
from reclaimerd.config.outlet_tables import AnchorWebhookTable, MetricsTable, NotifyTable
from reclaimerd.config.rule_kinds import RuleItem
from reclaimerd.config.value_kinds import (
    AbsolutePath,
    DomainWord,
    Name,
    UidRange,
    UnitName,
    Word,
)
from reclaimerd.config.watch_tables import AttributionTable, MarksTable, MinerTable, WarnTable
from reclaimerd.model.policy import FaultDomain


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectTable:
    """`[[protect]]`: what is never touched, besides what is built in. Every key that is set must hold."""

    name: Annotated[Name, Field(description="Its name, for the record.")] = ""
    exe: Annotated[
        AbsolutePath, Field(description="The whole path of the program; the file itself must be the same.")
    ] = ""
    unit: Annotated[UnitName, Field(description="The full name of its systemd unit.")] = ""
    uids: Annotated[
        tuple[UidRange, ...],
        Field(description="Real uids, or ranges of them. One of the three must be given."),
    ] = ()


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureTable:
    """`[[signature]]`: a place in the kernel where tasks hang, tried before the package's own."""

    name: Annotated[Name, Field(description="Its name, for the record.")] = ""
    title: Annotated[str, Field(description='A noun phrase: it stands after "in".')] = ""
    meaning: Annotated[str, Field(description="What it means. Must be given.")] = ""
    mend: Annotated[str, Field(description="What helps. Must be given.")] = ""
    fault_domain: Annotated[
        DomainWord,
        Field(
            description="Whose fault it is; `[drain] fault_domains` says which may lead to a drain request."
        ),
    ] = FaultDomain.UNKNOWN
    symbols: Annotated[
        tuple[Word, ...],
        Field(description="The first frame that is neither scheduler nor lock: names, or prefixes with a *."),
    ] = ()
    modules: Annotated[tuple[Word, ...], Field(description="The kernel module of that frame.")] = ()
    within: Annotated[tuple[Word, ...], Field(description="Frames that must stand further out.")] = ()
    kernel_threads: Annotated[
        tuple[Word, ...],
        Field(description="Beginnings of the names of kernel threads, for a close that was deferred."),
    ] = ()
    issue: Annotated[str, Field(description="Where it is told of.")] = ""
    forbids_reset: Annotated[
        StrictBool, Field(description="true: while a task is there no GPU is reset.")
    ] = True


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFile:
    """The whole file."""

    daemon: DaemonTable = field(default_factory=DaemonTable)
    ladder: LadderTable = field(default_factory=LadderTable)
    gates: GatesTable = field(default_factory=GatesTable)
    budgets: BudgetsTable = field(default_factory=BudgetsTable)
    breaker: BreakerTable = field(default_factory=BreakerTable)
    drain: DrainTable = field(default_factory=DrainTable)
    workers: WorkersTable = field(default_factory=WorkersTable)
    reset: ResetTable = field(default_factory=ResetTable)
    attribution: AttributionTable = field(default_factory=AttributionTable)
    cluster: ClusterTable = field(default_factory=ClusterTable)
    marks: MarksTable = field(default_factory=MarksTable)
    warn: WarnTable = field(default_factory=WarnTable)
    miner: MinerTable = field(default_factory=MinerTable)
    audit: AuditTable = field(default_factory=AuditTable)
    anchor_webhook: AnchorWebhookTable = field(default_factory=AnchorWebhookTable)
    access: AccessTable = field(default_factory=AccessTable)
    metrics: MetricsTable = field(default_factory=MetricsTable)
    notify: tuple[NotifyTable, ...] = ()
    protect: tuple[ProtectTable, ...] = ()
    signature: tuple[SignatureTable, ...] = ()
    rule: tuple[RuleItem, ...] = ()
