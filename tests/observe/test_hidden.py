"""Who holds a GPU, lives, and is not shown by /proc: for real in a mount namespace, and look by look."""

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import HiddenListing, Snapshot
from reclaimerd.observe import hidden as hidden_module
from reclaimerd.observe.answers import Answer, Answered, Failed, UnreadableProcess
from reclaimerd.observe.hidden import EVERY_SECONDS, MOST_PIDS, HiddenEyes, read_hidden
from reclaimerd.observe.probe import Probe
from tests.builders import GPU_A, GPU_B, MONO, a_gpu, a_process, a_row, a_snapshot
from tests.rigs.proc_children import script

PAUSE = "\nimport signal\nready()\nsignal.pause()\n"
THREAD = (
    """
import signal, threading
def stay():
    sys.stderr.write("")
    threading.Event().wait()
threading.Thread(target=stay, daemon=True).start()
"""
    + PAUSE
)
NO_PID = 4_000_001
"""Below the kernel's largest (2^22), and nobody's: this machine hands out far smaller ones."""
OVER = "something is mounted over its entry in /proc"
in_namespaces = [
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"),
]


def mounting(mount: str) -> Any:
    """Return what starts a worker in a mount namespace of its own, in which `mount` was done before."""
    code = f'mount --make-rprivate / && {mount} && exec "$@"'

    def command(fd: int) -> list[str]:
        return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", code, "sh", *command_for("procfs")(fd)]

    return command


class TestForReal:
    """Mounts over /proc/PID in a namespace of the worker's own, seen by the real worker."""

    pytestmark = in_namespaces

    @pytest.mark.parametrize("mount", ["mount -t tmpfs none /proc/{pid}", "mount --bind /proc/1 /proc/{pid}"])
    def test_a_mount_over_its_entry_is_seen_and_nothing_of_it_believed(self, mount: str) -> None:
        """Of a tmpfs and of another process's folder: that pid is hidden, and unreadable, not gone."""
        with script(PAUSE) as pid, script(PAUSE) as plain:

            async def scene() -> None:
                probe = Probe("procfs", mounting(mount.format(pid=pid)), WorkerSettings())
                try:
                    asked = {"pids": [pid, plain, NO_PID]}
                    answer = await probe.ask("hidden", asked, answer_within=20)
                    assert isinstance(answer, Answered), answer
                    assert answer.parts == ({"hidden": [[pid, OVER]]},)
                    look = (await probe.ask_each([pid]))[pid]
                    assert isinstance(look, UnreadableProcess), look
                finally:
                    await probe.close()

            asyncio.run(scene())

    def test_two_looks_of_the_real_worker_agree(self) -> None:
        """The second look names it, with its GPU and figure."""
        with script(PAUSE) as pid:

            async def scene() -> None:
                probe = Probe(
                    "procfs",
                    mounting(f"mount -t tmpfs none /proc/{pid}"),
                    WorkerSettings(answer_within_seconds=20),
                )
                eyes = HiddenEyes(Looks(pid), probe, lambda: MONO)
                try:
                    assert (await eyes.sample(Look())).hidden == ()
                    (found,) = (await eyes.sample(Look())).hidden
                    assert found == HiddenListing(GPU_A, pid, Known(7), OVER)
                finally:
                    await probe.close()

            asyncio.run(scene())


@pytest.mark.process
def test_who_is_shown_or_gone_or_only_a_thread_is_not_hidden() -> None:
    """A living process, a dead pid, and a thread's id, which /proc never lists and which is no process."""
    with script(THREAD) as pid:
        tid = next(int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid)  # noqa: PTH208
        assert read_hidden([pid, tid, NO_PID, 1]) == {}


@pytest.mark.process
def test_a_listing_that_leaves_a_living_process_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a rootkit does it that filters readdir alone: its entry opens by its number (C55)."""
    with script(PAUSE) as pid:
        rest = frozenset(os.listdir(b"/proc/")) - {b"%d" % pid}  # noqa: PTH208  # byte names
        monkeypatch.setattr(hidden_module, "_read_names", lambda _proc: rest)
        assert read_hidden([pid, os.getpid()]) == {pid: "the listing of /proc leaves its entry out"}
        monkeypatch.setattr(hidden_module, "_read_mount", _no_entry)
        assert read_hidden([pid]) == {pid: "/proc has no entry for it"}
        monkeypatch.setattr(hidden_module, "hides_processes", lambda: True)
        assert read_hidden([pid]) == {}, "what /proc does not show us is no sign"
    monkeypatch.setattr(hidden_module, "hides_processes", lambda: False)
    assert read_hidden([pid]) == {}, "who has ended is not hidden"


def _no_entry(path: bytes) -> bytes:
    if path == b"/proc/":
        return b"25"
    raise FileNotFoundError


class Looks:
    """A sampler whose GPU A lists one pid that can't be read, until told otherwise."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.seen: tuple[int, ...] = ()

    async def sample(self, _look: Look) -> Snapshot:
        """Return the look."""
        gpus = (a_gpu(processes=tuple(a_row(pid, 7) for pid in self.pids)), a_gpu(GPU_B))
        return a_snapshot(gpus=gpus, processes=[a_process(pid) for pid in self.seen])


