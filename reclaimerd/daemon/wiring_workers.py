"""The part of wiring that knows the workers: which roles there are, and what starts each.

Builds, and decides nothing.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from reclaimerd.daemon.engine import Paths
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.observe.probe import Probe

Probes = tuple[Probe, ...]
"""Our ends of the workers, in the order of `engine.ROLES`."""


async def start_workers(paths: Paths) -> Probes:
    """Return the probes, the first two workers starting: each takes a tenth of a second to be ready.

    For a caller that has more to prepare meanwhile. A worker opens no driver before it is asked, and
    one whose predecessor turns out to be abandoned and alive is ended without a question. The others
    start when they are asked: `door` looks at who comes to the control socket, `kubelet` and `cluster`
    ask those two, `signs` reads programs' files, on whatever disk, for rules that need it, and `cri` asks
    a container runtime, whose silence must not be the kubelet's.
    """
    limits = WorkerSettings()
    nvml = Probe("nvml", _command("nvml", paths.simulate), limits)
    procfs = Probe("procfs", _command("procfs", None), limits)
    door = Probe("door", _command("procfs", None), limits)
    kubelet = Probe("kubelet", _command("kubelet", None), limits)
    cluster = Probe("cluster", _command("cluster", None), limits)
    signs = Probe("signs", _command("procfs", None), limits)
    cri = Probe("cri", _command("cri", None), limits)
    nvml.explain_by(procfs.read_stack)
    for probe in (nvml, procfs):
        await probe.start()
    return nvml, procfs, door, kubelet, cluster, signs, cri


def _command(role: str, simulate: Path | None) -> Callable[[int], list[str]]:
    def argv(fd: int) -> list[str]:
        words = [sys.executable, "-m", "reclaimerd.daemon.worker", "--role", role, "--fd", str(fd)]
        return words if simulate is None else [*words, "--simulate", str(simulate)]

    return argv
