"""The host of the walk-through: it stands until it is told to go, and holds nothing of who started it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

PLAYGROUND = [sys.executable, "-m", "reclaimerd.simulation.playground"]


def test_whoever_reads_its_words_sees_their_end(tmp_path: Path) -> None:
    """Both streams end when it stands, as a script that keeps its output needs; `--stop` ends it."""
    words = [*PLAYGROUND, str(tmp_path / "host")]
    try:
        # The limit is the claim: with a stream held open, the reading never ends.
        started = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
        assert started.returncode == 0, started.stderr
        assert "stands in" in started.stdout
        assert started.stderr == ""
    finally:
        stopped = subprocess.run([*words, "--stop"], capture_output=True, check=False, timeout=60)
    assert stopped.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_can_not_stand_says_why(tmp_path: Path) -> None:
    """What went wrong reaches whoever started it, as one line."""
    in_place = tmp_path / "file"
    in_place.touch()
    words = [*PLAYGROUND, str(in_place / "host")]
    started = subprocess.run(words, capture_output=True, check=False, text=True, timeout=60)
    assert started.returncode == 1
    assert started.stdout == ""
    assert started.stderr.startswith("playground: ")
    assert "Traceback" not in started.stderr
