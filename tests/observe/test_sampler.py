"""One look after another over scripted workers: what is known, what is named, what is remembered."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import DeviceNumber, FileIdentity, ProcessRef
from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.memory import Baseline, RememberedHolder
from reclaimerd.model.ports import Look
from reclaimerd.model.process import (
    PF_EXITING,
    NodeHolding,
    ProcessLook,
    ProcessReading,
    ScanRow,
)
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import ResetFacts
from reclaimerd.model.snapshot import (
    DriverState,
    Snapshot,
    unreadable_gpu,
)
from reclaimerd.observe import sampler as sampler_module
from reclaimerd.observe.answers import (
    Answered,
    Failed,
    Gone,
    LookAnswer,
    ProbeKind,
    Silent,
    SilentCause,
    UnreadableProcess,
)
from reclaimerd.observe.driver_grip import CLOSED_WHY
from reclaimerd.observe.reset_eyes import ResetEyes, Scope
from reclaimerd.observe.sampler import HOST_FILES_EVERY_SECONDS, WHOLE_EVERY_SECONDS
from reclaimerd.observe.sightings import NOT_TOLD, read_children
from tests.builders import (
    BOOT,
    GIB,
    GPU_A,
    GPU_B,
    MONO,
    WALL,
    a_gpu,
    a_process,
    a_ref,
    a_row,
    a_task,
)
from tests.observe.eyes import Eyes, a_host, a_scan, answered

_A = DeviceNumber(195, 0)
_PID = 4_000_001
"""Above the kernel's largest pid (2^22 is 4,194,304, and this machine hands out far smaller ones)."""
_REF = a_ref(_PID)


@pytest.fixture(autouse=True)
def _no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pids here are of no process: nobody's children are asked for."""
    monkeypatch.setattr(sampler_module, "read_children", lambda _pid: ())


def _look(reading: ProcessReading, *devices: DeviceNumber) -> ProcessLook:
    return ProcessLook(reading, Known(tuple(NodeHolding(device) for device in devices)))


def _sample(eyes: Eyes, look: Look | None = None) -> Snapshot:
    return asyncio.run(eyes.sampler.sample(look or Look()))


def _eyes_with_a_holder() -> Eyes:
    """Return eyes on two GPUs; a living process holds 8 GiB of the first."""
    eyes = Eyes(_look(a_process(_PID), _A))
    eyes.nvml.answers["host"] = a_host(a_gpu(processes=(a_row(_PID),)), a_gpu(GPU_B, used=5))
    return eyes


# --- the driver ------------------------------------------------------------------------------------


def test_a_whole_look_names_driver_gpus_holders_and_times() -> None:
    """What the workers answered, and when."""
    snapshot = _sample(_eyes_with_a_holder())
    assert snapshot.driver.state is DriverState.RESPONSIVE
    assert snapshot.driver.version == Known("595.45.04")
    assert [gpu.uuid for gpu in snapshot.gpus] == [GPU_A, GPU_B]
    assert [(holder.ref, holder.gpu, holder.listed, holder.node) for holder in snapshot.holders] == [
        (_REF, GPU_A, True, True)
    ]
    assert (snapshot.at, snapshot.taken_at, snapshot.boot_id) == (MONO, WALL, BOOT)
    assert snapshot.exited == frozenset()
    assert not snapshot.simulated


def test_a_slow_worker_is_slow_and_its_answer_is_used() -> None:
    """Late is not silent."""
    eyes = _eyes_with_a_holder()
    eyes.nvml.kind = ProbeKind.SLOW
    snapshot = _sample(eyes)
    assert snapshot.driver.state is DriverState.SLOW
    assert len(snapshot.holders) == 1


