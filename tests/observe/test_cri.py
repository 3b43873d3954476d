"""A runtime asked by CRI over a real socket, by real gRPC: names of the proven pod, or none."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.oci_text import MOST_LABELS
from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe import cri
from reclaimerd.observe.cri import CriQuestion, read_cri_names
from tests.rigs.cri import Runtime, Served, runtime

pytestmark = [pytest.mark.process, pytest.mark.root]

UID = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
OTHER = "11111111-2222-4333-8444-555555555555"
CID = "ab" * 32
ROW = Served(CID, UID, labels={"app": "llm"})
NAMES = WorkloadNames(
    namespace="team",
    pod="train-0",
    pod_uid=UID,
    container="main",
    labels=(("app", "llm"),),
    spread_known=True,
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Runtime]:
    """Give a runtime with one container."""
    with runtime(tmp_path / "containerd", ROW) as one:
        yield one


def told(one: Runtime, container: str = CID, uid: str = UID) -> WorkloadNames | None:
    """Return what this runtime tells of one container."""
    question = CriQuestion(container, uid)
    return read_cri_names([one.socket], [question], 10).get(question)


def test_a_pod_has_its_labels(served: Runtime) -> None:
    """Names, and labels without the kubelet's own; nobody says that it is spread, nor that it has a mark."""
    assert told(served) == NAMES
    assert served.calls() == [f"ListContainers {CID}", f"ListPodSandbox {'beef' * 16}"]


def test_a_job_of_several_hosts_and_a_mark_are_seen(served: Runtime) -> None:
    """By a label or an annotation of a controller; the mark's absence is not claimed to be known."""
    served.serve(replace(ROW, labels={"ray.io/cluster": "big"}))
    assert told(served) == replace(NAMES, labels=(("ray.io/cluster", "big"),), hosts=2)
    notes = {"scheduling.k8s.io/group-name": "gang", "reclaimerd.io/spare": "till friday"}
    served.serve(replace(ROW, annotations=notes))
    assert told(served) == replace(NAMES, hosts=2, spare_mark="till friday")
    assert not NAMES.mark_known


def test_several_containers_are_told_apart(served: Runtime) -> None:
    """Of one pod and of two; of one that the runtime does not know nothing is said."""
    second = replace(ROW, id="cd" * 32, container="side")
    third = Served("ef" * 32, OTHER, pod="train-1", sandbox="dead" * 16)
    served.serve(ROW, second, third)
    asked = [CriQuestion(row.id, row.uid) for row in (ROW, second, third)]
    found = read_cri_names([served.socket], [*asked, CriQuestion("00" * 32, UID)], 10)
    names = [(one.pod_uid, one.pod, one.container) for one in (found[question] for question in asked)]
    assert names == [(UID, "train-0", "main"), (UID, "train-0", "side"), (OTHER, "train-1", "main")]
    assert len(found) == 3


@pytest.mark.parametrize("wrong", [(OTHER, UID, UID), (UID, OTHER, UID), (UID, UID, OTHER), (UID, UID, "")])
def test_another_uid_anywhere_is_nobody(served: Runtime, wrong: tuple[str, str, str]) -> None:
    """The container's label, the sandbox's label, its metadata: all must be the uid of the cgroup path."""
    served.serve(replace(ROW, uids=wrong))
    assert told(served) is None


def test_another_pods_uid_is_not_asked_further(served: Runtime) -> None:
    """A path that proves another pod, or none: nothing, and its sandbox is not even asked for."""
    assert told(served, uid=OTHER) is None
    assert told(served, uid="") is None
    assert served.calls() == [f"ListContainers {CID}"] * 2


def test_a_runtime_that_lists_one_id_twice_is_not_believed(served: Runtime) -> None:
    """Which of the two is meant can't be known."""
    served.serve(ROW, replace(ROW, container="other"))
    assert told(served) is None


def test_labels_over_the_bound_are_left_out_and_still_counted(served: Runtime) -> None:
    """A controller's label behind too many others tells of several hosts all the same."""
    labels = {f"a{number:02}": "v" for number in range(MOST_LABELS)} | {"ray.io/cluster": "x" * 63}
    served.serve(replace(ROW, labels={**labels, "long": "x" * 500}))
    found = told(served)
    assert found is not None
    assert len(found.labels) == MOST_LABELS
    assert (found.hosts, found.labels_whole) == (2, False)


def test_the_next_runtime_is_asked_for_what_the_first_did_not_know(served: Runtime, tmp_path: Path) -> None:
    """Also when the first hangs: it costs its share of the time, and no more."""
    with runtime(tmp_path / "other") as first:
        sockets = [first.socket, served.socket]
        question = CriQuestion(CID, UID)
        assert read_cri_names(sockets, [question], 10) == {question: NAMES}
        first.freeze()
        assert read_cri_names(sockets, [question], 4) == {question: NAMES}


def test_a_runtime_that_hangs_costs_the_limit(served: Runtime) -> None:
    """However many containers it is asked about, and the error names the socket."""
    served.freeze()
    began = time.monotonic()
    with pytest.raises(ReclaimerdError, match=r"containerd\.sock gave no answer: DEADLINE_EXCEEDED"):
        read_cri_names([served.socket], [CriQuestion(f"{n:064x}", UID) for n in range(8)], 0.5)
    assert time.monotonic() - began < 3


def test_garbage_is_an_error(served: Runtime) -> None:
    """Bytes that are no list: a sentence, not a traceback."""
    served.serve_bytes(b"\x0a\x7f")
    with pytest.raises(ReclaimerdError, match="list of containers can't be read"):
        told(served)


def test_more_than_the_bound_is_an_error(served: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer longer than the limit is not taken in."""
    monkeypatch.setattr(cri, "MOST_BYTES", 100)
    with pytest.raises(ReclaimerdError, match="RESOURCE_EXHAUSTED"):
        told(served)


def test_one_pods_answer_that_fails_takes_no_others(served: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner's huge annotations cost his own pod its labels, and nobody else's."""
    monkeypatch.setattr(cri, "MOST_BYTES", 4000)
    huge = Served("01" * 32, OTHER, annotations={"big": "x" * 9000}, sandbox="dead" * 16)
    served.serve(huge, ROW)
    asked = [CriQuestion(huge.id, OTHER), CriQuestion(CID, UID)]
    assert read_cri_names([served.socket], asked, 10) == {asked[1]: NAMES}


@pytest.mark.parametrize("what", ["folder", "socket", "writable", "gone"])
def test_a_socket_that_is_not_roots_alone_is_not_asked(served: Runtime, what: str) -> None:
    """A folder or socket of a user's, one that others may write, none at all: an error, and no call."""
    match what:
        case "folder":
            os.chown(served.folder, 4242, 4242)
        case "socket":
            os.chown(served.socket, 4242, 4242)
        case "writable":
            served.folder.chmod(0o777)
        case _:
            served.socket.unlink()
    with pytest.raises(ReclaimerdError, match=r"uid 4242|can be written|No such file"):
        told(served)
    assert served.calls() == []
