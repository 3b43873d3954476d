"""The part of wiring that knows whom a drain is asked of: each target and the fleet's arbiter by the policy.

With `wiring` and `wiring_hands` the only places that import `act`. Builds, and decides nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from reclaimerd.act.drain_command import DrainCommand
from reclaimerd.act.drain_file import DrainFile
from reclaimerd.act.drain_kubernetes import DrainKubernetes
from reclaimerd.act.drain_slurm import DrainSlurm
from reclaimerd.act.drain_unit import DrainUnit
from reclaimerd.act.drain_webhook import DrainWebhook
from reclaimerd.act.fence import Fence
from reclaimerd.act.fleet_kubernetes import KubernetesFleet
from reclaimerd.act.fleet_none import NobodyCounts, ReceiverCounts
from reclaimerd.act.fleet_slurm import SlurmFleet
from reclaimerd.act.unit_mark import UnitMark
from reclaimerd.daemon.drain_joints import DrainJoints
from reclaimerd.daemon.drain_procedure import DrainProcedure
from reclaimerd.daemon.drain_request import request_of
from reclaimerd.daemon.opening import Moment
from reclaimerd.daemon.slurm_place import SlurmFinder
from reclaimerd.daemon.this_host import host_name
from reclaimerd.daemon.wiring_hands import SYSTEMCTL, HandParts, kube_access
from reclaimerd.errors import RecordError
from reclaimerd.host.files import ensure_directory
from reclaimerd.judge.endings import drain_reason_of
from reclaimerd.model.drain import DrainRequest, NodeDrain
from reclaimerd.model.drain_policy import Arbiter, DrainSettings
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, FleetPort, TargetAnswer
from reclaimerd.model.identity import IncidentId
from reclaimerd.model.policy import Policy
from reclaimerd.model.ports import ChangeFailed
from reclaimerd.model.step import Step

REPORTS = frozenset({"file"})
"""Targets that only tell this very host: they need no place in the fleet's count."""

Targets = Mapping[str, DrainTargetPort]