def test_a_silent_driver_leaves_identities_and_nothing_else() -> None:
    """Every figure is unreadable with the reason; the evidence and the start of the silence are named."""
    eyes = _eyes_with_a_holder()
    seen = _sample(eyes).gpus
    eyes.nvml.answers["host"] = Silent("no answer in 5 s", MONO - 7, "task 1: nvidia_poll")
    eyes.hands.now += 2
    snapshot = _sample(eyes)
    assert snapshot.driver.state is DriverState.UNRESPONSIVE
    assert (snapshot.driver.since, snapshot.driver.why) == (MONO - 7, "no answer in 5 s")
    assert snapshot.driver.evidence == "task 1: nvidia_poll"
    assert snapshot.driver.version == Known("595.45.04")
    assert snapshot.gpus == tuple(unreadable_gpu(gpu, "no answer in 5 s") for gpu in seen)


def test_a_holder_stays_one_while_the_driver_is_silent() -> None:
    """Its node still shows it; what it holds is unreadable or not listed, never zero."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.nvml.answers["host"] = Silent("silent", MONO)
    (holder,) = _sample(eyes).holders
    assert (holder.ref, holder.node, holder.listed) == (_REF, True, False)
    assert not isinstance(holder.used_bytes, Known)


def test_a_driver_that_was_never_read_has_no_version_and_no_gpus() -> None:
    """Nothing is made up."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = Silent("silent", MONO)
    snapshot = _sample(eyes)
    assert isinstance(snapshot.driver.version, Absent)
    assert snapshot.gpus == ()
    assert not snapshot.scan.full_now


def test_an_absent_driver_has_no_gpus_any_more() -> None:
    """Absent is not silent: nothing to watch, and the GPUs of before are gone."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.nvml.answers["host"] = Failed("driver_absent", "no NVIDIA driver: it is not loaded")
    snapshot = _sample(eyes)
    assert snapshot.driver.state is DriverState.ABSENT
    assert "not loaded" in snapshot.driver.why
    assert (snapshot.gpus, snapshot.holders) == ((), ())


def test_an_unsuitable_driver_raises_with_its_mend() -> None:
    """It can't be worked with at all: no snapshot pretends otherwise."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = Failed("unsuitable", "driver 470 is too old", "install 535.113")
    with pytest.raises(UnsuitableHostError, match="470") as caught:
        _sample(eyes)
    assert caught.value.mend == "install 535.113"


def test_a_worker_that_died_is_our_own_trouble_and_hides_nothing() -> None:
    """The GPUs stay known, all unreadable."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.nvml.answers["host"] = Failed("failed", "it ended")
    snapshot = _sample(eyes)
    assert snapshot.driver.state is DriverState.UNKNOWN
    assert all(gpu.memory == Unreadable("it ended") for gpu in snapshot.gpus)
    assert len(snapshot.gpus) == 2


def test_a_gpu_without_an_identity_is_named_with_the_driver_and_the_scan() -> None:
    """Nobody may take it for a GPU without holders."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = a_host(a_gpu(), failures=("GPU 1: identity could not be read: lost",))
    snapshot = _sample(eyes)
    assert "GPU 1" in snapshot.driver.why
    assert any("GPU 1" in text for text in snapshot.scan.skipped)


# --- searching -------------------------------------------------------------------------------------


def test_the_first_look_searches_and_the_next_tells_how_old_that_is() -> None:
    """Within the interval there is no second search."""
    eyes = _eyes_with_a_holder()
    first = _sample(eyes).scan
    assert (first.full_now, first.full_at, first.skipped) == (True, MONO, ())
    eyes.hands.now += 59
    second = _sample(eyes).scan
    assert (second.full_now, second.full_at) == (False, MONO)
    eyes.hands.now += 1
    assert _sample(eyes).scan.full_at == MONO + 60
    assert len(eyes.procfs.ops("scan")) == 2


