"""Who is called stuck after a few looks, who is not, and that the search works on the real host alone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from reclaimerd.config.signatures import load_signatures
from reclaimerd.daemon.stuck_rows import StuckReport
from reclaimerd.daemon.stuck_scan import StuckSettings, find_stuck, find_stuck_here
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.wire import to_wire
from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.process import PF_KTHREAD
from reclaimerd.model.reading import Known
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent
from reclaimerd.observe.kernel_scan import KernelScan, Suspect, Touch
from tests.judge.kernel_builders import EXIT, SYSTEM_CALL, a_ktask, a_look, busier, exiting
from tests.rigs.kernel_children import stuck_in_flush
from tests.rigs.raw_fuse import why_unavailable

SETTINGS = StuckSettings(looks=5, apart_seconds=1.0, signatures=load_signatures())
CLOSE = f"schedule down_write os_acquire_rwlock_write/nvidia nvidia_close/nvidia __fput {EXIT}"
IOCTL = f"schedule os_acquire_mutex/nvidia nvidia_ioctl/nvidia {SYSTEM_CALL}"
Round = Callable[[KernelLook], KernelLook | str | None]


def stays(look: KernelLook) -> KernelLook | None:
    """Return the same look: nothing moved."""
    return look


@dataclass(slots=True)
class Worker:
    """Answers as a procfs worker does; each look is what `change` makes of the one before, a second later."""

    suspects: Sequence[Suspect]
    change: Mapping[int, Round] = field(default_factory=dict)
    scan_answer: Answer | None = None
    asked: list[str] = field(default_factory=list)
    _looks: dict[int, KernelLook] = field(default_factory=dict)

    async def ask(
        self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Answer one question."""
        del answer_within
        self.asked.append(op)
        if op == "kernel_scan":
            self._looks = {one.look.ref.pid: one.look for one in self.suspects}
            scan = KernelScan(tuple(self.suspects), ("pid 9: permission denied",), 20, 40)
            return self.scan_answer or Answered(({"kernel_scan": to_wire(scan)},), 0.0, 0.0)
        pids = (args or {}).get("pids")
        assert isinstance(pids, list)
        return Answered(tuple(self._look(pid) for pid in pids), 0.0, 0.0)

    def _look(self, pid: int) -> object:
        look = self.change.get(pid, stays)(self._looks[pid])
        if look is None:
            return {"pid": pid, "gone": True}
        if isinstance(look, str):
            return {"pid": pid, "unreadable": look}
        self._looks[pid] = replace(look, at=look.at + 1.0)
        return {"pid": pid, "kernel": to_wire(self._looks[pid])}


def suspect(look: KernelLook, touch: Touch = Touch.STACK, *, kernel_thread: bool = False) -> Suspect:
    """Return one find of the search."""
    return Suspect(look, kernel_thread, touch, "a sign")


def found(worker: Worker) -> StuckReport:
    """Search without waiting."""

    async def no_sleep(_seconds: float) -> None:
        return

    return asyncio.run(find_stuck(worker, SETTINGS, clock=lambda: 0.0, sleep=no_sleep))


def test_who_does_not_move_and_releases_nothing_is_a_row_with_its_stack() -> None:
    """A close that waits for the driver's lock through every look: blocked, named, told with its frames."""
    report = found(Worker([suspect(exiting(100, CLOSE))]))
    row = report.rows[0]
    assert (row.leaving, row.condition, row.fault_domain) == ("stuck_blocked", "exiting", "driver")
    assert row.signature
    assert "SIGKILL cannot help" in row.text
    assert "nvidia_close [nvidia]" in row.stack
    assert report.skipped == ("pid 9: permission denied",)


def test_who_is_gone_at_a_later_look_is_no_row() -> None:
    """A healthy exit that was met on its way is not stuck."""
    report = found(Worker([suspect(exiting(100, CLOSE))], {100: lambda _: None}))
    assert report.rows == ()


