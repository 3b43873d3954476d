"""What a procfs worker answers for rules about programs, and about processes that are hidden."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from reclaimerd.host.wire import to_wire
from reclaimerd.observe.hidden import read_hidden
from reclaimerd.observe.proc_files import words_of

if TYPE_CHECKING:
    from reclaimerd.observe.program_signs import SignReader

Emit = Callable[[object], None]


def answer_hidden(pids: Sequence[int]) -> object:
    """Return those of the pids that live and that /proc hides, each with how."""
    return {"hidden": [[pid, how] for pid, how in read_hidden(pids).items()]}


def answer_signs(
    reader: "SignReader", args: Mapping[str, object], emit: Emit, at: Callable[[int], None]
) -> None:
    """Answer with a part for each process of `asked` (pid, start ticks), but for those of `without`.

    `at` hears each pid before it is looked at; the parts between are signs of life. Raises ValueError
    for a question that makes no sense.
    """
    without = args.get("without", [])
    for pid, start_ticks in _asked(args):
        if isinstance(without, list) and pid in without:
            emit({"pid": pid, "unreadable": "it did not answer before"})
            continue
        at(pid)
        emit(_signs_of(reader, pid, start_ticks, lambda: emit({"reading": True})))


def _signs_of(reader: "SignReader", pid: int, start_ticks: int, alive: Callable[[], None]) -> object:
    try:
        return to_wire(reader.read(pid, start_ticks, alive))
    except ProcessLookupError:
        return {"pid": pid, "unreadable": "it is gone"}
    except OSError as error:
        return {"pid": pid, "unreadable": words_of(error)}
    except ValueError as error:
        return {"pid": pid, "unreadable": str(error)}


def _asked(args: Mapping[str, object]) -> list[tuple[int, int]]:
    rows = args.get("asked")
    found = []
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case [int(pid), int(start_ticks)]:
                found.append((pid, start_ticks))
            case _:
                raise ValueError("`asked` must be pairs of a pid and its start ticks")
    return found
