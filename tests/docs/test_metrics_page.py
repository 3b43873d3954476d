"""The pages and files for monitoring agree with the code: table, alerts, dashboard, notices."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # no stubs here

from reclaimerd.daemon.metric_families import FAMILIES, MetricKind, as_markdown
from reclaimerd.daemon.metrics_text import metrics_text
from reclaimerd.host.notice_text import notice_body
from reclaimerd.model.outlets import Notice, NoticeKind, Severity

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "config" / "prometheus" / "reclaimerd.rules.yml"
RULES_TEST = ROOT / "tests" / "prometheus" / "rules_test.yml"
DASHBOARD = ROOT / "config" / "grafana" / "reclaimerd.json"
NAME = re.compile(r"\breclaimerd_[a-z_]+")
SELECTOR = re.compile(r"\b(reclaimerd_[a-z_]+)\{([^}]*)\}")
OF_THE_SCRAPE = {"instance", "job", "le"}
"""Labels that Prometheus itself gives."""


def scraped() -> dict[str, set[str]]:
    """Return every name that a scrape has, with its labels."""
    found: dict[str, set[str]] = {}
    for family in FAMILIES:
        ends = ("_bucket", "_sum", "_count") if family.kind is MetricKind.HISTOGRAM else ("",)
        found |= {f"{family.name}{end}": set(family.labels) for end in ends}
    return found


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> list[str]:
    """Return every expression of the dashboard."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return found + [each["query"]["query"] for each in board["templating"]["list"] if each["type"] == "query"]


def unknown_in(expression: str) -> list[str]:
    """Return names and labels in an expression that no scrape has."""
    known = scraped()
    found = [name for name in NAME.findall(expression) if name not in known]
    for name, inside in SELECTOR.findall(expression):
        labels = set(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", inside))
        found += sorted(labels - known.get(name, set()) - OF_THE_SCRAPE)
    return found


def test_the_page_has_the_table() -> None:
    """Word by word."""
    assert as_markdown() in PAGE.read_text(encoding="utf-8")


def test_the_page_has_every_notice_and_every_name_of_a_template() -> None:
    """With its severity."""
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_]+)` \| (?:critical|warning|info)", text, re.MULTILINE)) == set(
        NoticeKind
    )
    body = notice_body(Notice(NoticeKind.ALARM, Severity.INFO, "h", "r", 0.0), 0)
    assert [name for name in body if f'"{name}":' not in text] == []


def test_a_name_that_is_wrong_would_be_found() -> None:
    """The check below can fail."""
    assert unknown_in('sum(reclaimerd_acts{stage="x"})') == ["reclaimerd_acts", "stage"]
    assert unknown_in('reclaimerd_acts_total{pid="1"}') == ["pid"]
    assert unknown_in('reclaimerd_acts_total{stage="x", instance=~"y"}') == []


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_asks_for_what_there_is(alert: dict[str, Any]) -> None:
    """Its names exist, its severity is one of ours, its runbook is there, and so are the labels it shows."""
    assert unknown_in(alert["expr"]) == []
    assert alert["labels"]["severity"] in {"warning", "critical"}
    for runbook in re.findall(r"runbook ([a-z_]+)", alert["annotations"]["description"]):
        assert (ROOT / "docs" / "runbooks" / f"{runbook}.md").exists(), runbook
    shown = set(re.findall(r"\$labels\.([a-z_]+)", alert["annotations"]["summary"]))
    assert "instance" in shown
    kept = set().union(*(scraped()[name] for name in NAME.findall(alert["expr"]))) | OF_THE_SCRAPE
    grouped = re.findall(r"by \(([^)]*)\)", alert["expr"])
    assert shown <= kept
    assert all(shown <= {label.strip() for label in by.split(",")} for by in grouped)


def test_the_dashboard_asks_for_what_there_is() -> None:
    """Each expression names families and labels that exist, and each family but few is shown."""
    assert {each: unknown_in(each) for each in queries() if unknown_in(each)} == {}
    text = " ".join(queries())
    missing = {family.name for family in FAMILIES if family.name not in text}
    assert missing <= {"reclaimerd_start_time_seconds", "reclaimerd_gpu_last_xid_timestamp_seconds"}


def test_the_dashboard_s_panels_do_not_overlap() -> None:
    """Each has a number and a place of its own."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def promtool() -> Path | None:
    """Return Debian's promtool out of the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reclaimerd"
    return max(cache.glob("promtool-[0-9]*"), default=None)


def run_promtool(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run it, or skip."""
    program = promtool()
    if program is None:
        pytest.skip("no promtool in the cache: run tools/fetch-promtool")
    return subprocess.run(
        [program, *words], check=False, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def test_promtool_takes_the_rules() -> None:
    """Every expression and every template is sound."""
    ran = run_promtool("check", "rules", RULES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(alerts())} rules found" in ran.stdout


def test_each_alert_fires_where_it_must_and_nowhere_else() -> None:
    """By promtool, over made-up series: of two hosts the bad one alone."""
    ran = run_promtool("test", "rules", RULES_TEST)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_such_a_test() -> None:
    """Under its own name, with a host that is bad and one that is well."""
    tests = yaml.safe_load(RULES_TEST.read_text(encoding="utf-8"))["tests"]
    hosts = {
        test["name"]: {re.findall(r'instance="([a-z]+)"', each["series"])[0] for each in test["input_series"]}
        for test in tests
        if "promql_expr_test" in test
    }
    assert set(hosts) == {rule["alert"] for rule in alerts()}
    assert set(map(frozenset, hosts.values())) == {frozenset({"bad", "well"})}


def test_promtool_takes_our_own_text() -> None:
    """A scrape as Prometheus' linter reads it: names, units, HELP and TYPE."""
    program = promtool()
    if program is None:
        pytest.skip("no promtool in the cache: run tools/fetch-promtool")
    ran = subprocess.run(
        [program, "check", "metrics"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        input=metrics_text(
            {
                family.name: {("x",) * len(family.labels): 1}
                for family in FAMILIES
                if family.kind is not MetricKind.HISTOGRAM
            }
        ),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
