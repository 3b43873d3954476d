"""Names of workloads in what people and programs read."""

from dataclasses import replace

from reclaimerd.cli.report import inspect_blocks
from reclaimerd.daemon.rows import holder_row, names_row, process_row
from reclaimerd.host.wire import Decoder, to_json
from reclaimerd.model.incident import Target
from reclaimerd.model.process import Workload, WorkloadKind, WorkloadNames
from tests.builders import a_gpu, a_holder, a_process, a_snapshot, a_target, a_workload

NAMES = WorkloadNames(namespace="ml", pod="train-0", container="train", labels=(("app", "x"),))
POD = Workload(WorkloadKind.POD, "pod 9a15d2b5…", "/kubepods/pod", names=NAMES)


def test_rows_have_the_best_name_and_all_names() -> None:
    """`ps` and `inspect` say the best name, and name by name what is known: nothing unknown is in it."""
    reading = a_process(100, workload=POD)
    snapshot = replace(a_snapshot(), processes={100: reading})
    for row in (holder_row(a_holder(100), a_gpu(), None, snapshot), process_row(reading)):
        assert row["workload"] == "ml/train-0/train"
        assert row["names"] == {
            "namespace": "ml",
            "pod": "train-0",
            "container": "train",
            "labels": {"app": "x"},
        }
    assert names_row(a_workload()) == {}
    assert holder_row(a_holder(7), a_gpu(), None, a_snapshot())["names"] == {}


def test_inspect_prints_names_and_leaves_out_what_has_none() -> None:
    """One row has all names; a workload without any has no such row."""
    shown = {
        name: str(list(inspect_blocks({"process": process_row(a_process(1, workload=workload))})))
        for name, workload in (("pod", POD), ("unit", a_workload()))
    }
    assert "namespace ml, pod train-0, container train, labels app x" in shown["pod"]
    assert "'names'" not in shown["unit"]


def test_a_target_keeps_its_names_on_disk() -> None:
    """What the store and the audit write is read back whole; a target of an older version has no names."""
    target = a_target(workload=POD)
    text = to_json(target)
    assert Decoder(Target).decode(text) == target
    older = text.replace(f',"names":{to_json(NAMES)}', "")
    assert older != text
    assert Decoder(Target).decode(older).workload == replace(POD, names=None)
