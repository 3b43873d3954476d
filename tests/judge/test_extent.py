"""Members of large workloads, MPS clients and what only tells: a rule that holds leaves them alone."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.builtin_programs import PROGRAMS
from reclaimerd.judge.conditions import Holds
from reclaimerd.judge.evaluate import Evaluation, alarms, evaluate
from reclaimerd.judge.extent import extents_of, group_around, large_text, mps_reasons, mps_text
from reclaimerd.judge.gates import admit
from reclaimerd.judge.rulings import HoldingBack, Pair, alarms_of, only_tells
from reclaimerd.judge.subjects import Subject
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.incident import Actor, ActorKind, Stage
from reclaimerd.model.policy import GateSettings, Mode, Per, Rule, RuleAction, RuleKind
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import ContextKind, Holder, Snapshot
from reclaimerd.model.step import ReasonKind, Refusal
from reclaimerd.model.verdict import Ruling
from tests.builders import (
    GPU_A,
    GPU_B,
    NOT_LISTED,
    a_busy_snapshot,
    a_context,
    a_gpu,
    a_holder,
    a_policy,
    a_process,
    a_ref,
    a_row,
    a_rule,
    a_snapshot,
    a_step,
    a_workload,
    an_incident,
)
from tests.judge.test_evaluate import CONTEXT

UNIT = a_workload("train.service")
POD = Workload(WorkloadKind.POD, "pod", path="/kubepods/p", names=WorkloadNames(labels_whole=True))
JOB = Workload(WorkloadKind.SLURM_JOB, "job 7", path="/slurm/job_7", names=WorkloadNames(job_id="7", hosts=1))
SESSION = Workload(WorkloadKind.SESSION, "session 3", path="/user.slice/user-1000.slice/session-3.scope")
MEND = "large_jobs = true lets the rule take it"


def host(*held: tuple[ProcessReading, str], **overrides: Any) -> Snapshot:
    """Return a look at a host of two GPUs on which these processes hold these."""
    gpus = tuple(
        a_gpu(uuid, processes=[a_row(one.ref.pid) for one, gpu in held if gpu == uuid])
        for uuid in (GPU_A, GPU_B)
    )
    readings = {one.ref: one for one, _ in held}.values()
    holders = [a_holder(one, gpu) for one, gpu in held]
    return a_snapshot(gpus=gpus, processes=readings, holders=holders, **overrides)


def judged(look: Snapshot, *rules: Rule, most: int = 1) -> Evaluation:
    """Return what one look makes of it."""
    gates = GateSettings(spare_jobs_over_gpus=most)
    return evaluate(look, a_policy(*rules, gates=gates), (), CONTEXT)


def large(workload: Workload, *also: Holder, most: int = 1, others: Iterable[ProcessReading] = ()) -> str:
    """Return why a process of this workload on GPU A belongs to a large one."""
    reading = a_process(workload=workload)
    look = a_snapshot(
        gpus=(a_gpu(GPU_A, processes=[a_row()]), a_gpu(GPU_B, used=0)),
        processes=[reading, *others],
        holders=[a_holder(reading), *also],
    )
    return large_text(reading, extents_of(look), most)


@pytest.mark.parametrize(
    "workload",
    [
        UNIT,
        POD,
        JOB,
        SESSION,
        Workload(WorkloadKind.CONTAINER, "container", path="/docker/c"),
        Workload(WorkloadKind.NOMAD, "nomad", path="/nomad.slice/n"),
        Workload(WorkloadKind.MACHINE, "machine", path="/machine.slice/m"),
        Workload(WorkloadKind.NONE, "no workload"),
        replace(POD, names=WorkloadNames(labels_whole=True, hosts=1)),
        replace(POD, names=WorkloadNames(spread_known=True)),
    ],
)
def test_one_gpu_of_this_host_is_small(workload: Workload) -> None:
    """Whatever holds one GPU here and is known to be here alone is no large workload; with two GPUs it is."""
    assert large(workload) == ""
    second = a_holder(100, GPU_B)
    assert large(workload, second) == "it holds 2 GPUs of this host"
    assert large(workload, second, most=2) == ""


@pytest.mark.parametrize(
    ("workload", "text"),
    [
        (replace(UNIT, trusted=False), "nothing proves what it belongs to"),
        (replace(POD, trusted=False, names=None), "nothing proves what it belongs to"),
        (replace(POD, names=None), "its labels are not known"),
        (replace(POD, names=WorkloadNames(namespace="a", pod="b")), "its labels are not known"),
        (replace(POD, names=WorkloadNames(labels_whole=True, hosts=2)), "its job spans several hosts"),
        (replace(POD, names=WorkloadNames(spread_known=True, hosts=2)), "its job spans several hosts"),
        (replace(JOB, names=None), "over how many hosts its job is spread is not known"),
        (replace(JOB, names=WorkloadNames(job_id="7")), "over how many hosts its job is spread is not known"),
        (replace(JOB, names=WorkloadNames(job_id="7", hosts=4)), "its job spans several hosts"),
    ],
)
def test_several_hosts_or_nobody_knows_is_large(workload: Workload, text: str) -> None:
    """However many GPUs the policy lets a workload have: what spans hosts, or may, is large."""
    assert large(workload, most=64).endswith(text)


def test_all_members_count_together_and_nobody_else() -> None:
    """A boundary that its cgroup proves, or a login session, is one; processes without one count alone."""
    for workload in (UNIT, SESSION):
        mate = a_process(101, workload=workload)
        assert large(workload, a_holder(mate, GPU_B), others=[mate]) == "it holds 2 GPUs of this host"
        stranger = a_process(101, workload=replace(workload, path="/elsewhere"))
        assert large(workload, a_holder(stranger, GPU_B), others=[stranger]) == ""
    bare = Workload(WorkloadKind.NONE, "no workload")
    mate = a_process(101, workload=bare)
    assert large(bare, a_holder(mate, GPU_B), others=[mate]) == ""
    assert group_around(mate) == ("process", str(mate.ref))


def test_an_open_node_alone_is_no_gpu_of_its_own() -> None:
    """CUDA opens the nodes of all GPUs: only those it is listed on count, and those whose list is unknown."""
    node = a_holder(100, GPU_B, listed=False, used_bytes=NOT_LISTED)
    assert large(UNIT, node) == ""
    for sign in ({"heir_of": a_ref(7)}, {"remembered": True}):
        assert large(UNIT, replace(node, **sign)) == "it holds 2 GPUs of this host"
    reading = a_process(workload=UNIT)
    lost = (a_gpu(GPU_A, processes=[a_row()]), a_gpu(GPU_B, processes=()))
    for listing, gpus in ((Unreadable("lost"), 2), (Absent("not offered"), 2), (Known(()), 1)):
        blind = (lost[0], replace(lost[1], processes=listing))
        look = a_snapshot(gpus=blind, processes=[reading], holders=[a_holder(reading), node])
        assert len(extents_of(look).gpus[group_around(reading)]) == gpus


def test_one_who_can_not_be_read_may_belong_to_it() -> None:
    """An unreadable holder of another GPU makes the extent unknown; of the same GPU it adds nothing."""
    assert large(UNIT, a_holder(101, GPU_B)) == "pid 101 can't be read and holds GPUs, maybe for it"
    assert large(UNIT, a_holder(101, GPU_A)) == ""
    assert large(UNIT, a_holder(101, GPU_B), most=2) == ""
    third = GpuUuid("GPU-cccccccc-0000-0000-0000-000000000000")
    both = (a_holder(101, GPU_B), a_holder(102, third))
    assert large(UNIT, *both, most=2) == "pid 101 can't be read and holds GPUs, maybe for it"
    assert large(UNIT, *both, most=3) == ""


def on_both(**rule: Any) -> Evaluation:
    """Return what becomes of a unit of two processes that hold both GPUs."""
    pair = [(a_process(pid, workload=UNIT), gpu) for pid, gpu in ((100, GPU_A), (101, GPU_B))]
    return judged(host(*pair), a_rule(**rule))


@pytest.mark.parametrize("action", [RuleAction.RECLAIM, RuleAction.WARN])
def test_a_member_of_a_large_workload_is_watched(action: RuleAction) -> None:
    """WATCH with why and the mend, and one alarm for the whole workload; `large_jobs` lets the rule act."""
    found = on_both(action=action)
    assert [one.ruling for one in found.verdicts] == [Ruling.WATCH] * 2
    for verdict in found.verdicts:
        text = verdict.reasons[0].text
        assert text.endswith(f"left alone as part of a large workload: it holds 2 GPUs of this host; {MEND}")
        assert found.held_back["over-cap", verdict.ref].text in text
    who = "rule over-cap holds for train.service, and leaves it alone as a large workload"
    assert alarms(found) == (f"{who}: it holds 2 GPUs of this host; {MEND}",)
    free = on_both(action=action, large_jobs=True)
    assert [one.ruling for one in free.verdicts] == [Ruling.RECLAIM] * 2
    assert (alarms(free), free.held_back) == ((), {})


def test_a_lone_process_is_named_by_its_pid_in_the_alarm() -> None:
    """Without a workload the alarm says which process it is about."""
    bare = a_process(workload=Workload(WorkloadKind.NONE, "no proven workload", trusted=False))
    assert alarms(judged(host((bare, GPU_A)), a_rule()))[0].startswith(
        "rule over-cap holds for pid 100 (no proven workload), and leaves it alone"
    )


@pytest.mark.parametrize(
    "rule", [{"mode": Mode.OBSERVE}, {"action": RuleAction.OBSERVE}, {"for_seconds": 60.0}, {"above": 9**20}]
)
def test_no_alarm_where_nothing_would_be_done(rule: dict[str, Any]) -> None:
    """A rule that observes, waits or does not hold leaves nobody alone."""
    assert alarms(on_both(**rule)) == ()


def test_of_a_user_over_the_cap_the_small_workload_goes() -> None:
    """Who is left alone stands in nobody's way: of the rest one is taken."""
    job = [(a_process(pid, workload=UNIT), gpu) for pid, gpu in ((100, GPU_A), (101, GPU_B))]
    small = (a_process(102, workload=a_workload("note.service")), GPU_A)
    found = judged(host(*job, small), a_rule(per=Per.USER, above=12 * 1024**3))
    assert [one.ref.pid for one in found.verdicts if one.ruling is Ruling.RECLAIM] == [102]


