"""Claims about this node's drain request: asked once, within the fleet's limit, and taken back as it was."""

import asyncio
from dataclasses import replace

import pytest

from reclaimerd.daemon.drain_asks import next_due
from reclaimerd.daemon.drain_tending import UNSEEN
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import AskState, DrainPhase
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, TargetAnswer
from tests.daemon.drain_rig import Host, Places, Scheduler


def states(host: Host) -> dict[str, AskState]:
    """Return where each target stands."""
    return {ask.target: ask.state for ask in host.drain.asks}


def test_everybody_is_asked_once_and_it_stands() -> None:
    """The slot first, then each target; a later look asks nobody again."""
    host = Host(targets=[Scheduler("slurm"), Scheduler("webhook")])
    host.want()
    assert host.go() is DrainPhase.STANDS
    assert host.go(3600.0) is DrainPhase.STANDS
    assert [target.effects for target in host.targets] == [["drain inc-1"], ["drain inc-1"]]
    assert host.fleet.held == {"inc-1"}
    assert states(host) == {"slurm": AskState.ASKED, "webhook": AskState.ASKED}
    assert host.texts() == [
        "there is room", "asking slurm", "asking webhook", "slurm: asked: it stands",
        "webhook: asked: it stands", "everybody was asked",
    ]  # fmt: skip


def test_a_full_fleet_lets_nobody_be_asked() -> None:
    """It waits, says so once, and asks when there is room."""
    host = Host(fleet=Places(room=1, held={"other"}))
    host.want()
    assert host.go() is DrainPhase.SLOT
    assert host.go(3600.0) is DrainPhase.SLOT
    assert host.targets[0].effects == []
    assert host.texts() == ["no place yet: 1 of 1 nodes are drained"]
    host.fleet.held.clear()
    assert host.go(3600.0) is DrainPhase.STANDS
    assert host.targets[0].effects == ["drain inc-1"]


@pytest.mark.parametrize("phase", [DrainPhase.SLOT, DrainPhase.ASK])
def test_while_it_is_held_nobody_is_asked(phase: DrainPhase) -> None:
    """Pause, HOLD and --dry-run stop the slot and the asking; lifted, it goes on."""
    host = Host(held="paused by root")
    host.want()
    host.ledger = replace(host.ledger, drain=replace(host.drain, phase=phase, has_slot=True))
    assert host.go() is phase
    assert (host.targets[0].effects, host.fleet.held) == ([], set())
    host.held = ""
    assert host.go(60.0) is DrainPhase.STANDS


def test_what_holds_it_is_said_once() -> None:
    """A pause of days is no write at each look."""
    host = Host(held="paused by root")
    host.want()
    for _ in range(20):
        host.go(2.0)
    assert host.texts() == ["no place yet: paused by root"]
    assert host.writes == 1


def test_what_comes_between_record_and_asking_still_stops_it() -> None:
    """The record waits for a pass to end; HOLD that was set meanwhile is seen before anybody is asked."""
    host = Host()
    host.at_record = ("asking slurm", lambda: setattr(host, "held", "the file HOLD says hold"))
    host.want()
    assert host.go() is DrainPhase.ASK
    assert host.targets[0].effects == []
    assert host.texts()[-1] == "nobody was asked after all: the file HOLD says hold"
    host.held, host.at_record = "", None
    assert host.go(60.0) is DrainPhase.STANDS


def test_one_taken_back_between_record_and_asking_is_not_asked() -> None:
    """No scheduler hears of a request that a person took back a moment before."""
    host = Host()
    host.at_record = ("asking slurm", host.take_back)
    host.want()
    assert host.go() is DrainPhase.DONE
    assert host.targets[0].effects == []


