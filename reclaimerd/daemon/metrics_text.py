"""Metrics as Prometheus reads them (text format 0.0.4), by its own library.

The library is imported with the first scrape and not before: a daemon whose metrics nobody asks for does not
carry it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from reclaimerd.daemon.metric_families import FAMILIES, Family, MetricKind
from reclaimerd.daemon.metrics import Measured
from reclaimerd.daemon.tally import Buckets

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(measured: Mapping[str, Measured]) -> str:
    """Return all of it, in the order of the table; a metric without a value has its HELP and TYPE alone."""
    from prometheus_client.exposition import generate_latest  # noqa: PLC0415  # see the module's docstring

    return generate_latest(_Collected(measured)).decode()


@dataclass(frozen=True, slots=True)
class _Collected:
    """What the library asks for: the metrics, one after the other."""

    measured: Mapping[str, Measured]

    def collect(self) -> Iterator["Metric"]:
        """Yield each."""
        for family in FAMILIES:
            yield _metric(family, self.measured.get(family.name, {}))


def _metric(family: Family, measured: Measured) -> "Metric":
    from prometheus_client.metrics_core import (  # noqa: PLC0415  # see the module's docstring
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    if isinstance(measured, Buckets):
        histogram = HistogramMetricFamily(family.name, family.text)
        histogram.add_metric([], list(_cumulated(measured)), measured.total)
        return histogram
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.text, labels=family.labels)
    for labels, value in sorted(measured.items()):
        metric.add_metric(labels, float(value))
    return metric


def _cumulated(buckets: Buckets) -> Iterator[tuple[str, float]]:
    """Yield each upper bound with how many are not above it."""
    counts = buckets.counts or [0] * (len(buckets.bounds) + 1)
    bounds = (*(f"{bound:g}" for bound in buckets.bounds), "+Inf")
    yield from zip(bounds, accumulate(counts), strict=True)
