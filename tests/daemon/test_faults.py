"""Xids, device events and fault rules in a pass: what goes on record, what opens, what stands down again."""

import asyncio
from dataclasses import dataclass, replace

import pytest

from reclaimerd.daemon.drains import attention_text
from reclaimerd.daemon.news import News
from reclaimerd.errors import ExitCode
from reclaimerd.model.audit_record import RecordKind
from reclaimerd.model.drain import DrainPhase
from reclaimerd.model.drain_ports import SlotTaken, SlotWaits
from reclaimerd.model.fault import (
    DeviceAction,
    DeviceEvent,
    FaultClass,
    KernelNews,
    StandingXid,
    XidEntry,
    XidLine,
)
from reclaimerd.model.incident import Outcome, OutcomeKind, Recipient, Stage, Subject
from reclaimerd.model.ledger import Ledger, Pause
from reclaimerd.model.policy import GateSettings, ListedStage, Mode
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_run import ResetResult
from reclaimerd.model.snapshot import DriverState, RecoveryAction, Snapshot
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    MONO,
    WALL,
    a_busy_snapshot,
    a_gpu,
    a_process,
    a_snapshot,
    a_workload,
)
from tests.daemon.reset_rigs import (
    MEND,
    a_faulty_rig,
    a_reset_rig,
    an_xid,
    fault_policy,
    let_end,
    only,
    only_run,
    order_reset,
    two_gpus,
)
from tests.daemon.test_news import FakeDevices, FakeLog
from tests.fakes import Rig, a_disk_error
from tests.judge.reset_builders import ready

CATALOGUE = {
    48: XidEntry(48, FaultClass.RESET, "DBE", "the vendor's table"),
    79: XidEntry(79, FaultClass.LOST, "OFF_BUS", "the vendor's table"),
    13: XidEntry(13, FaultClass.APPLICATION, "GR_EXCEPTION", "the vendor's table"),
}
PCI_A = "0000:00:00.0"
REMOVED = DeviceEvent(DeviceAction.REMOVED, "pci", PCI_A)
ADDED = DeviceEvent(DeviceAction.ADDED, "pci", PCI_A)


def a_line(code: int = 48, seq: int = 7, pci: str = PCI_A) -> XidLine:
    """Return an Xid of the kernel's log."""
    return XidLine(seq, MONO, pci, code, f"what Xid {code} says")


@dataclass(slots=True)
class Machine:
    """The machine's signals, set by the test, and a cycle that hears them."""

    log: FakeLog
    devices: FakeDevices
    rig: Rig

    def says(self, *lines: XidLine) -> None:
        """Let these lines come."""
        self.log.coming.append(KernelNews(lines, lines[-1].seq))

    def sends(self, *events: DeviceEvent) -> None:
        """Let these events come."""
        self.devices.coming.append(events)

    @property
    def xids(self) -> list[tuple[str, int, FaultClass]]:
        """Return what stands in the ledger."""
        return [(one.gpu, one.code, one.fault) for one in self.rig.cycle.state.ledger.xids]


def a_machine(snapshot: Snapshot | None = None, **overrides: object) -> Machine:
    """Return one whose rule mends GPUs on an Xid that asks for a reset."""
    log, devices = FakeLog(), FakeDevices()
    policy = overrides.pop("policy", None)
    rig = a_reset_rig(
        snapshot,
        fault_policy() if policy is None else policy,  # type: ignore[arg-type]  # a policy of the test
        news=News(log, devices),
        xids=CATALOGUE,
        **overrides,
    )
    return Machine(log, devices, rig)


def texts(rig: Rig, kind: RecordKind) -> list[str]:
    """Return the texts of the records of one kind."""
    return [entry.reason for entry in rig.recorder.of_kind(kind)]


# --- Xids ------------------------------------------------------------------------------------------


def test_a_new_xid_is_on_record_once_and_stands() -> None:
    """Told with the GPU's own name and the class; the next line of the same kind only counts."""
    machine = a_machine(policy=fault_policy(replace(MEND, mode=Mode.OBSERVE)))
    machine.says(a_line())
    asyncio.run(machine.rig.passes(2))
    assert texts(machine.rig, RecordKind.XID) == [f"{GPU_A}: Xid 48 (reset): what Xid 48 says"]
    machine.says(a_line(seq=9))
    asyncio.run(machine.rig.passes(2))
    assert len(texts(machine.rig, RecordKind.XID)) == 1
    (standing,) = machine.rig.cycle.state.ledger.xids
    assert (standing.count, machine.rig.cycle.state.ledger.kernel_seq) == (2, 9)


