"""An owner's mark spares only where the administrator listed its owner, and binds rules alone."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.evaluate import evaluate
from reclaimerd.judge.marks import mark_doubt, mark_of
from reclaimerd.judge.protections import protection_of
from reclaimerd.model.policy import OwnerMarks, UserProtection
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.verdict import Ruling
from tests.builders import OURS, a_busy_snapshot, a_policy, a_process, a_rule, a_workload
from tests.judge.test_evaluate import CONTEXT

MARKS = OwnerMarks(namespaces=("team-*",), users=("alice", "nobody-knows"))
NAMES = WorkloadNames(namespace="team-a", spare_mark="until friday")
POD = Workload(WorkloadKind.POD, "pod", path="/kubepods/p", names=NAMES)
UNIT = a_workload(names=WorkloadNames(spare_mark="1"))


def mark(workload: Workload, marks: OwnerMarks = MARKS, **overrides: Any) -> str:
    """Return the mark that counts for a process of alice's."""
    return mark_of(a_process(workload=workload, **overrides), marks, CONTEXT.user_ids)


def test_listed_owners_are_heard() -> None:
    """A pod of a listed namespace, a unit of a listed user; the text says who may."""
    assert mark(POD) == "owner's mark: until friday (pods of namespace team-a may set it)"
    assert mark(UNIT) == "owner's mark: 1 (units of user alice may set it)"


@pytest.mark.parametrize(
    "workload",
    [
        replace(POD, names=replace(NAMES, namespace="kube-system")),
        replace(POD, names=replace(NAMES, namespace=None)),
        replace(POD, names=replace(NAMES, spare_mark="")),
        replace(POD, names=None),
        replace(POD, trusted=False),
        replace(UNIT, trusted=False),
        *(replace(POD, kind=kind) for kind in WorkloadKind if kind is not WorkloadKind.POD),
        *(replace(UNIT, kind=kind) for kind in WorkloadKind if kind is not WorkloadKind.UNIT),
    ],
)
def test_nobody_else_is_heard(workload: Workload) -> None:
    """Other namespaces, unproven boundaries and other kinds of workload: as if nothing was written."""
    assert mark(workload, uids=(1001, 1000, 1000, 1000)) == ""
    assert mark(POD, OwnerMarks()) == ""
    assert mark(UNIT, OwnerMarks(users=("nobody-knows",))) == ""


def test_what_an_owner_wrote_is_one_short_line() -> None:
    """No line breaks, no control bytes, no page of text."""
    noisy = replace(POD, names=replace(NAMES, spare_mark="a\n\x1b[2J" + "x" * 500))
    text = mark(noisy)
    assert text.startswith("owner's mark: a??[2Jxxx")
    assert text.isprintable()
    assert len(text) < 150


def test_a_mark_spares_from_rules_and_not_from_operators() -> None:
    """The verdict is SPARE with the mark first; what binds operators does not know of it."""
    reading = a_process(workload=POD)
    policy = a_policy(a_rule(large_jobs=True, even_if_allocated=True))
    assert evaluate(a_busy_snapshot(reading), policy, (), CONTEXT).verdicts[0].ruling is Ruling.RECLAIM
    marked = replace(policy, marks=MARKS)
    found = evaluate(a_busy_snapshot(reading), marked, (), CONTEXT).verdicts[0]
    assert (found.ruling, found.rule) == (Ruling.SPARE, "owner's mark")
    assert found.reasons[0].text.startswith("owner's mark: until friday")
    assert protection_of(reading, host_files={}, policy=marked, ours=OURS) is None


def test_a_protection_stands_before_a_mark() -> None:
    """The administrator's word is the one that is told."""
    keep = UserProtection("keep", uids=((1000, 1000),))
    policy = a_policy(protections=(keep,), marks=MARKS)
    found = evaluate(a_busy_snapshot(a_process(workload=POD)), policy, (), CONTEXT).verdicts[0]
    assert (found.ruling, found.rule) == (Ruling.SPARE, "keep")


@pytest.mark.parametrize(
    ("workload", "doubt"),
    [
        (replace(POD, names=replace(NAMES, spare_mark="")), "annotations are not known"),
        (replace(POD, names=None), "annotations are not known"),
        (replace(POD, names=replace(NAMES, spare_mark="", mark_known=True)), ""),
        (replace(POD, names=replace(NAMES, namespace="kube-system", spare_mark="")), ""),
        (replace(POD, names=replace(NAMES, spare_mark=""), trusted=False), ""),
        (a_workload(), "what systemd says of its unit is not known"),
        (a_workload(names=WorkloadNames(mark_known=True)), ""),
        (replace(POD, kind=WorkloadKind.CONTAINER, names=None), ""),
    ],
)
def test_a_mark_that_nobody_could_be_asked_for_forbids_a_judgement(workload: Workload, doubt: str) -> None:
    """With the cluster or systemd away after our start: where a mark would count nobody acts by rule."""
    reading = a_process(workload=workload)
    assert mark_doubt(reading, MARKS, CONTEXT.user_ids).endswith(doubt)
    assert bool(mark_doubt(reading, MARKS, CONTEXT.user_ids)) is bool(doubt)
    assert mark_doubt(reading, OwnerMarks(), CONTEXT.user_ids) == ""
    policy = a_policy(a_rule(large_jobs=True, even_if_allocated=True), marks=MARKS)
    found = evaluate(a_busy_snapshot(reading), policy, (), CONTEXT).verdicts[0]
    assert (found.ruling is Ruling.UNDETERMINED) == bool(doubt)


def test_another_user_s_unit_is_in_no_doubt() -> None:
    """Only the units of listed users may bear a mark that counts."""
    assert mark_doubt(a_process(uids=(7, 7, 7, 7)), MARKS, CONTEXT.user_ids) == ""
