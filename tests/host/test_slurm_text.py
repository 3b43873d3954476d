"""What Slurm's programs print, as a real 22.05 printed it, and what its users may write into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.slurm_text import (
    GresMap,
    SlurmConfig,
    SlurmNode,
    names_node,
    parse_config,
    parse_gres,
    parse_job_here,
    parse_node,
)
from reclaimerd.model.allocation import SlurmJob

GRES = """slurmd: Gres Name=gpu Type=a100 Count=1 Index=2 ID=7696487 File=/dev/nvidia2 (null)
slurmd: Gres Name=gpu Type=a100 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 (null)
slurmd: Gres Name=gpu Type=v100 Count=1 Index=3 ID=7696487 File=/dev/nvidia3 (null)
slurmd: Gres Name=gpu Type=v100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 (null)
"""
MIXED = """Gres Name=gpu Type=1g Count=1 Index=0 ID=7 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap30 (null)
Gres Name=gpu Count=1 Index=1 ID=7 File=/dev/nvidia1 Links=(null)
Gres Name=shard Count=4 Index=1 ID=8 File=/dev/nvidia1 Links=(null)
Gres Name=nic Count=1 Index=0 ID=9 File=/dev/hsn0
Gres Name=gpu Count=1 ID=7 Links=(null)
"""
JOB = """JobId=1 JobName={name}
   UserId=nobody(65534) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account={account} QOS=(null)
   JobState={state} Reason=None Dependency=(null)
   SubmitTime=1796051609 EligibleTime=1796051609
   StartTime=1796051610 EndTime={end} Deadline=N/A
   Partition=short AllocNode:Sid=localhost:23245
   NodeList=gpu[01-02]
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   JOB_GRES=gpu:3
     Nodes=gpu01 CPU_IDs=0 Mem=0 GRES={gres}
     Nodes=gpu02 CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Command=(null)
"""
NODE = """NodeName=gpu01 Arch=x86_64 CoresPerSocket=1 \n   CPUAlloc=1 CPUEfctv=4 CPUTot=4 CPULoad=1.88
   Gres=gpu:a100:2(S:0),gpu:v100:2,nic:1
   GresDrain=N/A
   GresUsed=gpu:a100:2(IDX:0-1),gpu:v100:0(IDX:N/A),nic:0
   State=IDLE+MAINT* ThreadsPerCore=1 TmpDisk=0
   BootTime=1796030000 SlurmdStartTime=1796051600
   LastBusyTime=1796051601
"""


def a_text(**changes: str) -> str:
    """Return a running job's text."""
    words = {
        "name": "wrap",
        "account": "(null)",
        "state": "RUNNING",
        "end": "Unknown",
        "gres": "gpu:1(IDX:2)",
    }
    return JOB.format(**{**words, **changes})


def the_job(node: str = "gpu01", **changes: str) -> SlurmJob:
    """Return what is parsed of it."""
    return parse_job_here(a_text(**changes), "1", node, {"shard"})


def test_an_index_is_a_place_in_slurmds_list() -> None:
    """Its `Index=` is the file's number and no index: gres.conf may name files in any order."""
    assert parse_gres(GRES) == GresMap(4, ((0, 2), (1, 1), (2, 3), (3, 0)))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", GresMap(0, why="slurmd -G lists no GPU")),
        (
            "Gres Name=gpu Type=(null) Count=2 ID=7696487 File=/dev/nvidia[0-1]",
            GresMap(2, why="slurmd -G lists several GPUs in one row: which is which can't be told"),
        ),
        (
            MIXED,
            GresMap(3, ((1, 1),), frozenset({"shard"})),
        ),
    ],
)
def test_a_list_that_does_not_tell_gives_no_gpu(text: str, found: GresMap) -> None:
    """No GPU, several in a row, MIG instances, a GPU without a file: not one is guessed at."""
    assert parse_gres(text) == found


def test_a_running_job_has_its_gpus_on_this_node() -> None:
    """The node's own line counts, of several; user, account and hosts come with it."""
    job = SlurmJob("1", "RUNNING", "nobody", "", "short", 2, (2,), None, 65534)
    assert the_job() == job
    assert the_job("gpu02").gpu_indices == (0, 1)
    assert the_job(account="physics").account == "physics"


@pytest.mark.parametrize(
    ("gres", "indices"),
    [
        ("", ()),
        ("gpu:a100:2(IDX:0,3),gpu:v100:1(IDX:5),nic:1(IDX:0)", (0, 3, 5)),
        ("gpu:1(IDX:N/A)", None),
        ("gpu:1", None),
        ("gpu:1(IDX:0),shard:2(1/4,1/4)", None),
        ("gpu:1(IDX:0", None),
        ("gpu:1(IDX:0-99999)", None),
    ],
)
def test_indices_are_plain_or_not_known(gres: str, indices: tuple[int, ...] | None) -> None:
    """None is a doubt, and () is a job without a GPU; shares of a GPU are none of either."""
    assert the_job(gres=gres).gpu_indices == indices


