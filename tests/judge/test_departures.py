"""Since when pods and jobs end: by our own clock, from the first list that shows it, and never earlier."""

from dataclasses import replace

from reclaimerd.judge.departures import KEPT_SECONDS, MOST_KEPT, advance_departures, departure_of
from reclaimerd.model.allocation import Departure, OwnerKind
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import Snapshot
from tests.builders import MONO, WALL
from tests.judge.allocation_builders import POD_UID, a_pod_process
from tests.judge.ending_builders import a_cluster, a_job, a_job_process, a_pod, a_slurm, last_of, seen_at

POD, JOB = a_pod_process(), a_job_process()


def of_pod(look: Snapshot) -> Departure | None:
    """Return what is remembered of the pod."""
    return departure_of(OwnerKind.POD, POD_UID, look)


def of_job(look: Snapshot) -> Departure | None:
    """Return what is remembered of the job."""
    return departure_of(OwnerKind.JOB, "12", look)


def test_a_pod_that_runs_is_remembered_with_its_grace() -> None:
    """It ends since never, and what it would take is its own grace."""
    look = last_of(seen_at(MONO, POD, cluster=a_cluster(a_pod(grace_seconds=900.0))))
    assert of_pod(look) == Departure(OwnerKind.POD, POD_UID, None, 900.0)
    assert of_job(look) is None


def test_a_deletion_counts_from_the_first_list_that_shows_it() -> None:
    """Later lists move nothing, and a deadline that is further away by the clock counts."""
    deleted = a_pod(deletes_at=WALL + 900.0)
    first = seen_at(MONO, POD, cluster=a_cluster(deleted))
    second = seen_at(MONO + 30, POD, cluster=a_cluster(deleted, at=MONO + 30))
    assert of_pod(last_of(first, second)) == Departure(OwnerKind.POD, POD_UID, MONO, 900.0)


def test_a_clock_that_is_ahead_takes_nothing_from_a_pods_grace() -> None:
    """By our wall clock the deadline is long past when we first see it: its whole grace counts from then."""
    look = last_of(seen_at(MONO, POD, cluster=a_cluster(a_pod(deletes_at=WALL - 5000, grace_seconds=900.0))))
    assert of_pod(look) == Departure(OwnerKind.POD, POD_UID, MONO, 900.0)
    unknown = last_of(seen_at(MONO, POD, cluster=a_cluster(a_pod(deletes_at=WALL + 7, grace_seconds=None))))
    assert of_pod(unknown) == Departure(OwnerKind.POD, POD_UID, MONO, 7.0)


def test_a_clock_that_is_set_moves_the_end_only_away() -> None:
    """Set ahead it changes nothing, set back it gives more time."""
    deleted = a_pod(deletes_at=WALL + 100.0)
    first = seen_at(MONO, POD, cluster=a_cluster(deleted))
    ahead = seen_at(MONO + 30, POD, cluster=a_cluster(deleted, at=MONO + 30, read_wall=WALL + 5000))
    back = seen_at(MONO + 60, POD, cluster=a_cluster(deleted, at=MONO + 60, read_wall=WALL))
    assert of_pod(last_of(first, ahead)) == Departure(OwnerKind.POD, POD_UID, MONO, 100.0)
    assert of_pod(last_of(first, ahead, back)) == Departure(OwnerKind.POD, POD_UID, MONO, 160.0)


def test_a_pod_that_the_list_does_not_name_any_more_ends_from_then_on() -> None:
    """Deleted by force: from the first list without it, with the grace that it last had."""
    there = seen_at(MONO, POD, cluster=a_cluster(a_pod(grace_seconds=60.0)))
    gone = seen_at(MONO + 30, POD, cluster=a_cluster(at=MONO + 30))
    later = seen_at(MONO + 60, POD, cluster=a_cluster(at=MONO + 60))
    expected = Departure(OwnerKind.POD, POD_UID, MONO + 30, 60.0, gone=True)
    assert of_pod(last_of(there, gone)) == expected
    assert of_pod(last_of(there, gone, later)) == expected
    back = seen_at(MONO + 90, POD, cluster=a_cluster(a_pod(), at=MONO + 90))
    assert of_pod(last_of(there, gone, back)) == Departure(OwnerKind.POD, POD_UID, None, 30.0)
    deleted = seen_at(MONO + 90, POD, cluster=a_cluster(a_pod(deletes_at=WALL + 95), at=MONO + 90))
    assert of_pod(last_of(there, gone, deleted)) == Departure(OwnerKind.POD, POD_UID, MONO + 90, 30.0)


def test_what_was_never_listed_is_not_remembered_and_static_pods_never_are() -> None:
    """After our start; and what the API has of a static pod is a mirror."""
    assert of_pod(last_of(seen_at(MONO, POD, cluster=a_cluster()))) is None
    mirrored = a_pod(mirror="a5363f4f31e043bdae3c93aca4991903", deletes_at=WALL)
    assert of_pod(last_of(seen_at(MONO, POD, cluster=a_cluster(mirrored)))) is None


def test_no_list_and_an_empty_one_change_nothing() -> None:
    """An API that does not answer, and a node that would have no pod at all."""
    there = seen_at(MONO, POD, cluster=a_cluster(a_pod()))
    silent = seen_at(MONO + 2, POD, cluster=Unreadable("it hangs"), slurm=Unreadable("it hangs"))
    empty = seen_at(MONO + 4, POD, cluster=replace(a_cluster(at=MONO + 4), pods=()))
    nobody = seen_at(MONO + 6, POD, cluster=Absent("no cluster is asked"))
    assert of_pod(last_of(there, silent, empty, nobody)) == Departure(OwnerKind.POD, POD_UID, None, 30.0)


