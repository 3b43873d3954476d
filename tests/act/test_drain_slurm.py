"""What stands at a node already, and what a drain does when Slurm answers oddly or not at all."""

import asyncio
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.drain_body import request_line
from reclaimerd.act.drain_slurm import PAUSES_SECONDS, DrainSlurm, standing
from reclaimerd.act.fleet_slurm import SlurmFleet
from reclaimerd.host.slurm_drain_text import NodeStands, SlurmPlace
from reclaimerd.model.drain import DrainCode
from reclaimerd.model.drain_policy import FleetSettings, SlurmTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, SlotTaken, SlotWaits, TargetAnswer
from tests.act.drain_builders import a_request
from tests.act.slurm_rig import Found, Pauses, calls_in, fleet_of, stand_in, target_of

REQUEST = a_request("inc-1")
OURS = request_line(REQUEST)
EARLIER = request_line(a_request("inc-0"))
LIMIT = FleetSettings(nodes=1, percent=100.0)


def stands(state: str, reason: str = "") -> NodeStands:
    """Return how a node stands."""
    return NodeStands("gpu01", state, frozenset(state.split("+")), reason, "ann" if reason else "", 1.0)


@pytest.mark.parametrize(
    ("state", "reason", "answer"),
    [
        ("IDLE+DRAIN", OURS, Asked),
        ("DOWN+DRAIN+NOT_RESPONDING", OURS, Asked),
        ("IDLE+DRAIN", "swap the fan", Foreign),
        ("IDLE+DRAIN", "", Foreign),
        ("MIXED+DRAIN", "Kill task failed", Foreign),
        ("IDLE+DRAIN", EARLIER, Foreign),
        ("IDLE+FAIL", "bad disk", Foreign),
        ("DOWN", "burnt", Foreign),
    ],
)
def test_what_lasts_is_kept(state: str, reason: str, answer: type[TargetAnswer]) -> None:
    """Our own drain stands already; anybody else's, also an earlier one of ours, is theirs."""
    found = standing(stands(state, reason), REQUEST)
    assert type(found) is answer
    assert state in found.text
    assert reason in found.text


@pytest.mark.parametrize(
    ("state", "reason", "lasting"),
    [
        ("DOWN+NOT_RESPONDING", "Not responding", False),
        ("DOWN", OURS, False),
        ("IDLE+MAINT", "", False),
        ("IDLE+MAINTENANCE+RESERVED", "", False),
        ("UNKNOWN+NOT_RESPONDING", "", False),
        ("IDLE", "swap the fan next week", True),
    ],
)
def test_what_is_over_by_itself_is_no_drain(state: str, reason: str, lasting: bool) -> None:  # noqa: FBT001  # a table's column
    """The node would take jobs again, so it is asked again; a bare reason waits for a person."""
    found = standing(stands(state, reason), REQUEST)
    assert isinstance(found, NotAsked)
    assert found.lasting == lasting


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED+COMPLETING", "IDLE+NOT_RESPONDING"])
def test_a_node_at_work_may_be_drained(state: str) -> None:
    """Nothing stands there."""
    assert standing(stands(state), REQUEST) is None


def test_the_plan_is_the_command_byte_for_byte() -> None:
    """One word each, as scontrol gets them; without a name in the policy it says that it is found."""
    plan = DrainSlurm(Found(NotAsked("-")).find, SlurmTarget(node="gpu01")).plan(REQUEST)
    assert shlex.split(plan)[-4:] == ["update", "nodename=gpu01", "state=drain", f"reason={OURS}"]
    assert "nodename=<this host's node>" in shlex.split(target_of(NotAsked("-")).plan(REQUEST))


def test_without_a_place_nobody_is_asked() -> None:
    """Every call gives the finder's own answer, and the fleet has no place."""
    nowhere = NotAsked("no scontrol", lasting=True)
    target = target_of(nowhere)
    for call in (target.request, target.withdraw, target.status):
        assert asyncio.run(call(REQUEST)) is nowhere
    assert asyncio.run(fleet_of(nowhere, LIMIT).take(REQUEST)) == SlotWaits(
        "the drained nodes can't be counted: no scontrol"
    )


def test_slurm_counts_only_what_it_is_asked_to_drain() -> None:
    """With Slurm as the arbiter and not as a target no mark would ever be set: reports alone."""
    fleet = SlurmFleet(Found(NotAsked("-")).find, LIMIT, None)
    waits = asyncio.run(fleet.take(REQUEST))
    assert isinstance(waits, SlotWaits)
    assert waits.report_only
    assert isinstance(asyncio.run(fleet.release(REQUEST)), Asked)