def test_an_mps_client_is_never_taken_by_a_rule() -> None:
    """Case C71: its end may damage the other clients; also when only another GPU lists it as a client."""
    reading = a_process()
    look = a_busy_snapshot(reading)
    gpu = replace(look.gpus[0], processes=Known((a_row(context=ContextKind.MPS), a_row())))
    rule = a_rule(large_jobs=True)
    assert judged(look, rule).verdicts[0].ruling is Ruling.RECLAIM
    found = judged(replace(look, gpus=(gpu,)), rule)
    assert found.verdicts[0].ruling is Ruling.WATCH
    assert f"it is a client of the MPS server on {GPU_A}" in found.verdicts[0].reasons[0].text
    assert alarms(found) == ()
    elsewhere = host((reading, GPU_A), (reading, GPU_B))
    client = replace(elsewhere.gpus[1], processes=Known((a_row(context=ContextKind.MPS),)))
    assert (
        judged(replace(elsewhere, gpus=(elsewhere.gpus[0], client)), rule).verdicts[0].ruling is Ruling.WATCH
    )


@pytest.mark.parametrize("processes", [Known((a_row(7, context=ContextKind.MPS),)), Unreadable("lost")])
def test_others_are_no_clients(processes: Any) -> None:
    """Another's row, an unread list and an unseen GPU make nobody a client."""
    look = a_snapshot(gpus=(a_gpu(processes=()),))
    look = replace(look, gpus=(replace(look.gpus[0], processes=processes),))
    assert mps_text(a_ref(), (a_holder(), a_holder(100, GPU_B)), look) == ""


