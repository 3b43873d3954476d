"""The part of wiring that knows the hands: executor, drain request, and the vendor's reset tool.

With `wiring` the only place that imports `act`. Builds, and decides nothing.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from reclaimerd.act.clients import Clients, ClientTools
from reclaimerd.act.executor import Executor
from reclaimerd.act.kube_order import KubeAccess
from reclaimerd.act.members import Admitted, NotAdmitted
from reclaimerd.act.placement import ChildPlace, SystemdPlace, read_own_cgroup
from reclaimerd.act.pod_events import PodEvents
from reclaimerd.act.reset import ResetTool
from reclaimerd.act.reset_texts import outcome_of_tool
from reclaimerd.act.warn import Warner
from reclaimerd.daemon.cycle import Cycle
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.last_look import LastLooker
from reclaimerd.daemon.looking import OneAtATime, watched
from reclaimerd.daemon.news import News, WithNews
from reclaimerd.daemon.reset_book import ResetJoints
from reclaimerd.daemon.reset_gates import ResetGates
from reclaimerd.daemon.this_host import host_name
from reclaimerd.daemon.writing import read_start_ticks
from reclaimerd.host.node_name import node_name
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.policy import Policy
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Step
from reclaimerd.observe.driver_grip import DriverGrip
from reclaimerd.observe.probe import Probe
from reclaimerd.record import logs
from reclaimerd.record.recorder import Recorder

SYSTEMCTL = "/usr/bin/systemctl"


@dataclass(frozen=True, slots=True)
class HandParts:
    """What the hands are built from: where things lie, the policy in force, eyes and memory."""

    paths: Paths
    boot_id: str
    policy: Callable[[], Policy]
    cycle: Callable[[], Cycle]
    grip: DriverGrip
    procfs: Probe
    recorder: Recorder | None


def build_executor(parts: HandParts, looker: LastLooker, plan_drain: Callable[[Step], str]) -> Executor:
    """Return what performs one permitted step."""

    async def members(step: Step, pids: tuple[int, ...]) -> Admitted | NotAdmitted:
        found = await looker.members(step, pids)
        return NotAdmitted(found) if isinstance(found, str) else Admitted(found)

    return Executor(
        look_again=looker,
        judge_members=members,
        plan_drain=plan_drain,
        boot_id=parts.boot_id,
        warner=Warner(
            host=host_name(),
            settings=lambda: parts.policy().warn,
            clock=time.time,
            pod_events=PodEvents(lambda: kube_access(parts)),
            any_owner=parts.paths.simulate is not None,
            devices=lambda: _gpu_nodes(parts.cycle().state.snapshot),
        ),
    )


def kube_access(parts: HandParts) -> KubeAccess:
    """Return as whom the cluster is asked by the policy in force, about this node."""
    cluster, simulate = parts.policy().cluster, parts.paths.simulate
    node = node_name(cluster.node)
    credentials = cluster.credentials
    if simulate is not None:  # a simulated host must never touch a real node by this machine's account
        credentials = f"{simulate}/root{credentials}" if credentials.startswith("/") else ""
    return KubeAccess(credentials, node, parts.boot_id)


def _gpu_nodes(snapshot: Snapshot | None) -> tuple[int, ...]:
    """Return the numbers of the GPUs' nodes: a simulated host's are terminals, and nobody's to read."""
    devices = () if snapshot is None else tuple(gpu.device for gpu in snapshot.gpus)
    return tuple(os.makedev(device.major, device.minor) for device in devices)


def build_tool(parts: HandParts) -> ResetTool:
    """Return the vendor's reset tool; a simulated host has its own, which is a plain child of ours."""
    simulate = parts.paths.simulate
    tool = parts.policy().nvidia_smi if simulate is None else str(simulate / "nvidia-smi")
    return ResetTool(
        tool=tool,
        directory=parts.paths.state_dir / "resets",
        place=SystemdPlace(read_own_cgroup()) if simulate is None else ChildPlace(),
        boot_id=parts.boot_id,
        start_ticks_of=lambda pid: read_start_ticks(parts.procfs, pid),
        stack_of=parts.procfs.read_stack,
        any_owner=simulate is not None,
    )


async def sweep(tool: ResetTool, ledger: Ledger) -> None:
    """Remove what resets that are over left in the state directory; what can't be is said in the log."""
    said = await tool.sweep({run.id for run in ledger.resets})
    if said:
        logs.warning("reset_files_left", text=said)


def build_reset(parts: HandParts, tool: ResetTool, sampler: OneAtATime, news: News) -> ResetJoints:
    """Return what a reset joins."""
    simulate = parts.paths.simulate
    systemctl = SYSTEMCTL if simulate is None else str(simulate / "systemctl")
    tools = ClientTools(systemctl, tool.tool, any_owner=simulate is not None)

    def incident_of() -> str:
        return next((run.incident for run in parts.cycle().state.ledger.resets if not run.is_done), "")

    gates = ResetGates(parts.cycle, news)
    return ResetJoints(
        sampler=WithNews(sampler, news, lambda: watched(parts.cycle().state)),
        tool=tool,
        clients=Clients(tools, lambda: parts.policy().reset, incident_of),
        grip=parts.grip,
        write=lambda change, records: parts.cycle().write(change, records),
        ledger=lambda: parts.cycle().state.ledger,
        withdrawn=gates.withdrawn,
        gate_before=gates.before,
        gate=gates.whole,
        last_gate=gates.last,
        verify=gates.verified,
        meaning=outcome_of_tool,
        clock=time.monotonic,
        wall=time.time,
        policy=parts.policy,
        boot_id=parts.boot_id,
    )
