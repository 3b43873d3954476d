"""The machine: whatever may happen to a host and to the daemon on it, in any order; hypothesis picks.

It only lets things happen. Whether what the daemon does about them is right, `oracle` and `checks` say.
"""
# ruff: noqa: FBT001  (hypothesis hands each rule what it drew, by name)

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reclaimerd.model.identity import GpuUuid
from tests.builders import GPU_A, GPU_B
from tests.machine import operators
from tests.machine.happenings import PEOPLE, TROUBLES, change, people, race, reuse, trouble
from tests.machine.story import Plant, Story, Tally
from tests.machine.world import SHIELDED_UID, SIZES

GPUS = st.sampled_from((GPU_A, GPU_B))
WAITS = st.sampled_from((None, 0.5, 2.0, 2.0, 2.0, 4.0, 7.0, 7.0, 14.0, 130.0))
"""Seconds until the next pass; None: more happens before it."""
PICKS = st.integers(0, 5)
UNITS = 3
ACTS = ("SIGTERM", "SIGKILL", "the tool", "asking for the drain")
BOUNDARIES = st.one_of(
    st.integers(0, 20), st.sampled_from([f"{side} {act}" for act in ACTS for side in ("before", "after")])
)


class Machine(RuleBasedStateMachine):  # the one door into hypothesis: its rules are methods of a heir
    """One host, and every life of the daemon on it."""

    def __init__(self, tally: Tally, plant: Plant | None = None) -> None:
        super().__init__()
        self.story = Story(tally, plant)

    def teardown(self) -> None:
        """Bring it to rest."""
        self.story.close()

    @invariant()
    def nobody_sinned(self) -> None:
        """Hold that no promise was broken."""
        self.story.tally.steps += 1
        self.story.hold()

    @initialize(gpu=GPUS, obeys=st.booleans())
    def begins(self, gpu: GpuUuid, obeys: bool) -> None:
        """Start the daemon on a host in use, and let it settle."""
        self._hog(0, gpu, SIZES[1], obeys=obeys)
        self.story.go(2.0)
        self.story.go(4.0)

    def _hog(self, unit: int, gpu: GpuUuid, used: int, *, obeys: bool) -> None:
        proc = self.story.world.spawn(f"train-{unit % UNITS}.service")
        proc.obeys = obeys
        self.story.world.hold(proc, gpu, used)

    @rule(gpu=GPUS, used=st.sampled_from(SIZES), unit=PICKS, obeys=st.booleans(), wait=WAITS)
    def comes(self, gpu: GpuUuid, used: int, unit: int, obeys: bool, wait: float | None) -> None:
        """Let a process appear and hold a GPU."""
        self._hog(unit, gpu, used, obeys=obeys)
        self.story.go(wait)

    @rule(gpu=GPUS, unit=PICKS, sticks=st.booleans(), wait=WAITS)
    def hog_comes(self, gpu: GpuUuid, unit: int, sticks: bool, wait: float | None) -> None:
        """Let one appear that is over the cap and hears no SIGTERM; its exit may hang in the driver."""
        self._hog(unit, gpu, SIZES[1], obeys=False)
        self.story.world.living[-1].sticks = sticks
        self.story.go(wait)

    @rule(gpu=GPUS, wait=WAITS)
    def shielded_comes(self, gpu: GpuUuid, wait: float | None) -> None:
        """Let one appear whom the policy protects."""
        self.story.world.hold(self.story.world.spawn("shielded.service", SHIELDED_UID), gpu, SIZES[1])
        self.story.go(wait)

    @rule(pick=PICKS, inherits=st.booleans(), parent_ends=st.booleans(), wait=WAITS)
    def forks(self, pick: int, inherits: bool, parent_ends: bool, wait: float | None) -> None:
        """Let a process have a child, which may inherit its context, and outlive it."""
        proc = self.story.pick(pick)
        if proc is not None:
            self.story.world.fork(proc, inherits=inherits)
            self.story.go(2.0)
            if parent_ends:
                self.story.world.leave(proc)
        self.story.go(wait)

    @rule(pick=PICKS, wait=WAITS)
    def grows(self, pick: int, wait: float | None) -> None:
        """Let a process take more memory."""
        proc = self.story.pick(pick)
        for context in self.story.world.contexts:
            if proc is not None and context.owner == proc.ref:
                context.used = SIZES[2]
        self.story.go(wait)

    @rule(pick=PICKS, sticks=st.booleans(), orphan=st.booleans(), wait=WAITS)
    def leaves(self, pick: int, sticks: bool, orphan: bool, wait: float | None) -> None:
        """Let a process enter its exit by itself; it may hang there."""
        proc = self.story.pick(pick)
        if proc is not None:
            proc.sticks, proc.is_orphan = sticks, orphan
            self.story.world.leave(proc)
        self.story.go(wait)

    @rule(wait=WAITS)
    def comes_loose(self, wait: float | None) -> None:
        """Let what hung go on."""
        for proc in self.story.world.living:
            proc.sticks = False
        self.story.go(wait)

    @rule(pick=PICKS, wait=WAITS)
    def pid_is_reused(self, pick: int, wait: float | None) -> None:
        """Let a process end, and its pid be a stranger's at once."""
        proc = self.story.pick(pick, alive=False)
        if proc is not None:
            reuse(self.story, proc)
        self.story.go(wait)

    @rule(pick=PICKS, how=st.sampled_from(("program", "uid", "hidden", "seen")), wait=WAITS)
    def changes(self, pick: int, how: str, wait: float | None) -> None:
        """Let a process run another program, become protected, or be unreadable."""
        proc = self.story.pick(pick)
        if proc is not None:
            change(proc, how)
        self.story.go(wait)

    @rule(how=st.sampled_from(("program", "uid", "reused", "ends")), wait=WAITS)
    def races(self, how: str, wait: float | None) -> None:
        """Let the next target change right before the last look at it."""
        race(self.story, how)
        self.story.go(wait)

    @rule(name=st.sampled_from(TROUBLES), first=st.booleans(), wait=WAITS)
    def trouble(self, name: str, first: bool, wait: float | None) -> None:
        """Let something happen to the machine."""
        trouble(self.story, name, first=first)
        self.story.go(wait)

    @rule(name=st.sampled_from(PEOPLE), wait=WAITS)
    def people(self, name: str, wait: float | None) -> None:
        """Let somebody do something about the rules."""
        people(self.story, name)
        self.story.go(wait)

    @rule(pick=PICKS, force=st.booleans(), dry_run=st.sampled_from((False, False, False, True)), wait=WAITS)
    def orders_kill(self, pick: int, force: bool, dry_run: bool, wait: float | None) -> None:
        """Let an operator order a process to be ended."""
        proc = self.story.pick(pick)
        if proc is not None:
            self.story.ask(lambda life: operators.order_kill(life, proc, force=force, dry_run=dry_run))
        self.story.go(wait)

    @rule(gpu=GPUS, force=st.booleans(), wait=WAITS)
    def orders_reset(self, gpu: GpuUuid, force: bool, wait: float | None) -> None:
        """Let an operator order a reset."""
        self.story.ask(lambda life: operators.order_reset(life, gpu, force=force))
        self.story.go(wait)

    @rule(boundary=BOUNDARIES, count=st.integers(1, 5), wait=st.sampled_from((2.0, 2.0, 7.0)))
    def death(self, boundary: int | str, count: int, wait: float) -> None:
        """Let the daemon be killed at a boundary to come, any or that of an act, while it goes on."""
        fuse = self.story.host.fuse
        if isinstance(boundary, int):
            fuse.left = boundary
        else:
            fuse.named = boundary
        for _ in range(count):
            self.story.go(wait)

    @rule(boot=st.sampled_from((False, False, False, True)), wait=WAITS)
    def ends(self, boot: bool, wait: float | None) -> None:
        """Let the daemon be killed between two passes, or the machine be booted."""
        self.story.bury()
        if boot:
            self.story.world.boot()
            self.story.host.marks.boot()
        self.story.go(wait)

    @rule(count=st.integers(2, 6), wait=st.sampled_from((1.0, 2.0, 7.0)))
    def time_passes(self, count: int, wait: float) -> None:
        """Let nothing happen for some passes."""
        for _ in range(count):
            self.story.go(wait)
