"""Whom the names of a kill mean: each by pid and start, nobody by a guess."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.cli.http_socket import Json
from reclaimerd.cli.kill_targets import AmbiguousError, Candidate, Chosen, Wanted, chosen
from reclaimerd.errors import ExitCode, NoTargetError

GPU_A = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
GPU_B = "GPU-aaaabbbb-0000-4000-8000-000000000000"
CONTAINER = "c0ffee" + "0" * 58
OTHER = "c0ffee" + "1" * 58
THIRD = "ab" * 32
POD_UID = "11111111-2222-3333-4444-555555555555"
PROTECTED = {"kind": "protected", "text": "protected by keep: its program"}
FOREIGN = {"kind": "role", "text": "not yours by all four uids"}
UNREADABLE = {"kind": "unreadable", "text": "it can't be read: it hangs"}


def a_row(pid: int = 100, start: int = 7, **overrides: Any) -> Json:
    """Return one process on one GPU as the daemon tells of it."""
    row = {
        "pid": pid, "ref": f"{pid}@{start}", "uid": 1000, "comm": "train", "workload": "", "kind": "none",
        "names": {}, "container_id": "", "gpu": GPU_A, "gpu_index": 0, "used_bytes": 4, "how": "listed",
        "refused": None,
    }  # fmt: skip
    return {**row, **overrides}


def told(*rows: Json, **overrides: Any) -> Json:
    """Return the daemon's whole answer over a healthy host with two GPUs."""
    answer = {
        "grace_seconds": 30.0,
        "require_reason": False,
        "driver": {"state": "responsive", "text": "responsive"},
        "gpus": [{"uuid": GPU_A, "index": 0, "note": ""}, {"uuid": GPU_B, "index": 1, "note": ""}],
        "rows": list(rows),
        "skipped": [],
    }
    return {**answer, **overrides}


def in_pod(pod: str, uid: str = POD_UID, **names: str) -> dict[str, Any]:
    """Return what tells a row in a pod of the namespace team."""
    return {"kind": "pod", "names": {"namespace": "team", "pod": pod, "pod_uid": uid, **names}}


def in_job(job: str) -> dict[str, Any]:
    """Return what tells a row in a Slurm job."""
    return {"kind": "slurm_job", "names": {"job_id": job}}


HOST = told(
    a_row(100, container_id=CONTAINER, kind="container", names={"container": "web"}),
    a_row(101, gpu=GPU_B, gpu_index=1, **in_job("4711")),
    a_row(102, gpu=GPU_B, gpu_index=1, **in_pod("train-0", container="main"), container_id=THIRD),
    a_row(102, **in_pod("train-0", container="main"), container_id=THIRD),
    a_row(103, **in_pod("train-1", uid=POD_UID.replace("5", "6"), container="main"), container_id="cd" * 32),
    a_row(104, gpu="", gpu_index=None, used_bytes=None, **in_job("4711")),
)