def test_a_search_is_made_when_asked_for_and_as_deep_as_asked() -> None:
    """Before a reset."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    snapshot = _sample(eyes, Look(full_scan=True, deep=True))
    assert snapshot.scan.full_now
    assert [args["deep"] for args in eyes.procfs.ops("scan")] == [False, True]


def test_what_a_search_skipped_is_named_until_the_next() -> None:
    """Also in the looks between."""
    eyes = _eyes_with_a_holder()
    eyes.procfs.answers["scan"] = a_scan(skipped=("pid 77: no permission",))
    assert _sample(eyes).scan.skipped == ("pid 77: no permission",)
    assert _sample(eyes).scan.skipped == ("pid 77: no permission",)
    eyes.procfs.answers["scan"] = a_scan()
    assert _sample(eyes, Look(full_scan=True)).scan.skipped == ()


@pytest.mark.parametrize("answer", [Silent("busy", MONO), Failed("stuck", "pid 7 made it hang")])
def test_a_search_that_failed_is_no_search_and_is_tried_again(answer: Silent | Failed) -> None:
    """It says why, its time is not set, and the next look makes it."""
    eyes = _eyes_with_a_holder()
    whole = eyes.procfs.answers["scan"]
    eyes.procfs.answers["scan"] = answer
    scan = _sample(eyes).scan
    assert (scan.full_now, scan.full_at) == (False, None)
    why = answer.why if isinstance(answer, Silent) else answer.message
    assert scan.skipped == (f"full scan: {why}",)
    eyes.procfs.answers["scan"] = whole
    assert _sample(eyes).scan.full_now


def test_whoever_a_search_found_is_looked_at_in_every_look_after() -> None:
    """A holder that NVML does not list."""
    eyes = Eyes(_look(a_process(_PID), _A))
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0))
    eyes.procfs.answers["scan"] = a_scan(ScanRow(_PID, 1, (NodeHolding(_A),)))
    for _ in range(2):
        (holder,) = _sample(eyes).holders
        assert (holder.ref, holder.listed, holder.node) == (_REF, False, True)
    assert len(eyes.procfs.ops("scan")) == 1


def test_a_listed_pid_that_never_existed_is_searched_for_once() -> None:
    """It is evidence, and whoever holds its context must be found; the same oddity asks no second time."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = a_host(a_gpu(processes=(a_row(_PID),)))
    found = [_sample(eyes) for _ in range(4)]
    assert [listing.pid for listing in found[0].dead_listings] == [_PID]
    assert all(snapshot.holders == () for snapshot in found)
    assert [snapshot.scan.full_now for snapshot in found] == [True, True, False, False]


def test_memory_that_nobody_accounts_for_is_searched_for() -> None:
    """Once for each growth."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0))
    _sample(eyes)
    eyes.nvml.answers["host"] = a_host(a_gpu(used=GIB))
    assert [_sample(eyes).scan.full_now for _ in range(2)] == [True, False]


def test_a_shorter_interval_holds_from_the_next_look_on() -> None:
    """With a new policy; the program files are read anew as well."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.sampler.take_settings(replace(eyes.settings, full_scan_seconds=1.0, program_globs=("/opt/x",)))
    eyes.hands.now += 1
    assert _sample(eyes).scan.full_now
    assert eyes.procfs.ops("host_files")[-1] == {"globs": ["/opt/x"]}


def test_devices_are_told_once_and_again_to_a_new_worker() -> None:
    """A worker that was replaced knows of none: it would find nobody."""
    eyes = _eyes_with_a_holder()
    for _ in range(2):
        _sample(eyes)
    assert eyes.procfs.ops("watch") == [{"devices": [[195, 0], [195, 1]]}]
    eyes.procfs.pid = 903
    _sample(eyes)
    assert len(eyes.procfs.ops("watch")) == 2


def test_devices_are_told_again_when_they_change_or_were_not_heard() -> None:
    """Shared nodes count too; an unanswered question is repeated."""
    eyes = _eyes_with_a_holder()
    eyes.procfs.answers["watch"] = Silent("busy", MONO)
    _sample(eyes)
    eyes.procfs.answers["watch"] = answered({})
    _sample(eyes)
    eyes.nvml.answers["host"] = a_host(a_gpu(), shared_devices=(DeviceNumber(195, 255),))
    _sample(eyes)
    told = [args["devices"] for args in eyes.procfs.ops("watch")]
    assert told == [[[195, 0], [195, 1]], [[195, 0], [195, 1]], [[195, 0], [195, 255]]]