def test_what_is_held_is_not_taken_back() -> None:
    """A daemon that runs with --dry-run leaves what stands; it says so once."""
    host = Host()
    host.want()
    host.go()
    host.take_back()
    host.held = "we run with --dry-run"
    assert host.go() is DrainPhase.WITHDRAW
    assert host.go(3600.0) is DrainPhase.WITHDRAW
    assert host.targets[0].effects == ["drain inc-1"]
    assert host.fleet.held == {"inc-1"}
    assert host.texts()[-1] == "not taken back yet: we run with --dry-run"
    host.held = ""
    assert host.go(60.0) is DrainPhase.DONE


def test_an_arbiter_that_breaks_gives_no_place_and_is_asked_in_its_time() -> None:
    """A fault of ours is no room; it stops nothing, and it is not tried at each look."""
    host = Host(fleet=Places(fault=RuntimeError("a bug")))
    host.want()
    assert host.go() is DrainPhase.SLOT
    for _ in range(5):
        host.go(1.0)
    assert (host.fleet.calls, host.targets[0].effects) == (1, [])
    assert "a fault of ours: RuntimeError: a bug" in host.drain.slot
    host.fleet.fault = None
    assert host.go(3600.0) is DrainPhase.STANDS
    host.fleet.fault = RuntimeError("a bug")
    host.take_back()
    assert host.go() is DrainPhase.WITHDRAW
    host.fleet.fault = None
    assert host.go(60.0) is DrainPhase.DONE


def test_a_clock_that_went_back_lets_nobody_wait_for_it() -> None:
    """What is to be tried again in 15 s is not put off until tomorrow."""
    host = Host(targets=[Scheduler("slurm", answers=[NotAsked("away")])])
    host.want()
    host.go()
    assert host.targets[0].effects == []
    host.go(-86400.0)
    assert host.targets[0].effects == ["drain inc-1"]


def test_without_anybody_who_counts_only_reports_are_made() -> None:
    """A fleet could be drained empty: the file is written, the scheduler is left alone and says why."""
    host = Host(targets=[Scheduler("file"), Scheduler("slurm")], reports=frozenset({"file"}))
    host.fleet.report_only = True
    host.want()
    assert host.go() is DrainPhase.STANDS
    assert host.go(7200.0) is DrainPhase.STANDS
    assert [target.effects for target in host.targets] == [["drain inc-1"], []]
    assert states(host) == {"file": AskState.ASKED, "slurm": AskState.FAILED}
    host.fleet.report_only = False
    host.go(7200.0)
    assert host.targets[1].effects == ["drain inc-1"]


@pytest.mark.parametrize(
    ("answer", "state", "again"),
    [
        (NotAsked("away"), AskState.DUE, True),
        (NotAsked("no rights", lasting=True), AskState.FAILED, True),
        (Foreign("drained by an admin"), AskState.FOREIGN, False),
        (RuntimeError("a bug"), AskState.DUE, True),
    ],
)
def test_one_that_fails_stops_no_other_and_is_asked_again(
    answer: TargetAnswer | Exception, state: AskState, *, again: bool
) -> None:
    """Each has its own state; another's drain is kept and not asked about again."""
    host = Host(targets=[Scheduler("slurm", answers=[answer]), Scheduler("webhook")])
    host.want()
    assert host.go() is DrainPhase.STANDS
    assert states(host) == {"slurm": state, "webhook": AskState.ASKED}
    host.go(7200.0)
    assert host.targets[0].effects == (["drain inc-1"] if again else [])
    assert host.targets[1].effects == ["drain inc-1"]
    assert not [entry for entry in host.records if entry.kind is RecordKind.ALARM]


def test_when_nobody_takes_it_a_person_is_called_once() -> None:
    """One alarm while it lasts; it goes on trying, ever less often."""
    away: list[TargetAnswer | Exception] = [NotAsked("away")] * 50
    host = Host(targets=[Scheduler("slurm", answers=away)])
    host.want()
    assert host.go() is DrainPhase.STANDS
    for _ in range(20):
        host.go(60.0)
    assert len([entry for entry in host.records if entry.kind is RecordKind.ALARM]) == 1
    assert 4 <= host.drain.asks[0].tries <= 10
    assert host.drain.all_failed