def test_lines_that_say_nothing_to_us_are_worth_no_write() -> None:
    """The place in the log moves in memory alone."""
    machine = a_machine()
    machine.log.coming.append(KernelNews(last_seq=5))
    asyncio.run(machine.rig.passes())
    written = len(machine.rig.recorder.batches)
    machine.log.coming.append(KernelNews(last_seq=6))
    asyncio.run(machine.rig.passes())
    assert machine.rig.cycle.state.ledger.kernel_seq == 6
    assert len(machine.rig.recorder.batches) == written


def test_news_are_kept_until_they_are_durable() -> None:
    """A disk that fails loses no Xid, and puts none on record twice."""
    machine = a_machine(policy=fault_policy(replace(MEND, mode=Mode.OBSERVE)))
    machine.rig.recorder.errors = [a_disk_error(), a_disk_error(), a_disk_error(), a_disk_error()]
    machine.says(a_line())
    machine.sends(replace(ADDED, subsystem="drm"))
    asyncio.run(machine.rig.passes(2))
    assert machine.xids == []
    asyncio.run(machine.rig.passes(3))
    assert machine.xids == [(GPU_A, 48, FaultClass.RESET)]
    assert len(texts(machine.rig, RecordKind.XID)) == len(texts(machine.rig, RecordKind.DEVICE)) == 1


# --- devices ---------------------------------------------------------------------------------------


def test_a_removed_gpu_is_lost_until_it_is_back() -> None:
    """Lost while it is away, also for the rules; added again, what udev said is void."""
    machine = a_machine()
    asyncio.run(machine.rig.passes())
    machine.sends(REMOVED)
    asyncio.run(machine.rig.passes())
    assert machine.xids == [(GPU_A, 79, FaultClass.LOST)]
    machine.sends(ADDED)
    asyncio.run(machine.rig.passes())
    assert machine.xids == []
    assert texts(machine.rig, RecordKind.DEVICE) == [
        f"{GPU_A}: pci remove at {PCI_A}",
        f"{GPU_A}: pci add at {PCI_A}",
    ]


def test_what_the_log_said_of_a_lost_gpu_outlasts_its_return() -> None:
    """An Xid 79 stands until a verified reset or a boot, whatever udev says after it."""
    machine = a_machine()
    machine.says(a_line(79))
    machine.sends(REMOVED, ADDED)
    asyncio.run(machine.rig.passes())
    machine.sends(REMOVED)
    asyncio.run(machine.rig.passes())
    machine.sends(ADDED)
    asyncio.run(machine.rig.passes())
    assert machine.xids == [(GPU_A, 79, FaultClass.LOST)]


@pytest.mark.parametrize(
    "event",
    [
        replace(REMOVED, subsystem="drm"),
        replace(REMOVED, pci="0000:7f:00.0"),
        replace(REMOVED, action=DeviceAction.CHANGED, xid=79),
        replace(REMOVED, action=DeviceAction.UNBOUND, driver="nvidia"),
    ],
)
def test_no_other_event_makes_a_gpu_lost(event: DeviceEvent) -> None:
    """Another subsystem, another device, another action: on record, and nothing stands for it."""
    machine = a_machine()
    asyncio.run(machine.rig.passes())
    machine.sends(event)
    asyncio.run(machine.rig.passes())
    assert machine.xids == []
    assert len(texts(machine.rig, RecordKind.DEVICE)) == 1


def test_an_event_is_told_with_its_driver_and_its_xid() -> None:
    """The Xid is a hint."""
    machine = a_machine()
    machine.sends(DeviceEvent(DeviceAction.BOUND, "pci", PCI_A, "nvidia", 43))
    asyncio.run(machine.rig.passes())
    assert texts(machine.rig, RecordKind.DEVICE) == [
        f"{GPU_A}: pci bind at {PCI_A}, driver nvidia, with Xid 43"
    ]


