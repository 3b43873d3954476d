"""The kinds of value that a key of the policy file may have, each checked by its function in `values`."""

from typing import Annotated

from pydantic import BeforeValidator

from reclaimerd.config import rule_values, selector_values, time_windows, values
from reclaimerd.model.policy import (
    FaultDomain,
    GpuSpan,
    LabelTerm,
    ListedStage,
    Mode,
    Per,
    RuleAction,
    RuleKind,
    Scope,
    Threshold,
    TimeWindow,
)

Duration = Annotated[float, BeforeValidator(values.duration)]
PositiveDuration = Annotated[float, BeforeValidator(values.positive_duration)]
"""A wait of zero would take two steps of the ladder at once."""
Interval = Annotated[float, BeforeValidator(values.interval)]
FileSize = Annotated[int, BeforeValidator(values.file_size)]
Cap = Annotated[Threshold, BeforeValidator(values.threshold)]
Percent = Annotated[float, BeforeValidator(values.percent)]
Count = Annotated[int, BeforeValidator(values.count)]
PositiveCount = Annotated[int, BeforeValidator(values.positive_count)]
Readings = Annotated[int, BeforeValidator(values.readings)]
Name = Annotated[str, BeforeValidator(values.name)]
Word = Annotated[str, BeforeValidator(values.word)]
AbsolutePath = Annotated[str, BeforeValidator(values.absolute_path)]
UidRange = Annotated[tuple[int, int], BeforeValidator(values.uid_range)]
ProgramGlob = Annotated[str, BeforeValidator(values.program_glob)]
CgroupGlob = Annotated[str, BeforeValidator(values.cgroup_glob)]
Pattern = Annotated[str, BeforeValidator(values.pattern)]
GpuName = Annotated[str, BeforeValidator(values.gpu)]
UnitName = Annotated[str, BeforeValidator(values.unit)]
Kind = Annotated[RuleKind, BeforeValidator(values.choice(*RuleKind))]
Rate = Annotated[float, BeforeValidator(rule_values.rate)]
IdleShare = Annotated[float, BeforeValidator(rule_values.idle_share)]
Priority = Annotated[int, BeforeValidator(rule_values.priority)]
Score = Annotated[float, BeforeValidator(rule_values.score)]
Port = Annotated[int, BeforeValidator(rule_values.port)]
Window = Annotated[TimeWindow, BeforeValidator(time_windows.window)]
Windows = Annotated[tuple[Window, ...], BeforeValidator(rule_values.some_listed)]
Zone = Annotated[str, BeforeValidator(time_windows.zone)]
Digest = Annotated[str, BeforeValidator(selector_values.digest)]
NameGlob = Annotated[str, BeforeValidator(selector_values.name_glob)]
UnitGlob = Annotated[str, BeforeValidator(selector_values.unit_glob)]
Label = Annotated[LabelTerm, BeforeValidator(selector_values.label_term)]
RuntimeWord = Annotated[str, BeforeValidator(values.choice(*selector_values.RUNTIMES))]
PerWord = Annotated[Per, BeforeValidator(values.choice(*Per))]
HookPath = Annotated[str, BeforeValidator(values.absolute_path_or_empty)]
ServiceName = Annotated[str, BeforeValidator(values.service)]
XidClass = Annotated[str, BeforeValidator(values.choice(*values.RESET_CLASSES, *values.REBOOT_CLASSES))]
ActionOfDriver = Annotated[str, BeforeValidator(values.recovery_action)]
XidClasses = Annotated[tuple[XidClass, ...], BeforeValidator(values.listed)]
ActionsOfDriver = Annotated[tuple[ActionOfDriver, ...], BeforeValidator(values.listed)]
ModeWord = Annotated[Mode, BeforeValidator(values.choice(*Mode))]
SpanWord = Annotated[GpuSpan, BeforeValidator(values.choice(*GpuSpan))]
ScopeWord = Annotated[Scope, BeforeValidator(values.choice(*Scope))]
ActionWord = Annotated[RuleAction, BeforeValidator(values.choice(*RuleAction))]
FaultActionWord = Annotated[
    RuleAction, BeforeValidator(values.choice(RuleAction.OBSERVE, RuleAction.RECLAIM))
]
OnlyObserves = Annotated[RuleAction, BeforeValidator(rule_values.only_observes)]
OnlyWarns = Annotated[RuleAction, BeforeValidator(rule_values.only_warns)]
StageWord = Annotated[ListedStage, BeforeValidator(values.choice(*ListedStage))]
DomainWord = Annotated[FaultDomain, BeforeValidator(values.choice(*FaultDomain))]
