"""A simulated host for resets: its policy, its units, and what may be asked of it afterwards."""

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli.http_socket import HTTP_OK, NoAnswer, Request, ask_daemon
from reclaimerd.observe.peers import cgroup_root
from reclaimerd.simulation.host import SimulatedGpu, change_simulated_host, read_simulated_host
from reclaimerd.simulation.smi_reset import ResetLine, read_resets
from reclaimerd.simulation.units import SimulatedUnit, read_jobs, read_units
from tests.e2e.rig import GPU_A, TWO_GPUS, Json, Ran, Rig, simulated_host
from tests.rigs.simulated import wait_until

DCGM = "nvidia-dcgm.service"
RESET_SECONDS = 60.0
DONE_SECONDS = 40.0
TABLES: Mapping[str, Mapping[str, object]] = {
    "ladder": {"reset": "20s"},
    "budgets": {"resets_per_gpu": 1000, "resets_per_day": 1000},
    "breaker": {"failed_resets": 100},
    "reset": {"unit_timeout": "5s", "verify": "5s"},
}


def mostly_slow(*values: Any, plain: int = 2) -> list[Any]:
    """Return the values of a parametrised test: the first few run always, the others where slow ones do."""
    several = [value if isinstance(value, tuple) else (value,) for value in values[plain:]]
    return [*values[:plain], *(pytest.param(*value, marks=pytest.mark.slow) for value in several)]


@dataclass(frozen=True, slots=True)
class Interval:
    """When a client had the GPU open; `closed_ns` None: to its end."""

    opened_ns: int
    closed_ns: int | None

    def overlaps(self, line: ResetLine) -> bool:
        """Tell whether a reset took place within it."""
        return self.opened_ns < line.ended_ns and (self.closed_ns is None or line.began_ns < self.closed_ns)


@dataclass(slots=True)
class ResetRig:
    """One host and what a reset of its first GPU did."""

    rig: Rig

    def reset(self, *options: str) -> Ran:
        """Run `reclaimctl reset` for the first GPU to its end."""
        return self.rig.ctl("reset", "--gpu", GPU_A, *options, seconds=RESET_SECONDS)

    def explain(self, *options: str) -> Ran:
        """Run `reclaimctl explain reset` for the first GPU."""
        return self.rig.ctl("explain", "reset", "--gpu", GPU_A, *options)

    def set_gpu(self, uuid: str = GPU_A, /, **fields: object) -> None:
        """Change one GPU's description."""
        change_simulated_host(
            self.rig.host,
            lambda host: replace(
                host,
                gpus=tuple(
                    replace(gpu, **fields) if gpu.uuid == uuid else gpu  # type: ignore[arg-type]  # its own
                    for gpu in host.gpus
                ),
            ),
        )

    def gpu(self, uuid: str = GPU_A) -> SimulatedGpu:
        """Return one GPU as host.toml has it now."""
        return next(gpu for gpu in read_simulated_host(self.rig.host).gpus if gpu.uuid == uuid)

    def slow_reset(self, seconds: float) -> None:
        """Let each reset take so long from now on."""
        change_simulated_host(self.rig.host, lambda host: replace(host, slow_reset_seconds=seconds))

    @property
    def resets(self) -> tuple[ResetLine, ...]:
        """Return every reset that took place."""
        return read_resets(self.rig.host)

    @property
    def jobs(self) -> tuple[str, ...]:
        """Return every unit that was stopped or started."""
        return read_jobs(self.rig.host)

    def unit(self, name: str = DCGM) -> str:
        """Return a unit's state."""
        return read_units(self.rig.host).state(name)

    def phases(self) -> list[str]:
        """Return the phases on record, oldest first, each once in a row."""
        seen = [str(one["action"]) for one in self.rig.records("reset_step")]
        return [phase for at, phase in enumerate(seen) if at == 0 or seen[at - 1] != phase]

    def under_way(self) -> list[str] | None:
        """Return the phases of the resets under way; None while the daemon does not answer."""
        reply = ask_daemon(self.rig.socket, Request("GET", "/v1/status"), None)
        if isinstance(reply, NoAnswer) or reply.status != HTTP_OK:
            return None
        return [str(one["phase"]) for one in reply.body["resets"]]

    def wait_done(self) -> None:
        """Wait until no reset is under way and its incident has ended."""

        def is_done() -> bool:
            return self.under_way() == [] and bool(self.rig.records("incident_ended"))

        wait_until(is_done, f"the reset is over: {self.rig.story()}", DONE_SECONDS)

    def as_before(self) -> None:
        """Check that all that the reset stopped is as it was, and that the record is whole."""
        assert self.unit() == "active", self.jobs
        assert self.gpu().persistence
        assert self.gpu().power_limit == "300.00"
        assert sum(job.startswith("start") for job in self.jobs) == sum(
            job.startswith("stop") for job in self.jobs
        )
        verified = self.rig.verify_audit()
        assert verified.code == 0, verified.out + verified.err


@contextmanager
def reset_host(
    *gpus: SimulatedGpu, tables: Mapping[str, Mapping[str, object]] | None = None, **dcgm: Any
) -> Iterator[ResetRig]:
    """Set up a host whose first GPU has persistence mode on, a power limit, and DCGM as its client.

    `dcgm` are further fields of that unit. Its process lies in a cgroup of its own, without which nobody
    could tell that it is the unit's; where none can be made, the unit has no process.
    """
    given = tables or {}
    merged = {name: {**TABLES.get(name, {}), **given.get(name, {})} for name in {*TABLES, *given}}
    with _unit_cgroup() as folder, simulated_host(gpus=gpus or TWO_GPUS, tables=merged) as rig:
        host = ResetRig(rig)
        host.set_gpu(GPU_A, persistence=True, power_limit="300.00", recovery_action="gpu_reset")
        process: dict[str, Any] = {"workload": ("--gpu", GPU_A), "cgroup": folder} if folder else {}
        rig.keeper.place_units(SimulatedUnit(DCGM, **process, **dcgm))
        yield host


@contextmanager
def _unit_cgroup() -> Iterator[str]:
    """Make a cgroup of root's that is named as the unit, below one of this test; "" where none can be."""
    try:
        parent = cgroup_root("") / f"reclaimerd-reset-{os.getpid()}-{secrets.token_hex(4)}"
        folder = parent / DCGM
        folder.mkdir(parents=True)
    except OSError:
        yield ""
        return
    try:
        yield str(folder)
    finally:
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), f"{folder} is empty")
        folder.rmdir()
        parent.rmdir()


def intervals_in(log: Path) -> list[Interval]:
    """Return when a fast client had the GPU."""
    words = re.findall(r"(open|close) (\d+)\n", log.read_text(encoding="ascii"))
    opened = [int(at) for word, at in words if word == "open"]
    closed: list[int | None] = [int(at) for word, at in words if word == "close"]
    closed += [None] * (len(opened) - len(closed))
    return [Interval(begin, end) for begin, end in zip(opened, closed, strict=True)]


def reset_alarms(rig: Rig) -> list[Json]:
    """Return every alarm on record."""
    return rig.records("alarm")
