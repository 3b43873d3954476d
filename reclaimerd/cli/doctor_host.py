"""What the checks of `doctor` share: where things are, the policy, and what the daemon says of itself.

In a child of `doctor` alone: each reading may hang, and is made once. Nothing here writes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from reclaimerd.cli.http_socket import Json, NoAnswer, Request, ask_daemon
from reclaimerd.config.load import load
from reclaimerd.errors import ConfigError, CorruptStoreError, NotAllowedError, ReclaimerdError, RecordError
from reclaimerd.host.child import Finished, Overran, run_bounded
from reclaimerd.model.policy import ListedStage, Policy
from reclaimerd.model.snapshot import HostGpus
from reclaimerd.observe.nvml import RealNvml
from reclaimerd.record.store import STORE_NAME, Store, Stored
from reclaimerd.record.writer_claim import current_writer
from reclaimerd.simulation.nvml import SimulatedNvml

_HTTP_OK = 200
PROGRAM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Where:
    """Where the daemon, its state and its records are; `simulate` is a simulated host's directory."""

    config: Path | None
    state_dir: Path
    log_dir: Path
    socket: Path
    simulate: Path | None = None


class DriverUntouchedError(ReclaimerdError):
    """The driver is not opened: that would harm, or hang."""


class Host:
    """One host as the checks of one child see it; `root` stands for / in tests."""

    def __init__(self, where: Where, root: Path = Path("/")) -> None:
        self.where = where
        self.root = root

    def path(self, absolute: str) -> Path:
        """Return a path of the host."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str:
        """Return the text of a small file of the host; raises OSError."""
        return self.path(absolute).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def policy(self) -> Policy:
        """The policy in the file; raises ReclaimerdError when it has faults."""
        try:
            return load(self.where.config, enforce_ownership=True).policy
        except ConfigError:
            raise ReclaimerdError("the policy file has faults", "see the check `policy`") from None

    @property
    def stages(self) -> frozenset[ListedStage]:
        """The stages that any rule of the policy lists; raises as `policy` does."""
        of_rules = {stage for rule in self.policy.rules for stage in rule.stages}
        return frozenset(of_rules | {stage for rule in self.policy.fault_rules for stage in rule.stages})

    @cached_property
    def status(self) -> Json | NoAnswer:
        """What the daemon says, or that nobody answers; raises NotAllowedError when it tells us nothing."""
        answer = ask_daemon(self.where.socket, Request("GET", "/v1/status"), None)
        if isinstance(answer, NoAnswer):
            return answer
        if answer.status != _HTTP_OK:
            words = str(answer.body.get("error") or f"HTTP status {answer.status}")
            raise NotAllowedError(f"the daemon tells us nothing: {words}", "ask again as root")
        return answer.body

    @cached_property
    def daemon_pid(self) -> int | None:
        """The daemon's pid by its own word, else by its claim on the state directory; None: no daemon."""
        if not isinstance(self.status, NoAnswer):
            return int(self.status["pid"])
        writer = current_writer(self.where.state_dir)
        boot_id = self.read("/proc/sys/kernel/random/boot_id").strip()
        lives = writer is not None and writer.boot_id == boot_id and self.path(f"/proc/{writer.pid}").exists()
        return writer.pid if writer is not None and lives else None

    @cached_property
    def gpus(self) -> HostGpus:
        """Every GPU, by a reading of our own; raises ReclaimerdError.

        Also where the driver is not to be opened: our own client would make a reset fail that is under way,
        and would hang where others hang.
        """
        self._refuse_harm()
        port = RealNvml() if self.where.simulate is None else SimulatedNvml(self.where.simulate)
        try:
            return port.read_host()
        finally:
            port.close()

    def _refuse_harm(self) -> None:
        status = self.status
        if isinstance(status, NoAnswer):
            self._refuse_by_record()
            return
        if status.get("driver_released") is not None:
            raise DriverUntouchedError(
                "the daemon has released the driver for a person's work, so it is not opened"
            )
        if status.get("resets") or status.get("do_not_touch"):
            raise DriverUntouchedError("a reset is under way or hangs, so the driver is not opened")
        driver = status.get("driver") or {}
        if driver.get("state") == "unresponsive":
            raise DriverUntouchedError(str(driver.get("text")), "docs/runbooks/driver_unresponsive.md")

    def _stored(self) -> Stored:
        """Return what the store remembers; a store that can't be read may remember a reset."""
        path = self.where.state_dir / STORE_NAME
        try:
            path.lstat()
            store = Store.open(path, read_only=True)
        except FileNotFoundError:
            return Stored()
        except (OSError, RecordError, CorruptStoreError) as error:
            why = f"whether a reset is under way can't be told ({error}), so the driver is not opened"
            raise DriverUntouchedError(why) from None
        try:
            return store.load()
        finally:
            store.close()

    def _refuse_by_record(self) -> None:
        """Refuse what the store of a daemon that is not there speaks against."""
        stored = self._stored()
        if stored.ledger.untouchable or any(not run.is_done for run in stored.ledger.resets):
            raise DriverUntouchedError("a reset was cut off or hangs, so the driver is not opened")
        boot_id = self.read("/proc/sys/kernel/random/boot_id").strip()
        for left in stored.abandoned:
            if (
                left.role == "nvml"
                and left.ref.boot_id == boot_id
                and self.path(f"/proc/{left.ref.pid}").exists()
            ):
                raise DriverUntouchedError(
                    f"an earlier reader (pid {left.ref.pid}) may still hang inside the driver",
                    "docs/runbooks/driver_unresponsive.md",
                )


def ran(argv: Sequence[str], seconds: float = PROGRAM_SECONDS) -> Finished:
    """Return what a program that only answers said; raises ReclaimerdError when it does not end in time."""
    name = Path(argv[0]).name
    try:
        ended = asyncio.run(run_bounded(argv, deadline_seconds=seconds))
    except (OSError, ValueError) as error:
        raise ReclaimerdError(f"{name} can't be run: {error}") from None
    if isinstance(ended, Overran):
        raise ReclaimerdError(f"{name} did not answer within {seconds:g} s")
    return ended
