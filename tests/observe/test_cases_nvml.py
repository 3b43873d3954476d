"""Public incidents by their numbers, of NVML itself: rows that can't be true, no samples, no driver."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from reclaimerd.daemon.worker import command_for
from reclaimerd.host.gpu_shares import with_shares
from reclaimerd.judge.reset_gate import reset_reasons
from reclaimerd.model.policy import WorkerSettings
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import DriverState, Snapshot, Utilisation
from reclaimerd.model.step import ReasonKind
from reclaimerd.observe.exits import ExitWatch
from reclaimerd.observe.nvml_samples import FIRST_SECONDS, read_samples
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.sampler import Sampler, SamplerSettings
from tests.builders import BOOT, GIB, a_row
from tests.judge.reset_builders import asking
from tests.rigs.fake_libnvml import DEVICES, FakeDriver, build_fake_libnvml, why_unavailable

needs_gcc = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "gcc is there")
V100_BYTES = 16945512448
FIRST_ROW = "9980:6498025472"


@contextmanager
def fake_driver(folder: Path) -> Iterator[Callable[..., dict[str, Any]]]:
    """Give a reader of one GPU over the fake library, as it is told to answer."""
    driver = FakeDriver.start(folder, build_fake_libnvml(folder))

    def read(**state: object) -> dict[str, Any]:
        driver.set(**state)
        (gpu,) = driver.read()["gpus"]
        return dict(gpu)

    try:
        yield read
    finally:
        driver.stop()


@needs_gcc
@pytest.mark.process
def test_c74_rows_of_another_size_make_the_whole_list_unreadable(tmp_path: Path) -> None:
    """C74: rows of 16 and of 32 bytes read as 24: not one of them is believed, all else is read."""
    whole = {"gpu0_total": V100_BYTES, "gpu0_used": 13019119616}
    with fake_driver(tmp_path) as read:
        for rows, why in (
            (f"{FIRST_ROW}:10121:0,2226126848:0:0:0", "pid 9980 is on an instance 10121"),
            (f"{FIRST_ROW},2226126848:0", "no process has pid 2226126848"),
            (f"{FIRST_ROW},1:10121", "no process has pid 1"),
            (f"{FIRST_ROW},10121:{V100_BYTES + 1}", f"pid 10121 has {V100_BYTES + 1} bytes"),
            (f"{FIRST_ROW},10121:6498025472,10122:6498025472", "its processes have"),
            (f"{FIRST_ROW},0:10121:2226126848:1", "no pid in our namespace"),
        ):
            gpu = read(**whole, gpu0_compute=rows)
            assert gpu["processes"]["kind"] == "unreadable", rows
            assert why in gpu["processes"]["why"]
            assert gpu["memory"]["kind"] == gpu["mig"]["kind"] == "known"
        good = read(**whole, gpu0_compute=f"{FIRST_ROW},10121:6521094144")
        assert [row["pid"] for row in good["processes"]["value"]] == [9980, 10121]
        assert read(gpu0_memory=999, gpu0_compute=FIRST_ROW)["processes"]["kind"] == "known"


class FakeError(Exception):
    """An error of NVML."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def samples_from(*answers: int | list[SimpleNamespace]) -> tuple[object, list[int]]:
    """Return what is made of these answers, one for each call, and since when it was asked."""
    left, asked = list(answers), []

    def ask(_handle: object, since: int) -> list[SimpleNamespace]:
        asked.append(since)
        answer = left.pop(0)
        if isinstance(answer, int):
            raise FakeError(answer)
        return answer

    names = {"NVMLError": FakeError, "NVMLLibraryMismatchError": FakeError}
    module = SimpleNamespace(nvmlDeviceGetProcessUtilization=ask, **names)
    return read_samples(cast("ModuleType", module), object(), Known(value=False), FIRST_SECONDS), asked


def test_c75_no_samples_are_no_error_and_no_proof_of_an_idle_process() -> None:
    """C75: NotFound is the answer of an idle GPU; on a busy one it says nothing of the listed process."""
    found, _ = samples_from(6)
    assert found == Known({})
    rows = Known((a_row(28128, GIB),))
    (idle,) = cast("Any", with_shares(rows, Known({}), Known(Utilisation(0, 0)))).value
    (busy,) = cast("Any", with_shares(rows, Known({}), Known(Utilisation(42, 0)))).value
    assert idle.sm_percent == Known(0)
    assert isinstance(busy.sm_percent, Unreadable)


