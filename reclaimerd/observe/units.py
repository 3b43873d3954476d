"""What systemd says of the units that a reset may have to stop, and of a scheduler's node agent.

Asks by a child with a deadline (`systemctl show`) and changes nothing. What a stop of a unit would reach
is walked to its end, or there is no answer at all.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from reclaimerd.host.child import OUTPUT_LIMIT_BYTES, Finished, Overran, run_bounded
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.reset_facts import UnitFacts, UnitState

SCHEDULERS = (
    "kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service",
    "slurmd.service",
)  # fmt: skip
FABRIC_MANAGER = "nvidia-fabricmanager.service"
PROPERTIES = "Id,LoadState,ActiveState,RequiredBy,BoundBy,ConsistsOf,PropagatesStopTo,TriggeredBy"
_STOPS = ("RequiredBy", "BoundBy", "ConsistsOf", "PropagatesStopTo")
"""A stop of the unit stops these too (systemd.unit(5))."""
MOST_UNITS = 64
MOST_SECONDS = 5.0
_NOT_RUNNING = frozenset({"inactive", "failed"})

Shown = dict[str, dict[str, str]]
"""Each unit's properties, by the name it was asked for."""


class RunPort(Protocol):
    """Runs one program to its end or its deadline."""

    def __call__(self, argv: Sequence[str], *, deadline_seconds: float) -> Awaitable[Finished | Overran]:
        """Return what came of it."""
        ...


@dataclass(frozen=True, slots=True)
class NoSystemd:
    """There is no systemd on this host: nothing is a unit."""


class UnitReader:
    """Reads units by `systemctl` (absolute path), on a host where `booted` exists."""

    __slots__ = ("_booted", "_clock", "_run", "_systemctl")

    def __init__(
        self,
        clock: Callable[[], float],
        systemctl: Path = Path("/usr/bin/systemctl"),
        booted: Path = Path("/run/systemd/system"),
        run: RunPort = run_bounded,
    ) -> None:
        self._clock = clock
        self._systemctl = systemctl
        self._booted = booted
        self._run = run

    async def read(self, names: Sequence[str]) -> Reading[UnitFacts] | NoSystemd:
        """Return these units, what a stop of them reaches, and the schedulers; at most 5 s, 64 units."""
        if not self._booted.exists():
            return NoSystemd()
        until = self._clock() + MOST_SECONDS
        wanted = list(dict.fromkeys(names))
        shown: Shown = {}
        new = list(dict.fromkeys([*wanted, *SCHEDULERS, FABRIC_MANAGER]))
        while new:
            if len(shown) + len(new) > MOST_UNITS:
                return Unreadable(f"a stop would reach more than {MOST_UNITS} units")
            found = await self._show(new, until)
            if isinstance(found, str):
                return Unreadable(found)
            shown |= found
            new = sorted(_needed(shown, wanted) - shown.keys())
        return Known(facts_of(shown, wanted))

    async def _show(self, names: Sequence[str], until: float) -> Shown | str:
        argv = [str(self._systemctl), "show", "-p", PROPERTIES, "--", *names]
        left = until - self._clock()
        if left <= 0:
            return f"systemctl took longer than {MOST_SECONDS:g} s"
        try:
            ended = await self._run(argv, deadline_seconds=left)
        except (OSError, ValueError) as error:
            return f"systemctl can't be run: {error}"
        match ended:
            case Overran():
                return f"systemctl took longer than {MOST_SECONDS:g} s"
            case Finished(code=0, out=out) if len(out) < OUTPUT_LIMIT_BYTES:
                return parse_show(out, names)
            case Finished(code=0):
                return "systemctl said too much"
            case Finished(code=code, err=err):
                return f"systemctl show: exit code {code}: {err.strip()[:200] or 'no words'}"


def parse_show(text: str, names: Sequence[str]) -> Shown | str:
    """Return each unit's properties, in the order asked, or what is wrong with the answer; pure."""
    blocks = [block for block in text.strip().split("\n\n") if block.strip()]
    if len(blocks) != len(names):
        return f"systemctl showed {len(blocks)} of {len(names)} units"
    shown: Shown = {}
    for name, block in zip(names, blocks, strict=True):
        rows = (line.partition("=") for line in block.splitlines())
        shown[name] = {key: value for key, _, value in rows}
        if not {"LoadState", "ActiveState"} <= shown[name].keys():
            return f"systemctl does not tell the state of {name}"
    return shown


def _stopped_with(shown: Shown, name: str) -> dict[str, None]:
    """Return the units that a stop of this one reaches, as far as was shown."""
    itself = {name, shown[name].get("Id") or name}
    reached: dict[str, None] = {}
    waiting = [name]
    while waiting:
        unit = shown.get(waiting.pop(0), {})
        for other in (other for key in _STOPS for other in unit.get(key, "").split()):
            if other not in reached and other not in itself:
                reached[other] = None
                waiting.append(other)
    return reached


def _triggers(shown: Shown, name: str) -> list[str]:
    return shown[name].get("TriggeredBy", "").split()


def _needed(shown: Shown, wanted: Sequence[str]) -> set[str]:
    """Return every unit whose state matters, as far as is known yet."""
    return {other for name in wanted for other in (*_stopped_with(shown, name), *_triggers(shown, name))}


def facts_of(shown: Shown, wanted: Sequence[str]) -> UnitFacts:
    """Return the facts that a whole walk amounts to; pure."""
    return UnitFacts(
        units=tuple(_state(shown, name) for name in wanted),
        schedulers=tuple(name for name in SCHEDULERS if _is_active(shown, name)),
        fabric_manager=_is_active(shown, FABRIC_MANAGER),
    )


def _state(shown: Shown, name: str) -> UnitState:
    return UnitState(
        name=name,
        loaded=shown[name]["LoadState"] == "loaded",
        active=shown[name]["ActiveState"],
        stops_too=tuple(sorted(other for other in _stopped_with(shown, name) if _is_active(shown, other))),
        triggers=tuple(sorted(other for other in _triggers(shown, name) if _is_active(shown, other))),
    )


def _is_active(shown: Shown, name: str) -> bool:
    """Tell whether a unit runs, starts or stops; one that was not shown counts as running."""
    unit = shown.get(name)
    return unit is None or unit["ActiveState"] not in _NOT_RUNNING


def units_of(clock: Callable[[], float], simulate: Path | None) -> UnitReader:
    """Return the reader for this host, or for a simulated one (its `DIR/systemctl`, where there is one)."""
    if simulate is None:
        return UnitReader(clock)
    return UnitReader(clock, systemctl=simulate / "systemctl", booted=simulate / "systemctl")