def test_taken_back_it_is_gone_everywhere_and_the_place_is_free() -> None:
    """The targets first, the fleet's place last."""
    host = Host(targets=[Scheduler("slurm"), Scheduler("webhook")])
    host.want()
    host.go()
    host.targets[1].answers = [NotAsked("away")]
    host.take_back()
    assert host.go() is DrainPhase.WITHDRAW
    assert host.fleet.held == {"inc-1"}
    assert host.go(7200.0) is DrainPhase.DONE
    assert [target.stands for target in host.targets] == [{}, {}]
    assert host.fleet.held == set()


def test_anothers_drain_is_not_taken_back() -> None:
    """Where theirs stands ours changed nothing: the target is told, and knows that nothing is ours."""
    host = Host(targets=[Scheduler("slurm", answers=[Foreign("an admin's")])])
    host.want()
    host.go()
    host.take_back()
    assert host.go() is DrainPhase.DONE
    assert host.targets[0].effects == []


@pytest.mark.parametrize("room", [0, 1])
def test_one_that_waits_can_be_taken_back(room: int) -> None:
    """Nobody was asked: nobody is told, and no place is kept."""
    host = Host(fleet=Places(room=room))
    host.want()
    host.take_back()
    assert host.go() is DrainPhase.DONE
    assert (host.targets[0].effects, host.fleet.held) == ([], set())


def test_a_place_that_can_not_be_given_back_is_tried_again() -> None:
    """It is not done before: the fleet would count this node for ever."""
    host = Host(fleet=Places(stuck="the API is away"))
    host.want()
    host.go()
    host.take_back()
    assert host.go() is DrainPhase.WITHDRAW
    assert "the fleet's place could not be given back: the API is away" in host.texts()
    host.fleet.stuck = ""
    assert host.go(60.0) is DrainPhase.DONE


def test_fence_and_place_that_stay_are_said_once_and_tried_in_their_time() -> None:
    """No hook at each look, and one alarm, though both can't be given back."""
    host = Host(fleet=Places(stuck="the API is away"), fences={"inc-1"}, fence_fault="the hook is gone")
    host.want()
    host.go()
    taken = host.fleet.calls
    host.take_back()
    for _ in range(10):
        host.go(2.0)
    assert host.fleet.calls - taken == 2
    assert len([entry for entry in host.records if entry.kind is RecordKind.ALARM]) == 1
    said = [text for text in host.texts() if text.startswith("the fleet's place could not be given back")]
    assert len(said) == 1
    host.fleet.stuck = host.fence_fault = ""
    assert host.go(60.0) is DrainPhase.DONE
    assert host.fences == set()


def test_further_incidents_join_and_nobody_is_asked_again() -> None:
    """One request for the node."""
    host = Host()
    host.want()
    host.go()
    host.want("inc-2")
    assert host.go(60.0) is DrainPhase.STANDS
    assert [one.incident for one in host.drain.joined] == ["inc-1", "inc-2"]
    assert host.targets[0].effects == ["drain inc-1"]


def _writes() -> int:
    host = Host(targets=[Scheduler("slurm"), Scheduler("webhook")])
    host.want()
    host.go()
    host.take_back()
    host.go(60.0)
    return host.writes


@pytest.mark.parametrize("boundary", range(1, _writes() + 1))
def test_a_death_at_any_record_asks_once_and_leaves_nothing(boundary: int) -> None:
    """From this write on nothing is durable, then we die; the next life goes on: one effect each."""
    host = Host(targets=[Scheduler("slurm"), Scheduler("webhook")], fail_at=boundary)
    host.want()
    host.go()
    host.fail_at = None
    assert host.go(3600.0) is DrainPhase.STANDS
    host.fail_at = host.writes + boundary
    host.take_back()
    host.go(3600.0)
    host.fail_at = None
    assert host.go(3600.0) is DrainPhase.DONE
    for target in host.targets:
        assert target.effects == ["drain inc-1", "undrain inc-1"]
        assert target.stands == {}
    assert host.fleet.held == set()


