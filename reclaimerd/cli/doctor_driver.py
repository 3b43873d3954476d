"""Checks of `doctor` about the driver and its GPUs: one reading of NVML, which changes nothing.

The reading may hang inside the kernel: it is made in a child of `doctor` alone.
"""

from collections.abc import Callable

from reclaimerd.cli.doctor_host import DriverUntouchedError, Host
from reclaimerd.cli.doctor_words import Said, fail, gravest, ok, unknown, warn
from reclaimerd.cli.http_socket import NoAnswer
from reclaimerd.errors import DriverAbsentError, ReclaimerdError, UnsuitableHostError
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import ContextKind, GpuReading, HostGpus, RecoveryAction
from reclaimerd.observe.nvml import MEND_DRIVER
from reclaimerd.observe.nvml_quirks import load_pynvml

_NOT_READ = unknown("the driver was not read", "see the check `driver`")


def read_package(_host: Host) -> Said:
    """Say whether the module pynvml is the one of nvidia-ml-py."""
    try:
        module = load_pynvml()
    except UnsuitableHostError as error:
        return fail(error.message, error.mend)
    return ok(f"nvidia-ml-py is the module pynvml ({getattr(module, '__file__', '')})")


def read_driver(host: Host) -> Said:
    """Say whether the driver answers, and is new enough."""
    try:
        found = host.gpus
    except DriverAbsentError as error:
        return fail(error.message, error.mend or MEND_DRIVER)
    except DriverUntouchedError as error:
        if error.mend:
            return fail(error.message, error.mend)
        return unknown(error.message, "run doctor as root, and again when that has ended")
    except ReclaimerdError as error:
        return fail(error.message, error.mend)
    kind = "simulated driver" if found.simulated else "driver"
    return ok(f"{kind} {found.driver_version} answers; 535.113 is the oldest that will do")


def read_gpus(host: Host) -> Said:
    """Say which GPUs the driver lists, and whether the daemon sees as many."""
    found = _read(host)
    if isinstance(found, Said):
        return found
    if found.failures:
        return fail("; ".join(found.failures), "look in the kernel log for NVRM and Xid lines")
    if not found.gpus:
        return warn("the driver lists no GPU", "look in the kernel log, and at lspci")
    seen = None if isinstance(host.status, NoAnswer) else len(host.status.get("gpus") or ())
    if seen is not None and seen != len(found.gpus):
        return warn(
            f"the driver lists {len(found.gpus)} GPUs, the daemon saw {seen}", "look at `reclaimctl status`"
        )
    return ok(f"{len(found.gpus)} GPUs: {', '.join(sorted({gpu.name for gpu in found.gpus}))}")


def read_persistence(host: Host) -> Said:
    """Say whether persistence mode is on: without it each reading wakes the GPU and no worker stays."""

    def of(gpu: GpuReading) -> Said:
        match gpu.persistence:
            case Known(value=True) | Absent():
                return ok("")
            case Known():
                return warn(
                    f"GPU {gpu.index}: persistence mode is off", "systemctl enable --now nvidia-persistenced"
                )
            case Unreadable(why=why):
                return unknown(f"GPU {gpu.index}: {why}")

    return _of_each(host, of, "persistence mode is on where there is one")


def read_recovery(host: Host) -> Said:
    """Say whether a GPU waits for a reset or a reboot."""

    def of(gpu: GpuReading) -> Said:
        match gpu.recovery_action:
            case Known(value=RecoveryAction.NONE) | Absent():
                return ok("")
            case Known(value=action):
                return fail(f"GPU {gpu.index} wants {action.value}", "docs/runbooks/recovery_action.md")
            case Unreadable(why=why):
                return unknown(f"GPU {gpu.index}: {why}")

    return _of_each(host, of, "no GPU asks for a reset or a reboot")


def read_mig(host: Host) -> Said:
    """Say which GPUs are in MIG mode, which a reset's gate asks about."""
    found = _read(host)
    if isinstance(found, Said):
        return found
    unread = [gpu for gpu in found.gpus if isinstance(gpu.mig, Unreadable)]
    if unread:
        return unknown(f"MIG mode of GPU {', '.join(str(gpu.index) for gpu in unread)} can't be read")
    used = [str(gpu.index) for gpu in found.gpus if gpu.mig == Known(True)]
    return ok(f"MIG is on for GPU {', '.join(used)} (docs/runbooks/mig.md)" if used else "MIG is off")


def read_mps(host: Host) -> Said:
    """Say which GPUs are shared through MPS: a server holds them for its clients."""
    found = _read(host)
    if isinstance(found, Said):
        return found
    lists = [(gpu.index, gpu.processes) for gpu in found.gpus]
    unread = [str(index) for index, rows in lists if isinstance(rows, Unreadable)]
    if unread:
        return unknown(f"the process list of GPU {', '.join(unread)} can't be read")
    used = [
        str(index)
        for index, rows in lists
        if isinstance(rows, Known) and any(row.context is ContextKind.MPS for row in rows.value)
    ]
    if used:
        return ok(f"MPS serves GPU {', '.join(used)}: one client's end may end the others")
    return ok("no GPU is shared through MPS now")


def _read(host: Host) -> HostGpus | Said:
    """Return the reading, or that there is none: why is said once, by the check `driver`."""
    try:
        return host.gpus
    except ReclaimerdError:
        return _NOT_READ


def _of_each(host: Host, of: Callable[[GpuReading], Said], well: str) -> Said:
    found = _read(host)
    if isinstance(found, Said):
        return found
    return gravest([of(gpu) for gpu in found.gpus], ok(well))
