"""What happens to the machine, and what people do: by name, so that hypothesis may pick."""

from tests.builders import GPU_A, GPU_B
from tests.machine import operators
from tests.machine.story import Story
from tests.machine.world import OTHER_PROGRAM, SHIELDED_UID, SIZES, Phase, Proc

TROUBLES = (
    "heal", "heal", "driver hangs", "driver answers", "bus", "xid reset", "xid reset", "xid lost",
    "both lost", "xid application", "leak", "disk full", "disk broken", "disk well", "tool hangs",
    "tool fails", "tool works", "nobody to ask", "clock back", "clock forth",
    "clock back a day", "clock forth a day",
)  # fmt: skip
_CODES = {"xid reset": 46, "xid lost": 79, "xid application": 31}
_SHIFTS = {
    "clock back": -400.0,
    "clock forth": 400.0,
    "clock back a day": -86400.0,
    "clock forth a day": 86400.0,
}
PEOPLE = (
    "let act", "let act", "pause", "pause for a while", "resume", "suspend", "suspend for a while",
    "resume rule", "undrain", "hold", "no hold", "observe", "dry run", "no cap", "cap observes", "no mend",
    "faults", "whole", "hog while stopped", "hog while stopped",
    "ordered and leaks", "ordered and killed at it",
)  # fmt: skip


def trouble(story: Story, name: str, *, first: bool) -> None:
    """Let something happen to the machine, on the first GPU or the second where it is about one."""
    world, gpu = story.world, GPU_A if first else GPU_B
    if name in _CODES:
        world.xid(gpu, _CODES[name])
        return
    if name in _SHIFTS:
        world.wall_shift += _SHIFTS[name]
        return
    match name:
        case "heal":
            story.heal()
        case "driver hangs":
            world.hung_since = world.mono if world.hung_since is None else world.hung_since
        case "driver answers":
            world.hung_since = None
        case "bus" if world.cards[gpu].present:
            world.lose(gpu)
        case "bus":
            world.find(gpu)
        case "both lost":
            _lose_both(story)
        case "leak":
            world.cards[gpu].leaks = True
        case _:
            _break(story, name)


def _lose_both(story: Story) -> None:
    """Let one GPU fall off the bus after the other, so that the second's drain may join the first's."""
    for gpu in (GPU_A, GPU_B):
        story.world.xid(gpu, _CODES["xid lost"])
        for _ in range(3):
            story.go(2.0)


def _break(story: Story, name: str) -> None:
    disk, marks = story.world.disk, story.host.marks
    what, how = name.split(" ", 1)
    match what:
        case "disk":
            disk.full, disk.broken = how == "full", how == "broken"
        case "nobody":
            story.host.scheduler.is_away = True
        case _:
            marks.hangs, marks.fails = how == "hangs", how == "fails"


def _hog(story: Story) -> Proc:
    hog = story.world.spawn("train-0.service")
    hog.obeys = False
    story.world.hold(hog, GPU_A, SIZES[1])
    return hog


def _order(story: Story) -> None:
    """Let an operator have a fresh hog ended, and wait for it."""
    hog = _hog(story)
    story.go(2.0)
    story.ask(lambda life: operators.order_kill(life, hog, force=True, dry_run=False))
    _wait(story, 2.0, 7.0, 7.0, 4.0)


def _wait(story: Story, *pauses: float) -> None:
    for seconds in pauses:
        story.go(seconds)


def _people_at(story: Story, name: str) -> None:
    """Let somebody do something just when there is a hog, or bring another policy."""
    match name:
        case "hog while stopped":
            story.let_act()
            story.ask(lambda life: operators.pause(life, None))
            _hog(story)
            _wait(story, 7.0, 2.0)
        case "ordered and leaks":
            story.world.cards[GPU_A].leaks = True
            _order(story)
        case "ordered and killed at it":
            story.host.fuse.named = "after SIGTERM"
            _order(story)
        case _:
            story.reload(name)


def people(story: Story, name: str) -> None:
    """Let somebody do something about the rules."""
    match name:
        case "let act":
            story.let_act()
        case "pause" | "pause for a while":
            story.ask(lambda life: operators.pause(life, None if name == "pause" else 20.0))
        case "suspend" | "suspend for a while":
            story.ask(lambda life: operators.suspend(life, None if name == "suspend" else 20.0))
        case "resume":
            story.ask(operators.resume)
        case "resume rule":
            story.ask(operators.resume_rule)
        case "undrain":
            story.ask(operators.undrain)
        case "hold":
            story.host.hold_file.touch()
            story.oracle.stops.hold = True
        case "no hold":
            story.host.hold_file.unlink(missing_ok=True)
            story.oracle.stops.hold = False
        case _:
            _people_at(story, name)


def change(proc: Proc, how: str) -> None:
    """Let a process run another program, become protected, or hide."""
    match how:
        case "program":
            proc.exe = OTHER_PROGRAM
        case "uid":
            proc.uid = SHIELDED_UID
        case _:
            proc.readable = how == "seen"


def reuse(story: Story, proc: Proc) -> None:
    """End a process, and give its pid to a stranger at once."""
    story.world.vanish(proc)
    story.world.spawn("stranger.service", 1001, pid=proc.ref.pid)


def race(story: Story, how: str) -> None:
    """Let the next target change between the look that judged it and the last one."""

    def happen(proc: Proc) -> None:
        if proc.phase is not Phase.ALIVE:
            return
        match how:
            case "reused":
                reuse(story, proc)
            case "ends":
                story.world.vanish(proc)
            case _:
                change(proc, how)

    story.host.kernel.races[:] = [happen]