SHOW = 'echo "NodeName=gpu01 Arch=x"; echo "   State={state} Threads=1"; echo "   Reason={reason} [root@7]"'


class Odd:
    """Stand-ins of scontrol and sinfo: a node whose drain works, and what a test changes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drained = folder / "drained"
        self.scontrol(show="", update="")
        self.sinfo()

    @property
    def place(self) -> SlurmPlace:
        """Return where they are."""
        return SlurmPlace("gpu01", str(self.folder / "scontrol"), str(self.folder / "sinfo"))

    def scontrol(self, *, show: str, update: str) -> None:
        """Let scontrol do these lines first."""
        lines = [
            f'if [ "$1" = show ] && [ "$2" = node ]; then :; {show}',
            f'if [ -e "{self.drained}" ]; then {SHOW.format(state="IDLE+DRAIN", reason=OURS)}',
            'else echo "NodeName=gpu01 Arch=x"; echo "   State=IDLE Threads=1"; fi; fi',
            f'if [ "$1" = update ]; then :; {update}',
            f'case "$3" in state=drain) : > "{self.drained}";; *) rm -f "{self.drained}";; esac; fi',
        ]
        stand_in(self.folder, "scontrol", lines)

    def sinfo(self, *others: str, total: str = "3", fault: str = "") -> None:
        """Let sinfo tell of these other nodes besides our own, where that is drained."""
        rows = "; ".join(f'echo "5|root|drained|{node}|{EARLIER}"' for node in others) or ":"
        own = f'if [ -e "{self.drained}" ]; then echo "6|root|drained|gpu01|{OURS}"; fi'
        lines = [fault or ":", f'case "$*" in *-R*) {rows}; {own};; *) echo "{total}";; esac']
        stand_in(self.folder, "sinfo", lines)

    def overtaken(self, *, at: int) -> None:
        """Let another node be drained, at that time, while ours is asked for."""
        self.scontrol(show="", update=": > $0.other")
        row = f'echo "{at}|root|drained|gpu02|{EARLIER}"'
        self.sinfo(fault=f'[ -e {self.place.scontrol}.other ] && case "$*" in *-R*) {row};; esac')

    def updates(self) -> list[str]:
        """Return the states that were asked for."""
        return [line.split()[3] for line in calls_in(self.folder) if line.startswith("scontrol update")]


@pytest.fixture
def odd(tmp_path: Path) -> Odd:
    """Give the stand-ins."""
    return Odd(tmp_path)


def ask(odd: Odd, fleet: FleetSettings | None = None, seconds: float = 5.0) -> TargetAnswer:
    """Let the target ask for our request."""
    return asyncio.run(target_of(odd.place, fleet, seconds).request(REQUEST))


@pytest.mark.process
def test_a_drain_is_asked_for_once(odd: Odd) -> None:
    """The second time it stands; taken back, it is undrained once, and nothing of ours stands then."""
    target = target_of(odd.place, LIMIT)
    assert isinstance(asyncio.run(target.request(REQUEST)), Asked)
    assert isinstance(asyncio.run(target.request(REQUEST)), Asked)
    assert odd.updates() == ["state=drain"]
    assert isinstance(asyncio.run(target.withdraw(REQUEST)), Asked)
    again = asyncio.run(target.withdraw(REQUEST))
    assert isinstance(again, Asked)
    assert again.text.startswith("nothing of ours stands")
    assert odd.updates() == ["state=drain", "state=undrain"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "lasting"),
    [
        ("slurm_update error: Invalid node name specified", True),
        ("slurm_update error: Invalid user id", True),
        ("slurm_update error: Access/permission denied", True),
        ("Unable to contact slurm controller (connect failure)", False),
        ("slurm_update error: Socket timed out on send/recv operation", False),
        ("Protocol authentication error", False),
    ],
)
def test_what_a_person_must_mend_lasts(odd: Odd, words: str, lasting: bool) -> None:  # noqa: FBT001  # a table's column
    """No such node and no rights last; a controller that is away is asked again."""
    odd.scontrol(show="", update=f'echo "{words}" >&2; exit 1')
    found = ask(odd)
    assert isinstance(found, NotAsked)
    assert found.lasting == lasting
    assert words in found.text


@pytest.mark.process
def test_a_scontrol_that_hangs_is_bounded(odd: Odd) -> None:
    """At its time it is killed, and the answer says so."""
    odd.scontrol(show="exec sleep 60", update="")
    began = time.monotonic()
    found = ask(odd, seconds=0.3)
    assert found == NotAsked(f"Slurm: {odd.place.scontrol} show node gpu01 did not end within 0.3 s")
    assert time.monotonic() - began < 5.0
    assert odd.updates() == []


@pytest.mark.process
def test_an_order_that_came_to_nothing_is_no_drain(odd: Odd) -> None:
    """No fault is told, and the node is not drained: that is not Asked."""
    odd.scontrol(show="", update="exit 0")
    found = ask(odd)
    assert isinstance(found, NotAsked)
    assert found.text == "asked, and our drain does not stand: node gpu01 is IDLE"


@pytest.mark.process
def test_an_undrain_that_came_to_nothing_is_not_taken_back(odd: Odd) -> None:
    """It stands still, and the answer says so."""
    odd.drained.touch()
    odd.scontrol(show="", update="exit 0")
    found = asyncio.run(target_of(odd.place).withdraw(REQUEST))
    assert isinstance(found, NotAsked)
    assert found.text.startswith("our drain stands still")


@pytest.mark.process
@pytest.mark.parametrize(
    "fault",
    ["exit 1", "echo garbage; exit 0", "exec sleep 60", "echo '5|root|drained||reclaimerd: x'; exit 0"],
)
def test_without_a_count_nobody_is_drained(odd: Odd, fault: str) -> None:
    """The list fails, hangs or says what can't be read: the fleet waits and the node is left alone."""
    odd.sinfo(fault=fault)
    target = target_of(odd.place, LIMIT, 0.5)
    found = asyncio.run(target.request(REQUEST))
    assert isinstance(found, NotAsked)
    assert found.text.startswith("not asked: the drained nodes can't be counted")
    waits = asyncio.run(SlurmFleet(Found(odd.place).find, LIMIT, SlurmTarget(seconds=0.5)).take(REQUEST))
    assert isinstance(waits, SlotWaits)
    assert odd.updates() == []


