"""`reclaimctl demo`: the real daemon on a simulated GPU host, with real child processes to reclaim.

Sets the stage, starts `reclaimerd` as a child, follows it over the control socket, and clears
everything away again, also on Ctrl-C. It signals nobody: the daemon does, and the keeper at the end.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from reclaimerd.cli.demo_cast import Stage, staged
from reclaimerd.cli.demo_screen import Screen
from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from reclaimerd.cli.render import show_json
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.record.audit_read import verify
from reclaimerd.record.store import STORE_NAME, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_SECONDS = 0.2
START_SECONDS = 15.0
STOP_SECONDS = 8.0
SPARED_FOR_SECONDS = 1.0
"""How long the spared are watched after the last end: nothing may happen to them either."""
_DIE_WITH_US = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM (prctl(2)); exec keeps it
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Should the demo itself be killed, its daemon ends too: it would watch a host that is gone."""


@dataclass(slots=True)
class Story:
    """What has been seen so far."""

    incidents: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def end_of(self, pid: int) -> str:
        """Return how the incident of a process ended, "" while it has not."""
        return next((str(one["end"]) for one in self.incidents.values() if one["pid"] == pid), "")


def run(*, as_json: bool, seconds: int) -> int:
    """Play the demo; 0 when every process ended as it must, 1 when not. Raises ReclaimerdError."""
    policy = resources.files("reclaimerd.simulation").joinpath("demo.toml").read_text(encoding="utf-8")
    until = time.monotonic() + seconds - STOP_SECONDS
    with staged(policy) as stage:
        screen = Screen(stage, policy, quiet=as_json)
        screen.begin()
        story = Story()
        with _daemon(stage):
            _play(stage, story, screen, until)
        audit = _verified(stage)
        result = _result(stage, story, audit)
        if as_json:
            show_json(result)
        else:
            screen.end(story.incidents, audit)
        return int(ExitCode.OK if _as_it_must(stage, story, result) else ExitCode.INTERNAL)


@contextmanager
def _daemon(stage: Stage) -> "Iterator[None]":
    """Run the daemon on the stage; its end is asked for, and forced when it doesn't come."""
    argv = [
        sys.executable,
        "-c",
        _DIE_WITH_US,
        sys.executable,
        "-m",
        "reclaimerd.daemon.main",
        "--config",
        str(stage.directory / "policy.toml"),
        "--simulate",
        str(stage.host),
    ]
    with (stage.directory / "daemon.log").open("wb") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        _wait_for_daemon(stage, child)
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(STOP_SECONDS)


def _wait_for_daemon(stage: Stage, child: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and child.poll() is None:
        if _ask(stage, "/v1/status") is not None:
            return
        time.sleep(LOOK_SECONDS)
    words = (stage.directory / "daemon.log").read_text(encoding="utf-8", errors="replace")[-2000:]
    raise ReclaimerdError(f"the demo's daemon did not start: {words}", "please report it")


def _play(stage: Stage, story: Story, screen: Screen, until: float) -> None:
    """Follow the daemon until every incident has its end, or the time is up."""
    left_alone_since: float | None = None
    while time.monotonic() < until:
        _look(stage, story)
        if not stage.leave_file.exists() and stage.players[-1].pid in story.rows:
            stage.leave_file.touch()
        screen.update(story.rows, story.incidents)
        now = time.monotonic()
        if not all(story.end_of(one.pid) for one in stage.players if not one.spared):
            left_alone_since = None
        elif left_alone_since is None:
            left_alone_since = now
        elif now - left_alone_since >= SPARED_FOR_SECONDS:
            break
        time.sleep(LOOK_SECONDS)
    screen.stop()


def _look(stage: Stage, story: Story) -> None:
    table = _ask(stage, "/v1/ps")
    if table is not None:
        story.rows = {row["pid"]: row for row in table["rows"]}
    past = _ask(stage, "/v1/incidents")
    if past is not None:
        story.incidents = {row["id"]: row for row in past["incidents"]}


def _ask(stage: Stage, path: str) -> dict[str, Any] | None:
    reply = ask_daemon(stage.host / "reclaimerd.sock", Request("GET", path), None)
    return None if isinstance(reply, NoAnswer) or reply.status != 200 else reply.body  # noqa: PLR2004  # HTTP's OK


def _verified(stage: Stage) -> dict[str, Any]:
    store = Store.open(stage.host / "state" / STORE_NAME, read_only=True)
    try:
        anchor = store.read_anchor()
    finally:
        store.close()
    found = verify(stage.host / "log", anchor)
    return {"records": found.records, "verified": found.ok, "faults": list(found.faults)}


def _result(stage: Stage, story: Story, audit: Mapping[str, Any]) -> dict[str, Any]:
    who = {one.pid: one.who for one in stage.players}
    incidents = [
        {
            "id": one["id"],
            "target": {
                "pid": one["pid"],
                "who": who.get(one["pid"], "the parent"),
                "command": one["target"],
            },
            "stages": [step for step in one["stages"] if step["at"] is not None],
            "passed_over": [step for step in one["stages"] if step["at"] is None],
            "end": one["end"],
            "text": one["end_text"],
        }
        for one in sorted(story.incidents.values(), key=lambda one: str(one["id"]))
    ]
    known = {one["pid"] for one in story.incidents.values()}
    spared = [
        {"pid": one.pid, "who": one.who, "verdict": story.rows.get(one.pid, {}).get("verdict", "gone")}
        for one in stage.players
        if one.spared and one.pid not in known
    ]
    drains = sorted(path.name for path in (stage.host / "state" / "drain").glob("*.json"))
    return {
        "simulated": True,
        "incidents": incidents,
        "spared": spared,
        "drain_requests": drains,
        "audit": {"records": audit["records"], "verified": audit["verified"]},
        "left_out": stage.without_unkillable,
    }


def _as_it_must(stage: Stage, story: Story, result: Mapping[str, Any]) -> bool:
    for one in stage.players:
        end = story.end_of(one.pid)
        wanted = "" if one.spared else "handed_over" if one.who.startswith("unkillable") else "reclaimed"
        alive = one.pid in story.rows
        if end != wanted or (one.spared and not alive):
            return False
    asked = 0 if stage.without_unkillable else 1
    return bool(result["audit"]["verified"]) and len(result["drain_requests"]) == asked