def test_a_worker_that_knows_no_devices_makes_no_search_and_shows_nobody_free() -> None:
    """Busy with somebody else's question it was not told of them: it would find nobody anywhere."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.procfs.pid = 903
    eyes.procfs.answers["watch"] = Silent("the procfs worker is busy", MONO)
    eyes.procfs.looks[_PID] = _look(a_process(_PID))
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0), a_gpu(GPU_B))
    searches = len(eyes.procfs.ops("scan"))
    snapshot = _sample(eyes, Look(full_scan=True))
    assert len(eyes.procfs.ops("scan")) == searches
    assert not snapshot.scan.full_now
    assert snapshot.scan.skipped == (f"full scan: {NOT_TOLD}",)
    assert [(holder.ref, holder.remembered) for holder in snapshot.holders] == [(_REF, True)]


# --- whom it looks at ------------------------------------------------------------------------------


def test_holders_and_whoever_is_asked_about_are_looked_at_and_their_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A child of a known holder may hold what it inherited."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    monkeypatch.setattr(sampler_module, "read_children", lambda pid: (pid + 1,) if pid == _PID else ())
    _sample(eyes, Look(watch=(a_ref(_PID + 5),), pids=(_PID + 6,)))
    assert eyes.procfs.looked_at[-1] == [_PID, _PID + 1, _PID + 5, _PID + 6]


def test_every_task_is_read_where_it_matters_and_now_and_then_everywhere() -> None:
    """Healthy holders by their leader; the watched, the asked for and the leaving whole; all every 30 s."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    _sample(eyes)
    _sample(eyes, Look(watch=(_REF,)))
    eyes.procfs.looks[_PID] = _look(a_process(_PID, tasks=(a_task(_PID, "D", PF_EXITING),)))
    _sample(eyes)
    _sample(eyes)
    eyes.procfs.looks[_PID] = _look(a_process(_PID), _A)
    _sample(eyes)
    eyes.hands.now = MONO + WHOLE_EVERY_SECONDS
    _sample(eyes)
    assert eyes.procfs.whole == [[_PID], [], [_PID], [], [_PID], [_PID], [_PID]]
    _sample(eyes, Look(full_scan=True))
    assert eyes.procfs.whole[-1] == [_PID]


def test_our_own_nvml_worker_is_no_holder() -> None:
    """It has the nodes open, and is closed before a reset."""
    eyes = Eyes(_look(a_process(901), _A))
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0))
    eyes.procfs.answers["scan"] = a_scan(ScanRow(901, 1, (NodeHolding(_A),)))
    assert _sample(eyes).holders == ()


def test_one_that_can_not_be_read_is_named_and_still_holds() -> None:
    """Hands off, and the reason is shown."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.procfs.looks[_PID] = UnreadableProcess("it made the worker hang")
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0), a_gpu(GPU_B))
    snapshot = _sample(eyes)
    assert snapshot.unreadable == {_PID: "it made the worker hang"}
    assert [(holder.ref, holder.remembered) for holder in snapshot.holders] == [(_REF, True)]
    assert snapshot.exited == frozenset()


def test_a_holder_in_its_exit_path_that_shows_nothing_still_holds() -> None:
    """From our memory of it while it was healthy."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.procfs.looks[_PID] = _look(a_process(_PID, tasks=(a_task(_PID, "S", PF_EXITING),)))
    eyes.nvml.answers["host"] = a_host(a_gpu(used=8 * GIB), a_gpu(GPU_B))
    (holder,) = _sample(eyes).holders
    assert (holder.ref, holder.remembered, holder.listed) == (_REF, True, False)
    assert holder.used_bytes == Unreadable(f"it held {8 * GIB} bytes when last seen healthy")


