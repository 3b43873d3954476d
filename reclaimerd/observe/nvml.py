"""The one door to pynvml: every GPU of this host as readings.

It runs in a disposable worker, as any call here may block for ever. It changes nothing on a GPU.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

from reclaimerd.errors import DriverAbsentError, ReclaimerdError, UnsuitableHostError
from reclaimerd.model.identity import GpuUuid
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import GpuFacts
from reclaimerd.model.snapshot import (
    GpuReading,
    HostGpus,
    unreadable_gpu,
)
from reclaimerd.observe import nvml_quirks as quirks
from reclaimerd.observe.nvml_gpu import read_gpu, read_with_shares
from reclaimerd.observe.nvml_nodes import read_shared_devices
from reclaimerd.observe.nvml_reset import blind_facts, read_address, read_gpu_facts
from reclaimerd.observe.nvml_samples import sampled_seconds

MEND_DRIVER = "install a driver from 535.113 on"
ReadGpu = Callable[[ModuleType, int], GpuReading | str]
UNLISTED = "the driver no longer lists this GPU"


class RealNvml:
    """NVML of this host, through nvidia-ml-py.

    While every GPU has persistence mode on, NVML stays initialised between reads; else each read
    attaches and lets go again, so that we don't keep a GPU awake.
    """

    def __init__(
        self,
        devices_file: Path = Path("/proc/devices"),
        caps_directory: Path = Path("/dev/nvidia-caps"),
    ) -> None:
        self._devices_file = devices_file
        self._caps_directory = caps_directory
        self._module: ModuleType | None = None
        self._open = False
        self._sampled_at: float | None = None
        self._remembered: dict[GpuUuid, GpuReading] = {}

    def read_host(self, *, utilisation: bool = False) -> HostGpus:
        """Return every GPU; a GPU that was seen before is never left out, only unreadable.

        Raises UnsuitableHostError for a wrong package or driver, DriverAbsentError without a library
        or driver, ReclaimerdError when NVML itself won't work.
        """
        host = self._connected(partial(self._read, self._shares() if utilisation else read_gpu))
        if not host.gpus or not all(gpu.persistence == Known(True) for gpu in host.gpus):
            self.close()
        return host

    def _shares(self) -> ReadGpu:
        """Return what reads a GPU with its shares since the look before that asked for them."""
        now, before = time.monotonic(), self._sampled_at
        self._sampled_at = now
        return partial(read_with_shares, seconds=sampled_seconds(None if before is None else now - before))

    def read_reset_facts(self) -> tuple[GpuFacts, ...]:
        """Return what a reset needs to know of every GPU; one seen before is never left out, only blind.

        Raises as `read_host` does. It leaves NVML as it found it: initialised or let go.
        """
        was_open = self._open
        facts = self._connected(self._read_facts)
        if not was_open:
            self.close()
        return facts

    def _connected(self, read: Callable[[ModuleType], quirks.T]) -> quirks.T:
        """Read, and once more over a new connection where ours turns out to be void."""
        module = self._module = self._module or quirks.load_pynvml()
        try:
            return read(module)
        except quirks.StaleConnectionError:
            self.close()
        try:
            return read(module)
        except quirks.StaleConnectionError as error:
            self.close()
            raise ReclaimerdError(
                f"NVML does not work: {error}",
                "restart reclaimerd, and reload the driver or reboot after a driver upgrade",
            ) from error

    def close(self) -> None:
        """Shut NVML down; what was remembered of the GPUs stays."""
        if self._open and self._module is not None:
            self._open = False
            try:
                self._module.nvmlShutdown()
            except self._module.NVMLError:
                return  # a void connection can't be shut down, and there is nothing more to let go

    def _read_facts(self, module: ModuleType) -> tuple[GpuFacts, ...]:
        _, count = self._begin(module)
        addresses = [read_address(module, index) for index in range(count)]
        known = {gpu.pci_address for gpu in self._remembered.values()}
        known |= {address for address in addresses if address is not None}
        seen: dict[GpuUuid, GpuFacts] = {}
        faults: dict[int, str] = {}
        for index in range(count):
            match read_gpu_facts(module, index, known):
                case GpuFacts() as facts:
                    seen[facts.uuid] = facts
                case str(why):
                    faults[index] = why
        blind = (
            blind_facts(uuid, gpu.pci_address, faults.get(gpu.index, UNLISTED))
            for uuid, gpu in self._remembered.items()
            if uuid not in seen
        )
        return (*seen.values(), *blind)

    def _begin(self, module: ModuleType) -> tuple[str, int]:
        """Return the driver's version and how many GPUs it lists, connected."""
        self._connect(module)
        version = _must(module, module.nvmlSystemGetDriverVersion, "driver version")
        fault = quirks.driver_fault(version)
        if fault:
            self.close()
            raise UnsuitableHostError(fault, MEND_DRIVER)
        return version, _must(module, module.nvmlDeviceGetCount, "number of GPUs")

    def _read(self, read_one: ReadGpu, module: ModuleType) -> HostGpus:
        version, count = self._begin(module)
        seen: dict[int, GpuReading] = {}
        faults: dict[int, str] = {}
        for index in range(count):
            match read_one(module, index):
                case GpuReading() as gpu:
                    seen[index] = gpu
                case str(why):
                    faults[index] = why
        gpus, failures = self._with_remembered(seen, faults)
        self._remembered = {gpu.uuid: gpu for gpu in gpus}
        return HostGpus(
            driver_version=version,
            gpus=gpus,
            shared_devices=read_shared_devices(self._devices_file, self._caps_directory),
            failures=failures,
        )

    def _connect(self, module: ModuleType) -> None:
        if self._open:
            return
        try:
            module.nvmlInitWithFlags(0)
        except module.NVMLError as error:
            raise _init_error(error) from error
        self._open = True

    def _with_remembered(
        self,
        seen: dict[int, GpuReading],
        faults: dict[int, str],
    ) -> tuple[tuple[GpuReading, ...], tuple[str, ...]]:
        """Return the GPUs seen and those known from before, and a sentence for each unknown one.

        A lost GPU has no UUID to ask for; it is the one remembered at its index, unless that one
        answers elsewhere now (indices move).
        """
        answering = {gpu.uuid for gpu in seen.values()}
        silent = [gpu for uuid, gpu in self._remembered.items() if uuid not in answering]
        blind = [unreadable_gpu(gpu, faults.get(gpu.index, UNLISTED)) for gpu in silent]
        explained = {gpu.index for gpu in silent}
        failures = tuple(
            f"GPU {index}: identity could not be read: {why}"
            for index, why in faults.items()
            if index not in explained
        )
        return (*seen.values(), *blind), failures