def test_a_flood_of_events_costs_a_bounded_number_of_records() -> None:
    """Sixteen by name, the rest by number."""
    machine = a_machine()
    machine.sends(*[replace(ADDED, subsystem="drm")] * 300)
    asyncio.run(machine.rig.passes())
    told = texts(machine.rig, RecordKind.DEVICE)
    assert len(told) == 17
    assert told[-1] == "284 more device events in the same look"


def test_rules_settle_again_after_the_driver_changed_hands() -> None:
    """No act by rule for the settling time; operators are not bound; our worker starts anew, once."""
    policy = fault_policy(gates=GateSettings(settling_seconds=100.0))
    machine = a_machine(policy=policy)
    machine.sends(ADDED)
    machine.says(a_line())
    machine.rig.recorder.errors = [a_disk_error(), a_disk_error()]
    asyncio.run(machine.rig.passes(4))
    assert machine.rig.events.count("driver changed") == 1
    incident = only(machine.rig)
    assert (incident.stage, incident.attempts) == (Stage.PENDING, ())
    assert "of settling are left" in incident.last_refusal
    assert not [look for look in machine.rig.sampler.looks if look.reset]
    asyncio.run(machine.rig.passes(3, step=60.0))
    assert only_run(machine.rig).gpus == (GPU_A,)


def test_lost_device_events_upset_as_any_of_them_might_have() -> None:
    """Which node is which GPU's is void: our worker starts anew, all is searched, rules settle; on record."""
    machine = a_machine(policy=fault_policy(gates=GateSettings(settling_seconds=100.0)))
    asyncio.run(machine.rig.passes())
    machine.devices.gap = "device events were lost: too many came at once"
    machine.rig.recorder.errors = [a_disk_error(), a_disk_error()]
    asyncio.run(machine.rig.passes())
    machine.devices.gap = ""
    asyncio.run(machine.rig.passes(3))
    assert machine.rig.events.count("driver changed") == 1
    assert [look.full_scan for look in machine.rig.sampler.looks][2]
    assert changed(machine) is not None
    assert texts(machine.rig, RecordKind.DEVICE) == ["device events were lost: too many came at once"]


def test_a_gap_in_the_kernels_log_is_on_record_once() -> None:
    """An Xid may have been in it; a log that can't be read says so in every look."""
    machine = a_machine()
    machine.log.coming += [KernelNews(gap="it can't be read")] * 3
    machine.rig.recorder.errors = [a_disk_error(), a_disk_error()]
    asyncio.run(machine.rig.passes(5))
    said = [text for text in texts(machine.rig, RecordKind.NOTE) if "Xids" in text]
    assert said == ["Xids may have been missed: it can't be read"]


AWAY = (DriverState.UNRESPONSIVE, DriverState.ABSENT)


def driver_reads(machine: Machine, *states: DriverState) -> None:
    """Let one pass see each state of the driver."""
    for state in states:
        driver = replace(two_gpus().driver, state=state, since=machine.rig.now[0])
        machine.rig.show(replace(two_gpus(), driver=driver))
        asyncio.run(machine.rig.passes())


def changed(machine: Machine) -> float | None:
    """Return when the driver last changed hands, or came back."""
    return machine.rig.cycle.state.faults.changed_mono


def returns(machine: Machine) -> list[str]:
    """Return what is on record of the driver's return."""
    return [text for text in texts(machine.rig, RecordKind.NOTE) if "is back" in text]


@pytest.mark.parametrize("away", AWAY)
@pytest.mark.parametrize("back", [DriverState.RESPONSIVE, DriverState.SLOW])
def test_rules_settle_again_when_the_driver_is_back(away: DriverState, back: DriverState) -> None:
    """Once, from the look that had an answer, and on record; no reset by rule before the time is over."""
    machine = a_machine(policy=fault_policy(gates=GateSettings(settling_seconds=100.0)))
    driver_reads(machine, DriverState.RESPONSIVE)
    machine.rig.age(200.0)
    driver_reads(machine, away, away)
    assert changed(machine) is None
    driver_reads(machine, back)
    since = changed(machine)
    assert since == machine.rig.cycle.settled_from() == machine.rig.cycle.state.snapshot.at  # type: ignore[union-attr]
    driver_reads(machine, back, DriverState.RESPONSIVE)
    assert changed(machine) == since
    assert returns(machine) == ["the driver is back: no act by rule for 100 s"]
    machine.says(a_line())
    driver_reads(machine, DriverState.RESPONSIVE, DriverState.RESPONSIVE)
    assert only(machine.rig).attempts == ()
    asyncio.run(machine.rig.passes(3, step=60.0))
    assert only_run(machine.rig).gpus == (GPU_A,)


