"""The simulated host's `nvidia-smi`: the reset, with the driver's refusals and the vendor's words.

`python -m reclaimerd.simulation.smi DIR --gpu-reset -i UUID`. The texts are those that users have
reported of the real tool; a refused reset ends 255. It changes nothing: a reset that "succeeds"
only says so, as the simulated memory is freed by its holders alone.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.identity import DeviceNumber
from reclaimerd.simulation.claims import live_claims
from reclaimerd.simulation.host import SimulatedGpu, SimulatedHost, read_simulated_host
from reclaimerd.simulation.keeper_process import descendants_of
from reclaimerd.simulation.nvml import hang_for_ever, read_device_number, read_keeper_pid

OK = 0
INVALID_ARGUMENT = 2
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
FELL_OFF_THE_BUS = 15
OTHER = 255
IN_USE = "In use by another client"
BUSY_TEXT = (
    "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA "
    "application, graphics application such as an X server, or a monitoring application such as "
    "another instance of nvidia-smi). Please first kill all processes using this device and all "
    "compute applications running in the system."
)
ARGUMENT_COUNT = 3


def main(argv: Sequence[str]) -> int:
    """Run the tool; return its exit code."""
    directory = Path(argv[0])
    options = argv[1:]
    if len(options) != ARGUMENT_COUNT or options[0] not in {"--gpu-reset", "-r"} or options[1] != "-i":
        _say("Invalid combination of input arguments. The simulation knows: --gpu-reset -i GPU")
        return INVALID_ARGUMENT
    try:
        host = read_simulated_host(directory)
        root = None if host.all_processes else read_keeper_pid(directory)
    except ReclaimerdError as error:
        _say(f"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. {error}")
        return DRIVER_NOT_LOADED
    gpu = _gpu_named(host, options[2])
    if gpu is None:
        _say(f"No devices were found for {options[2]}")
        return NOT_FOUND
    return _reset(directory, host, gpu, root)


def _gpu_named(host: SimulatedHost, name: str) -> SimulatedGpu | None:
    for index, gpu in enumerate(host.gpus):
        if name in {gpu.uuid, gpu.pci, vendor_bus_id(gpu.pci), str(index)}:
            return gpu
    return None


def vendor_bus_id(pci: str) -> str:
    """Return `0000:3b:00.0` as the vendor prints it: `00000000:3B:00.0`."""
    domain, _, rest = pci.partition(":")
    return f"{domain:0>8}:{rest}".upper()


def _reset(directory: Path, host: SimulatedHost, gpu: SimulatedGpu, root: int | None) -> int:
    match host.failure(gpu.uuid, "reset"):
        case "hang":
            hang_for_ever()
        case "in_use":
            return _refuse(gpu, IN_USE)
        case "not_supported":
            return _refuse(gpu, "Not Supported")
        case "lost":
            _refuse(gpu, "GPU is lost")
            return FELL_OFF_THE_BUS
    if gpu.persistence or _in_use(directory, gpu, root):
        return _refuse(gpu, IN_USE)
    _say(f"GPU {vendor_bus_id(gpu.pci)} was successfully reset.\nAll done.")
    return OK


def _refuse(gpu: SimulatedGpu, why: str) -> int:
    _say(f"The following GPUs could not be reset:\n  GPU {vendor_bus_id(gpu.pci)}: {why}\n")
    if why == IN_USE:
        _say(BUSY_TEXT)
    return OTHER


def _in_use(directory: Path, gpu: SimulatedGpu, root: int | None) -> bool:
    """Tell whether a claim lives, or a process of the simulation has the node open."""
    if any(claim.gpu == gpu.uuid for claim in live_claims(directory)):
        return True
    device = read_device_number(gpu.device)
    pids = _all_pids() if root is None else descendants_of(root)
    return any(_has_open(pid, device) for pid in pids)


def _all_pids() -> tuple[int, ...]:
    return tuple(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _has_open(pid: int, device: DeviceNumber) -> bool:
    """Look through the descriptors of every thread: a dead leader shows none of its own."""
    return any(_is_node(link, device) for link in _descriptors(pid))


def _descriptors(pid: int) -> Iterator[Path]:
    for folder in Path(f"/proc/{pid}/task").glob("*/fd"):
        try:
            yield from list(folder.iterdir())
        except OSError:  # gone meanwhile
            continue


def _is_node(link: Path, device: DeviceNumber) -> bool:
    try:
        # The link first: stat on a file of a dead filesystem would hang us.
        return str(link.readlink()).startswith("/dev/") and read_device_number(str(link)) == device
    except OSError:
        return False


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command line tool


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