def test_what_is_not_on_record_is_not_asked() -> None:
    """The intent is durable before anything leaves the host."""
    host = Host(fail_at=2)
    host.want()
    assert host.go() is DrainPhase.ASK
    assert host.targets[0].effects == []
    assert host.drain.asks[0].tries == 0


def test_a_target_that_the_policy_dropped_says_so() -> None:
    """A person named it away while our request stood there: it is told, and tried until it is named again."""
    host = Host()
    host.want()
    host.go()
    (kept,) = host.targets
    host.targets = []
    host.take_back()
    assert host.go() is DrainPhase.WITHDRAW
    assert "the policy names no such target any more" in host.drain.asks[0].text
    host.targets = [kept]
    assert host.go(3600.0) is DrainPhase.DONE
    assert kept.stands == {}


def test_after_a_boot_that_mended_it_those_who_can_say_so_do_once() -> None:
    """Tried again while it can't be said; what stands stays until a person takes it back."""
    host = Host(verified_answers=[NotAsked("the API is away")])
    host.want()
    host.go()
    assert host.verified == []
    host.ledger = replace(host.ledger, drain=replace(host.drain, verified_boot="another"))
    host.held = UNSEEN  # nothing is asked any more
    host.go(60.0)
    assert host.verified == []  # a cause of this boot stands
    well = tuple(replace(one, well_at=host.now) for one in host.drain.joined)
    host.ledger = replace(host.ledger, drain=replace(host.drain, joined=well))
    host.held = "the file HOLD says hold"
    host.go(60.0)
    assert host.verified == []
    host.held = UNSEEN
    assert host.go(60.0) is DrainPhase.STANDS
    host.go(2.0)
    assert host.verified == ["inc-1"]  # an API that is away is asked again in its time
    assert "well after a boot" not in " ".join(host.texts())
    host.go(60.0)
    host.go(60.0)
    assert host.verified == ["inc-1", "inc-1"]
    assert host.targets[0].stands
    assert "well after a boot: the condition is False" in host.texts()


def test_the_arbiter_s_own_target_is_asked_before_the_others() -> None:
    """Where its drain is the mark it may lose the place: nobody else hears of a node that has none."""
    slurm = Scheduler("slurm", answers=[NotAsked("over the limit after all")])
    host = Host(targets=[Scheduler("file"), Scheduler("webhook"), slurm], reports=frozenset({"file"}))
    host.first = "slurm"
    host.want()
    assert host.go() is DrainPhase.STANDS
    assert [target.effects for target in host.targets] == [["drain inc-1"], [], []]
    assert host.drain.asks[1].text == "waits for slurm, which counts the fleet's nodes"
    assert next_due(host.drain.asks, host.now) > 0.0  # nothing is due before slurm is
    host.go(60.0)
    host.go(60.0)
    assert [target.effects for target in host.targets] == [["drain inc-1"]] * 3


def test_after_a_boot_everybody_is_asked_again_once() -> None:
    """What a boot undid on the host (a systemd target) is made again; what stands elsewhere stays one."""
    host = Host(targets=[Scheduler("unit"), Scheduler("slurm")])
    host.want()
    host.go()
    host.targets[0].stands.clear()
    host.boot_id = "another"
    assert host.go(60.0) is DrainPhase.STANDS
    assert host.go(60.0) is DrainPhase.STANDS
    assert [target.effects for target in host.targets] == [["drain inc-1"] * 2, ["drain inc-1"]]


@pytest.mark.parametrize("fault", ["", "the hook is gone"])
def test_the_fences_of_failed_resets_go_with_the_request(fault: str) -> None:
    """Of every incident that joined; one that can't be released is a person's, and holds nothing up."""
    host = Host(fences={"inc-1", "inc-2", "inc-9"}, fence_fault=fault)
    host.want()
    host.want("inc-2")
    host.go()
    assert host.fences == {"inc-1", "inc-2", "inc-9"}
    host.take_back()
    assert host.go() is DrainPhase.DONE
    assert host.fences == ({"inc-1", "inc-2", "inc-9"} if fault else {"inc-9"})
    alarms = [entry.reason for entry in host.records if entry.kind is RecordKind.ALARM]
    assert bool(alarms) is bool(fault)