# --- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "after",
    [None, _look(a_process(_PID, tasks=(a_task(_PID, "Z"),))), _look(a_process(_PID, start=77))],
    ids=["gone", "all tasks dead", "a stranger has its pid"],
)
def test_an_end_that_the_look_itself_shows_counts_from_the_next_look(after: ProcessLook | None) -> None:
    """NVML was asked before: its figures are of a time when the process may have lived."""
    eyes = _eyes_with_a_holder()
    _sample(eyes, Look(watch=(_REF,)))
    if after is None:
        del eyes.procfs.looks[_PID]
    else:
        eyes.procfs.looks[_PID] = after
    eyes.hands.now += 1
    assert _sample(eyes, Look(watch=(_REF,))).exited == frozenset()
    eyes.hands.now += 1
    assert _sample(eyes, Look(watch=(_REF,))).exited == {_REF}
    eyes.hands.now += 1
    assert _sample(eyes, Look(watch=(_REF,))).exited == {_REF}


def test_a_late_answer_of_the_driver_proves_nothing_of_an_end_after_its_question() -> None:
    """The pidfd was readable before this look, but the figures are older still."""
    eyes = _eyes_with_a_holder()
    eyes.exits.ended.add(_REF)
    host = eyes.nvml.answers["host"]
    assert isinstance(host, Answered)
    eyes.nvml.answers["host"] = replace(host, sent_at=MONO - 3)
    assert _sample(eyes, Look(watch=(_REF,))).exited == frozenset()
    eyes.nvml.answers["host"] = host
    assert _sample(eyes, Look(watch=(_REF,))).exited == {_REF}


def test_an_end_is_known_while_the_driver_is_silent() -> None:
    """There is no figure that could be older."""
    eyes = _eyes_with_a_holder()
    _sample(eyes, Look(watch=(_REF,)))
    eyes.exits.ended.add(_REF)
    eyes.nvml.answers["host"] = Silent("silent", MONO)
    eyes.hands.now += 1
    assert _sample(eyes, Look(watch=(_REF,))).exited == {_REF}


def test_an_end_that_nobody_asks_about_is_forgotten() -> None:
    """What is kept is bounded by who is watched."""
    eyes = _eyes_with_a_holder()
    _sample(eyes, Look(watch=(_REF,)))
    del eyes.procfs.looks[_PID]
    eyes.nvml.answers["host"] = a_host(a_gpu(used=0))
    for _ in range(2):
        eyes.hands.now += 1
        snapshot = _sample(eyes)
    assert snapshot.exited == frozenset()
    assert eyes.sampler._past.gone_at == {}


# --- memory across looks and restarts --------------------------------------------------------------


def test_a_baseline_is_learnt_only_where_nobody_holds_and_survives_in_the_snapshot() -> None:
    """GPU B is idle, GPU A is not; after its holder's end A gets none: memory may have been left."""
    eyes = _eyes_with_a_holder()
    assert _sample(eyes).baselines == {GPU_B: 5}
    del eyes.procfs.looks[_PID]
    eyes.nvml.answers["host"] = a_host(a_gpu(used=8 * GIB), a_gpu(GPU_B, used=5))
    assert _sample(eyes).baselines == {GPU_B: 5}


def test_no_baseline_is_begun_while_a_target_is_watched() -> None:
    """A restart in the middle of an incident must not take the target's memory for the driver's."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = a_host(a_gpu(used=8 * GIB))
    assert _sample(eyes, Look(watch=(_REF,))).baselines == {}


def test_no_baseline_is_begun_before_the_host_was_searched() -> None:
    """Somebody whom nobody lists may hold it."""
    eyes = Eyes()
    eyes.nvml.answers["host"] = a_host(a_gpu(used=8 * GIB))
    eyes.procfs.answers["scan"] = Silent("busy", MONO)
    assert _sample(eyes).baselines == {}


def test_what_was_stored_is_recalled_of_this_boot_only() -> None:
    """Another boot's pids and figures mean nothing."""
    eyes = Eyes()
    ours = RememberedHolder(_REF, GPU_A, 1000, "/x", (), 5)
    theirs = RememberedHolder(ProcessRef("another-boot", _PID, 1), GPU_A, 1000, "/x", (), 5)
    key = f"{BOOT}/595"
    eyes.sampler.recall((ours, theirs), (Baseline(GPU_A, key, 7), Baseline(GPU_B, "another-boot/595", 9)))
    assert eyes.sampler.memory() == ((ours,), (Baseline(GPU_A, key, 7),))