def test_an_ended_job_counts_from_the_first_answer_that_shows_it() -> None:
    """KillWait and UnkillableStepTimeout are its own time; a clock behind the controller's adds to it."""
    runs = seen_at(MONO, JOB, slurm=a_slurm(a_job()))
    assert of_job(last_of(runs)) == Departure(OwnerKind.JOB, "12")
    ended = a_job(state="COMPLETING", ended_at=WALL + 20)
    first = seen_at(MONO + 30, JOB, slurm=a_slurm(ended, at=MONO + 30))
    second = seen_at(MONO + 60, JOB, slurm=a_slurm(ended, at=MONO + 60, kill_wait_seconds=40.0))
    assert of_job(last_of(runs, first)) == Departure(OwnerKind.JOB, "12", MONO + 30, 90.0)
    assert of_job(last_of(runs, first, second)) == Departure(OwnerKind.JOB, "12", MONO + 30, 100.0)
    ahead = seen_at(MONO, JOB, slurm=a_slurm(a_job(state="COMPLETED", ended_at=WALL + 20)))
    assert of_job(last_of(ahead)) == Departure(OwnerKind.JOB, "12", MONO, 110.0)
    again = seen_at(MONO + 90, JOB, slurm=a_slurm(a_job(), at=MONO + 90))
    assert of_job(last_of(runs, first, again)) == Departure(OwnerKind.JOB, "12")


def test_a_job_that_the_controller_forgot() -> None:
    """Known before: from when it ended, else from the first such answer. Never known: it says so."""
    runs = seen_at(MONO, JOB, slurm=a_slurm(a_job()))
    ended = seen_at(MONO + 30, JOB, slurm=a_slurm(a_job(state="COMPLETED", ended_at=WALL), at=MONO + 30))
    gone = seen_at(MONO + 60, JOB, slurm=a_slurm(at=MONO + 60, gone=("12",)))
    later = seen_at(MONO + 90, JOB, slurm=a_slurm(at=MONO + 90, gone=("12",)))
    since_end = Departure(OwnerKind.JOB, "12", MONO + 30, 90.0, gone=True)
    assert of_job(last_of(runs, ended, gone, later)) == since_end
    assert of_job(last_of(runs, gone, later)) == Departure(OwnerKind.JOB, "12", MONO + 60, 90.0, gone=True)
    never = Departure(OwnerKind.JOB, "12", MONO + 60, 90.0, gone=True, listed=False)
    assert of_job(last_of(gone, later)) == never
    found = seen_at(MONO + 120, JOB, slurm=a_slurm(a_job(state="FAILED", ended_at=WALL), at=MONO + 120))
    assert of_job(last_of(gone, found)) == Departure(OwnerKind.JOB, "12", MONO + 120, 90.0)


def test_a_job_that_an_answer_leaves_out_is_remembered_if_it_had_ended() -> None:
    """One that ran is not: it is asked for as long as a process of it is seen."""
    ended = seen_at(MONO, JOB, slurm=a_slurm(a_job(state="COMPLETED", ended_at=WALL)))
    left_out = seen_at(MONO + 30, JOB, slurm=a_slurm(at=MONO + 30))
    assert of_job(last_of(ended, left_out)) == Departure(OwnerKind.JOB, "12", MONO, 90.0, gone=True)
    assert of_job(last_of(seen_at(MONO, JOB, slurm=a_slurm(a_job())), left_out)) is None


def test_what_is_gone_is_forgotten_when_no_process_of_it_is_seen_for_an_hour() -> None:
    """With a process it stays for as long as that lives."""
    there = seen_at(MONO, POD, JOB, cluster=a_cluster(a_pod()), slurm=a_slurm(a_job()))
    gone = seen_at(MONO + 30, cluster=a_cluster(at=MONO + 30), slurm=a_slurm(at=MONO + 30, gone=("12",)))
    soon = seen_at(MONO + 30 + KEPT_SECONDS, cluster=a_cluster(), slurm=Absent("away"))
    late = replace(soon, at=soon.at + 1)
    assert of_pod(last_of(there, gone, soon)) is not None
    assert of_job(last_of(there, gone, soon)) is not None
    assert of_pod(last_of(there, gone, late)) is None
    assert of_job(last_of(there, gone, late)) is None
    held = seen_at(late.at, POD, JOB, cluster=a_cluster(), slurm=Absent("away"))
    assert of_pod(last_of(there, gone, held)) is not None
    assert of_job(last_of(there, gone, held)) is not None


def test_no_more_than_a_bounded_number_is_remembered() -> None:
    """The newest: who ended last, and who runs."""
    many = tuple(
        Departure(OwnerKind.JOB, str(number), MONO - number, 90.0, gone=True) for number in range(MOST_KEPT)
    )
    kept = advance_departures(many, seen_at(MONO, POD, cluster=Known(a_cluster(a_pod()))))
    assert len(kept) == MOST_KEPT
    assert {one.id for one in kept if one.owner is OwnerKind.POD} >= {POD_UID}
    assert str(MOST_KEPT - 1) not in {one.id for one in kept}
