"""Which UUID is which MIG instance: asked only while MIG is on, and what fails is never guessed."""

from types import SimpleNamespace
from typing import Any, cast

import pynvml
import pytest

from reclaimerd.model.allocation import MigDevice
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe.nvml_mig import read_mig_devices

NOT_FOUND = 6
UNKNOWN_ERROR = 999


def a_module(devices: dict[int, Any], most: int = 7) -> Any:
    """Return pynvml's calls over MIG devices by place; a number in a device's place is NVML's error."""

    def by_index(_handle: object, index: int) -> Any:
        found = devices.get(index, NOT_FOUND)
        if isinstance(found, int):
            raise pynvml.NVMLError(found)
        return found

    return SimpleNamespace(
        NVMLError=pynvml.NVMLError,
        NVMLLibraryMismatchError=pynvml.NVMLLibraryMismatchError,
        nvmlDeviceGetMaxMigDeviceCount=lambda _handle: most,
        nvmlDeviceGetMigDeviceHandleByIndex=by_index,
        nvmlDeviceGetUUID=lambda device: device.uuid,
        nvmlDeviceGetGpuInstanceId=lambda device: device.gpu_instance,
        nvmlDeviceGetComputeInstanceId=lambda device: device.compute_instance,
    )


@pytest.mark.parametrize(
    ("mig", "expected"),
    [
        (Known(value=False), Absent("MIG is off")),
        (Absent("not offered"), Absent("not offered")),
        (Unreadable("driver unresponsive"), Unreadable("driver unresponsive")),
    ],
)
def test_without_mig_nothing_is_asked(mig: Reading[bool], expected: Reading[Any]) -> None:
    """The module is not touched: an empty one would raise."""
    assert read_mig_devices(cast("Any", SimpleNamespace()), None, mig) == expected


def test_each_device_has_its_instances() -> None:
    """Empty places are passed over, and so is one that can't be read: the others are known."""
    one, two = MigDevice("MIG-1", 3, 0), MigDevice("MIG-2", 4, 1)
    module = a_module({0: one, 2: UNKNOWN_ERROR, 5: two})
    assert read_mig_devices(module, None, Known(value=True)) == Known((one, two))


def test_a_senseless_count_is_bounded() -> None:
    """As with figures of a broken driver: at most 64 places are looked at."""
    far = MigDevice("MIG-1", 1, 0)
    module = a_module({64: far}, most=2**31)
    assert read_mig_devices(module, None, Known(value=True)) == Known(())


def test_a_count_that_fails_is_the_reading() -> None:
    """No call, no devices."""
    module = a_module({})

    def fails(_handle: object) -> int:
        raise pynvml.NVMLError(UNKNOWN_ERROR)

    module.nvmlDeviceGetMaxMigDeviceCount = fails
    assert isinstance(read_mig_devices(module, None, Known(value=True)), Unreadable)