@pytest.mark.parametrize(
    ("wanted", "pids"),
    [
        ({"gpus": ("0",)}, [100, 102, 103]),
        ({"gpus": (GPU_A,)}, [100, 102, 103]),
        ({"gpus": ("gpu-AAAAB",)}, [101, 102]),
        ({"gpus": ("1", GPU_B)}, [101, 102]),
        ({"gpus": ("0", "1")}, [100, 102, 103, 101]),
        ({"containers": ("web",)}, [100]),
        ({"containers": (CONTAINER,)}, [100]),
        ({"containers": ("c0ffee",)}, [100]),
        ({"jobs": ("4711",)}, [101]),
        ({"pods": ("team/train-0",)}, [102]),
        ({"pods": (POD_UID,)}, [102]),
        ({"pods": ("team/train-1",), "jobs": ("4711",)}, [101, 103]),
        ({"pids": ({"pid": 104, "start_ticks": None},), "containers": ("web",)}, [104, 100]),
        ({"pids": ({"pid": 100, "start_ticks": 7},), "gpus": ("0",)}, [100, 102, 103]),
    ],
)
def test_names_mean_these_and_no_others(wanted: dict[str, Any], pids: list[int]) -> None:
    """Each process once, with the start that was seen; one that holds no GPU is meant by --pid alone."""
    found = chosen(Wanted(**wanted), HOST)
    assert [one.pid for one in found.candidates] == pids
    assert {one.start for one in found.candidates} == {7}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"gpus": ("2",)}, "there is no GPU '2'"),
        ({"gpus": ("GPU-",)}, "there is no GPU 'GPU-'"),
        ({"gpus": ("",)}, "there is no GPU ''"),
        ({"gpus": ("\u0660",)}, "there is no GPU"),
        ({"containers": ("c0ffe",)}, "no container 'c0ffe'"),
        ({"containers": ("we",)}, "no container 'we'"),
        ({"containers": ("None",)}, "no container 'None'"),
        ({"containers": (CONTAINER + "0",)}, "no container"),
        ({"jobs": ("471",)}, "no Slurm job 471"),
        ({"jobs": ("47110",)}, "no Slurm job 47110"),
        ({"pods": ("team/train",)}, "no pod 'team/train'"),
        ({"pods": ("other/train-0",)}, "no pod"),
        ({"pods": ("train-0",)}, "no pod"),
        ({"gpus": ("0",), "jobs": ("1",)}, "no Slurm job 1"),
    ],
)
def test_what_nobody_goes_by_is_exit_six_and_the_others_are_not_meant_either(
    wanted: dict[str, Any], words: str
) -> None:
    """One name that finds nothing stops the whole."""
    with pytest.raises(NoTargetError) as raised:
        chosen(Wanted(**wanted), HOST)
    assert words in raised.value.message
    assert "nothing was done" in raised.value.message
    assert raised.value.exit_code is ExitCode.NO_TARGET


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({"gpus": ("GPU-aaaa",)}, []),
        ({"containers": ("c0ffee",)}, [a_row(1, container_id=CONTAINER), a_row(2, container_id=OTHER)]),
        (
            {"containers": ("main",)},
            [a_row(1, container_id=CONTAINER, **in_pod("a", container="main")),
             a_row(2, container_id=OTHER, **in_pod("b", container="main"))],
        ),
        (
            {"containers": ("c0ffee",)},
            [a_row(1, container_id=CONTAINER), a_row(2, container_id=THIRD, names={"container": "c0ffee"})],
        ),
        ({"pods": ("team/a",)}, [a_row(1, **in_pod("a")), a_row(2, **in_pod("a", "2" + POD_UID[1:]))]),
    ],
)  # fmt: skip
def test_what_two_go_by_is_exit_two(wanted: dict[str, Any], rows: list[Json]) -> None:
    """Nobody is meant, and the error says how many there are."""
    with pytest.raises(AmbiguousError, match=r"^2 .* nothing was done") as raised:
        chosen(Wanted(**wanted), told(*rows))
    assert raised.value.exit_code is ExitCode.USAGE
    assert raised.value.mend


def test_two_gpus_of_one_index_are_ambiguous() -> None:
    """An index that two drivers' GPUs share means neither."""
    gpus = [{"uuid": GPU_A, "index": 0}, {"uuid": GPU_B, "index": 0}]
    with pytest.raises(AmbiguousError):
        chosen(Wanted(gpus=("0",)), told(a_row(), gpus=gpus))


def test_an_index_is_said_as_the_uuid_that_it_means() -> None:
    """And a UUID that is given whole needs no words."""
    assert chosen(Wanted(gpus=("0",)), HOST).notes == (f"GPU 0 is {GPU_A}",)
    assert chosen(Wanted(gpus=(GPU_A,)), HOST).notes == ()


def test_the_whole_id_of_a_container_means_it_although_it_begins_another_name() -> None:
    """Exactly this one: no prefix is looked for."""
    rows = [
        a_row(1, container_id=CONTAINER),
        a_row(2, container_id=THIRD, names={"container": CONTAINER}),
    ]
    assert [one.pid for one in chosen(Wanted(containers=(CONTAINER,)), told(*rows)).candidates] == [1]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"driver": {"state": "unresponsive", "text": "driver unresponsive"}}, "driver unresponsive"),
        ({"gpus": [{"uuid": GPU_A, "index": 0, "note": "unreadable (no)"}]}, "unreadable (no)"),
        ({"skipped": ["pid 9: denied", "pid 8: denied"]}, "pid 9: denied and 1 more"),
        ({}, "reclaimctl ps"),
    ],
)
def test_nobody_is_not_taken_for_certain(overrides: dict[str, Any], words: str) -> None:
    """What the look could not see stands beside "nobody"."""
    with pytest.raises(NoTargetError) as raised:
        chosen(Wanted(gpus=("0",)), told(**overrides))
    assert words in raised.value.mend


def test_a_process_on_two_gpus_is_one_with_both() -> None:
    """Its memory is the sum, and unknown where a part of it is."""
    both = [a_row(), a_row(gpu=GPU_B, gpu_index=1, used_bytes=5)]
    (one,) = chosen(Wanted(gpus=("0",)), told(*both)).candidates
    assert (one.gpus, one.used_bytes) == (("0", "1"), 9)
    both[1]["used_bytes"] = None
    (one,) = chosen(Wanted(gpus=("0",)), told(*both)).candidates
    assert one.used_bytes is None


