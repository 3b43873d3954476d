"""`reclaimctl demo`: what it shows, what it returns, and that nothing of it is left behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.simulation.raw_fuse import why_unavailable
from tests.e2e import others
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process]
WORDS = ("-m", "reclaimerd.cli.main", "demo")
DEMO = (sys.executable, *WORDS)
MARK = "RECLAIMERD_TEST_DEMO"
AUDIT = "reclaimerd-demo-*/host/log/audit.jsonl"
BARE_DEV = """
mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mkdir /dev/pts /dev/shm &&
mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts && ln -s pts/ptmx /dev/ptmx && exec "$@"
"""
WITHOUT_FUSE = ("unshare", "--mount", "sh", "-c", BARE_DEV, "sh")


@pytest.fixture
def place() -> Iterator[Path]:
    """Give a directory for the demo's temporary files that any user may write to."""
    folder = Path(tempfile.mkdtemp(prefix="d-"))
    folder.chmod(0o1777)  # sticky, as /tmp is: else the demo's own policy would be refused
    yield folder
    assert not list(folder.iterdir()), f"left behind: {sorted(folder.iterdir())}"
    folder.rmdir()


def environment(place: Path) -> dict[str, str]:
    """Return our environment with the demo's own mark and place for temporary files."""
    return {**others.environment(), "TMPDIR": str(place), MARK: place.name, "COLUMNS": "200"}


def marked(place: Path) -> list[int]:
    """Return every process that descends from this demo, however it was left."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={place.name}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def mounts(place: Path) -> list[str]:
    """Return the mounts below the demo's place."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return [line.split()[4] for line in lines if line.split()[4].startswith(str(place))]


def assert_nothing_left(place: Path, seconds: float = 8.0) -> None:
    """Assert that no process and no mount is left."""
    wait_until(lambda: not marked(place), f"no process is left: {marked(place)}", seconds)
    assert mounts(place) == []


def played(place: Path, *front: str, python: str = sys.executable) -> dict[str, Any]:
    """Run the demo with --json and return its object."""
    ran = subprocess.run(
        [*front, python, *WORDS, "--json"],
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, (ran.stdout[-3000:], ran.stderr[-3000:])
    assert_nothing_left(place)
    return dict(json.loads(ran.stdout))


def ends(shown: dict[str, Any]) -> list[str]:
    """Return how the incidents ended, in order."""
    return sorted(one["end"] for one in shown["incidents"])


@pytest.mark.root
def test_as_root_six_are_reclaimed_and_one_is_handed_over(place: Path) -> None:
    """The promise of the README: who ends how, who is spared, a verified record, one drain request."""
    if why_unavailable():
        pytest.skip(f"no unkillable process can be made here: {why_unavailable()}")
    began = time.monotonic()
    shown = played(place)
    assert time.monotonic() - began < 60
    assert ends(shown) == ["handed_over"] + ["reclaimed"] * 6
    assert {one["verdict"] for one in shown["spared"]} == {"watch", "spare"}
    assert shown["audit"]["verified"]
    assert shown["audit"]["records"] > 20
    assert len(shown["drain_requests"]) == 1
    by_who = {one["target"]["who"]: one for one in shown["incidents"]}
    stages = {who: [step["stage"] for step in one["stages"]] for who, one in by_who.items()}
    assert stages["over its cap, obeys SIGTERM"] == ["sigterm"]
    assert stages["over its cap, ignores SIGTERM"] == ["sigterm", "sigkill"]
    assert stages["gone, its memory leaked"] == ["sigterm", "sigkill", "reset"]
    assert stages["unkillable in its exit path"] == ["sigterm", "sigkill", "drain"]
    passed = by_who["unkillable in its exit path"]["passed_over"]
    assert [one["stage"] for one in passed] == ["reset"]
    assert "exiting" in passed[0]["outcome"]
    for one in shown["incidents"]:
        assert {"id", "target", "stages", "end"} <= set(one)
        assert all({"stage", "at", "outcome"} <= set(step) for step in one["stages"])


@pytest.mark.root
@pytest.mark.slow
def test_plain_output_has_stages_table_and_verification(place: Path) -> None:
    """Without a terminal: plain lines, a table of who and what, and the verified record; no escape codes."""
    ran = subprocess.run(
        DEMO, env=environment(place), capture_output=True, text=True, timeout=90, check=False
    )
    assert ran.returncode == 0, ran
    assert "\x1b" not in ran.stdout
    for word in ("over-cap", "sigterm > sigkill", "reclaimed", "protected, over its cap", "audit verify"):
        assert word in ran.stdout, (word, ran.stdout)
    assert_nothing_left(place)


@pytest.mark.root
@pytest.mark.slow
def test_without_fuse_six_are_reclaimed(place: Path) -> None:
    """Where /dev/fuse is missing the unkillable one is left out, and it says why."""
    shown = played(place, *WITHOUT_FUSE)
    assert ends(shown) == ["reclaimed"] * 6
    assert "/dev/fuse" in shown["left_out"]
    assert shown["drain_requests"] == []


@pytest.mark.slow
@pytest.mark.root
def test_an_ordinary_user_sees_five_reclaimed(place: Path) -> None:
    """As another user than root it works the same, without the unkillable one."""
    shown = played(place, *others.AS_NOBODY, python=others.python_of_nobody())
    assert ends(shown) == ["reclaimed"] * 5
    assert "root" in shown["left_out"]


@pytest.mark.slow
@pytest.mark.parametrize("after", ["start", "middle"])
def test_ctrl_c_leaves_nothing(place: Path, after: str) -> None:
    """SIGINT to the whole foreground group, early or in mid-ladder: exit 130, no process, mount or file."""
    demo = subprocess.Popen(
        DEMO,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if after == "start":
        wait_until(lambda: bool(list(place.glob("reclaimerd-demo-*"))), "the stage is being set")
    else:
        wait_until(
            lambda: any('"kind":"intent"' in path.read_text() for path in place.glob(AUDIT)), "an act", 30
        )
    os.killpg(demo.pid, signal.SIGINT)
    _, err = demo.communicate(timeout=30)
    assert demo.returncode == 130, err
    assert "Traceback" not in err
    assert_nothing_left(place)


@pytest.mark.slow
def test_a_killed_demo_takes_its_processes_along(place: Path) -> None:
    """After SIGKILL of the demo itself its workloads, keeper, daemon and mount go; only files may stay."""
    demo = subprocess.Popen(
        DEMO, env=environment(place), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(
            lambda: any('"kind":"intent"' in path.read_text() for path in place.glob(AUDIT)), "an act", 30
        )
    finally:
        demo.kill()
        demo.wait(10)
    try:
        assert_nothing_left(place, 15)
    finally:
        for pid in marked(place):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not marked(place), "all is cleared")
        for folder in place.iterdir():
            subprocess.run(["/bin/rm", "-rf", str(folder)], check=True)
