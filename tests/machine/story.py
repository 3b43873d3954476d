"""One story: a host, the lives of the daemon on it, and the time between what happens."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reclaimerd.errors import RecordError
from tests.machine import operators
from tests.machine.checks import breaches, record_faults, story_of
from tests.machine.hands import Killed
from tests.machine.host import Host
from tests.machine.life import Life, born
from tests.machine.patches import patch
from tests.machine.policies import a_host_policy, variant
from tests.machine.world import Phase, Proc

IN_MEMORY = Path("/dev/shm")
"""Where a sync costs nothing; elsewhere the stories only take longer."""
CALM_SECONDS = (8.0,) * 24 + (60.0,) * 14
"""From one pass to the next; whom a drain was asked of in vain for long is asked again after ten minutes."""

Plant = Callable[[pytest.MonkeyPatch], None]


@dataclass(slots=True)
class Tally:
    """What one run has seen, over all its stories."""

    steps: int = 0
    passes: int = 0
    lives: int = 0
    deaths: dict[str, int] = field(default_factory=dict)
    acts: dict[str, int] = field(default_factory=dict)

    def add(self, acts: dict[str, int]) -> None:
        """Add what was done on one host."""
        for name, count in acts.items():
            self.acts[name] = self.acts.get(name, 0) + count


class Story:
    """A host and the daemon on it, from the first start to the rest at the end."""

    def __init__(self, tally: Tally, plant: Plant | None) -> None:
        self.tally = tally
        self.is_broken = False
        self.patches = pytest.MonkeyPatch()
        place = IN_MEMORY if IN_MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="machine-", dir=place))
        self.host = Host(self.folder, a_host_policy(self.folder))
        patch(self.host, self.patches)
        if plant is not None:
            plant(self.patches)
        self.world, self.oracle, self.whole = self.host.world, self.host.oracle, self.host.policy
        self.life: Life | None = None

    def close(self) -> None:
        """Bring the host to rest, when every incident must end, and leave nothing behind."""
        try:
            if not self.is_broken:
                self._calm()
                self.bury()
        finally:
            if self.life is not None:
                self.life.end()
            self.patches.undo()
            self.tally.add(self.oracle.acts)
            shutil.rmtree(self.folder, ignore_errors=True)

    def go(self, seconds: float | None) -> None:
        """Let time pass, and the daemon make a pass; a dead one is started. None: more happens first."""
        if seconds is None:
            return
        self.world.tick(seconds)
        self.oracle.stops.expire(self.world.time())
        life = self._alive()
        if life is None:
            return
        try:
            self.tally.passes += life.make_pass()
        except Killed as death:
            self._died(death)
            return
        self.hold(breaches(life))

    def hold(self, found: tuple[str, ...] = ()) -> None:
        """Fail with what was found, and with the newest records to read it by."""
        self.is_broken = bool(found or self.oracle.sins)
        assert not self.is_broken, "\n".join((*found, *self.oracle.sins, *story_of(self.host)))

    def ask(self, work: Callable[[Life], bool]) -> bool:
        """Let somebody ask the daemon for something; tell whether it was granted."""
        if self.life is None:
            return False
        try:
            return work(self.life)
        except Killed as death:
            self._died(death)
        except RecordError:
            pass
        return False

    def bury(self) -> None:
        """End the life, if there is one; what it left must verify."""
        life, self.life = self.life, None
        self._disarm()
        if life is not None:
            life.end()
        self.hold(tuple(f"the audit does not verify: {one}" for one in record_faults(self.host)))

    def _disarm(self) -> None:
        """Let nobody be killed any more at what was said before."""
        fuse = self.host.fuse
        fuse.left, fuse.named, fuse.where = None, "", ""

    def pick(self, number: int, *, alive: bool = True) -> Proc | None:
        """Return one of the living, None when there is nobody."""
        found = [one for one in self.world.living if not alive or one.phase is Phase.ALIVE]
        return found[number % len(found)] if found else None

    def reload(self, name: str) -> None:
        """Let the policy file be another, or have faults, and be taken anew."""
        if name != "faults":
            self.host.policy = variant(self.whole, name)
        policy = None if name == "faults" else self.host.policy
        self.ask(lambda life: operators.reload(life, policy))

    def _alive(self) -> Life | None:
        """Return the life, a new one where the last has ended; None where it can't begin."""
        if self.life is None:
            self.tally.lives += 1
            try:
                self.life = born(self.host)
            except Killed as death:
                self._died(death)
            except RecordError:
                assert self.world.disk.full or self.world.disk.broken, "a start failed without a cause"
        return self.life

    def _died(self, death: Killed) -> None:
        where = str(death)
        self.tally.deaths[where] = self.tally.deaths.get(where, 0) + 1
        self.bury()

    def heal(self) -> None:
        """Let the machine be well."""
        world, marks = self.world, self.host.marks
        world.disk.full = world.disk.broken = self.host.scheduler.is_away = False
        marks.hangs = marks.fails = False
        world.hung_since = None
        for card in world.cards.values():
            card.leaks = False
            if not card.present:
                world.find(card.uuid)

    def let_act(self) -> None:
        """Let people take back whatever stops the rules."""
        self.host.hold_file.unlink(missing_ok=True)
        self.oracle.stops.hold = False
        self.reload("whole")
        self.ask(operators.resume)
        self.ask(operators.resume_rule)

    def _calm(self) -> None:
        """Let everything be well again, everybody leave, and wait."""
        self._disarm()
        self.heal()
        for card in self.world.cards.values():
            card.ghost = 0
        for proc in self.world.living:
            proc.sticks, proc.readable, proc.is_orphan = False, True, True
            self.world.leave(proc)
        self.go(4.0)
        self.let_act()
        for seconds in CALM_SECONDS:
            if self.life is not None and not self.life.service.cycle.state.incidents:
                return
            self.go(seconds)
        assert self.life is not None
        left = self.life.service.cycle.state.incidents.values()
        self.hold(
            tuple(f"all is well, and {one.id} ({one.stage}) does not end: {one.last_refusal}" for one in left)
        )