@pytest.mark.process
def test_without_sinfo_nobody_counts(odd: Odd) -> None:
    """No safe sinfo beside scontrol is a refusal that says so."""
    found = asyncio.run(target_of(replace(odd.place, sinfo=""), LIMIT).request(REQUEST))
    assert isinstance(found, NotAsked)
    assert "no sinfo" in found.text
    assert odd.updates() == []


@pytest.mark.process
def test_one_too_many_goes_at_once_and_the_first_waits(odd: Odd) -> None:
    """Another node is drained between our count and our order: the later one is undrained."""
    odd.overtaken(at=5)
    pauses = Pauses()
    target = replace(target_of(odd.place, LIMIT), sleep=pauses.sleep)
    found = asyncio.run(target.request(REQUEST))
    assert isinstance(found, NotAsked)
    assert found.text.startswith("over the fleet's limit after all, taken back: 1 of 3 nodes")
    assert odd.updates() == ["state=drain", "state=undrain"]
    assert pauses.slept == []


@pytest.mark.process
def test_the_first_of_too_many_goes_too_when_nobody_else_does(odd: Odd) -> None:
    """It looks again a few times, and never stays over the limit."""
    odd.overtaken(at=9)
    pauses = Pauses()
    target = replace(target_of(odd.place, LIMIT), sleep=pauses.sleep)
    assert isinstance(asyncio.run(target.request(REQUEST)), NotAsked)
    assert odd.updates() == ["state=drain", "state=undrain"]
    assert pauses.slept == list(PAUSES_SECONDS)


@pytest.mark.process
def test_a_full_fleet_gives_no_place_and_a_marked_node_keeps_its_own(odd: Odd) -> None:
    """The target would not ask either; the node that is drained already counts as itself."""
    odd.sinfo("gpu02")
    fleet = fleet_of(odd.place, LIMIT)
    waits = asyncio.run(fleet.take(REQUEST))
    assert isinstance(waits, SlotWaits)
    assert waits.text.startswith("1 of 3 nodes are drained by us (gpu02)")
    assert isinstance(ask(odd, LIMIT), NotAsked)
    assert odd.updates() == []
    odd.drained.touch()
    assert isinstance(asyncio.run(fleet.take(REQUEST)), SlotTaken)
    assert isinstance(asyncio.run(fleet.take(a_request(code=DrainCode.GPU_LOST))), SlotTaken)
