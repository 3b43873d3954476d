"""What is wrong with the steps that a rule of any kind lists; pure."""

from collections.abc import Iterator, Mapping

from reclaimerd.config.faults import Flaw
from reclaimerd.config.lines import KeyPath
from reclaimerd.model.policy import FaultRule, ListedStage, Rule, RuleAction

_ORDER = tuple(ListedStage)


def stage_flaws(rule: Rule | FaultRule, base: KeyPath) -> Iterator[Flaw]:
    """Return what is wrong with the list itself: twice, out of order, or empty."""
    stages = rule.stages
    key = (*base, "stages")
    places = [_ORDER.index(stage) for stage in stages]
    if len(set(places)) < len(places):
        yield Flaw(key, "a stage stands there twice", "list each stage once")
    if places != sorted(places):
        listed = ", ".join(f'"{stage}"' for stage in _ORDER if stage in stages)
        yield Flaw(key, "the stages are out of order", f"write them gentlest first: [{listed}]")
    if rule.action is RuleAction.RECLAIM and not stages:
        yield Flaw(
            key, "a rule that reclaims has no stage to take", 'list stages, or write action = "observe"'
        )


def needed_flaws(
    stages: tuple[ListedStage, ...],
    base: KeyPath,
    needs: Mapping[ListedStage, ListedStage],
) -> Iterator[Flaw]:
    """Return the stages that stand there without the one that each needs before it."""
    for stage, needed in needs.items():
        if stage in stages and needed not in stages:
            yield Flaw(
                (*base, "stages"),
                f'"{stage}" without "{needed}" before it',
                f'add "{needed}", or take "{stage}" out',
            )


def grace_flaws(rule: Rule | FaultRule, base: KeyPath) -> Iterator[Flaw]:
    """Return the flaw of a SIGTERM that gets no time."""
    if rule.sigterm_seconds == 0 and ListedStage.SIGTERM in rule.stages:
        yield Flaw(
            (*base, "grace"),
            "a grace of zero sends SIGKILL at once, so SIGTERM would be for nothing",
            'give it a time, such as grace = "30s"',
        )