def test_who_is_refused_is_asked_for_as_a_dry_run_and_hides_nobody() -> None:
    """So it is on record, and can't be signalled although the protection ended meanwhile."""
    found = chosen(Wanted(gpus=("0",)), told(a_row(100, refused=PROTECTED), a_row(101)))
    assert found.targets() == (
        [{"pid": 100, "start_ticks": 7, "dry_run": True}, {"pid": 101, "start_ticks": 7}],
        (),
    )


def test_others_processes_are_left_out_unless_nobody_else_is_meant() -> None:
    """They would have the whole order denied; alone they are asked for, so that the denial is on record."""
    mixed = chosen(Wanted(gpus=("0",)), told(a_row(100, refused=FOREIGN), a_row(101)))
    targets, left_out = mixed.targets()
    assert [target["pid"] for target in targets] == [101]
    assert [one.pid for one in left_out] == [100]
    alone = chosen(Wanted(gpus=("0",)), told(a_row(100, refused=FOREIGN), a_row(101, refused=PROTECTED)))
    targets, left_out = alone.targets()
    assert [(target["pid"], target["dry_run"]) for target in targets] == [(100, True), (101, True)]
    assert left_out == ()


@pytest.mark.parametrize("start", [None, 6])
def test_a_pid_that_was_not_seen_is_never_sent_anything(start: int | None) -> None:
    """Neither one that nobody has, nor one that somebody else has: by the answer it may be a stranger's."""
    pid = 999 if start is None else 100
    found = chosen(Wanted(pids=({"pid": pid, "start_ticks": start},)), told(a_row(100)))
    assert found.targets()[0] == [{"pid": pid, "start_ticks": start, "dry_run": True}]


def test_another_user_than_the_expected_is_refused() -> None:
    """Shown as what it will be."""
    found = chosen(Wanted(gpus=("0",), expect_uid=5), told(a_row(100), a_row(101, uid=5)))
    assert [one.refused_by for one in found.candidates] == ["user", ""]


def test_a_dead_one_s_number_goes_to_who_lives() -> None:
    """A remembered holder whose pid is another's now: the API takes each pid once."""
    rows = [a_row(100, 1, refused=UNREADABLE), a_row(100, 9)]
    found = chosen(Wanted(gpus=("0",)), told(*rows))
    assert [one.name for one in found.candidates] == ["100@9"]


def test_an_answer_without_sense_means_nobody() -> None:
    """Rows of another form are not taken for processes."""
    with pytest.raises(NoTargetError):
        chosen(Wanted(gpus=("0",)), told({}, {"ref": "x"}, {"ref": "1@2@3", "gpu": GPU_A}))
    with pytest.raises(NoTargetError):
        chosen(Wanted(gpus=("0",)), {})


ROWS = st.lists(
    st.builds(
        lambda pid, start, gpu, refused: a_row(
            pid, start, gpu=(GPU_A, GPU_B)[gpu], gpu_index=gpu, refused=refused
        ),
        st.integers(2, 9),
        st.integers(1, 3),
        st.integers(0, 1),
        st.sampled_from([None, PROTECTED, FOREIGN, UNREADABLE]),
    ),
    max_size=12,
)
PIDS = st.lists(st.integers(2, 12), unique=True, max_size=3)


@given(rows=ROWS, pids=PIDS, gpus=st.sets(st.sampled_from(["0", "1"])))
def test_no_order_names_whom_the_look_did_not_show(rows: list[Json], pids: list[int], gpus: set[str]) -> None:
    """Whatever was seen: who may be signalled was named, seen with this very start, and not refused."""
    wanted = Wanted(pids=tuple({"pid": pid, "start_ticks": None} for pid in pids), gpus=tuple(sorted(gpus)))
    try:
        found = chosen(wanted, told(*rows))
    except NoTargetError:
        assert gpus
        return
    targets, left_out = found.targets()
    assert len({target["pid"] for target in targets}) == len(targets)
    for target in targets:
        seen = [row for row in rows if row["ref"] == f"{target['pid']}@{target['start_ticks']}"]
        assert target["pid"] in pids or any(str(row["gpu_index"]) in gpus for row in seen)
        if not target.get("dry_run"):
            assert seen
            assert seen[0]["refused"] is None
    assert {one.refused_by for one in left_out} <= {"role"}
    assert isinstance(found, Chosen)
    assert all(isinstance(one, Candidate) for one in found.candidates)