class Asked:
    """A procfs worker with a script."""

    def __init__(self) -> None:
        self.hidden: dict[int, str] = {}
        self.failure: Answer | None = None
        self.questions: list[object] = []

    async def ask(self, op: str, args: Mapping[str, object] | None = None) -> Answer:
        """Return who is hidden by the script."""
        assert op == "hidden"
        self.questions.append((args or {})["pids"])
        rows = [[pid, how] for pid, how in self.hidden.items()]
        return self.failure or Answered(({"hidden": rows},), MONO, MONO)


class Scene:
    """Eyes over both, and a clock."""

    def __init__(self, *pids: int) -> None:
        self.now = MONO
        self.looks, self.worker = Looks(*pids), Asked()
        self.eyes = HiddenEyes(self.looks, self.worker, lambda: self.now)

    def look(self, look: Look | None = None) -> list[int]:
        """Return the pids that this look calls hidden."""
        return [one.pid for one in asyncio.run(self.eyes.sample(look or Look())).hidden]


def test_one_look_alone_accuses_nobody() -> None:
    """A process that began or ended between two readings looks hidden once."""
    scene = Scene(100, 200)
    scene.worker.hidden = {100: OVER}
    assert scene.look() == []
    scene.worker.hidden = {200: OVER}
    assert scene.look() == []
    scene.worker.hidden = {200: OVER, 100: OVER}
    assert scene.look() == [200]


def test_who_is_shown_again_or_gone_is_hidden_no_more() -> None:
    """A pid leaves as soon as /proc shows it, or NVML lists it no more."""
    scene = Scene(100)
    scene.worker.hidden = {100: OVER}
    scene.look()
    assert scene.look() == [100]
    scene.worker.hidden = {}
    assert scene.look() == []
    scene.worker.hidden = {100: OVER}
    scene.look()
    assert scene.look() == [100]
    scene.looks.pids = ()
    assert scene.look() == []
    scene.looks.pids = (100,)
    assert scene.look() == [], "it must be seen twice again"


def test_while_nobody_answers_what_was_found_stays() -> None:
    """A silent worker clears nobody, and accuses nobody."""
    scene = Scene(100, 200)
    scene.worker.hidden = {100: OVER}
    scene.look()
    scene.look()
    scene.worker.failure = Failed("failed", "the worker died")
    assert scene.look() == [100]
    fresh = Scene(100)
    fresh.worker.failure = scene.worker.failure
    assert [fresh.look(), fresh.look()] == [[], []]


def test_all_are_looked_for_once_in_a_while_and_suspects_at_once() -> None:
    """Holders that can be read cost a question each 30 s; whoever can't be read is asked for each time."""
    scene = Scene(100)
    scene.looks.seen = (100,)
    for _ in range(3):
        scene.look()
    assert len(scene.worker.questions) == 1
    scene.now += EVERY_SECONDS
    scene.worker.hidden = {100: "the listing of /proc leaves its entry out"}
    assert scene.look() == []
    assert scene.look() == [100], "a suspect is looked for in the very next look"
    scene.looks.pids = tuple(range(1, MOST_PIDS + 10))
    scene.look()
    last = scene.worker.questions[-1]
    assert isinstance(last, list)
    assert len(last) == MOST_PIDS


@pytest.mark.parametrize("look", [Look(reset=True), Look(without_driver=True)])
def test_before_a_reset_nobody_is_asked(look: Look) -> None:
    """The look must stay fresh; what was found is told all the same."""
    scene = Scene(100)
    scene.worker.hidden = {100: OVER}
    scene.look()
    scene.look()
    asked = len(scene.worker.questions)
    assert scene.look(replace(look)) == [100]
    assert len(scene.worker.questions) == asked
