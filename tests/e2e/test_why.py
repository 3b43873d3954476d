"""Who ended it? One simulated host and one daemon: a rule, an operator, a dry run, a refusal, and nobody."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.rig import GPU_B, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process, pytest.mark.root]


@dataclass(frozen=True, slots=True)
class Scene:
    """The host, and the pid of each process that something, or nothing, was done to."""

    rig: Rig
    by_rule: int
    by_operator: int
    dry: int
    refused: int
    untouched: int


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Let a rule take one, an operator another, plan a third, be refused a fourth, and leave one alone."""
    with simulated_host() as rig:
        rig.write_policy(rule())
        by_rule = rig.launch().pid
        small = {"gpu": GPU_B, "size": "1GiB"}
        operated, dry, untouched = (rig.launch("--ignore-term", **small).pid for _ in range(3))
        rig.start_daemon()
        assert rig.wait_record("incident_ended", pid=by_rule)["end"] == "reclaimed"
        assert rig.kill(dry, options=["--dry-run", "--reason", "only to see"]).code == 0
        assert (
            rig.kill(operated, options=["--force", "--grace", "300ms", "--reason", "asked by its owner"]).code
            == 0
        )
        rig.hold.touch()
        refused = rig.recorder()[0]
        rig.wait_record("refused", pid=refused)
        yield Scene(rig, by_rule, operated, dry, refused, untouched)


def said(scene: Scene, pid: int) -> tuple[int, list[str]]:
    """Return exit code and lines of `reclaimctl why` for people."""
    argv = [sys.executable, "-m", "reclaimerd.cli.main", "why", "--pid", str(pid)]
    ran = subprocess.run(
        [*argv, "--simulate", str(scene.rig.host)], capture_output=True, text=True, timeout=60, check=False
    )
    return ran.returncode, ran.stdout.splitlines()


def test_a_rule_took_it(scene: Scene) -> None:
    """By name, with its own figures, the signal, and that it was gone."""
    code, lines = said(scene, scene.by_rule)
    assert code == 0
    assert lines[0] == f"Yes: reclaimerd sent a signal to process {scene.by_rule}."
    assert "rule over-cap signalled" in lines[2]
    assert re.search(r"SIGTERM( and SIGCONT)? sent", lines[2])
    assert "it was gone within" in lines[2]
    assert any(line.startswith("  why       holds 5.0 GiB, more than 4.0 GiB") for line in lines)


def test_an_operator_took_it(scene: Scene) -> None:
    """With the name and the reason that was given, SIGTERM, then SIGKILL, in JSON as in words."""
    code, lines = said(scene, scene.by_operator)
    assert code == 0
    assert "operator root signalled" in lines[2]
    assert "  why       asked by its owner" in lines
    told = scene.rig.ctl("why", "--pid", str(scene.by_operator)).answer
    steps = [(step["action"], step["did"]) for step in told["incidents"][0]["steps"]]
    assert steps == [("sigterm", "yes"), ("sigkill", "yes")]
    assert told["processes"][0]["process"].startswith(f"{scene.by_operator}@")


def test_a_dry_run_did_nothing(scene: Scene) -> None:
    """It says so, and the process lives."""
    code, lines = said(scene, scene.dry)
    assert code == 0
    assert lines[0] == f"No: reclaimerd had process {scene.dry} in view, and nothing was done to it."
    assert "dry run, would send SIGTERM" in lines[2]
    assert is_alive(scene.dry)


def test_a_refused_act_did_nothing(scene: Scene) -> None:
    """It says what held the rule back, and the process got no signal."""
    code, lines = said(scene, scene.refused)
    assert code == 0
    assert lines[0] == f"No: reclaimerd had process {scene.refused} in view, and nothing was done to it."
    assert "nothing was done: SIGTERM refused (hold)" in lines[2]
    assert any(line.startswith("  refused   sigterm (hold): the file") for line in lines)
    assert signals_in(scene.rig.directory / "signals") == []
    assert is_alive(scene.refused)


def test_who_was_never_touched_is_not_on_record(scene: Scene) -> None:
    """Exit 6, the span of the record, and where else to look."""
    code, lines = said(scene, scene.untouched)
    assert code == 6
    assert "it was not reclaimerd" in lines[0]
    assert any("OOM killer" in line for line in lines)
    assert is_alive(scene.untouched)


def test_somebody_else_s_signal_is_not_ours(scene: Scene) -> None:
    """A SIGKILL that we did not send leaves no attempt of ours, so the answer stays no."""
    pid = scene.untouched
    os.kill(pid, 9)
    wait_until(lambda: not is_alive(pid), "it is gone")
    scene.rig.passes(2)
    assert said(scene, pid)[0] == 6