def test_the_drivers_return_is_told_when_it_can_be_written() -> None:
    """A disk that fails in that very pass loses no record of it."""
    machine = a_machine(policy=fault_policy(gates=GateSettings(settling_seconds=0.0)))
    driver_reads(machine, DriverState.ABSENT)
    machine.rig.recorder.errors = [a_disk_error(), a_disk_error()]
    driver_reads(machine, DriverState.RESPONSIVE)
    assert returns(machine) == []
    driver_reads(machine, DriverState.RESPONSIVE, DriverState.RESPONSIVE)
    assert returns(machine) == ["the driver is back"]


def test_a_driver_that_could_not_be_asked_is_as_it_was() -> None:
    """Our own trouble is neither its absence nor its return."""
    machine = a_machine(policy=fault_policy(gates=GateSettings(settling_seconds=0.0)))
    driver_reads(machine, DriverState.RESPONSIVE, DriverState.UNKNOWN, DriverState.RESPONSIVE)
    assert changed(machine) is None
    driver_reads(machine, DriverState.ABSENT, DriverState.UNKNOWN)
    assert machine.rig.cycle.state.faults.away
    assert returns(machine) == []
    driver_reads(machine, DriverState.RESPONSIVE)
    assert returns(machine) == ["the driver is back"]


# --- rules -----------------------------------------------------------------------------------------


def test_a_fault_rule_opens_one_incident_and_its_reset_is_verified() -> None:
    """About the GPU itself; the Xids go with the reset, and nothing is opened again."""
    rig = a_faulty_rig()
    asyncio.run(rig.passes(3))
    incident = only(rig)
    assert (incident.subject, incident.target.gpus, incident.target.members) == (Subject.GPU, (GPU_A,), ())
    assert incident.reason == "Xid 48 (reset)"
    let_end(rig, ResetResult.VERIFIED)
    asyncio.run(rig.passes(5))
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == Stage.RECLAIMED.value
    assert rig.cycle.state.incidents == {}
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1


def test_a_fault_that_is_gone_stands_its_incident_down() -> None:
    """While nothing was done yet: here a pause held the reset back."""
    rig = a_faulty_rig()
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, pause=Pause("root", "", WALL))
    asyncio.run(rig.passes(3))
    assert only(rig).attempts == ()
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=())
    asyncio.run(rig.passes())
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert (ended.end, ended.reason) == (Stage.STOOD_DOWN.value, "the fault is gone")


def test_what_was_begun_or_ordered_is_not_stood_down() -> None:
    """A reset under way goes on though its fault is gone; an operator's order needs no fault."""
    rig = a_faulty_rig()
    asyncio.run(rig.passes())
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=())
    asyncio.run(rig.passes(3))
    assert only(rig).stage is Stage.PENDING
    rig = a_reset_rig(policy=fault_policy())
    order_reset(rig)
    asyncio.run(rig.passes(3))
    assert only(rig).stage is Stage.PENDING


def test_a_gpu_that_goes_away_is_drained_and_not_stood_down() -> None:
    """Its fault can't be seen any more, which is no sign that it is gone."""
    rule = replace(MEND, xid_classes=(), recovery_actions=("gpu_reset",))
    ill = a_gpu(GPU_A, recovery_action=Known(RecoveryAction.GPU_RESET))
    seen = ready(a_snapshot(gpus=(ill, a_gpu(GPU_B))))
    machine = a_machine(seen, policy=fault_policy(rule, gates=GateSettings(settling_seconds=0.0)))
    machine.rig.cycle.state.ledger = Ledger(pause=Pause("root", "", WALL))
    asyncio.run(machine.rig.passes())
    machine.rig.cycle.state.ledger = replace(machine.rig.cycle.state.ledger, pause=None)
    machine.sends(REMOVED)
    machine.rig.show(ready(a_snapshot(gpus=(a_gpu(GPU_B),))))
    asyncio.run(machine.rig.passes(3))
    assert (machine.rig.executor.permits, len(machine.rig.target.asked)) == ([], 1)
    (ended,) = machine.rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == f"{Stage.HANDED_OVER} to {Recipient.SCHEDULER}"