def test_c75_a_list_that_grew_is_read_once_more_and_stops_nobody() -> None:
    """C75: Insufficient Size twice is unreadable, an answer at the second time is an answer."""
    assert isinstance(samples_from(7, 7)[0], Unreadable)
    now = int(time.time() * 1_000_000)
    assert samples_from(7, [SimpleNamespace(pid=5, smUtil=3, timeStamp=now)])[0] == Known({5: 3})
    assert samples_from(3)[0] == Absent("not supported")


def test_c75_time_is_in_microseconds_and_old_samples_say_nothing() -> None:
    """C75: what each process did has its own age; one from before the window is none."""
    now = int(time.time() * 1_000_000)
    rows = [
        SimpleNamespace(pid=28128, smUtil=5, timeStamp=now - 700_000),
        SimpleNamespace(pid=28084, smUtil=3, timeStamp=now - 8_100_000),
        SimpleNamespace(pid=27989, smUtil=9, timeStamp=now - 60_000_000),
    ]
    found, (since,) = samples_from(rows)
    assert found == Known({28128: 5, 28084: 3})
    assert abs(since - (now - FIRST_SECONDS * 1_000_000)) < 5_000_000


@contextmanager
def real_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let our own nvml worker load the fake library, and give the file that it answers from."""
    library = build_fake_libnvml(folder)
    for name in ("state", "log"):
        (folder / name).write_text("")
    (folder / "devices").write_text(DEVICES)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("FAKE_NVML_STATE", str(folder / "state"))
    monkeypatch.setenv("FAKE_NVML_LOG", str(folder / "log"))
    yield folder / "state"


async def looks(state: Path, *answers: str) -> list[tuple[Snapshot, tuple[int, ...]]]:
    """Return a look at each of the driver's answers, and our workers after it; one worker may serve all."""
    patient = WorkerSettings(answer_within_seconds=20, hung_after_seconds=60)
    nvml = Probe("nvml", command_for("nvml"), patient)
    procfs = Probe("procfs", command_for("procfs"), patient)
    exits = ExitWatch(lambda _ref: None)
    sampler = Sampler(nvml, procfs, SamplerSettings(BOOT, ()), exits, (time.monotonic, time.time))
    found = []
    try:
        for answer in answers:
            state.write_text(answer)  # noqa: ASYNC240  # a small file of the test
            found.append((await sampler.sample(Look()), nvml.worker_pids()))
    finally:
        exits.close()
        for probe in (nvml, procfs):
            await probe.close()
    return found


def no_reset(snapshot: Snapshot) -> bool:
    """Tell whether the gate refuses a reset of GPU-0 because the driver can't be asked."""
    reasons = reset_reasons(cast("Any", "GPU-0"), frozenset(), asking(snapshot))
    return ReasonKind.DRIVER_UNRESPONSIVE in {reason.kind for reason in reasons}


@needs_gcc
@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "words"), [(999, "unknown error"), (18, "different versions")], ids=["c80", "c81"]
)
def test_c80_c81_a_driver_that_refuses_everybody_is_unknown_and_never_an_empty_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    """C80, C81: Unknown Error and a version mismatch: said, no figure, no reset, one worker, well when it is.

    GPUs that were known stay, unreadable: their holders are still found by their nodes.
    """
    with real_worker(tmp_path, monkeypatch) as state:
        bad, good = f"init={code}\n", "0.persistence=0\n"  # so that each look connects anew
        found = asyncio.run(looks(state, bad, bad, good, bad, good))
    first, second, well, again, healed = (snapshot for snapshot, _ in found)
    assert len({pids for _, pids in found}) == 1, "no worker ends for it: no crash loop"
    for snapshot in (first, second, again):
        assert snapshot.driver.state is DriverState.UNKNOWN
        assert words in snapshot.driver.why
        assert no_reset(snapshot)
    assert first.gpus == second.gpus == ()
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in well.gpus] == ["GPU-0"]
    assert all(isinstance(one, Unreadable) for one in (again.gpus[0].memory, again.gpus[0].processes))
    assert well.driver.state is healed.driver.state is DriverState.RESPONSIVE