def test_a_recalled_holder_that_exits_still_holds() -> None:
    """Our own restart in between costs nothing."""
    eyes = Eyes(_look(a_process(_PID, tasks=(a_task(_PID, "D", PF_EXITING),))))
    eyes.nvml.answers["host"] = a_host(a_gpu(used=8 * GIB))
    eyes.sampler.recall((RememberedHolder(_REF, GPU_A, 1000, "/x", (), 8 * GIB),), ())
    snapshot = _sample(eyes)
    assert [(holder.ref, holder.remembered) for holder in snapshot.holders] == [(_REF, True)]
    assert snapshot.baselines == {}


def test_program_files_are_read_now_and_then_and_kept_when_the_worker_is_silent() -> None:
    """A protection must not vanish because a worker is busy."""
    eyes = _eyes_with_a_holder()
    files = {FileIdentity(1, 7): "/usr/bin/python3"}
    assert _sample(eyes).host_files == files
    _sample(eyes)
    assert len(eyes.procfs.ops("host_files")) == 1
    eyes.hands.now += HOST_FILES_EVERY_SECONDS
    eyes.procfs.answers["host_files"] = Silent("busy", MONO)
    assert _sample(eyes).host_files == files
    _sample(eyes)
    assert len(eyes.procfs.ops("host_files")) == 3


def test_children_of_a_process_that_is_gone_are_none() -> None:
    """It ended between two reads."""
    assert read_children(_PID) == ()
    assert Path(f"/proc/{_PID}").exists() is False


# --- before a reset --------------------------------------------------------------------------------


class _ResetEyes:
    """Notes what it was asked to look at, and when in the pass."""

    def __init__(self, eyes: Eyes) -> None:
        self.eyes = eyes
        self.scopes: list[Scope] = []
        self.scans_before: list[int] = []

    async def read(self, now: float, scope: Scope) -> ResetFacts:
        """Return facts without anything in them."""
        self.scopes.append(scope)
        self.scans_before.append(len(self.eyes.procfs.ops("scan")))
        return ResetFacts(now, Known(()), Unreadable("x"), Unreadable("y"))


def _with_reset_eyes(eyes: Eyes) -> _ResetEyes:
    reset_eyes = _ResetEyes(eyes)
    eyes.sampler.use_reset_eyes(cast("ResetEyes", reset_eyes))
    return reset_eyes


def test_what_a_reset_needs_is_read_only_when_asked_for() -> None:
    """An ordinary look has none; one for a reset has it, of every GPU and node, and before the search."""
    eyes = _eyes_with_a_holder()
    assert _sample(eyes, Look(reset=True)).reset_facts is None  # nobody to read them
    reset_eyes = _with_reset_eyes(eyes)
    assert _sample(eyes).reset_facts is None
    shared = DeviceNumber(195, 255)
    gpus = (a_gpu(processes=(a_row(_PID),)), a_gpu(GPU_B))
    eyes.nvml.answers["host"] = a_host(*gpus, shared_devices=(shared,), simulated_root=7)
    before = len(eyes.procfs.ops("scan"))
    snapshot = _sample(eyes, Look(reset=True, full_scan=True))
    assert snapshot.reset_facts == ResetFacts(MONO, Known(()), Unreadable("x"), Unreadable("y"))
    assert reset_eyes.scopes == [
        Scope(
            addresses=tuple(gpu.pci_address for gpu in gpus),
            devices=(*(gpu.device for gpu in gpus), shared),
            simulated_root=7,
        )
    ]
    assert reset_eyes.scans_before == [before]
    assert len(eyes.procfs.ops("scan")) == before + 1


