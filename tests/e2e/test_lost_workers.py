"""Our own workers are killed, run out of memory or can't be started: no wrong act, and it mends itself."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from tests.e2e.limits import limited_group, no_more_descriptors, oom_kills, put_into
from tests.e2e.rig import Json, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until
from tests.soak.meters import children_of

pytestmark = [pytest.mark.process, pytest.mark.slow]
BOUND_SECONDS = 60.0
ROLES = {"nvml": ("nvml",), "procfs": ("procfs",), "all": ("nvml", "procfs")}


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Return one running daemon: each loss here is one that it gets over."""
    with simulated_host(rule(grace="1s")) as host:
        host.start_daemon()
        host.passes(1)
        yield host


def workers(rig: Rig) -> dict[str, list[int]]:
    """Return the daemon's living workers by role; who knows callers is a second one of role procfs."""
    found: dict[str, list[int]] = {"nvml": [], "procfs": []}
    for pid in children_of(rig.daemons[-1].pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--role" in words:
            found.setdefault(words[words.index(b"--role") + 1].decode(), []).append(pid)
    return found


def status(rig: Rig) -> Json:
    """Return the daemon's status."""
    return rig.ask("/v1/status")


def lets_in(rig: Rig) -> bool:
    """Tell whether root is let in; asking starts the worker that knows callers."""
    reply = ask_daemon(rig.socket, Request("GET", "/v1/status"), None)
    return not isinstance(reply, NoAnswer) and reply.status == HTTPStatus.OK


def wait_for_workers(rig: Rig) -> dict[str, list[int]]:
    """Return the daemon's workers once all are at work."""

    def all_work() -> bool:
        found = workers(rig) if lets_in(rig) else {}
        return (len(found.get("nvml", ())), len(found.get("procfs", ()))) == (1, 2)

    wait_until(all_work, "its workers are there", BOUND_SECONDS)
    return workers(rig)


def all_is_well(rig: Rig, innocent: int) -> None:
    """Show that it works as before: its workers are there, a hog is ended by one SIGTERM and a SIGKILL."""
    wait_for_workers(rig)
    before = len(rig.records("intent"))
    pid = rig.launch("--ignore-term").pid
    wait_until(lambda: not is_alive(pid), f"a hog is ended: {rig.story()}", BOUND_SECONDS)
    ended = rig.wait_record("incident_ended", pid=pid, seconds=BOUND_SECONDS)
    assert ended["end"] == "reclaimed", rig.story()
    assert [one["action"] for one in rig.records("intent")[before:]] == ["sigterm", "sigkill"]
    assert is_alive(innocent)
    told = status(rig)
    assert (told["record_fault"], told["last_error"]) == ("", ""), told
    assert rig.daemons[-1].process.poll() is None


@pytest.mark.parametrize("lost", ROLES)
def test_workers_that_are_killed_in_mid_ladder_are_replaced(rig: Rig, lost: str) -> None:
    """The target gets no second SIGTERM, its SIGKILL comes, an innocent lives, and all goes on."""
    found = wait_for_workers(rig)
    innocent = rig.launch(size="1GiB").pid
    pid, path = rig.recorder(f"signals-{lost}")
    rig.wait_record("outcome", pid=pid, seconds=BOUND_SECONDS)
    for worker in (one for role in ROLES[lost] for one in found[role]):
        os.kill(worker, signal.SIGKILL)
    ended = rig.wait_record("incident_ended", pid=pid, seconds=BOUND_SECONDS)
    assert ended["end"] == "reclaimed", rig.story()
    assert signals_in(path).count("SIGTERM") == 1
    assert [one["action"] for one in rig.records("intent", pid=pid)] == ["sigterm", "sigkill"]
    all_is_well(rig, innocent)


@contextmanager
def long_answers(rig: Rig) -> Iterator[None]:
    """Let the simulated driver's worker read megabytes at each call, so that it must take memory."""
    path = rig.host / "host.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(f"{text}\n# {'x' * (8 << 20)}\n", encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


@pytest.mark.root
def test_a_worker_that_the_kernel_ends_for_memory_is_replaced(rig: Rig) -> None:
    """A real out-of-memory kill of the driver's worker: what it was is on our log, and all goes on."""
    innocent = rig.launch(size="1GiB").pid
    worker = wait_for_workers(rig)["nvml"][0]
    names = ("memory.limit_in_bytes", "memory.max")
    with limited_group("memory", *names, 64 << 10) as group, long_answers(rig):
        put_into(group, worker)
        wait_until(lambda: oom_kills(group) > 0, "the kernel ends it", BOUND_SECONDS)
        wait_until(lambda: not is_alive(worker), "it is gone", BOUND_SECONDS)
    all_is_well(rig, innocent)


@pytest.mark.root
def test_without_a_fork_nothing_is_done_and_status_says_why(rig: Rig) -> None:
    """No worker for the driver and none can be started: no act by rule, the reason told, then it mends."""
    innocent = rig.launch(size="1GiB").pid
    worker = wait_for_workers(rig)["nvml"][0]
    with limited_group("pids", "pids.max", "pids.max", 1) as group:
        put_into(group, rig.daemons[-1].pid)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: "can't be started" in str(status(rig)), "it says why", BOUND_SECONDS)
        before = len(rig.records("intent"))
        pid = rig.launch().pid
        rig.passes(3)
        assert is_alive(pid)
        assert len(rig.records("intent")) == before
    wait_until(lambda: not is_alive(pid), f"the hog is ended after all: {rig.story()}", BOUND_SECONDS)
    all_is_well(rig, innocent)


def test_without_a_descriptor_nobody_is_signalled_and_it_goes_on(rig: Rig) -> None:
    """Every open fails: no act goes out without a pidfd, the daemon lives, and then the hog is ended."""
    innocent = rig.launch(size="1GiB").pid
    wait_for_workers(rig)
    daemon = rig.daemons[-1]
    with no_more_descriptors(daemon.pid):
        hog, hog_path = rig.recorder("signals-hog")
        wait_until(lambda: "Too many open files" in daemon.words(), "it says why", BOUND_SECONDS)
        assert signals_in(hog_path) == []
        assert daemon.process.poll() is None
    wait_until(lambda: not is_alive(hog), f"the hog is ended after all: {rig.story()}", BOUND_SECONDS)
    assert signals_in(hog_path).count("SIGTERM") == 1
    all_is_well(rig, innocent)