def test_after_a_hand_over_no_rule_takes_it_up_again() -> None:
    """Until a reset of it is verified: then a new fault is a new incident."""
    rig = a_faulty_rig()
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.REFUSED, "pid 7 opened it")
    asyncio.run(rig.passes(10))
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    (over,) = rig.cycle.state.handed.values()
    assert over.handed_to is Recipient.PERSON
    order_reset(rig)
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.VERIFIED)
    asyncio.run(rig.passes(2))
    assert rig.cycle.state.handed == {}
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=(an_xid(code=95),))
    asyncio.run(rig.passes())
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 3


def test_an_operators_refused_reset_leaves_the_rules_as_they_were() -> None:
    """It did nothing and handed nothing over."""
    rig = a_reset_rig(policy=fault_policy())
    order_reset(rig)
    asyncio.run(rig.passes())
    let_end(rig, ResetResult.REFUSED)
    asyncio.run(rig.passes(2))
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=(an_xid(),))
    asyncio.run(rig.passes(2))
    assert only(rig).actor.name == "mend"
    assert only_run(rig).actor.name == "mend"


def test_a_rule_that_only_observes_waits_and_searches_for_nothing() -> None:
    """One refusal on record, no look for a reset, nobody handed anything; enforced, it acts."""
    policy = fault_policy(replace(MEND, mode=Mode.OBSERVE))
    rig = a_faulty_rig(replace(two_gpus(), reset_facts=None), policy)
    asyncio.run(rig.passes(5))
    assert only(rig).stage is Stage.PENDING
    (refused,) = rig.recorder.of_kind(RecordKind.REFUSED)
    assert [reason.kind.value for reason in refused.refusals] == ["mode"]
    assert not any(look.reset or look.full_scan for look in rig.sampler.looks)
    rig.cycle.policy = fault_policy()
    asyncio.run(rig.passes())
    rig.show(two_gpus())
    asyncio.run(rig.passes())
    assert only_run(rig).gpus == (GPU_A,)


WATCHER = replace(MEND, name="watch", mode=Mode.OBSERVE)


def test_a_rule_that_only_observes_holds_up_no_operator() -> None:
    """What it opened would stay until the fault is gone: it is no other incident, and makes way on record."""
    rig = a_faulty_rig(policy=fault_policy(WATCHER))
    asyncio.run(rig.passes(2))
    watching = only(rig)
    context = rig.cycle.context()
    assert context is not None
    assert context.open_gpus == {}
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert ticket.exit_code is None
    assert only_run(rig).gpus == (GPU_A,)
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert (ended.incident, ended.end) == (watching.id, Stage.STOOD_DOWN.value)
    assert ended.reason == f"{ticket.order.actor.name} ordered the reset"


def test_a_rule_that_acts_holds_up_an_operators_reset() -> None:
    """It only waits: two at once on one GPU can't be, and nothing is added."""
    policy = fault_policy(gates=GateSettings(settling_seconds=1e6))
    rig = a_faulty_rig(policy=policy)
    asyncio.run(rig.passes())
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert ticket.exit_code is ExitCode.REFUSED
    assert rig.cycle.state.ledger.resets == ()


def test_a_rule_that_only_observes_makes_way_for_one_that_acts() -> None:
    """Whatever their order in the policy; the one that acts is not followed by the other again."""
    rig = a_faulty_rig(policy=fault_policy(WATCHER, replace(MEND, for_seconds=5.0)))
    asyncio.run(rig.passes(2))
    assert only(rig).actor.name == "watch"
    asyncio.run(rig.passes(8))
    assert only_run(rig).actor.name == "mend"
    assert only(rig).actor.name == "mend"
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 2


def test_a_dry_run_beside_a_rule_that_observes_is_planned_once() -> None:
    """The plan made, the observing rule's incident stands again, and stays."""
    rig = a_faulty_rig(policy=fault_policy(WATCHER, replace(MEND, mode=Mode.DRY_RUN)))
    asyncio.run(rig.passes(10))
    assert only(rig).actor.name == "watch"
    assert len(rig.recorder.of_kind(RecordKind.INTENT)) == 1
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 3


