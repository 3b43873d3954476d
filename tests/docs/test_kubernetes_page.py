"""The page about Kubernetes and the manifests that ship for it: what can be copied is what we do."""

import re
from pathlib import Path

import msgspec
import pytest

from reclaimerd.act import kube_marks as marks
from reclaimerd.act.kube_api import LEASE
from reclaimerd.model.drain_policy import Arbiter, FleetSettings
from tests.docs.pages import assert_policy_is_one

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/drain-kubernetes.md").read_text(encoding="utf-8")
MANIFESTS = ROOT / "deploy/kubernetes"


@pytest.mark.root
def test_the_page_s_policy_is_one(tmp_path: Path) -> None:
    """It loads without a fault, and says what the defaults are."""
    fleet = FleetSettings(arbiter=Arbiter.KUBERNETES)
    assert_policy_is_one(PAGE, tmp_path, fleet, f'lease_namespace = "{fleet.lease_namespace}"')


def test_the_small_fleets_are_as_the_limit_counts() -> None:
    """Each row of the table."""
    rows = re.findall(r"^\| (?:up to )?(\d+)(?: and more)? \| (\d+) \|", PAGE, re.MULTILINE)
    assert [nodes for nodes, _ in rows] == ["1", "2", "3", "199", "200", "500"]
    assert all(FleetSettings().limit(int(nodes)) == int(limit) for nodes, limit in rows)


def test_taking_back_by_hand_names_every_mark() -> None:
    """What the program sets on the Node, a person can take away."""
    for line in (
        f"kubectl taint node NODE {marks.TAINT}-",
        f"kubectl annotate node NODE {marks.REQUEST_NOTE}- {marks.SLOT_NOTE}-",
        f"kubectl label node NODE {marks.LABEL}-",
    ):
        assert f"    {line}\n" in PAGE


def test_every_manifest_is_yaml_and_named_on_the_page() -> None:
    """The Lease has the name that is asked for; the policy of admission speaks of the same account."""
    for path in sorted(MANIFESTS.glob("*drain*.yaml")):
        objects = [msgspec.yaml.decode(part) for part in path.read_text(encoding="utf-8").split("\n---\n")]
        assert all(one["kind"] and one["metadata"]["name"] for one in objects)
        assert f"deploy/kubernetes/{path.name}" in PAGE
    text = (MANIFESTS / "rbac-drain.yaml").read_text(encoding="utf-8")
    assert f"\n  name: {LEASE}\n" in text
    admission = (MANIFESTS / "admission-drain.yaml").read_text(encoding="utf-8")
    assert "system:serviceaccount:reclaimerd:reclaimerd" in admission
    assert f"request.name == '{LEASE}'" in admission