def test_who_can_not_be_looked_at_again_stays_a_row_and_is_never_nothing_stuck() -> None:
    """A busy host, or a lock that it holds itself, must not make a stuck process vanish from the list."""
    row = found(Worker([suspect(exiting(100, CLOSE))], {100: lambda _: "no CPU"})).rows[0]
    assert (row.leaving, row.condition) == ("undetermined", "exiting")
    assert "no CPU" in row.text


def test_one_round_without_an_answer_is_made_up_for() -> None:
    """A look that failed once is taken again, and the verdict is the same."""
    fails = ["no CPU"]

    def once(look: KernelLook) -> KernelLook | str:
        return fails.pop() if fails else look

    row = found(Worker([suspect(exiting(100, CLOSE))], {100: once})).rows[0]
    assert row.leaving == "stuck_blocked"


def test_who_begins_to_leave_while_we_look_is_no_row() -> None:
    """A process that ran first and is met in its ordinary exit at last is healthy."""

    def ends(look: KernelLook) -> KernelLook:
        return replace(busier(look), tasks=exiting(100, "", "R").tasks) if look.at > 1002 else busier(look)

    started = replace(a_look(100, a_ktask(100, "R")), at=1000.0)
    assert found(Worker([suspect(started, Touch.NODE)], {100: ends})).rows == ()


def test_another_process_with_the_same_pid_is_no_row() -> None:
    """A pid used again is not the process that was seen first."""

    def again(look: KernelLook) -> KernelLook:
        return replace(look, ref=replace(look.ref, start_ticks=look.ref.start_ticks + 1))

    assert found(Worker([suspect(exiting(100, CLOSE))], {100: again})).rows == ()


def test_a_moving_exit_that_releases_is_told_as_leaving_for_long_and_not_as_stuck() -> None:
    """It leaves through every look, its memory falls: too long to be left out, not called stuck."""

    def freeing(look: KernelLook) -> KernelLook:
        assert isinstance(look.cgroup_bytes, Known)
        return replace(busier(look), cgroup_bytes=Known(look.cgroup_bytes.value - (1 << 29)))

    row = found(Worker([suspect(exiting(100, "", "R"), Touch.UNKNOWN)], {100: freeing})).rows[0]
    assert row.leaving == "progressing"
    assert "stuck in" not in row.text


def test_c01_a_killed_spin_in_an_ioctl_is_found_in_r() -> None:
    """C01: SIGKILL pending through every look and still not exiting: stuck, also where the letter is R."""
    frames = f"uvm_spin_loop/nvidia_uvm uvm_tracker_wait/nvidia_uvm uvm_ioctl/nvidia_uvm {SYSTEM_CALL}"
    look = a_look(100, a_ktask(100, "R", 0, frames, kill_pending=True))
    row = found(Worker([suspect(look)], {100: busier})).rows[0]
    assert (row.leaving, row.signature) == ("stuck_spinning", "uvm_spin_loop")


def test_who_merely_runs_or_touches_no_driver_is_no_row() -> None:
    """A running process is healthy; one blocked elsewhere without a device is not this search's business."""
    running = a_look(100, a_ktask(100, "R"))
    elsewhere = a_look(200, a_ktask(200, "D", 0, f"nfs_wait_bit_killable {SYSTEM_CALL}"))
    report = found(Worker([suspect(running, Touch.NODE), suspect(elsewhere, Touch.NONE)], {100: busier}))
    assert report.rows == ()


def test_a_wait_in_the_driver_that_nobody_asked_to_end_is_told_when_it_lasts_and_not_when_it_moves() -> None:
    """Blocked in one and the same wait through every look is a row; waits that come and go are work."""
    look = a_look(100, a_ktask(100, "D", 0, IOCTL))

    def moving(one: KernelLook) -> KernelLook:
        return replace(
            one, tasks=(replace(one.tasks[0], voluntary_switches=one.tasks[0].voluntary_switches + 1),)
        )

    assert [row.condition for row in found(Worker([suspect(look)])).rows] == ["blocked"]
    assert found(Worker([suspect(look)], {100: moving})).rows == ()


