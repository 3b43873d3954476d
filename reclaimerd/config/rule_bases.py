"""What the rules of the policy file share, and the keys that several kinds have.

Tables inherit here, and only here and in the tables of the kinds: what rules share is said once, in a chain
from what every rule about processes has to what only those have that may act. A kind that can't act has no
key to act with. A missing key without which a rule says nothing is told by `combinations`, so that it hides
no other fault.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, with_config

from reclaimerd.config.selector_table import EVERYBODY, SelectorTable
from reclaimerd.config.value_kinds import (
    ActionWord,
    Duration,
    Kind,
    ModeWord,
    Name,
    Percent,
    PositiveDuration,
    Priority,
    Readings,
    ScopeWord,
    StageWord,
    Windows,
    Zone,
)
from reclaimerd.model import policy as model

CLOSED = ConfigDict(extra="forbid")
RULE = model.Rule(name="")
_UTC = "UTC"

NameKey = Annotated[Name, Field(description="Goes into records and metrics; each rule needs its own.")]
KindKey = Annotated[Kind, Field(description="What the rule is about; it decides which other keys there are.")]
ModeKey = Annotated[ModeWord, Field(description="How far this rule may go; `[daemon] mode` caps it.")]
ActionKey = Annotated[
    ActionWord,
    Field(
        description='"observe" reports. "warn" tells the owner, and nothing follows. "reclaim" climbs the '
        "ladder as far as `stages` and the mode allow.",
    ),
]
StagesKey = Annotated[
    tuple[StageWord, ...],
    Field(description='Steps that it may take, the gentlest first. "reset" only where it is listed.'),
]
GraceKey = Annotated[
    Duration | None,
    Field(alias="grace", description="From SIGTERM to the next step; left out, `[ladder] sigterm`."),
]
SigkillKey = Annotated[
    PositiveDuration | None,
    Field(alias="sigkill", description="How long SIGKILL may take; left out, `[ladder] sigkill`."),
]
EvenIfAllocated = Annotated[
    StrictBool,
    Field(description="true: it acts also on a holder that was given the GPU for its sole use."),
]
WindowKey = Annotated[
    PositiveDuration,
    Field(alias="window", description="How far back it looks; at least 20 intervals."),
]
OlderThan = Annotated[
    PositiveDuration | None,
    Field(alias="older_than", description="A younger process is left alone."),
]


EnforceOnKey = Annotated[
    Percent,
    Field(
        alias="enforce_on",
        description='The share of hosts on which mode "enforce" enforces, such as "5%"; the others stay '
        "in dry run. A host keeps its place: it goes by machine id and the rule's name.",
    ),
]


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class HolderRuleTable:
    """What every rule about processes has."""

    name: NameKey = RULE.name
    kind: KindKey = RULE.kind
    for_seconds: Annotated[
        Duration,
        Field(alias="for", description="How long it must hold without a break before anything follows."),
    ] = RULE.for_seconds
    readings: Annotated[
        Readings,
        Field(description="Over how many looks at least it must hold."),
    ] = RULE.readings
    mode: ModeKey = RULE.mode


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectingRuleTable(HolderRuleTable):
    """What a rule has that concerns some processes and others not."""

    match: Annotated[
        SelectorTable,
        Field(description="Whom it concerns; left out, everybody. An enforcing rule must say whom."),
    ] = EVERYBODY
    exempt: Annotated[
        SelectorTable,
        Field(description="Whom it never concerns. Where that can't be read it does nothing."),
    ] = EVERYBODY


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class WarningRuleTable(SelectingRuleTable):
    """What a rule has of which an owner may hear."""

    windows: Annotated[
        Windows,
        Field(
            description="When it counts: minute, hour, day, month and weekday as in crontab(5). Outside of "
            "all windows it does not hold. Left out, always.",
        ),
    ] = RULE.windows
    zone: Annotated[
        Zone,
        Field(description="The time zone of its windows, by its name in the time zone database."),
    ] = _UTC
    large_jobs: Annotated[
        StrictBool,
        Field(description="true: also members of jobs that are larger than `[gates] spare_jobs_over_gpus`."),
    ] = RULE.large_jobs
    enforce_on_percent: EnforceOnKey = RULE.enforce_on_percent


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class ActingRuleTable(WarningRuleTable):
    """What a rule has that may take a GPU back."""

    action: ActionKey = RULE.action
    warn_before_seconds: Annotated[
        PositiveDuration | None,
        Field(
            alias="warn_before",
            description="The owner is warned first, and for this long nothing else follows. Who could not be "
            "warned is left alone.",
        ),
    ] = None
    stages: StagesKey = RULE.stages
    scope: Annotated[
        ScopeWord,
        Field(description="What is taken: the process, its descendants too, or its whole job or container."),
    ] = RULE.scope
    sigterm_seconds: GraceKey = None
    sigkill_seconds: SigkillKey = None
    priority: Annotated[
        Priority,
        Field(description="Where several are due at once the higher goes first."),
    ] = RULE.priority
    avoid: Annotated[
        SelectorTable,
        Field(description="Who goes last of those that break the rule."),
    ] = EVERYBODY
