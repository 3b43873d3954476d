"""What a selector asks of the workload around a process: its unit, runtime, namespace, labels, job.

Only a boundary that root's directories prove says anything: of any other every answer is UNKNOWN. A
process of another kind (a unit asked for its namespace) is none of the selector's: NO. Pure.
"""

from collections.abc import Mapping
from typing import assert_never

from reclaimerd.judge.tri import Tri, one_like
from reclaimerd.model.policy import LabelOperator, LabelTerm, Selector
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames

_IN_RUNTIMES = frozenset({WorkloadKind.POD, WorkloadKind.CONTAINER})


def workload_answers(selector: Selector, workload: Workload) -> dict[str, Tri]:
    """Return the answer of each field that is set, by its name in the policy."""
    answers: dict[str, Tri] = {}
    if selector.unit:
        answers["unit"] = one_like(workload.unit, selector.unit) if workload.unit else Tri.NO
    if selector.runtimes:
        answers["runtime"] = _runtime(selector.runtimes, workload)
    if selector.namespaces:
        answers["namespace"] = _namespace(selector.namespaces, workload)
    if selector.labels:
        answers["labels"] = _labels(selector.labels, workload)
    if selector.partitions:
        answers["partition"] = _of_job("partition", selector.partitions, workload)
    if selector.accounts:
        answers["account"] = _of_job("account", selector.accounts, workload)
    if not workload.trusted:
        return dict.fromkeys(answers, Tri.UNKNOWN)
    return answers


def _runtime(wanted: tuple[str, ...], workload: Workload) -> Tri:
    if workload.kind not in _IN_RUNTIMES:
        return Tri.NO
    if not workload.runtime:
        return Tri.UNKNOWN  # the path does not say
    return Tri.YES if workload.runtime in wanted else Tri.NO


def _namespace(globs: tuple[str, ...], workload: Workload) -> Tri:
    """Return whether it stands in such a namespace: a container without pods in its path may, too."""
    if workload.kind not in _IN_RUNTIMES:
        return Tri.NO
    return _like(None if workload.names is None else workload.names.namespace, globs)


def _labels(terms: tuple[LabelTerm, ...], workload: Workload) -> Tri:
    if workload.kind not in _IN_RUNTIMES:
        return Tri.NO
    names = workload.names
    if names is None or not names.labels_whole:
        # The runtime's record has a pod's labels as they were when it was made, and not the long ones.
        return Tri.UNKNOWN
    return Tri.YES if _all_hold(terms, names) else Tri.NO


def _all_hold(terms: tuple[LabelTerm, ...], names: WorkloadNames) -> bool:
    labels = dict(names.labels)
    return all(_holds(term, labels) for term in terms)


def _holds(term: LabelTerm, labels: Mapping[str, str]) -> bool:
    """Tell whether a term of a Kubernetes label selector holds; `notin` holds of a missing label too."""
    match term.operator:
        case LabelOperator.IN:
            return labels.get(term.key) in term.values
        case LabelOperator.NOT_IN:
            return labels.get(term.key) not in term.values
        case LabelOperator.EXISTS:
            return term.key in labels
        case LabelOperator.ABSENT:
            return term.key not in labels
        case _:
            assert_never(term.operator)


def _of_job(field: str, globs: tuple[str, ...], workload: Workload) -> Tri:
    if workload.kind is not WorkloadKind.SLURM_JOB:
        return Tri.NO
    names = workload.names
    if names is None:
        return Tri.UNKNOWN
    return _like(names.partition if field == "partition" else names.account, globs)


def _like(name: str | None, globs: tuple[str, ...]) -> Tri:
    return Tri.UNKNOWN if name is None else one_like(name, globs)