def test_a_rules_dry_run_says_once_what_it_would_do() -> None:
    """Stood down, nothing reset, and not opened anew with every pass."""
    rig = a_faulty_rig(policy=fault_policy(replace(MEND, mode=Mode.DRY_RUN)))
    asyncio.run(rig.passes(10))
    assert rig.cycle.state.ledger.resets == ()
    assert rig.executor.sent == {}
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert (ended.end, ended.reason) == (Stage.STOOD_DOWN.value, "dry run: nothing was sent")
    rig.cycle.policy = fault_policy()
    asyncio.run(rig.passes())
    assert only_run(rig).gpus == (GPU_A,)


def test_a_dry_run_of_a_drain_is_said_once_and_holds_up_no_later_one() -> None:
    """Not opened anew, not handed over for its own spent budget; enforced, the rule asks for the drain."""
    rule = replace(MEND, xid_classes=("lost",), mode=Mode.DRY_RUN)
    rig = a_reset_rig(policy=fault_policy(rule))
    rig.cycle.state.ledger = Ledger(xids=(an_xid(GPU_A, FaultClass.LOST, 79),))
    asyncio.run(rig.passes(10))
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    other = (an_xid(GPU_B, FaultClass.LOST, 79),)
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=other)
    asyncio.run(rig.passes(10))
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 2
    rig.cycle.policy = fault_policy(replace(rule, mode=Mode.ENFORCE))
    asyncio.run(rig.passes())
    assert [permit for permit in rig.executor.permits if not permit.dry_run] == []
    assert len(rig.target.asked) == 1


@pytest.mark.parametrize("fault", [FaultClass.RESET, FaultClass.LOST])
def test_a_daemon_that_acts_on_nothing_says_once_what_it_would_do(fault: FaultClass) -> None:
    """Its own --dry-run binds a rule that enforces: planned, and not opened anew with every pass."""
    rule = replace(MEND, xid_classes=("reset", "lost"))
    rig = a_reset_rig(policy=fault_policy(rule), dry_run=True)
    rig.cycle.state.ledger = Ledger(xids=(an_xid(fault=fault),))
    asyncio.run(rig.passes(10))
    assert (rig.cycle.state.ledger.resets, rig.executor.sent) == ((), {})
    assert len(rig.recorder.of_kind(RecordKind.INCIDENT_OPENED)) == 1
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert ended.end == Stage.STOOD_DOWN.value


SIGNALLING = replace(
    MEND,
    stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET, ListedStage.DRAIN),
    sigterm_seconds=5.0,
    sigkill_seconds=5.0,
)
ONE_JOB = tuple(a_process(pid, workload=a_workload("job.service")) for pid in (100, 101))
TWO_JOBS = (a_process(100), a_process(101))


def test_holders_of_one_workload_are_told_to_go_first() -> None:
    """SIGTERM, then the reset as soon as they are gone."""
    rig = a_faulty_rig(ready(a_busy_snapshot(*ONE_JOB)), fault_policy(SIGNALLING))
    asyncio.run(rig.passes(2))
    refs = [reading.ref for reading in ONE_JOB]
    assert rig.executor.sent == {ref: ["sigterm"] for ref in refs}
    assert rig.cycle.state.ledger.resets == ()
    rig.show(replace(two_gpus(), exited=frozenset(refs)))
    asyncio.run(rig.passes())
    assert only_run(rig).gpus == (GPU_A,)
    assert rig.executor.sent == {ref: ["sigterm"] for ref in refs}


def test_holders_of_several_workloads_are_told_nothing() -> None:
    """No signal at all: the gate refuses for them, and a person hears of it."""
    rig = a_faulty_rig(ready(a_busy_snapshot(*TWO_JOBS)), fault_policy(SIGNALLING))
    asyncio.run(rig.passes(5))
    assert rig.executor.sent == {}
    (over,) = rig.cycle.state.handed.values()
    assert (over.target.members, over.handed_to) == ((), Recipient.PERSON)
    refused = [entry for entry in rig.recorder.of_kind(RecordKind.REFUSED) if entry.action == "reset"]
    assert {ref.pid for one in refused for reason in one.refusals for ref in reason.processes} >= {100, 101}


