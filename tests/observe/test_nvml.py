"""RealNvml over a fake driver library: each quirk of NVML is a reading, never a lie."""

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import (
    ContextKind,
    GpuProcess,
)
from reclaimerd.observe import nvml_quirks as quirks
from reclaimerd.observe.nvml_nodes import read_shared_devices
from tests.rigs.fake_libnvml import FakeDriver, build_fake_libnvml, why_unavailable

needs_gcc = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "gcc is there")
Start = Callable[..., FakeDriver]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the whole fake library."""
    return build_fake_libnvml(tmp_path_factory.mktemp("lib"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Give a starter of children, and end them."""
    started: list[FakeDriver] = []

    def begin(library: Path | None, **state: object) -> FakeDriver:
        driver = FakeDriver.start(tmp_path, library)
        started.append(driver)
        driver.set(**state)
        return driver

    yield begin
    for driver in started:
        driver.stop()


def known(value: object) -> dict[str, object]:
    """Return a known reading as plain values."""
    return {"value": value, "kind": "known"}


def unreadable(why: str) -> dict[str, object]:
    """Return an unreadable reading as plain values."""
    return {"why": why, "kind": "unreadable"}


def absent(why: str) -> dict[str, object]:
    """Return an absent reading as plain values."""
    return {"why": why, "kind": "absent"}


def only(host: dict[str, Any]) -> dict[str, Any]:
    """Return the one GPU of a host."""
    assert len(host["gpus"]) == 1, host
    gpu: dict[str, Any] = host["gpus"][0]
    return gpu


@needs_gcc
@pytest.mark.process
def test_a_healthy_gpu_is_read_whole(library: Path, start: Start) -> None:
    """Identity, memory v2, processes, modes and recovery action come through, in our units."""
    driver = start(
        library, gpu0_used=300, gpu0_compute="70:200", gpu0_graphics="71:50", gpu0_field=1, gpu0_minor=4
    )
    host = driver.read()
    gpu = only(host)
    assert (gpu["uuid"], gpu["index"], gpu["minor"], gpu["pci_address"]) == ("GPU-0", 0, 4, "0000:3b:00.0")
    assert gpu["device"] == {"major": 195, "minor": 4}
    assert gpu["memory"] == known({"total_bytes": 1000, "used_bytes": 300, "reserved_bytes": 10})
    rows = gpu["processes"]["value"]
    assert [(row["pid"], row["used_bytes"], row["context"]) for row in rows] == [
        (70, known(200), "compute"),
        (71, known(50), "graphics"),
    ]
    assert rows[0]["gpu_instance"] is None
    assert gpu["utilisation"] == known({"gpu_percent": 42, "memory_percent": 7})
    assert (gpu["mig"], gpu["persistence"], gpu["recovery_action"]) == (
        known(False),
        known(True),
        known("gpu_reset"),
    )
    assert host["driver_version"] == "595.45.04"
    assert {"major": 195, "minor": 255} in host["shared_devices"]
    assert {"major": 507, "minor": 1} in host["shared_devices"]
    assert "errorstring" not in driver.log()


@needs_gcc
@pytest.mark.process
def test_memory_of_a_process_that_is_not_available_is_never_zero(library: Path, start: Start) -> None:
    """All-ones usedGpuMemory is unreadable, and the row stays."""
    gpu = only(start(library, gpu0_compute="70:-1").read())
    assert gpu["processes"]["value"][0]["used_bytes"] == unreadable("not available")


@needs_gcc
@pytest.mark.process
def test_a_process_in_two_lists_counts_once(library: Path, start: Start) -> None:
    """The driver's figure is per pid, so compute and graphics rows of one pid are one row."""
    gpu = only(start(library, gpu0_compute="70:200", gpu0_graphics="70:210,71:5").read())
    rows = [(row["pid"], row["used_bytes"], row["context"]) for row in gpu["processes"]["value"]]
    assert rows == [(70, known(210), "compute"), (71, known(5), "graphics")]