@pytest.mark.parametrize("flags", [0, PF_EXITING], ids=["waits", "leaves"])
def test_before_a_reset_the_kernel_is_asked_about_whoever_waits_or_leaves(flags: int) -> None:
    """On whatever GPU: the driver's locks are of all, and the look before may have been another's."""
    eyes = _eyes_with_a_holder()
    other = _PID + 1
    state = "R" if flags else "D"
    eyes.procfs.looks[other] = _look(a_process(other), DeviceNumber(195, 1))
    eyes.nvml.answers["host"] = a_host(
        a_gpu(processes=(a_row(_PID),)), a_gpu(GPU_B, processes=(a_row(other),))
    )
    look = KernelLook(
        a_ref(other), 1, "python", tasks=(), task_count=2, dumping_core=False, tracer_pid=0,
        ns_pids=(other,), resident_bytes=0, frozen=Known(value=False), freezer="", written_bytes=Known(0),
        cgroup_bytes=Known(0), at=MONO,
    )  # fmt: skip
    eyes.procfs.answers["kernel"] = answered({"pid": other, "kernel": to_wire(look)})
    _sample(eyes)
    eyes.procfs.looks[other] = _look(a_process(other, tasks=(a_task(other), a_task(other + 1, state, flags))))
    assert _sample(eyes, Look(full_scan=True)).kernel == {}
    snapshot = _sample(eyes, Look(reset=True, full_scan=True, without_driver=True))
    assert [args["pids"] for args in eyes.procfs.ops("kernel")] == [[other]]
    assert snapshot.kernel == {other: look}


@pytest.mark.parametrize(
    "end",
    [Gone(), _look(a_process(_PID, tasks=(a_task(_PID, "Z", PF_EXITING),)))],
    ids=["reaped", "zombie"],
)
def test_the_kernel_is_not_asked_about_who_is_gone(end: LookAnswer) -> None:
    """The proof of its end waits for no reader's modules; who lives is asked about in the same look."""
    eyes, other = _eyes_with_a_holder(), _PID + 1
    eyes.procfs.looks[other] = _look(a_process(other), _A)
    watch = (a_ref(_PID), a_ref(other))
    _sample(eyes, Look(watch=watch))
    eyes.procfs.looks[_PID] = end
    _sample(eyes, Look(watch=watch, kernel=(_PID, other)))
    assert [args["pids"] for args in eyes.procfs.ops("kernel")] == [[other]]


def test_a_look_without_the_driver_asks_nvml_nothing_and_searches_all_the_same() -> None:
    """GPUs by identity alone, the driver unknown and why; holders by their nodes; the scope says so."""
    eyes = _eyes_with_a_holder()
    reset_eyes = _with_reset_eyes(eyes)
    seen = _sample(eyes).gpus
    asked = len(eyes.nvml.asked)
    eyes.procfs.answers["scan"] = a_scan(ScanRow(_PID, 1, (NodeHolding(_A),)))
    snapshot = _sample(eyes, Look(without_driver=True, reset=True, full_scan=True))
    assert len(eyes.nvml.asked) == asked
    assert (snapshot.driver.state, snapshot.driver.why) == (DriverState.UNKNOWN, CLOSED_WHY)
    assert snapshot.driver.version == Known("595.45.04")
    assert snapshot.gpus == tuple(unreadable_gpu(gpu, CLOSED_WHY) for gpu in seen)
    assert snapshot.scan.full_now
    assert [(holder.ref, holder.gpu, holder.node) for holder in snapshot.holders] == [(_REF, GPU_A, True)]
    assert reset_eyes.scopes[0].without_driver
    assert reset_eyes.scopes[0].addresses == tuple(gpu.pci_address for gpu in seen)


def test_a_probe_that_is_closed_for_a_reset_is_no_silent_driver() -> None:
    """An ordinary pass meanwhile: unknown, our own doing, and never a reason for a drain."""
    eyes = _eyes_with_a_holder()
    _sample(eyes)
    eyes.nvml.answers["host"] = Silent(CLOSED_WHY, MONO, cause=SilentCause.CLOSED)
    snapshot = _sample(eyes)
    assert (snapshot.driver.state, snapshot.driver.why) == (DriverState.UNKNOWN, CLOSED_WHY)