def test_a_holder_that_cannot_be_read_is_told_nothing() -> None:
    """Nobody knows whose it is."""
    seen = ready(a_busy_snapshot(*ONE_JOB))
    rig = a_faulty_rig(replace(seen, processes={100: ONE_JOB[0]}), fault_policy(SIGNALLING))
    asyncio.run(rig.passes(5))
    assert rig.executor.sent == {}


def test_forged_boundaries_make_no_common_workload() -> None:
    """Two processes in a boundary that proves nothing count for themselves."""
    forged = a_workload("job.service", trusted=False)
    pair = tuple(a_process(pid, workload=forged) for pid in (100, 101))
    rig = a_faulty_rig(ready(a_busy_snapshot(*pair)), fault_policy(SIGNALLING))
    asyncio.run(rig.passes(5))
    assert rig.executor.sent == {}


def a_rig_that_needs_a_reboot() -> Rig:
    """Return a rig whose rule asks for a drain at an Xid of that class, which stands against GPU A."""
    rig = a_reset_rig(policy=fault_policy(replace(MEND, xid_classes=("reboot",))))
    rig.cycle.state.ledger = Ledger(xids=(StandingXid(GPU_A, BOOT, 140, FaultClass.REBOOT, 7, WALL),))
    return rig


def outcome_as_it_stood_down(rig: Rig) -> Outcome:
    """Return the outcome of the one incident's step; it stood down, and nobody was asked."""
    (ended,) = rig.recorder.of_kind(RecordKind.INCIDENT_ENDED)
    assert (ended.end, ended.reason) == (Stage.STOOD_DOWN.value, "the fault is gone")
    assert (rig.cycle.state.incidents, rig.target.asked) == ({}, [])
    outcome = rig.recorder.of_kind(RecordKind.OUTCOME)[-1].outcome
    assert outcome is not None
    return outcome


def test_a_fault_that_needs_a_reboot_is_drained_without_a_reset() -> None:
    """The gate is asked for the drain alone."""
    rig = a_rig_that_needs_a_reboot()
    asyncio.run(rig.passes(3))
    assert (rig.executor.permits, len(rig.target.asked)) == ([], 1)
    assert rig.cycle.state.ledger.resets == ()


def test_a_drain_that_nobody_was_asked_for_goes_with_its_cause() -> None:
    """The fleet was full; the GPU is well again: no incident stays open for ever, and none is asked."""
    rig = a_rig_that_needs_a_reboot()
    rig.fleet.answer = SlotWaits("5 of 5 nodes are drained")
    asyncio.run(rig.passes(3))
    assert only(rig).attempts[-1].outcome is None
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=())
    rig.fleet.answer = SlotTaken("there is room")
    asyncio.run(rig.passes(6, step=700.0))
    assert outcome_as_it_stood_down(rig).kind is OutcomeKind.PASSED_OVER
    assert rig.cycle.state.ledger.drain is None


def test_a_drain_whose_answer_was_lost_with_us_waits_for_none() -> None:
    """We died while asking, and the cause is gone since: nobody is asked again, and a person is told."""
    rig = a_rig_that_needs_a_reboot()
    rig.fleet.answer = SlotWaits("5 of 5 nodes are drained")
    asyncio.run(rig.passes(3))
    drain = rig.cycle.state.ledger.drain
    assert drain is not None
    tried = replace(
        drain, phase=DrainPhase.ASK, has_slot=True, asks=tuple(replace(ask, tries=1) for ask in drain.asks)
    )
    rig.cycle.state.ledger = replace(rig.cycle.state.ledger, xids=(), drain=tried)
    asyncio.run(rig.passes(6, step=700.0))
    assert outcome_as_it_stood_down(rig).kind is OutcomeKind.UNKNOWN
    assert f"{drain.id} may stand" in attention_text(rig.cycle.state.ledger.drain)


def test_one_command_in_the_foreground_opens_nothing_by_rule() -> None:
    """It is not the guard; an operator's reset goes its way there."""
    rig = a_faulty_rig(foreground=True)
    asyncio.run(rig.passes(3))
    assert rig.cycle.state.incidents == {}
    ticket = order_reset(rig)
    asyncio.run(rig.passes())
    assert ticket.exit_code is not ExitCode.REFUSED
    assert only_run(rig).gpus == (GPU_A,)
