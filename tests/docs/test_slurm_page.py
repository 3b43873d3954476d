"""The page about Slurm and the programs that ship for it: what can be copied works."""

import re
import subprocess
from pathlib import Path

import pytest

from reclaimerd.act.drain_body import request_line
from reclaimerd.act.drain_slurm import DrainSlurm
from reclaimerd.model.drain_policy import Arbiter, FleetSettings, SlurmTarget
from reclaimerd.model.drain_ports import NotAsked
from tests.act.drain_builders import a_request
from tests.docs.pages import assert_policy_is_one

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/drain-slurm.md").read_text(encoding="utf-8")
PROGRAMS = ROOT / "deploy/slurm"
RECLAIMCTL = "/opt/reclaimerd/bin/reclaimctl"


@pytest.mark.root
def test_the_page_s_policy_is_one(tmp_path: Path) -> None:
    """It loads without a fault, and says what the defaults are."""
    fleet = FleetSettings(arbiter=Arbiter.SLURM)
    assert_policy_is_one(PAGE, tmp_path, fleet, f'within = "{SlurmTarget().seconds:g}s"')


def test_the_page_shows_the_command() -> None:
    """But for incident, GPU and pid it is the plan's."""
    request = a_request("inc-6a0b1c2d-0d1e2f", pids=(4242,), gpus=("GPU-1a2b3c4d-0000",))

    async def nowhere() -> NotAsked:
        return NotAsked("-")

    plan = DrainSlurm(nowhere, SlurmTarget(node="gpu01")).plan(request)
    shown = re.findall(r"^    (scontrol update .*)$", PAGE, re.MULTILINE)
    assert shown == [plan[plan.index("scontrol") :]]
    assert request_line(request) in shown[0]


@pytest.mark.process
@pytest.mark.parametrize(("name", "code"), [("slurm-unkillable", 7), ("healthcheck", 0)])
def test_the_shipped_programs_run_without_a_path(tmp_path: Path, name: str, code: int) -> None:
    """Each calls its command by its whole path; only the health check hides its exit code from slurmd."""
    program = PROGRAMS / name
    assert program.stat().st_mode & 0o777 == 0o755
    text = program.read_text(encoding="utf-8")
    assert text.startswith("#!/bin/sh\n")
    assert f"{RECLAIMCTL} {name}\n" in text
    stub = tmp_path / "reclaimctl"
    stub.write_text('#!/bin/sh\necho "called with $*"\nexit 7\n')
    stub.chmod(0o755)
    copy = tmp_path / name
    copy.write_text(text.replace(RECLAIMCTL, str(stub)))
    copy.chmod(0o755)
    done = subprocess.run([copy], env={}, capture_output=True, text=True, timeout=10, check=False)
    assert (done.returncode, done.stdout) == (code, f"called with {name}\n")
    assert f"/usr/local/libexec/reclaimerd/{name}\n" in PAGE
