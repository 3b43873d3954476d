"""What holds for every test: which machine it needs, and that nothing of this session is left behind.

May not hold fixtures of one room: those stand beside that room's tests.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "shared machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
    derandomize=True,
)
settings.load_profile("shared machine")
"""A busy machine is slow, and that is no fault of the code: no test here is about time."""

MARK = "RECLAIMERD_TEST_SESSION"
"""In the environment of whatever this session starts, unless a test gives a child another one."""
SLURM_SECONDS = 900
"""For a test with a Slurm: it may have to wait for another file's, for a machine has one at a time."""
PATIENCE_SECONDS = 5.0
"""A killed child may need a moment to be gone."""
FIGURES = pytest.StashKey[list[str]]()
"""Lines that stand at the end of the run, whether its tests passed or not."""


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run without figures, on a screen that nobody named.

    readline, which pytest loads, puts COLUMNS and LINES into the environment of children, so of the workers
    that run several files at once.
    """
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        os.environ.pop(name, None)
    config.stash[FIGURES] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures, a line each."""
    for line in config.stash[FIGURES]:
        terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand a worker's figures to the run that it works for (pytest-xdist)."""
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["figures"] = session.config.stash[FIGURES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the figures of a worker that is done; one that broke off has none."""
    node.config.stash[FIGURES].extend(getattr(node, "workeroutput", {}).get("figures", ()))


@pytest.fixture
def figure(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return what puts a line at the end of the run."""
    return pytestconfig.stash[FIGURES].append


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine can't show, with the reason."""
    needs_root = pytest.mark.skip(reason="needs root")
    needs_gpu = pytest.mark.skip(reason="needs a real NVIDIA GPU: there is no /dev/nvidiactl")
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(needs_root)
        if item.get_closest_marker("slurm") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLURM_SECONDS))
        if not Path("/dev/nvidiactl").exists() and item.get_closest_marker("gpu"):
            item.add_marker(needs_gpu)


@pytest.fixture(scope="session", autouse=True)
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail the session when a process, mount or temporary file of it is left (best effort)."""
    pytest_files = tmp_path_factory.getbasetemp()
    # Short: a socket's path holds 107 bytes. Searchable: some tests act as another user.
    own = Path(tempfile.mkdtemp(prefix="rt-"))
    own.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(own))
        patch.setattr(tempfile, "tempdir", str(own))
        patch.setenv(MARK, own.name)
        yield
        left = _left_behind(own, pytest_files)
    shutil.rmtree(own, ignore_errors=True)
    assert not left, f"this session left behind: {'; '.join(left)}"


def _left_behind(own: Path, pytest_files: Path) -> list[str]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (pids := _marked_processes(own.name)) and time.monotonic() < deadline:
        time.sleep(0.05)
    processes = [f"pid {pid} ({_comm(pid)})" for pid in pids]
    mounts = [f"the mount {place}" for place in _mounts_below(own, pytest_files)]
    files = [f"the file {path}" for path in sorted(own.iterdir())]
    return processes + mounts + files


def _marked_processes(token: str) -> list[int]:
    """Return the pids whose environment has our mark, by a child: reading one may hang on its owner."""
    environs = [str(path) for path in Path("/proc").glob("[0-9]*/environ")]
    try:
        found = subprocess.run(
            ["grep", "-lsa", f"{MARK}={token}", *environs],  # noqa: S607 (any grep will do)
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=10,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    pids = (int(Path(line).parent.name) for line in found.stdout.splitlines())
    return [pid for pid in pids if pid != os.getpid()]


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "gone"


def _mounts_below(*folders: Path) -> list[str]:
    """Return the mount points below any of the folders (proc(5), mountinfo, field 5)."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    places = (line.split()[4] for line in lines)
    return [place for place in places if any(Path(place).is_relative_to(folder) for folder in folders)]
