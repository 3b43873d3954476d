"""Who plays in the demo: real child processes on a simulated GPU host, each a case of its own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.simulation import raw_fuse
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.keeper import Keeper

GIB = 1024**3
GPUS = (
    SimulatedGpu("GPU-00000000-0000-4000-8000-00000000000a", "Simulated GPU A", 24 * GIB, "0000:01:00.0"),
    SimulatedGpu("GPU-00000000-0000-4000-8000-00000000000b", "Simulated GPU B", 24 * GIB, "0000:02:00.0"),
    SimulatedGpu("GPU-00000000-0000-4000-8000-00000000000c", "Simulated GPU C", 24 * GIB, "0000:03:00.0"),
)


@dataclass(frozen=True, slots=True)
class Player:
    """One process of the demo; `spared` is expected never to be touched."""

    pid: int
    who: str
    spared: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """The demo's host while it stands."""

    directory: Path
    players: tuple[Player, ...]
    parent: int
    leave_file: Path
    without_unkillable: str

    @property
    def host(self) -> Path:
        """Return the simulated host's directory."""
        return self.directory / "host"


@contextmanager
def staged(policy_text: str) -> Iterator[Stage]:
    """Set the stage and clear it again: no process, mount or file is left, also on Ctrl-C."""
    with ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="reclaimerd-demo-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        sleep = os.path.realpath(shutil.which("sleep") or "/usr/bin/sleep")
        policy = policy_text.replace('"/usr/bin/sleep"', f'"{sleep}"')
        (directory / "policy.toml").write_text(policy, encoding="utf-8")
        keeper = stack.enter_context(Keeper(directory / "host", GPUS, reap=False))
        why_not = raw_fuse.why_unavailable()
        fuse = None if why_not else stack.enter_context(raw_fuse.RawFuse(withhold="flush"))
        yield _filled(directory, keeper, sleep, (fuse, why_not))


def _filled(directory: Path, keeper: Keeper, sleep: str, fuse: tuple[raw_fuse.RawFuse | None, str]) -> Stage:
    server, why_not = fuse
    leave = directory / "parent-leaves"
    a, b, c = (["--gpu", gpu.uuid] for gpu in GPUS)
    casting: list[tuple[str, list[str]]] = [
        ("quiet, under its cap", [*a, "--bytes", "1GiB"]),
        ("over its cap, obeys SIGTERM", [*a, "--bytes", "5GiB"]),
        ("over its cap, ignores SIGTERM", [*a, "--bytes", "6GiB", "--ignore-term"]),
        ("over its cap, stopped (SIGSTOP)", [*a, "--bytes", "5GiB", "--stop-self"]),
        ("leader gone, threads live on (Z)", [*b, "--bytes", "5GiB", "--exit-leader", "--threads", "2"]),
        ("protected, over its cap", [*a, "--bytes", "5GiB", "--become", sleep]),
    ]
    if os.geteuid() == 0:  # the gate wants to see every kernel stack before a reset, which is root's
        casting.append(("gone, its memory leaked", [*c, "--bytes", "5GiB", "--ignore-term", "--leak"]))
    if server is not None:
        stuck = ["--stuck-on", str(server.path("withheld"))]
        casting.append(("unkillable in its exit path", [*b, "--bytes", "5GiB", *stuck]))
    pair = [*b, "--bytes", "5GiB", "--fork-and-leave", "--leave-on", str(leave)]
    launched = keeper.launch_all([args for _, args in casting] + [pair])
    players = [
        Player(one.pid, who, spared=who.startswith(("quiet", "protected")))
        for (who, _), one in zip(casting, launched, strict=False)
    ]
    players.append(Player(launched[-1].children[0], "a child that holds while its parent is dead"))
    return Stage(directory, tuple(players), launched[-1].pid, leave, why_not)
