"""The metrics' text: what Prometheus' own parser reads, every family, and a bounded count of series."""

import re
import subprocess
import sys
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from reclaimerd.daemon.metric_families import BY_NAME, FAMILIES, MetricKind
from reclaimerd.daemon.metrics import MetricFacts, metrics_of
from reclaimerd.daemon.metrics_text import metrics_text
from reclaimerd.daemon.tally import Buckets, Tally
from reclaimerd.record.chain import Head
from tests.builders import GPU_A, WALL, a_busy_snapshot, a_ref, an_incident
from tests.daemon.test_metrics import after_a_pass, values
from tests.fakes import Rig


def a_full_text(rig: Rig) -> str:
    """Return the text of a rig with every kind of metric in it."""
    tally = Tally()
    tally.passes.add(0.02)
    tally.reclaims.add(12.5)
    tally.acts["sigterm", "sent"] = 3
    facts = MetricFacts(tally, WALL - 60, WALL, Head(17, "0" * 64), {"nvml": True, "procfs": False})
    return metrics_text(metrics_of(rig.cycle, facts))


def test_the_text_is_what_prometheus_reads() -> None:
    """Each family of the table with its kind and words, and the labels that it has there."""
    rig = after_a_pass(a_busy_snapshot())
    parsed = {one.name: one for one in text_string_to_metric_families(a_full_text(rig))}
    for family in FAMILIES:
        name = family.name.removesuffix("_total") if family.kind is MetricKind.COUNTER else family.name
        assert parsed[name].type == family.kind.value, name
        assert parsed[name].documentation == family.text
        for sample in parsed[name].samples:
            assert set(sample.labels) - {"le"} == set(family.labels), sample
    histogram = {
        sample.labels.get("le", sample.name): sample.value
        for sample in parsed["reclaimerd_pass_duration_seconds"].samples
    }
    assert histogram["0.01"] == 0
    assert histogram["0.025"] == histogram["+Inf"] == histogram["reclaimerd_pass_duration_seconds_count"] == 1
    assert histogram["reclaimerd_pass_duration_seconds_sum"] == 0.02
    assert 'reclaimerd_abandoned_workers{role="nvml"} 1.0' in a_full_text(rig)
    assert "reclaimerd_audit_head_sequence 17.0" in a_full_text(rig)


def test_nothing_is_measured_that_the_table_does_not_have() -> None:
    """A value under a name that is not in the table would be shown to nobody."""
    rig = after_a_pass(a_busy_snapshot())
    measured = metrics_of(rig.cycle, MetricFacts(Tally(), WALL, WALL, Head(1, "0" * 64), {"nvml": False}))
    assert set(measured) == set(BY_NAME)
    for family in FAMILIES:
        value = measured[family.name]
        assert isinstance(value, Buckets) is (family.kind is MetricKind.HISTOGRAM)
        if not isinstance(value, Buckets):
            assert {len(labels) for labels in value} <= {len(family.labels)}, family.name


def test_names_have_their_units_and_no_label_a_process() -> None:
    """Prometheus' own conventions, and the promise that the count of series has a bound."""
    for family in FAMILIES:
        assert re.fullmatch(r"reclaimerd_[a-z][a-z_]*", family.name)
        assert family.name.endswith("_total") is (family.kind is MetricKind.COUNTER), family.name
        assert family.text.endswith(".")
        assert "|" not in family.text
        assert not set(family.labels) & {"pid", "uid", "user", "pod", "job", "container", "namespace", "exe"}
    assert len(BY_NAME) == len(FAMILIES)


def test_a_crowd_makes_no_series_more() -> None:
    """A thousand holders and a thousand incidents have as many series as one of each."""
    rig = after_a_pass(a_busy_snapshot())
    before = len(a_full_text(rig).splitlines())
    rig.cycle.state.incidents = {
        one.id: one for one in (an_incident(id=f"inc-{place}") for place in range(1000))
    }
    seen = rig.cycle.state.snapshot
    assert seen is not None
    crowd = tuple(
        replace(holder, ref=a_ref(1000 + place)) for holder in seen.holders for place in range(1000)
    )
    rig.cycle.state.snapshot = replace(seen, holders=crowd)
    assert values(rig, "gpu_holders")[GPU_A,] == 1000
    assert values(rig, "incidents")[an_incident().stage.value,] == 1000
    assert len(a_full_text(rig).splitlines()) == before


def test_a_daemon_whose_metrics_nobody_asks_for_does_not_carry_the_library() -> None:
    """It is imported with the first scrape."""
    code = (
        "import sys, reclaimerd.daemon.main; from reclaimerd.daemon.metrics_text import metrics_text; "
        "before = 'prometheus_client' in sys.modules; metrics_text({}); "
        "sys.exit(before or 'prometheus_client' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False, timeout=60).returncode == 0