def test_c06_a_kernel_thread_at_work_in_every_look_is_a_row_and_one_that_rests_is_not() -> None:
    """C06: a deferred close holds a GPU for nobody; a thread that was busy once is healthy."""
    busy = a_ktask(50, "S", PF_KTHREAD, "schedule nv_close_device/nvidia _main_loop/nvidia kthread")
    idle = replace(busy, frames=a_ktask(50, "S", PF_KTHREAD, "schedule _main_loop/nvidia kthread").frames)
    thread = suspect(a_look(50, busy, comm="nv_queue"), kernel_thread=True)
    row = found(Worker([thread])).rows[0]
    assert row.kernel_thread
    assert "nv_close_device" in row.text
    assert found(Worker([thread], {50: lambda one: replace(one, tasks=(idle,))})).rows == ()


def test_both_sides_of_a_deadlock_are_noted() -> None:
    """A close that waits for the RM rwlock and an ioctl that waits for the RM mutex: AB-BA."""
    other = a_look(200, a_ktask(200, "D", 0, IOCTL, kill_pending=True))
    report = found(Worker([suspect(exiting(100, CLOSE)), suspect(other)]))
    assert len(report.rows) == 2
    assert len(report.notes) == 1
    assert "AB-BA" in report.notes[0]


@pytest.mark.parametrize(
    "answer", [Failed("failed", "no proc"), Silent("no answer", 0.0), Answered(({},), 0, 0)]
)
def test_a_host_that_can_not_be_searched_is_an_error_and_never_nothing_stuck(answer: Answer) -> None:
    """No answer, a failure or nonsense: an error with its mend."""
    with pytest.raises(ReclaimerdError, match="could not be searched"):
        found(Worker([], scan_answer=answer))


def test_a_search_that_fails_on_a_busy_host_is_tried_again() -> None:
    """The first answer is none, the second is the list."""

    @dataclass(slots=True)
    class Busy:
        worker: Worker
        fails: int = 1

        async def ask(
            self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
        ) -> Answer:
            if op == "kernel_scan" and self.fails:
                self.fails -= 1
                return Silent("host overloaded", 0.0)
            return await self.worker.ask(op, args, answer_within=answer_within)

    async def no_sleep(_seconds: float) -> None:
        return

    busy = Busy(Worker([suspect(exiting(100, CLOSE))]))
    report = asyncio.run(find_stuck(busy, SETTINGS, clock=lambda: 0.0, sleep=no_sleep))
    assert [row.ref.pid for row in report.rows] == [100]


def test_the_report_is_plain_json_with_the_fields_that_people_are_shown() -> None:
    """Each row has who, what, where and how it was judged to touch the driver."""
    body = found(Worker([suspect(exiting(100, CLOSE))])).as_json()
    rows = body["rows"]
    assert isinstance(rows, list)
    assert {"pid", "ref", "comm", "text", "driver", "stack", "signature", "states"} <= set(rows[0])
    assert (body["processes"], body["tasks"]) == (20, 40)


@pytest.mark.process
@pytest.mark.root
@pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())
def test_on_the_real_host_a_stuck_exit_is_found_by_a_worker_of_its_own() -> None:
    """Without daemon and NVML: the process, its signature, and that the GPU is not at fault."""
    with stuck_in_flush() as pid:
        quick = StuckSettings(looks=6, apart_seconds=0.3, signatures=load_signatures())
        report = asyncio.run(find_stuck_here((), quick))
    row = next(row for row in report.rows if row.ref.pid == pid)
    assert (row.signature, row.fault_domain, row.condition) == ("fuse_flush", "workload", "exiting")
    # Others in this session's cgroup may free memory in these seconds: then it is only told as leaving.
    assert row.leaving in {"stuck_blocked", "progressing"}
