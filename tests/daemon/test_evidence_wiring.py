"""Evidence and the search through the control API: who may ask, and what comes with a real worker."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.daemon.engine import Engine, Paths
from reclaimerd.daemon.evidence_wiring import Investigator, driver_page
from reclaimerd.daemon.worker import command_for
from reclaimerd.errors import NoTargetError, RecordError
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.probe import Probe
from tests.builders import GPU_A, a_busy_snapshot, a_policy
from tests.daemon.test_api import MEMBER, ROOT, a_story
from tests.fakes import a_rig
from tests.rigs.kernel_children import PAUSE, child, stuck_in_flush
from tests.rigs.raw_fuse import why_unavailable

needs_fuse = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


@dataclass(slots=True)
class Bench:
    """As much of an engine as evidence needs: a cycle over fakes, a real procfs worker, a recorder."""

    cycle: Any
    procfs: Probe
    paths: Paths
    recorder: Any = None


class Thread:
    """Does the recorder's work at once, or fails as a full disk does."""

    def __init__(self, fault: OSError | None = None) -> None:
        self.fault = fault

    async def off_loop(self, work: Callable[[], Any], what: str) -> Any:
        """Do the work."""
        del what
        if self.fault is not None:
            raise self.fault
        return work()


def investigate(
    folder: Path, question: Callable[[Investigator], Awaitable[Any]], recorder: Thread | None = None
) -> Any:
    """Ask an investigator with a worker of its own."""

    async def ask() -> Any:
        rig = a_rig(a_busy_snapshot(), a_policy())
        await rig.cycle.run_pass()
        probe = Probe("procfs", command_for("procfs"), WorkerSettings(answer_within_seconds=10))
        bench = Bench(rig.cycle, probe, Paths(folder, folder, folder / "s"), recorder)
        try:
            return await question(Investigator(cast("Engine", bench)))
        finally:
            await probe.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/v1/evidence/100", "/v1/stuck"])
def test_only_an_operator_may_ask(path: str) -> None:
    """Stacks and other people's command lines are not for everybody who may look."""
    answer = asyncio.run(a_story().call("GET", path, MEMBER))
    assert answer.status == 403


def test_what_is_no_pid_is_400() -> None:
    """A word in the pid's place is a fault of the caller."""
    assert asyncio.run(a_story().call("GET", "/v1/evidence/x", ROOT)).status == 400


@pytest.mark.process
def test_evidence_of_a_living_process_names_it_masked_and_the_driver(tmp_path: Path) -> None:
    """The real worker's reading: masked arguments, parents, and what the last pass saw of the driver."""
    with child(PAUSE, "--password=hunter2") as started:
        page = investigate(tmp_path, lambda one: one.evidence(started.pid))
    assert page["pid"] == started.pid
    assert "--password=***" in page["process"]["command"]
    assert "hunter2" not in str(page)
    assert page["wait_chain"][0]["role"] == "parent"
    assert page["driver"]["holders"][0]["gpu"] == GPU_A


@pytest.mark.process
def test_no_such_process_is_said(tmp_path: Path) -> None:
    """Exit code 6, through the error's own code."""
    with pytest.raises(NoTargetError):
        investigate(tmp_path, lambda one: one.evidence(4_194_305))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.root
@needs_fuse
def test_kept_evidence_of_a_stuck_exit_lies_in_the_state_directory(tmp_path: Path) -> None:
    """Both pages, by digest, with the verdict in them."""
    with stuck_in_flush() as pid:
        kept = investigate(tmp_path, lambda one: one.keep("inc-1", pid), Thread())
    assert kept.json_path.parent == tmp_path / "evidence"
    assert "fuse_flush" in kept.text_path.read_text()
    assert len(kept.digest) == 64


@pytest.mark.process
def test_evidence_that_can_not_be_kept_is_a_record_error(tmp_path: Path) -> None:
    """A full disk, and an engine that only reads: an error in words, and no file."""
    with child(PAUSE) as started:
        for recorder in (None, Thread(OSError(28, "No space left on device"))):
            with pytest.raises(RecordError):
                investigate(tmp_path, lambda one: one.keep("inc-1", started.pid), recorder)
    assert list(tmp_path.iterdir()) == []


def test_the_drivers_page_has_its_state_and_holders() -> None:
    """State in words, GPUs by UUID, holders by PID@START."""
    snapshot = a_busy_snapshot()
    page: Any = driver_page(snapshot)
    assert page["state"] == snapshot.driver.state.value
    assert page["holders"][0]["ref"] == str(snapshot.holders[0].ref)