def test_it_goes_on_by_itself_when_there_is_news() -> None:
    """A withdrawal that is ordered while the procedure rests is taken up at once."""
    host = Host()
    host.want()

    async def run() -> None:
        task = asyncio.create_task(host.settle())
        for _ in range(60):
            await asyncio.sleep(0)
        assert host.drain.phase is DrainPhase.STANDS
        host.take_back()
        assert host.procedure is not None
        host.procedure.look_after()
        await task

    asyncio.run(run())
    assert host.drain.phase is DrainPhase.DONE
    assert isinstance(asyncio.run(host.targets[0].status(host.drain.request)), NotAsked | Asked)


def test_only_who_was_asked_is_taken_back_from() -> None:
    """A try is counted for whom it is made: another target never hears of a request that it was not asked."""
    webhook = Scheduler("webhook")
    slurm = Scheduler("slurm", answers=[NotAsked("over the limit after all")] * 9)
    host = Host(targets=[webhook, slurm], first="slurm")
    host.want()
    host.go()
    assert [ask.tries for ask in host.drain.asks] == [0, 1]
    webhook.answers = [RuntimeError("it was asked all the same")]
    host.take_back()
    slurm.answers = []
    assert host.go(60.0) is DrainPhase.DONE
    assert webhook.effects == []
    assert len(webhook.answers) == 1


def test_who_waits_for_the_arbiter_s_target_is_told_so_and_the_reports_are_not() -> None:
    """Only those that were never asked: what a target has said itself stays."""
    slurm = Scheduler("slurm", answers=[NotAsked("away")] * 9)
    host = Host(
        targets=[Scheduler("file"), Scheduler("webhook"), slurm], reports=frozenset({"file"}), first="slurm"
    )
    host.want()
    host.go()
    texts = {ask.target: ask.text for ask in host.drain.asks}
    assert texts == {
        "file": "it stands",
        "webhook": "waits for slurm, which counts the fleet's nodes",
        "slurm": "away",
    }


def test_what_only_a_person_mends_is_asked_again_every_ten_minutes() -> None:
    """Not as soon as what may pass by itself."""
    lasting: list[TargetAnswer | Exception] = [NotAsked("no rights", lasting=True)] * 9
    passing: list[TargetAnswer | Exception] = [NotAsked("away")] * 9
    host = Host(targets=[Scheduler("slurm", answers=lasting), Scheduler("webhook", answers=passing)])
    host.want()
    host.go()
    host.go(60.0)
    assert [ask.tries for ask in host.drain.asks] == [1, 2]
    host.go(600.0)
    assert host.drain.asks[0].tries == 2


def test_after_a_boot_another_s_drain_is_not_asked_about_again() -> None:
    """Only what stood as ours may have been undone by the boot."""
    host = Host(targets=[Scheduler("slurm", answers=[Foreign("an admin's")])])
    host.want()
    host.go()
    host.boot_id = "another"
    host.go(60.0)
    host.go(60.0)
    assert states(host) == {"slurm": AskState.FOREIGN}
    assert host.targets[0].effects == []


def test_a_command_waits_for_what_it_began_but_not_for_ever() -> None:
    """`rest` returns when nothing is open any more, or at its bound; at once where nothing was begun."""
    idle, done, stuck = Host(), Host(), Host(fleet=Places(room=0))

    async def rested(host: Host) -> bool:
        procedure = host.make()
        procedure.look_after()
        await procedure.rest(0.05)
        is_over = host.ledger.drain is None or host.drain.phase is DrainPhase.DONE
        await procedure.stop()
        return is_over

    assert asyncio.run(rested(idle))
    done.want()
    done.take_back()
    assert asyncio.run(rested(done))
    stuck.want()
    assert not asyncio.run(rested(stuck))