def test_an_ended_job_has_no_gpus_and_an_end() -> None:
    """Its line is empty then: that is not a job without GPUs. A running one's end is a plan."""
    ended = the_job(state="CANCELLED", end="1796051610", gres="")
    assert (ended.gpu_indices, ended.ended_at) == (None, 1796051610.0)
    assert the_job(state="COMPLETING", end="1796051610").ended_at == 1796051610.0
    assert the_job(end="1796059999").ended_at is None
    assert the_job(state="PENDING").gpu_indices is None
    assert the_job("gpu03").gpu_indices is None


@pytest.mark.parametrize(
    "name",
    [
        "x\n   JobState=CANCELLED",
        "x\n     Nodes=gpu01 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)",
        "x\nJobId=1 JobName=y",
        "x\nJobId=2 JobName=y",
        "x HetJobId=5",
        a_text(name="y", gres="gpu:4(IDX:0-3)").partition(" JobName=")[2] + "JobId=2 JobName=z",
    ],
)
def test_what_a_user_writes_into_his_jobs_name_tells_nothing(name: str) -> None:
    """A real Slurm prints a job's name with its line ends: what is then said twice is not known.

    The last has a whole record of his own making, and another's beginning before what Slurm says of him.
    """
    assert the_job(name=name).gpu_indices is None


def test_an_array_has_other_tasks_in_its_text() -> None:
    """Each task's part counts for itself, and a job that the text is not about is not told.

    Nor are GPUs: what looks like another task's part may be the owner's words, which hide what Slurm says.
    """
    text = a_text() + "\n" + a_text(state="PENDING").replace("JobId=1 ", "JobId=12 ArrayJobId=1 ")
    first, second = (parse_job_here(text, job, "gpu01", ()) for job in ("1", "12"))
    assert (first.state, first.gpu_indices) == ("RUNNING", None)
    assert (second.state, second.gpu_indices) == ("PENDING", None)
    assert parse_job_here(text, "2", "gpu01", ()) == SlurmJob("2", "")


def test_a_node_says_how_many_gpus_and_which_are_used() -> None:
    """Both over all types; and when its slurmd started, and each word of its state."""
    states = frozenset({"IDLE", "MAINT", "*"})
    assert parse_node(NODE, "gpu01") == SlurmNode(4, frozenset({0, 1}), states, 1796051600.0)
    assert parse_node(NODE, "gpu02") is None
    bare = "NodeName=gpu01 Arch=x\n   Gres=(null)\n   GresUsed=(null)\n"
    assert parse_node(bare, "gpu01") == SlurmNode(0, frozenset(), frozenset(), None)
    odd = "NodeName=gpu01 Arch=x\n   Gres=gpu:many\n   GresUsed=gpu:2(IDX:N/A)\n"
    assert parse_node(odd, "gpu01") == SlurmNode(None, None, frozenset(), None)
    assert parse_node(odd.replace("gpu:", "gpu(:"), "gpu01") == SlurmNode(None, None, frozenset(), None)


def test_the_configuration_tells_the_deadlines_and_its_file() -> None:
    """Without one of the deadlines there is none."""
    text = "KillWait      = 30 sec\nUnkillableStepTimeout   = 60 sec\nSLURM_CONF  = /etc/slurm/slurm.conf\n"
    assert parse_config(text) == SlurmConfig(30.0, 60.0, "/etc/slurm/slurm.conf")
    assert parse_config(text.replace("KillWait", "KillWhat")) is None


@pytest.mark.parametrize(
    ("expression", "node", "yes"),
    [
        ("gpu01", "gpu01", True),
        ("gpu01", "gpu1", False),
        ("gpu[01-03,7],login1", "gpu02", True),
        ("gpu[01-03,7],login1", "login1", True),
        ("gpu[01-03,7]", "gpu2", False),
        ("gpu[01-03,7]", "gpu7", True),
        ("gpu[8-12]", "gpu10", True),
        ("gpu[08-12]", "gpu010", False),
        ("r[1-2]n[0-3].x", "r2n3.x", True),
        ("r[1-2]n[0-3].x", "r3n3.x", False),
        ("gpu[", "gpu0", False),
        ("gpu[a]", "gpu1", False),
    ],
)
def test_a_host_list_names_a_node(expression: str, node: str, yes: bool) -> None:  # noqa: FBT001  # a row
    """Ranges keep their leading zeros."""
    assert names_node(expression, node) is yes


@given(text=st.text(max_size=400), node=st.text(max_size=20))
def test_no_text_makes_a_parser_raise(text: str, node: str) -> None:
    """Whatever it is, the answer is a value."""
    parse_gres(f"Gres Name=gpu Count=1 {text}")
    parse_config(text)
    parse_node(f"NodeName={node} Gres={text} GresUsed={text} State={text}", node)
    parse_job_here(a_text(name=text), "1", node, ())
    parse_job_here(a_text(gres=text), "1", "gpu01", ())
    names_node(text, node)
