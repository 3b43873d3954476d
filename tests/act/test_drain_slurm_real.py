"""Drains asked of a real Slurm: ours once, another's never touched, a limit that holds, a controller away."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.act.drain_body import request_line
from reclaimerd.act.drain_slurm import DrainSlurm
from reclaimerd.host.slurm_drain_text import SlurmPlace
from reclaimerd.model.drain import DrainCode, DrainRequest
from reclaimerd.model.drain_policy import FleetSettings
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked, SlotTaken, SlotWaits
from tests.act.drain_builders import a_request
from tests.act.slurm_rig import fleet_of, place_in, target_of
from tests.rigs.simulated import wait_until
from tests.rigs.slurm import NODE, SCONTROL, SINFO, Slurm, slurm, why_unavailable

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.root, pytest.mark.slurm]

NOBODY = 65534
NODES = (NODE, "gpu02", "gpu03")
REQUEST = a_request("inc-6a0b1c-000001")
WHOLE = FleetSettings(nodes=2, percent=100.0, same_code_nodes=9)
ONE = replace(WHOLE, nodes=1)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Slurm]:
    """Give a running Slurm of three nodes, the first two also in a hidden partition."""
    if why := why_unavailable():
        pytest.skip(why)
    hidden = "PartitionName=hidden Nodes=gpu01,gpu02 Hidden=YES State=UP"
    with slurm(more_nodes=NODES[1:], settings=hidden) as running:
        yield running


@pytest.fixture
def real(three_nodes: Slurm) -> Iterator[Slurm]:
    """Give it with all nodes idle, and leave it so."""
    yield three_nodes
    three_nodes.undrain_all()


@pytest.fixture
def place(real: Slurm, tmp_path: Path) -> SlurmPlace:
    """Give the first node's place."""
    return place_in(real, tmp_path)


@pytest.fixture
def target(place: SlurmPlace) -> DrainSlurm:
    """Give the target for the first node."""
    return target_of(place)


def stands(real: Slurm, node: str = NODE) -> tuple[str, str]:
    """Return state and whole reason of one node, as sinfo has them."""
    state = real.run(SINFO, "-h", "-n", node, "-o", "%T").strip()
    reason = real.run(SINFO, "-h", "-R", "-n", node, "-o", "%E").strip()
    return state, reason


def admin(real: Slurm, state: str, reason: str, node: str = NODE) -> None:
    """Set a node's state as an administrator does."""
    real.run(SCONTROL, "update", f"nodename={node}", f"state={state}", f"reason={reason}")


def drains_in_log(real: Slurm, reason: str) -> int:
    """Return how often the controller set this reason."""
    text = (real.folder / "slurmctld.log").read_text()
    return text.count(f"reason set to: {reason}")


def request_of(number: int, code: DrainCode = DrainCode.STUCK_EXIT) -> DrainRequest:
    """Return a request of another node's."""
    return a_request(f"inc-6a0b1c-00000{number}", code=code)


def test_a_node_is_drained_once_and_given_back(real: Slurm, target: DrainSlurm) -> None:
    """The whole reason stands there; asked again nothing changes; taken back the node is as before."""
    request = request_of(6)
    asked = asyncio.run(target.request(request))
    assert asked == Asked(f"node gpu01 is IDLE+DRAIN by root: {request_line(request)}")
    assert stands(real) == ("drained", request_line(request))
    assert isinstance(asyncio.run(target.request(request)), Asked)
    assert isinstance(asyncio.run(target.status(request)), Asked)
    assert drains_in_log(real, request_line(request)) == 1
    assert isinstance(asyncio.run(target.withdraw(request)), Asked)
    assert stands(real)[1] == ""
    assert isinstance(asyncio.run(target.status(request)), NotAsked)


@pytest.mark.parametrize(("state", "word"), [("drain", "drained"), ("fail", "fail"), ("down", "down")])
def test_anothers_drain_is_kept(real: Slurm, target: DrainSlurm, state: str, word: str) -> None:
    """An administrator's drain, failure or down stays with its reason, asked or taken back."""
    admin(real, state, "swap the fan | reclaimerd: not ours")
    found = asyncio.run(target.request(REQUEST))
    assert isinstance(found, Foreign)
    assert "by root: swap the fan" in found.text
    assert isinstance(asyncio.run(target.status(REQUEST)), Foreign)
    withdrawn = asyncio.run(target.withdraw(REQUEST))
    assert isinstance(withdrawn, Asked)
    assert withdrawn.text.startswith("nothing of ours stands")
    assert stands(real) == (word, "swap the fan | reclaimerd: not ours")


