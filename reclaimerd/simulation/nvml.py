"""The NVML calls we use, answered by the simulated host: the second half of `model.ports.NvmlPort`.

Memory and process lists come from the claims that real processes hold. It may block for ever
where host.toml says so: that is what a wedged driver does.
"""

import contextlib
import json
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from reclaimerd.errors import DriverAbsentError
from reclaimerd.host.gpu_shares import Samples, with_shares
from reclaimerd.model.identity import DeviceNumber, GpuUuid
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.reset_facts import GpuFacts
from reclaimerd.model.snapshot import (
    ContextKind,
    GpuMemory,
    GpuProcess,
    GpuReading,
    HostGpus,
    RecoveryAction,
    Utilisation,
    unreadable_gpu,
)
from reclaimerd.simulation.claims import Claim, leaked_claims, live_claims, read_start_ticks
from reclaimerd.simulation.clients import become_nvml_client, leave_nvml, read_device_number
from reclaimerd.simulation.host import HOST_FILE, SimulatedGpu, SimulatedHost, read_simulated_host
from reclaimerd.simulation.nvml_reset import call_reading, reset_facts_of

T = TypeVar("T")

KEEPER_FILE = "keeper.json"
_WHOLE_PERCENT = 100


class SimulatedNvml:
    """The simulated driver of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._text = b""
        self._host = SimulatedHost(())
        self._claims: dict[str, Claim] = {}
        self._client: tuple[int, Path] | None = None

    def read_host(self, *, utilisation: bool = False) -> HostGpus:
        """Return every simulated GPU; may block, as host.toml says.

        Raises UnsuitableHostError for a faulty host.toml, DriverAbsentError without a keeper.
        """
        host = self._attach()
        root = None if host.all_processes else read_keeper_pid(self._directory)
        claims = live_claims(self._directory, self._claims)
        leaked = leaked_claims(self._directory)  # the living first: never too little is counted
        gpus: list[GpuReading] = []
        failures: list[str] = []
        for index, gpu in enumerate(gpu for gpu in host.gpus if not gpu.lost):
            lost_bytes = sum(claim.used_bytes for claim in leaked if claim.gpu == gpu.uuid)
            whole = replace(gpu, residue_bytes=gpu.residue_bytes + lost_bytes)
            mine = [claim for claim in claims if claim.gpu == gpu.uuid]
            try:
                reading = _gpu_reading(index, whole, host, mine)
                gpus.append(_with_shares(reading, host, mine) if utilisation else reading)
            except OSError as error:
                failures.append(f"GPU {index}: identity could not be read: {error}")
        shared: list[DeviceNumber] = []
        for path in host.shared_devices:
            try:
                shared.append(read_device_number(path))
            except OSError as error:
                failures.append(f"shared device: {error}")
        return HostGpus(
            driver_version=host.driver_version,
            gpus=tuple(gpus),
            shared_devices=tuple(shared),
            simulated_root=root,
            simulated=True,
            failures=tuple(failures),
        )

    def read_reset_facts(self) -> tuple[GpuFacts, ...]:
        """Return what a reset needs to know of every simulated GPU; blocks and raises as `read_host` does."""
        host = self._attach()
        if not host.all_processes:
            read_keeper_pid(self._directory)
        return reset_facts_of(host)

    def _attach(self) -> SimulatedHost:
        """Return host.toml, misbehave as it says, and count as a client from now on."""
        host = self._read_host_file()
        misbehave(host)
        if self._client is None:
            self._client = become_nvml_client(self._directory)
        return host

    def _read_host_file(self) -> SimulatedHost:
        """Return host.toml as it is now; parsed again only when its text has changed."""
        try:
            text = (self._directory / HOST_FILE).read_bytes()
        except OSError:
            text = b""  # the reader below says what is wrong
        if not text or text != self._text:
            self._host = read_simulated_host(self._directory)
            self._text = text
        return self._host

    def close(self) -> None:
        """Be no client any more; the next read is one again."""
        if self._client is not None:
            leave_nvml(self._client)
            self._client = None


def misbehave(host: SimulatedHost) -> None:
    """Be slow, blocked or hung, as host.toml says."""
    if host.slow_seconds:
        time.sleep(host.slow_seconds)
    if host.block_on:
        Path(host.block_on).read_bytes()
    if host.hang:
        hang_for_ever()


def hang_for_ever() -> None:
    """Block for ever, deaf to SIGTERM."""
    with contextlib.suppress(ValueError):  # only a main thread may say so
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def read_keeper_pid(directory: Path) -> int:
    """Return the pid of the living keeper; raises DriverAbsentError when it is gone."""
    try:
        entries = json.loads((directory / KEEPER_FILE).read_text(encoding="utf-8"))
        pid, start_ticks = int(entries["pid"]), int(entries["start_ticks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DriverAbsentError(
            f"the simulation in {directory} has no keeper",
            "start one, or set all_processes = true in host.toml",
        ) from error
    if read_start_ticks(pid) != start_ticks:
        raise DriverAbsentError(f"the keeper of the simulation in {directory} is gone", "start it again")
    return pid


def _gpu_reading(index: int, gpu: SimulatedGpu, host: SimulatedHost, claims: Sequence[Claim]) -> GpuReading:
    identity_fault = host.failure(gpu.uuid, "identity")
    if identity_fault:
        raise OSError(identity_fault)

    def reading(call: str, value: T) -> Reading[T]:
        return call_reading(host, gpu.uuid, call, value)

    whole = GpuReading(
        uuid=GpuUuid(gpu.uuid),
        index=index,
        pci_address=gpu.pci.lower(),
        minor=index,
        name=gpu.name,
        device=read_device_number(gpu.device),
        memory=reading(
            "memory",
            GpuMemory(
                gpu.total_bytes,
                sum(claim.used_bytes for claim in claims) + gpu.residue_bytes,
                gpu.reserved_bytes,
            ),
        ),
        processes=reading("processes", listed_processes(claims, host.failure(gpu.uuid, "process_memory"))),
        utilisation=Absent("not offered while MIG is enabled")
        if gpu.mig
        else reading("utilisation", Utilisation(_busy_percent(gpu, claims), 0)),
        mig=reading("mig", gpu.mig),
        persistence=reading("persistence", gpu.persistence),
        recovery_action=reading("recovery_action", _recovery_action(gpu.recovery_action)),
    )
    lost = host.failure(gpu.uuid, "handle")
    return unreadable_gpu(whole, lost) if lost else whole


def _busy_percent(gpu: SimulatedGpu, claims: Sequence[Claim]) -> int:
    """Return what host.toml says the GPU does, or what its processes do, whichever is more."""
    return max(gpu.utilisation_percent, min(sum(_samples_of(claims).values()), _WHOLE_PERCENT))


def _samples_of(claims: Sequence[Claim]) -> dict[int, int]:
    """Return what each owner that is at work uses; the driver has no sample of the others."""
    return {claim.pid: claim.sm_percent for claim in claims if claim.sm_percent}


def _with_shares(gpu: GpuReading, host: SimulatedHost, claims: Sequence[Claim]) -> GpuReading:
    """Return the GPU with what each listed process uses of it."""
    samples: Reading[Samples] = call_reading(host, gpu.uuid, "samples", _samples_of(claims))
    if gpu.mig == Known(value=True):
        samples = Absent("not offered while MIG is enabled")
    return replace(gpu, processes=with_shares(gpu.processes, samples, gpu.utilisation))


def listed_processes(claims: Sequence[Claim], unreadable: str = "") -> tuple[GpuProcess, ...]:
    """Return one row for each owner, dead or alive, with the sum of its living claims.

    With `unreadable` the rows stand and their sums do not, as where the driver gives none.
    """
    sums: dict[int, int] = {}
    contexts: dict[int, ContextKind] = {}
    for claim in claims:
        sums[claim.pid] = sums.get(claim.pid, 0) + claim.used_bytes
        contexts[claim.pid] = min(contexts.get(claim.pid, claim.context), claim.context)
    return tuple(
        GpuProcess(pid, Unreadable(unreadable) if unreadable else Known(sums[pid]), contexts[pid])
        for pid in sorted(sums)
    )


def _recovery_action(word: str) -> RecoveryAction:
    try:
        return RecoveryAction(word)
    except ValueError:
        return RecoveryAction.UNKNOWN
