"""What Slurm can't end: on record with who said so, looked for on the whole host, and nobody is touched."""

import asyncio
from typing import Any

import pytest

from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.process import WorkloadKind, WorkloadNames
from reclaimerd.model.snapshot import Snapshot
from tests.builders import GPU_A, OPERATOR, a_busy_snapshot, a_policy, a_process, a_rule, a_workload
from tests.daemon.test_api import ROOT, Story, a_story
from tests.fakes import a_disk_error, a_rig

PATH = "/v1/unkillable"


def in_job(job: str, *, trusted: bool = True) -> Snapshot:
    """Return a look in which a process of a job holds a GPU."""
    names = WorkloadNames(job_id=job)
    place = a_workload(f"job {job}", kind=WorkloadKind.SLURM_JOB, names=names, trusted=trusted)
    return a_busy_snapshot(a_process(workload=place))


def told(story: Story, **body: object) -> tuple[int, dict[str, Any]]:
    """Make the call as root."""
    answer = asyncio.run(story.call("POST", PATH, ROOT, None, **body))
    return answer.status, dict(answer.body)


def story_of(look: Snapshot) -> Story:
    """Return an API over a look at which no rule strikes."""
    return a_story(a_rig(look, a_policy(a_rule(above=1 << 60))))


def test_the_host_is_looked_at_whole_and_it_is_on_record() -> None:
    """A full look at once; the note has job, step and caller; the job's holders are named; no act."""
    story = story_of(in_job("77"))
    status, body = told(story, job="77", step="4294967291")
    row = {"pid": 100, "gpus": [GPU_A], "text": ""}
    assert (status, body) == (
        200,
        {"job": "77", "step": "batch", "looked": True, "recorded": True, "holders": [row]},
    )
    assert [look.full_scan for look in story.rig.sampler.looks] == [True]
    (note,) = story.rig.recorder.of_kind(RecordKind.NOTE)
    assert note.reason == "Slurm says that step batch of job 77 can't be killed: the whole host is looked at"
    assert note.actor == OPERATOR
    assert story.rig.executor.permits == []


@pytest.mark.parametrize("look", [in_job("78"), in_job("77", trusted=False), a_busy_snapshot()])
def test_another_jobs_holders_are_not_named(look: Snapshot) -> None:
    """Another job, a name that a user made, a process of no job."""
    assert told(story_of(look), job="77", step="0")[1]["holders"] == []


@pytest.mark.parametrize(
    "body",
    [{}, {"job": "77"}, {"job": "77", "step": ""}, {"job": "7 7", "step": "0"}, {"job": [], "step": 0}],
)
def test_what_is_no_job_is_a_fault(body: dict[str, object]) -> None:
    """400 that names the field; nothing is looked at nor written."""
    story = story_of(in_job("77"))
    assert told(story, **body)[0] == 400
    assert (story.rig.sampler.looks, story.rig.recorder.entries) == ([], [])


def test_a_record_that_fails_stops_no_look() -> None:
    """The disk is full: it is said, and the host is looked at all the same."""
    story = story_of(in_job("77"))
    story.rig.recorder.errors = [a_disk_error(), a_disk_error()]
    _, body = told(story, job=77, step=0)
    assert (body["recorded"], [look.full_scan for look in story.rig.sampler.looks]) == (False, [True])


def test_a_look_that_does_not_come_in_time_is_said() -> None:
    """What is known from before is told, and that it is old."""
    story = story_of(in_job("77"))
    story.desk.fresh = False
    assert told(story, job="77", step="0")[1]["looked"] is False