class DrainHands:
    """The targets and the arbiter of the policy in force, built anew when that changes."""

    __slots__ = ("_built", "_parts")

    def __init__(self, parts: HandParts) -> None:
        self._parts = parts
        self._built: tuple[Policy, Targets, FleetPort] | None = None

    def targets(self) -> Targets:
        """Return whom the policy has asked, by name, in the order in which they stand on record."""
        return self._by_policy()[1]

    def fleet(self) -> FleetPort:
        """Return who counts the drained nodes of the fleet."""
        return self._by_policy()[2]

    def first(self) -> str:
        """Return the target whose own drain is this node's mark, "" where the arbiter has other marks."""
        return "slurm" if self._parts.policy().drain.fleet.arbiter is Arbiter.SLURM else ""

    def plan(self, step: Step) -> str:
        """Return what each target would be sent for a step, byte for byte."""
        cycle = self._parts.cycle()
        snapshot, incident = cycle.state.snapshot, cycle.state.incidents.get(step.incident)
        reason = None
        if snapshot is not None and incident is not None:
            reason = drain_reason_of(incident, snapshot, cycle.state.ledger)
        if snapshot is None or incident is None or reason is None:
            return step.reason
        now = Moment(snapshot.at, time.time())
        request = request_of(incident, reason, snapshot, host_name(), now)
        plans = (f"{name}: {target.plan(request)}" for name, target in self.targets().items())
        return "\n".join((f"{request.host}: {request.reason}", *plans))

    async def note_verified(self, request: DrainRequest) -> TargetAnswer:
        """Have the Node's condition say that a boot mended it; the other targets have no word for that."""
        target = self.targets().get("kubernetes")
        if isinstance(target, DrainKubernetes):
            return await target.note_verified(request)
        return Asked("nobody is to be told")

    async def release_fence(self, incident: IncidentId) -> str:
        """Let go of the scheduler's fence that a reset of this incident asked for, where a hook is set."""
        hook = self._parts.policy().reset.fence_hook
        if not hook:
            return ""
        fence = Fence(hook, any_owner=self._parts.paths.simulate is not None)
        answer = await fence.release(host_name(), incident)
        return answer.why if isinstance(answer, ChangeFailed) else ""

    def _by_policy(self) -> tuple[Policy, Targets, FleetPort]:
        policy = self._parts.policy()
        if self._built is None or self._built[0] is not policy:
            self._built = (policy, self._targets(policy), self._fleet(policy))
        return self._built

    def _targets(self, policy: Policy) -> Targets:
        found: list[DrainTargetPort] = []
        if policy.drain.file:
            named = policy.drain.directory
            directory = Path(named) if named else self._parts.paths.state_dir / "drain"
            found.append(DrainFile(directory, self._write, lambda: self._earlier("file")))
        found += self._hooks(policy.drain)
        if policy.drain.slurm is not None:
            counted = policy.drain.fleet if policy.drain.fleet.arbiter is Arbiter.SLURM else None
            find = self._slurm_finder(policy.drain).find
            found.append(DrainSlurm(find, policy.drain.slurm, counted))
        if policy.drain.kubernetes is not None:
            access, settings = kube_access(self._parts), policy.drain.kubernetes
            found.append(DrainKubernetes(access, settings, earlier=lambda: self._earlier("kubernetes")))
        return {target.name: target for target in found}

    def _hooks(self, settings: DrainSettings) -> Iterator[DrainTargetPort]:
        paths = self._parts.paths
        simulated = paths.simulate is not None
        if settings.webhook is not None:
            yield DrainWebhook(settings.webhook)
        if settings.command is not None:
            yield DrainCommand(settings.command, any_owner=simulated)
        if settings.unit is not None:
            systemctl = SYSTEMCTL if paths.simulate is None else str(paths.simulate / "systemctl")
            mark = UnitMark(paths.state_dir / "drain-unit.json", self._parts.boot_id, self._write)
            yield DrainUnit(systemctl, settings.unit, mark, any_owner=simulated)

    def _fleet(self, policy: Policy) -> FleetPort:
        match policy.drain.fleet.arbiter:
            case Arbiter.RECEIVER:
                return ReceiverCounts()
            case Arbiter.SLURM:
                find = self._slurm_finder(policy.drain).find
                return SlurmFleet(find, policy.drain.fleet, policy.drain.slurm)
            case Arbiter.KUBERNETES:
                return KubernetesFleet(kube_access(self._parts), policy.drain.fleet)
            case _:
                return NobodyCounts()

    def _earlier(self, target: str) -> str:
        """Return the place at which a target has the request, "" for none: the policy may have changed."""
        drain = self._parts.cycle().state.ledger.drain
        asks = () if drain is None else drain.asks
        return next((ask.place for ask in asks if ask.target == target), "")

    def _slurm_finder(self, settings: DrainSettings) -> SlurmFinder:
        simulate = self._parts.paths.simulate
        root = "/" if simulate is None else str(simulate / "root")
        node = "" if settings.slurm is None else settings.slurm.node
        return SlurmFinder(self._parts.procfs, lambda: self._parts.policy().attribution, node, root)

    async def _write(self, path: Path, content: bytes) -> None:
        recorder = self._parts.recorder
        if recorder is None:
            raise RecordError("this engine only reads and writes no request")
        await recorder.off_loop(lambda: ensure_directory(path.parent, 0o700), "making the drain directory")
        await recorder.write_file(path, content)


def build_drain(
    parts: HandParts, hands: DrainHands, held: Callable[[NodeDrain], str], wake: Callable[[], None]
) -> DrainProcedure:
    """Return what drives this node's drain request."""
    joints = DrainJoints(
        targets=hands.targets,
        reports=lambda: REPORTS,
        fleet=hands.fleet,
        first=hands.first,
        held=held,
        write=lambda change, records: parts.cycle().write(change, records),
        ledger=lambda: parts.cycle().state.ledger,
        wall=time.time,
        wake=wake,
        note_verified=hands.note_verified,
        boot_id=parts.boot_id,
        release_fence=hands.release_fence,
    )
    return DrainProcedure(joints)
