"""The real procfs worker on names: it answers them beside all else, and a disk that hangs stops nothing."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.daemon.worker_desks import ProcfsDesk
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe import place_records
from reclaimerd.observe.answers import Answered, Failed
from reclaimerd.observe.container_names import ContainerPlace
from reclaimerd.observe.known_looks import SentLooks
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.processes import ProcessReader
from reclaimerd.observe.slurm_host import SlurmPlaces
from tests.rigs.records import CONTAINERD, containerd_config, write_record

pytestmark = [pytest.mark.process, pytest.mark.root]

U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
C = "3f2a" * 16
ASKED = [[C, f"/kubepods/pod{U}", U]]


def with_worker(scene: Callable[[Probe], Coroutine[Any, Any, None]]) -> None:
    """Run a scene with a real worker."""

    async def run() -> None:
        probe = Probe("procfs", command_for("procfs"), WorkerSettings(answer_within_seconds=30))
        try:
            await scene(probe)
        finally:
            await probe.close()

    asyncio.run(run())


def test_the_worker_reads_names_below_the_root_that_it_is_told(tmp_path: Path) -> None:
    """One part for each container asked for, in order; a question without sense is an error."""
    write_record(tmp_path, CONTAINERD, C, containerd_config(U))

    async def scene(probe: Probe) -> None:
        unknown = ["00" * 32, "/kubepods/x", U]
        answer = await probe.ask("names", {"root": str(tmp_path), "asked": [*ASKED, unknown]})
        assert isinstance(answer, Answered)
        assert answer.parts[0]["names"]["pod"] == "train-0"
        assert answer.parts[1] == {"names": None}
        nothing = await probe.ask("scontrol", {"root": str(tmp_path)})
        assert isinstance(nothing, Answered)
        assert nothing.parts == ({"program": ""},)
        slurm = await probe.ask("slurm", asdict(SlurmPlaces(str(tmp_path))))
        assert isinstance(slurm, Answered)
        assert (slurm.parts[0]["slurm"]["scontrol"], slurm.parts[0]["slurm"]["daemons"]) == ("", [])
        assert isinstance(await probe.ask("slurm", {"root": str(tmp_path)}), Failed)
        for args in ({}, {"root": "/", "asked": [[1]]}, {"root": 5, "asked": []}):
            assert isinstance(await probe.ask("names", args), Failed)

    with_worker(scene)


def test_no_question_costs_the_worker_a_decoder() -> None:
    """Pydantic takes 13 MiB: the answers are written without it, and the questions read without it."""
    script = (
        "import sys\n"
        "from reclaimerd.observe.place_records import PlaceRecords\n"
        "places = {'root': '/nowhere', 'scontrol': '', 'slurmd': '', 'folder': '', 'asked': []}\n"
        "print([PlaceRecords().answer(op, places) != [] for op in ('slurm', 'scontrol', 'names')])\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True, False]\nFalse\n"


def test_a_disk_that_hangs_costs_half_a_second_once_and_looks_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a record's reading hangs there are no names, no further reading, and processes are looked at."""
    free, begun = threading.Event(), list[ContainerPlace]()

    def hang(place: ContainerPlace, _root: Path) -> None:
        begun.append(place)
        free.wait(30)

    monkeypatch.setattr(place_records, "read_container_names", hang)
    desk, heard = ProcfsDesk(ProcessReader(), SentLooks()), list[Any]()
    try:
        for _ in range(3):
            desk.answer("names", {"root": str(tmp_path), "asked": ASKED}, heard.append)
        assert heard == [{"names": None}] * 3
        assert len(begun) == 1
        desk.answer("look", {"pids": [os.getpid()], "whole": []}, heard.append)
        assert heard[-1]["pid"] == os.getpid()
        assert "look" in heard[-1]
    finally:
        free.set()