def test_no_signal_by_rule_reaches_an_mps_client_that_is_a_member() -> None:
    """A tree or a workload takes others with it: asked again of each of them; a drain touches none."""
    reading = a_process()
    look = a_busy_snapshot(reading)
    client = replace(look.gpus[0], processes=Known((a_row(context=ContextKind.MPS),)))
    shared = replace(look, gpus=(client,))
    incident = an_incident()
    for stage in (Stage.SIGTERM, Stage.SIGKILL):
        (reason,) = mps_reasons(a_step(incident, stage), shared)
        assert (reason.kind, reason.processes) == (ReasonKind.PROTECTED, (reading.ref,))
        assert mps_reasons(a_step(incident, stage), look) == ()
    assert mps_reasons(a_step(incident, Stage.DRAIN), shared) == ()
    context = a_context(snapshot=shared, policy=a_policy(a_rule(mode=Mode.ENFORCE)))
    by_rule = replace(incident, actor=Actor(ActorKind.RULE, "over-cap"))
    answer = admit(a_step(by_rule, Stage.SIGTERM), by_rule, context)
    assert isinstance(answer, Refusal)
    assert any("client of the MPS server" in reason.text for reason in answer.reasons)


def test_the_servers_of_mps_are_protected() -> None:
    """The server's end takes every client with it."""
    names = {name for program in PROGRAMS for name in program.names}
    assert {"nvidia-cuda-mps-server", "nvidia-cuda-mps-control"} <= names


@pytest.mark.parametrize(
    ("kind", "action", "tells"),
    [
        (RuleKind.MINER, RuleAction.RECLAIM, True),
        (RuleKind.MINER, RuleAction.WARN, False),
        (RuleKind.ORPHAN, RuleAction.RECLAIM, True),
        (RuleKind.ORPHAN, RuleAction.WARN, True),
        (RuleKind.HIDDEN, RuleAction.RECLAIM, True),
        (RuleKind.HIDDEN, RuleAction.WARN, True),
        (RuleKind.MEMORY, RuleAction.RECLAIM, False),
        (RuleKind.AGE, RuleAction.WARN, False),
    ],
)
def test_a_sign_is_no_proof(kind: RuleKind, action: RuleAction, tells: bool) -> None:  # noqa: FBT001 - a table's column
    """What a miner's, an orphan's or a hidden process's rule shows leads to no act, whatever it asks."""
    assert only_tells(a_rule(kind=kind, action=action)) is tells


def test_a_rule_that_only_tells_takes_nobody_even_if_it_asks() -> None:
    """Should an acting rule of such a kind ever stand in a policy, who breaks it is left alone."""
    reading = a_process()
    look = a_busy_snapshot(reading)
    rule = a_rule(kind=RuleKind.ORPHAN, large_jobs=True)
    subject = Subject(reading.ref, look.holders, reading, None, "")
    back = HoldingBack(look, a_policy(rule))
    assert back.why(Pair(rule, 0, subject, reading, Holds("it is one", (GPU_A,), 0))) == (
        "rules of kind orphan only tell"
    )
    assert alarms_of(back.found) == ()
