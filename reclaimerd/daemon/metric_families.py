"""The metrics that we show: name, kind, labels and words of each, in one table. Nothing is measured here.

No label has a PID, a user, a pod or a job in it: every label is a GPU of this host, a receiver of the policy,
or a word of a closed set, so that the count of series has a bound. docs/metrics.md has this table; a test
compares.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """Prometheus' own kinds."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its whole name as it is scraped (a histogram's without _bucket, _sum and _count)."""

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()


PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECLAIM_BUCKETS = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds in seconds."""

_GAUGE, _COUNTER, _HISTOGRAM = MetricKind
_GPU = ("gpu",)

FAMILIES = (
    Family("reclaimerd_gpu_memory_used_bytes", _GAUGE, "Memory in use, without the driver's reserve.", _GPU),
    Family("reclaimerd_gpu_memory_total_bytes", _GAUGE, "Memory of the GPU.", _GPU),
    Family(
        "reclaimerd_gpu_holders", _GAUGE, "Processes that hold the GPU, listed by the driver or not.", _GPU
    ),
    Family("reclaimerd_gpu_contexts", _GAUGE, "Rows in the driver's own lists of processes.", _GPU),
    Family(
        "reclaimerd_gpu_growth_bytes_per_second",
        _GAUGE,
        "Robust slope of its holders' memory, added up; only where a rule has its memory watched over time.",
        _GPU,
    ),
    Family(
        "reclaimerd_gpu_recovery_action",
        _GAUGE,
        "1 at what the driver asks for; no series where it can't be read.",
        ("gpu", "action"),
    ),
    Family("reclaimerd_gpu_last_xid", _GAUGE, "Code of the last Xid that stands against it.", _GPU),
    Family("reclaimerd_gpu_last_xid_timestamp_seconds", _GAUGE, "When that came, in Unix time.", _GPU),
    Family("reclaimerd_gpu_breaker_open", _GAUGE, "1: resets failed too often, a person must look.", _GPU),
    Family("reclaimerd_gpu_do_not_touch", _GAUGE, "1: a reset was left alone here; reboot the host.", _GPU),
    Family(
        "reclaimerd_resets_total", _COUNTER, "Resets that came to an outcome, no dry runs.", ("gpu", "result")
    ),
    Family(
        "reclaimerd_reset_refused_total",
        _COUNTER,
        "Reasons for which the gates refused a reset, each counted when it changed.",
        ("gpu", "reason"),
    ),
    Family("reclaimerd_build_info", _GAUGE, "1, with the version.", ("version",)),
    Family("reclaimerd_start_time_seconds", _GAUGE, "When the daemon was started, in Unix time."),
    Family("reclaimerd_mode", _GAUGE, "1 at the mode in force.", ("mode",)),
    Family("reclaimerd_dry_run", _GAUGE, "1: started with --dry-run, acts on nothing for nobody."),
    Family("reclaimerd_paused", _GAUGE, "1: a person stopped acts by rule."),
    Family("reclaimerd_hold", _GAUGE, "1: a HOLD file stops every act by rule, reset and drain."),
    Family("reclaimerd_breaker_open", _GAUGE, "1: too much became due at once, a person must close it."),
    Family("reclaimerd_record_fault", _GAUGE, "1: nothing can be put on record, so nothing is done."),
    Family(
        "reclaimerd_anchor_fault",
        _GAUGE,
        "1: the audit log's head can't be kept elsewhere; nothing waits for it.",
    ),
    Family("reclaimerd_suspended_rules", _GAUGE, "Rules that a person lets only observe for a time."),
    Family(
        "reclaimerd_staged_rules",
        _GAUGE,
        "Rules with `enforce_on`, by whether this host is one of those where they enforce.",
        ("enforce_here",),
    ),
    Family("reclaimerd_driver_state", _GAUGE, "1 at how the driver answers.", ("state",)),
    Family("reclaimerd_driver_unresponsive_seconds", _GAUGE, "How long the driver is silent; 0: it answers."),
    Family(
        "reclaimerd_abandoned_workers",
        _GAUGE,
        "Workers that hang and were left behind, at most one a role.",
        ("role",),
    ),
    Family("reclaimerd_stuck_tasks", _GAUGE, "Processes that are stuck, by known place.", ("signature",)),
    Family(
        "reclaimerd_incidents", _GAUGE, "Open incidents by stage; handed_over waits for somebody.", ("stage",)
    ),
    Family("reclaimerd_incidents_opened_total", _COUNTER, "Incidents opened, by who asked.", ("actor",)),
    Family("reclaimerd_incidents_ended_total", _COUNTER, "Incidents that ended, by how.", ("end",)),
    Family(
        "reclaimerd_acts_total", _COUNTER, "Acts by what came of them, no dry runs.", ("stage", "outcome")
    ),
    Family("reclaimerd_dry_run_acts_total", _COUNTER, "Acts that a dry run stopped before.", ("stage",)),
    Family(
        "reclaimerd_refusals_total",
        _COUNTER,
        "Reasons for which the gates refused a step, each counted when it changed.",
        ("stage", "reason"),
    ),
    Family(
        "reclaimerd_time_to_reclaim_seconds",
        _HISTOGRAM,
        "From an incident's opening to the proof that its memory is back.",
    ),
    Family("reclaimerd_alarms_total", _COUNTER, "Alarms for a person that were put on record."),
    Family("reclaimerd_denied_total", _COUNTER, "Denied calls on record, one an hour for each uid."),
    Family("reclaimerd_denied_calls_total", _COUNTER, "Denied calls, each one."),
    Family("reclaimerd_pass_duration_seconds", _HISTOGRAM, "How long a pass took."),
    Family("reclaimerd_pass_failures_total", _COUNTER, "Passes that broke off."),
    Family("reclaimerd_last_pass_timestamp_seconds", _GAUGE, "End of the last whole pass, in Unix time."),
    Family("reclaimerd_budget_left", _GAUGE, "What rules may still do in these 24 hours.", ("kind",)),
    Family("reclaimerd_audit_head_sequence", _GAUGE, "Number of the last audit record that is durable."),
    Family(
        "reclaimerd_audit_anchored_sequence",
        _GAUGE,
        "Number of the last audit record whose hash a receiver took.",
    ),
    Family("reclaimerd_drain_phase", _GAUGE, "1 at the phase of this node's drain request.", ("phase",)),
    Family("reclaimerd_drain_target", _GAUGE, "1 at where each target of it stands.", ("target", "state")),
    Family("reclaimerd_drain_slot", _GAUGE, "1: the node has its place in the fleet's count."),
    Family(
        "reclaimerd_notices_total",
        _COUNTER,
        "Notices by receiver and what came of them.",
        ("notify", "result"),
    ),
)
BY_NAME = {family.name: family for family in FAMILIES}


def as_markdown() -> str:
    """Return the table for docs/metrics.md."""
    rows = (
        f"| `{one.name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.text} |"
        for one in FAMILIES
    )
    return "\n".join(["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"