@needs_gcc
@pytest.mark.process
@pytest.mark.parametrize(
    ("state", "field", "expected"),
    [
        ({"gpu0_memory": 4}, "memory", unreadable("no permission")),
        ({"gpu0_memory": 25}, "memory", absent("the library does not know this version of the call")),
        ({"gpu0_used": -1}, "memory", unreadable("not available")),
        ({"gpu0_compute_code": 4}, "processes", unreadable("compute processes: no permission")),
        ({"gpu0_graphics_code": 999}, "processes", unreadable("graphics processes: unknown error")),
        ({"gpu0_mps_code": 3}, "processes", known([])),
        ({"gpu0_compute_code": 3}, "processes", absent("not supported")),
        ({"gpu0_compute": "0:5"}, "processes", unreadable("a listed process has no pid in our namespace")),
        ({"gpu0_utilisation_code": 3}, "utilisation", absent("not supported")),
        ({"gpu0_mig": 1}, "utilisation", absent("not offered while MIG is enabled")),
        ({"gpu0_mig": 1}, "mig", known(True)),
        ({"gpu0_mig_code": 3}, "mig", absent("not supported")),
        ({"gpu0_mig_code": 4}, "mig", unreadable("no permission")),
        ({"gpu0_persistence_code": 999}, "persistence", unreadable("unknown error")),
        ({"gpu0_field_code": 3}, "recovery_action", absent("not supported")),
        ({"gpu0_field_call": 3}, "recovery_action", absent("not supported")),
        ({"gpu0_field_code": 15}, "recovery_action", unreadable("GPU is lost")),
        ({"gpu0_field": 4}, "recovery_action", known("drain_and_reset")),
        ({"gpu0_field": 7}, "recovery_action", known("system_reboot")),
        ({"gpu0_field": 99}, "recovery_action", known("unknown")),
        ({"gpu0_field": 1, "gpu0_field_type": 3}, "recovery_action", known("gpu_reset")),
        (
            {"gpu0_field_type": 77},
            "recovery_action",
            unreadable("the recovery action has the unknown value type 77"),
        ),
    ],
)
def test_a_failed_call_is_one_reading_of_that_gpu(
    library: Path,
    start: Start,
    state: dict[str, object],
    field: str,
    expected: dict[str, object],
) -> None:
    """One call's error changes one field (MIG two), and the rest is read."""
    gpu = only(start(library, **state).read())
    assert gpu[field] == expected
    touched = {field, "utilisation"} if "gpu0_mig" in state else {field}
    names = {"memory", "processes", "utilisation", "mig", "persistence", "recovery_action"}
    assert {gpu[name]["kind"] for name in names - touched} == {"known"}


@needs_gcc
@pytest.mark.process
def test_mig_instances_of_one_pid_stay_apart(library: Path, start: Start) -> None:
    """A pid on two instances has a row for each, with the instance ids."""
    gpu = only(start(library, gpu0_mig=1, gpu0_compute="70:200:1:0,70:100:2:0").read())
    rows = [
        (row["gpu_instance"], row["compute_instance"], row["used_bytes"]) for row in gpu["processes"]["value"]
    ]
    assert rows == [(1, 0, known(200)), (2, 0, known(100))]


@needs_gcc
@pytest.mark.process
def test_a_lost_gpu_keeps_its_identity_and_hides_nobody(library: Path, start: Start) -> None:
    """After one good read a GPU without a handle stays, unreadable; the other is read as before."""
    driver = start(library, count=2, gpu0_compute="70:1", gpu1_compute="71:2")
    driver.read()
    driver.set(count=2, gpu0_handle=15, gpu1_compute="71:2")
    host = driver.read()
    by_uuid = {gpu["uuid"]: gpu for gpu in host["gpus"]}
    assert set(by_uuid) == {"GPU-0", "GPU-1"}
    lost = by_uuid["GPU-0"]
    assert lost["pci_address"] == "0000:3b:00.0"
    assert {lost[name]["why"] for name in ("memory", "processes", "mig", "recovery_action")} == {
        "GPU is lost"
    }
    assert by_uuid["GPU-1"]["processes"]["value"][0]["pid"] == 71
    assert host["failures"] == []