def test_a_running_job_goes_on_while_the_node_drains(real: Slurm, target: DrainSlurm) -> None:
    """Slurm drains: the job keeps running, and no new one starts."""
    job = real.submit("exec sleep 600", f"--nodelist={NODE}", uid=NOBODY)
    wait_until(lambda: bool(real.pids_of(job)), f"the job runs: {real.story()}", 30)
    try:
        asked = asyncio.run(target.request(REQUEST))
        assert isinstance(asked, Asked)
        assert "+DRAIN by root" in asked.text
        assert stands(real)[0] == "draining"
        assert real.run("/usr/bin/squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
        assert isinstance(asyncio.run(target.withdraw(REQUEST)), Asked)
        assert real.run("/usr/bin/squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    finally:
        real.run("/usr/bin/scancel", job)
        wait_until(lambda: not real.run("/usr/bin/squeue", "-h", "-j", job), "the job is gone", 30)


def test_a_reason_that_a_person_changed_is_not_undone(real: Slurm, target: DrainSlurm) -> None:
    """Ours is taken over by an administrator: taking back leaves it, and another incident's too."""
    asyncio.run(target.request(REQUEST))
    assert isinstance(asyncio.run(target.withdraw(request_of(2))), Asked)
    assert stands(real) == ("drained", request_line(REQUEST))
    admin(real, "drain", "I look at it: ann")
    withdrawn = asyncio.run(target.withdraw(REQUEST))
    assert isinstance(withdrawn, Asked)
    assert withdrawn.text.startswith("nothing of ours stands")
    assert stands(real) == ("drained", "I look at it: ann")


def test_an_unknown_node_and_no_rights_last(place: SlurmPlace, real: Slurm, tmp_path: Path) -> None:
    """Each says what to mend, and nothing is drained."""
    unknown = asyncio.run(target_of(replace(place, node="nosuch")).request(REQUEST))
    assert isinstance(unknown, NotAsked)
    assert unknown.lasting
    assert "[drain.slurm] node" in unknown.text
    nobody = tmp_path / "as-nobody"
    nobody.write_text(
        f"#!/bin/sh\nexport SLURM_CONF={real.folder}/slurm.conf\n"
        f'exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {SCONTROL} "$@"\n'
    )
    nobody.chmod(0o755)
    refused = asyncio.run(target_of(replace(place, scontrol=str(nobody))).request(REQUEST))
    assert isinstance(refused, NotAsked)
    assert refused.lasting
    assert "administrator" in refused.text
    assert stands(real) == ("idle", "")


def test_another_cluster_with_our_nodes_name_is_left_alone(real: Slurm, place: SlurmPlace) -> None:
    """The slurmd that this controller knows started at another time than the one that runs here."""
    stale = replace(place, started_at=time.time() - 4000.0)
    found = asyncio.run(target_of(stale).request(REQUEST))
    assert found == NotAsked(
        "the controller knows another slurmd of the name gpu01, not the one that runs here "
        "(if it is this one, whose configuration was read again, restart slurmd)"
    )
    assert stands(real) == ("idle", "")
    ours = replace(place, started_at=time.time())
    assert isinstance(asyncio.run(target_of(ours).request(REQUEST)), Asked)


def test_a_controller_that_was_down_is_asked_once(real: Slurm, target: DrainSlurm) -> None:
    """Down: not asked, and not for good. Back: asked once. A drain outlives the controller."""
    request = request_of(5)
    with real.without_controller():
        away = asyncio.run(replace(target, settings=replace(target.settings, seconds=3.0)).request(request))
        assert isinstance(away, NotAsked)
        assert not away.lasting
    assert isinstance(asyncio.run(target.request(request)), Asked)
    assert drains_in_log(real, request_line(request)) == 1
    with real.without_controller():
        pass
    assert isinstance(asyncio.run(target.request(request)), Asked)
    assert drains_in_log(real, request_line(request)) == 1


def test_an_order_that_is_carried_out_late_is_found(real: Slurm, place: SlurmPlace, tmp_path: Path) -> None:
    """The controller stops between our look and our order: no answer; when it goes on, one drain stands."""
    request = request_of(4)
    controller = (real.folder / "slurmctld.pid").read_text().strip()
    stops = tmp_path / "stops"
    stops.write_text(f'#!/bin/sh\n[ "$1" = update ] && kill -STOP {controller}\nexec {place.scontrol} "$@"\n')
    stops.chmod(0o755)
    try:
        silent = asyncio.run(target_of(replace(place, scontrol=str(stops))).request(request))
        assert isinstance(silent, NotAsked)
        assert not silent.lasting
    finally:
        os.kill(int(controller), signal.SIGCONT)
    wait_until(lambda: stands(real)[1] == request_line(request), "the order is carried out", 20)
    assert isinstance(asyncio.run(target_of(place).request(request)), Asked)
    assert drains_in_log(real, request_line(request)) == 1


def places(real: Slurm, root: Path) -> list[SlurmPlace]:
    """Return the place of each node."""
    return [place_in(real, root, node) for node in NODES]


def test_the_fleet_s_limit_holds_and_a_freed_place_is_used(real: Slurm, tmp_path: Path) -> None:
    """Two of three nodes may be drained; the third waits, untouched, until one is given back."""
    first, second, third = places(real, tmp_path)
    for number, place in enumerate((first, second)):
        assert isinstance(asyncio.run(fleet_of(place, WHOLE).take(request_of(number))), SlotTaken)
        assert isinstance(asyncio.run(target_of(place, WHOLE).request(request_of(number))), Asked)
    waits = asyncio.run(fleet_of(third, WHOLE).take(request_of(2)))
    assert waits == SlotWaits(
        "2 of 3 nodes are drained by us (gpu01, gpu02), and the limit is 2 ([drain.fleet] nodes, percent)"
    )
    assert isinstance(asyncio.run(target_of(third, WHOLE).request(request_of(2))), NotAsked)
    assert stands(real, "gpu03") == ("idle", "")
    assert isinstance(asyncio.run(fleet_of(second, WHOLE).take(request_of(1))), SlotTaken)
    asyncio.run(target_of(first, WHOLE).withdraw(request_of(0)))
    assert isinstance(asyncio.run(fleet_of(third, WHOLE).take(request_of(2))), SlotTaken)
    assert isinstance(asyncio.run(target_of(third, WHOLE).request(request_of(2))), Asked)


def test_a_dead_nodes_drain_counts_and_an_administrators_does_not(real: Slurm, tmp_path: Path) -> None:
    """As long as the reason is ours it counts, dead or not; with an administrator's it does not."""
    first, second, _ = places(real, tmp_path)
    admin(real, "drain", "swap the fan", "gpu03")
    asyncio.run(target_of(first, ONE).request(request_of(1)))
    admin(real, "down", request_line(request_of(1)))
    assert stands(real)[0] == "drained"
    assert isinstance(asyncio.run(fleet_of(second, ONE).take(request_of(2))), SlotWaits)
    admin(real, "down", "burnt")
    assert isinstance(asyncio.run(fleet_of(second, ONE).take(request_of(2))), SlotTaken)


def test_nodes_with_one_code_stop_the_next(real: Slurm, tmp_path: Path) -> None:
    """Two nodes with one code within the window: a person looks first; another code has room."""
    settings = replace(WHOLE, nodes=3, same_code_nodes=2)
    first, second, third = places(real, tmp_path)
    for number, place in enumerate((first, second)):
        assert isinstance(asyncio.run(target_of(place, settings).request(request_of(number))), Asked)
    waits = asyncio.run(fleet_of(third, settings).take(request_of(2)))
    assert isinstance(waits, SlotWaits)
    assert waits.text.startswith("2 nodes asked for stuck_exit within 30 min: a person looks first")
    assert isinstance(asyncio.run(target_of(third, settings).request(request_of(2))), NotAsked)
    other = request_of(2, DrainCode.GPU_LOST)
    assert isinstance(asyncio.run(fleet_of(third, settings).take(other)), SlotTaken)
    assert isinstance(asyncio.run(target_of(third, settings).request(other)), Asked)


def test_all_ask_at_once_and_one_stays(real: Slurm, tmp_path: Path) -> None:
    """Three nodes ask for one place in the same moment: one keeps it, the others are given back."""
    targets = [target_of(place, ONE) for place in places(real, tmp_path)]

    async def race() -> list[object]:
        calls = [target.request(request_of(number)) for number, target in enumerate(targets)]
        return list(await asyncio.gather(*calls))

    answers = asyncio.run(race())
    assert [type(answer) for answer in answers].count(Asked) == 1
    drained = [node for node in NODES if stands(real, node)[1]]
    assert drained == [node for node, answer in zip(NODES, answers, strict=True) if isinstance(answer, Asked)]
    assert {type(answer) for answer in answers} == {Asked, NotAsked}


def test_without_a_controller_nobody_has_a_place(real: Slurm, place: SlurmPlace) -> None:
    """No count is no place."""
    fleet = fleet_of(place, WHOLE)
    with real.without_controller():
        waits = asyncio.run(replace(fleet, target=target_of(place, seconds=3.0).settings).take(REQUEST))
    assert isinstance(waits, SlotWaits)
    assert waits.text.startswith("the drained nodes can't be counted: Slurm")
    assert not waits.report_only
