"""The rollout report in words, tables and JSON; pure but for names of users."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.render import Block, Table, age_text, moment_text, user_text
from reclaimerd.cli.tables import Layout
from reclaimerd.judge.rollout_advice import undetermined_share
from reclaimerd.model.rollout import Fate, RuleReport, Story

SHOWN_STORIES = 10
_WORDS = {
    Fate.ACTED: "acted on",
    Fate.AT_ONCE: "at once",
    Fate.LATER: "later",
    Fate.STOPPED: "stopped",
    Fate.ENDED_FIRST: "over before it was due",
}


def rule_json(report: RuleReport) -> Json:
    """Return one rule's report as plain JSON; `undetermined_share` is null where nothing was counted."""
    body: Json = asdict(report)
    body["fates"] = {fate.value: report.count(fate) for fate in Fate}
    for key in ("stopped_by", "held_up_by", "users", "workloads"):
        body[key] = dict(body[key])
    for stage in body["stages"]:
        stage["refused"] = dict(stage["refused"])
    body["undetermined_share"] = undetermined_share(report)
    return body


def report_blocks(body: Json, reports: Sequence[RuleReport], *, whole: bool) -> Iterator[Block]:
    """Yield the report: the period, one line of figures and one of advice for each rule, then the stories.

    `whole`: all stories that were kept, not the first few of each rule.
    """
    yield f"{body['days']:.1f} days on record, from {moment_text(body['since'])}"
    yield from (f"note: {text}" for text in body["notes"])
    if not reports:
        yield "the policy has no rules, and none is on record"
        return
    yield Table(
        (
            "RULE",
            "KIND",
            "MODE",
            "TARGETS",
            "A DAY",
            "AT ONCE",
            "LATER",
            "STOPPED",
            "BY ITSELF",
            "UNDETERMINED",
        ),
        tuple(_row(report) for report in reports),
        Layout(cut=(("RULE", 16),), drop=("KIND", "A DAY", "MODE")),
    )
    for report in reports:
        yield f"{report.rule}: {report.advice.word.replace('_', ' ')}: {report.advice.text}"
        yield from _details(report)
        if report.stories:
            yield _stories(report.stories if whole else report.stories[:SHOWN_STORIES])
        left = report.targets - (len(report.stories) if whole else min(len(report.stories), SHOWN_STORIES))
        if left:
            yield f"  and {left} more: reclaimctl rollout report --rule {report.rule} --json"


def _row(report: RuleReport) -> tuple[str, ...]:
    share = undetermined_share(report)
    return (
        report.rule,
        report.kind or "-",
        report.mode.value if report.kind else "gone",
        str(report.targets),
        f"{report.per_day:.1f}",
        str(report.count(Fate.AT_ONCE)),
        str(report.count(Fate.LATER)),
        str(report.count(Fate.STOPPED)),
        str(report.in_grace + report.count(Fate.ENDED_FIRST)),
        "not counted" if share is None else f"{100 * share:.1f} %",
    )


def _details(report: RuleReport) -> Iterator[str]:
    """Yield what stands behind the figures."""
    if report.count(Fate.ACTED):
        yield f"  acted on: {report.count(Fate.ACTED)}"
    if report.stopped_by:
        yield f"  stopped by: {_counts(report.stopped_by)}"
    if report.held_up_by:
        yield f"  held up for a while by: {_counts(report.held_up_by)}"
    if report.longest_wait_seconds:
        yield f"  the longest wait for budget or cool-down: {age_text(report.longest_wait_seconds)}"
    for stage in report.stages:
        refused = f", refused by {_counts(stage.refused)}" if stage.refused else ""
        yield f"  then {stage.stage}: {stage.permitted} permitted{refused}"
    if report.breaker_trips:
        times = f"{report.breaker_trips} times"
        yield f"  the breaker would have tripped {times}; until a person closes it nothing acts"
    if report.users:
        yield "  users: " + ", ".join(f"{user_text(int(uid))} {count}" for uid, count in report.users)
    if report.workloads:
        yield f"  workloads: {_counts(report.workloads)}"
    tally = report.tally
    if tally is not None and (tally.spared or tally.left_alone):
        yield (
            f"  broke the rule and were protected: {tally.spared_processes} processes; "
            f"left alone (large workloads, MPS clients): {tally.left_alone_processes}"
        )


def _counts(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count}" for name, count in pairs)


def _stories(stories: Sequence[Story]) -> Table:
    return Table(
        ("  FIRST DUE", "PID", "USER", "WORKLOAD", "FATE", "WHY", "INCIDENT"),
        tuple(
            (
                f"  {moment_text(story.first_at)}",
                str(story.pid) if story.pid else "-",
                user_text(story.uid) if story.pid else "-",
                story.workload or "-",
                _WORDS[story.fate],
                story.text or "-",
                _incidents(story),
            )
            for story in stories
        ),
        Layout(
            cut=(("  FIRST DUE", 22), ("WORKLOAD", 12), ("WHY", 12), ("FATE", 9)),
            drop=("USER", "WHY", "WORKLOAD"),
        ),
    )


def _incidents(story: Story) -> str:
    more = f" and {story.incident_count - 1} more" if story.incident_count > 1 else ""
    return f"{story.incidents[0]}{more}" if story.incidents else "-"