@needs_gcc
@pytest.mark.process
def test_a_gpu_that_was_never_known_is_a_failure_not_nothing(library: Path, start: Start) -> None:
    """Without an earlier read the lost GPU is a sentence in `failures`, and the other is read."""
    host = start(library, count=2, gpu0_handle=15).read()
    assert [gpu["uuid"] for gpu in host["gpus"]] == ["GPU-1"]
    assert host["failures"] == ["GPU 0: identity could not be read: GPU is lost"]


@needs_gcc
@pytest.mark.process
def test_a_gpu_that_drops_out_of_the_count_is_remembered(library: Path, start: Start) -> None:
    """Indices move up when a GPU falls off; it stays as unreadable, however often we read."""
    driver = start(library, count=2)
    driver.read()
    driver.set(count=1, gpu0_uuid="GPU-1")
    for _ in range(3):
        by_uuid = {gpu["uuid"]: gpu for gpu in driver.read()["gpus"]}
        assert by_uuid["GPU-0"]["memory"] == unreadable("the driver no longer lists this GPU")
        assert by_uuid["GPU-1"]["memory"]["kind"] == "known"


@needs_gcc
@pytest.mark.process
@pytest.mark.parametrize(
    ("define", "field", "expected"),
    [
        ("NO_MEMORY_V2", "memory", absent("the library lacks this call")),
        ("NO_FIELDS", "recovery_action", absent("the library lacks this call")),
        ("NO_COMPUTE_V3", "processes", unreadable("compute processes: the library lacks this call")),
    ],
)
def test_an_old_library_lacks_calls(
    tmp_path: Path,
    start: Start,
    define: str,
    field: str,
    expected: dict[str, object],
) -> None:
    """What the vendor does not offer is absent; a process list that can't be asked for is unreadable."""
    folder = tmp_path / "old"
    folder.mkdir()
    assert only(start(build_fake_libnvml(folder, [define])).read())[field] == expected


@needs_gcc
@pytest.mark.process
@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        ({"init": 9}, "DriverAbsentError", "no NVIDIA driver"),
        ({"init": 4}, "UnsuitableHostError", "no permission"),
        ({"init": 999}, "ReclaimerdError", "unknown error"),
        ({"init": 18}, "ReclaimerdError", "different versions"),
        ({"driver": "535.104.05"}, "UnsuitableHostError", "older than 535.113"),
        ({"driver": "470.256.02"}, "UnsuitableHostError", "older than 535.113"),
        ({"driver": "beta"}, "UnsuitableHostError", "not understood"),
        ({"driver_code": 999}, "ReclaimerdError", "driver version"),
    ],
)
def test_a_host_that_does_not_serve_is_refused_with_its_mend(
    library: Path,
    start: Start,
    state: dict[str, object],
    error: str,
    text: str,
) -> None:
    """Each has its own class, a sentence and a mend; and the next good read works."""
    driver = start(library, **state)
    answer = driver.read()
    assert answer["error"] == error
    assert text in answer["text"]
    assert answer["mend"]
    driver.set()
    assert only(driver.read())["uuid"] == "GPU-0"


@needs_gcc
@pytest.mark.process
def test_the_oldest_driver_is_good_enough(library: Path, start: Start) -> None:
    """535.113 itself is accepted."""
    assert start(library, driver="535.113.01").read()["driver_version"] == "535.113.01"


@pytest.mark.process
def test_no_library_is_no_driver(start: Start) -> None:
    """Without libnvidia-ml.so.1 there is nothing to watch, and no fault."""
    answer = start(None).read()
    assert answer["error"] == "DriverAbsentError"
    assert "no NVIDIA driver" in answer["text"]


@needs_gcc
@pytest.mark.process
def test_nvml_stays_open_only_with_persistence_on(library: Path, start: Start) -> None:
    """Persistence on: one init for all reads. Off on one GPU: each read attaches and lets go."""
    driver = start(library, count=2)
    driver.read()
    driver.read()
    assert driver.log() == ["init"]
    driver.set(count=2, gpu1_persistence=0)
    driver.read()
    driver.read()
    assert driver.log() == ["init", "shutdown", "init", "shutdown"]


