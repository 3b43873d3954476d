"""Who is a client of the simulated driver, by the driver's own count: memory, open nodes, NVML handles.

A reset needs all of them gone. A lock on the directory stands for the driver's: whoever opens a GPU
has it shared, a reset has it alone, so nobody gets in between its check and its end. It may not
change the host or signal anybody.
"""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.simulation.claims import live_claims
from reclaimerd.simulation.host import SimulatedGpu
from reclaimerd.simulation.processes import descendants_of

NVML_CLIENTS = "nvml-clients"


def read_device_number(path: str) -> DeviceNumber:
    """Return the device number of a node; raises OSError when it is not there or is no device."""
    number = Path(path).stat().st_rdev
    if not number:
        raise OSError(f"{path} is not a device node")
    return DeviceNumber(os.major(number), os.minor(number))


@contextlib.contextmanager
def opening(directory: Path) -> Iterator[None]:
    """Hold the driver's lock while a GPU is opened; waits for the end of a reset."""
    with _driver_lock(directory, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the driver's lock for a reset: nobody opens a GPU meanwhile."""
    with _driver_lock(directory, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _driver_lock(directory: Path, how: int) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def become_nvml_client(directory: Path) -> tuple[int, Path] | None:
    """Count as an NVML client until the descriptor is closed or we die; None where nobody counts.

    It holds every GPU, as an initialised NVML does. The file is named by our pid, for people.
    """
    folder = directory / NVML_CLIENTS
    path = folder / f"{os.getpid()}-{uuid.uuid4().hex}"
    try:
        with opening(directory):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:  # a host made by hand has no such folder, or we may not write there
        return None
    return descriptor, path


def leave_nvml(client: tuple[int, Path]) -> None:
    """Stop to count as an NVML client."""
    descriptor, path = client
    path.unlink(missing_ok=True)
    os.close(descriptor)


def nvml_client_pids(directory: Path) -> tuple[int, ...]:
    """Return the pids of the living NVML clients."""
    try:
        paths = sorted((directory / NVML_CLIENTS).iterdir())
    except FileNotFoundError:
        return ()
    return tuple(int(path.name.partition("-")[0]) for path in paths if _is_locked(path))


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def is_in_use(directory: Path, gpu: SimulatedGpu, root: int | None) -> bool:
    """Tell whether anybody is a client of this GPU: persistence mode, memory, NVML, an open node.

    `root`: only its descendants can have the node open; None means every process of the machine.
    """
    if gpu.persistence or nvml_client_pids(directory):
        return True
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