def _init_error(error: Exception) -> Exception:
    """Return what a failed nvmlInit means."""
    number = quirks.error_number(error)
    text = quirks.error_text(error)
    match number:
        case quirks.LIBRARY_NOT_FOUND:
            return DriverAbsentError("no NVIDIA driver: libnvidia-ml.so.1 was not found", MEND_DRIVER)
        case quirks.DRIVER_NOT_LOADED:
            return DriverAbsentError(
                "no NVIDIA driver: it is not loaded", "load it, or look in the kernel log"
            )
        case quirks.FUNCTION_NOT_FOUND:
            return UnsuitableHostError("libnvidia-ml.so.1 is too old to start", MEND_DRIVER)
        case quirks.NO_PERMISSION | 17:
            return UnsuitableHostError(
                f"NVML may not reach the driver: {text}",
                "run as root, with /dev/nvidia* allowed by the device cgroup",
            )
        case _ if number in quirks.STALE:
            return quirks.StaleConnectionError(text)
        case _:
            return ReclaimerdError(f"NVML did not start: {text}", "look in the kernel log for NVRM lines")


def _must(module: ModuleType, call: Callable[[], quirks.T], what: str) -> quirks.T:
    """Return a value that no GPU can be read without; raises ReclaimerdError if it can't be had."""
    match quirks.reading_of(module, call):
        case Known(value=value):
            return value
        case Unreadable(why=why) | Absent(why=why):
            raise ReclaimerdError(f"NVML gives no {what}: {why}", "look in the kernel log for NVRM lines")