@needs_gcc
@pytest.mark.process
def test_close_lets_go_and_the_next_read_attaches(library: Path, start: Start) -> None:
    """Close shuts NVML down once, and forgets no GPU."""
    driver = start(library)
    driver.read()
    driver.close()
    driver.close()
    assert driver.log() == ["init", "shutdown"]
    driver.set(gpu0_handle=15)
    assert only(driver.read())["uuid"] == "GPU-0"


@needs_gcc
@pytest.mark.process
@pytest.mark.parametrize("code", [1, 18])
def test_a_stale_connection_is_made_anew_once(library: Path, start: Start, code: int) -> None:
    """A version mismatch or lost initialisation shuts down, starts again and reads."""
    driver = start(library, stale_until_init=2, stale_code=code)
    assert only(driver.read())["uuid"] == "GPU-0"
    assert driver.log() == ["init", "shutdown", "init"]


@needs_gcc
@pytest.mark.process
def test_a_connection_that_stays_stale_is_an_error(library: Path, start: Start) -> None:
    """The second failure is not tried again, and no GPU is blamed."""
    driver = start(library, stale_until_init=9)
    assert driver.read()["error"] == "ReclaimerdError"
    assert driver.log() == ["init", "shutdown", "init", "shutdown"]


def test_another_package_is_refused(tmp_path: Path) -> None:
    """A module from elsewhere, or one without the calls we need, is named in the fault."""
    module = types.ModuleType("pynvml")
    module.__file__ = str(tmp_path / "pynvml" / "__init__.py")
    assert "not from the package nvidia-ml-py" in quirks.package_fault(module, tmp_path / "pynvml.py")
    module.__file__ = str(tmp_path / "pynvml.py")
    assert "nvmlMemory_v2" in quirks.package_fault(module, tmp_path / "pynvml.py")
    assert quirks.load_pynvml().__name__ == "pynvml"


def test_an_error_without_a_number_is_still_a_reading() -> None:
    """NVMLLibraryMismatchError is no NVMLError, and comparing one with `==` raises: neither escapes."""
    module = quirks.load_pynvml()

    def mismatch() -> int:
        raise module.NVMLLibraryMismatchError("never shown")

    def strange() -> int:
        raise module.NVMLError(4242)

    assert quirks.reading_of(module, mismatch) == Unreadable("nvidia-ml-py: NVMLLibraryMismatchError")
    assert quirks.reading_of(module, strange) == Unreadable("NVML error 4242")


def test_lists_merge_without_losing_the_unknown() -> None:
    """A known figure wins over an unreadable one of the same process; alone it stays unreadable."""
    rows = (GpuProcess(7, Unreadable("not available"), ContextKind.COMPUTE),)
    graphics = (GpuProcess(7, Known(0), ContextKind.GRAPHICS),)
    merged = quirks.merged_lists({ContextKind.COMPUTE: Known(rows), ContextKind.GRAPHICS: Known(graphics)})
    assert merged == Known((GpuProcess(7, Known(0), ContextKind.COMPUTE),))
    alone = quirks.merged_lists(
        {ContextKind.COMPUTE: Known(rows), ContextKind.GRAPHICS: Absent("not supported")}
    )
    assert alone == Known(rows)


def test_bus_ids_read_as_the_kernel_writes_them() -> None:
    """Eight hex digits of domain become four, or more where there are more."""
    assert quirks.pci_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert quirks.pci_address(b"00010003:AF:00.0") == "10003:af:00.0"


def test_shared_nodes_without_uvm_are_nvidiactl_alone(tmp_path: Path) -> None:
    """A module that is not loaded has no major, and block devices of that number don't count."""
    devices = tmp_path / "devices"
    devices.write_text("Character devices:\n195 nvidia\n\nBlock devices:\n  8 nvidia-uvm\n")
    assert [str(number) for number in read_shared_devices(devices, tmp_path)] == [
        "DeviceNumber(major=195, minor=255)"
    ]
