"""What the kubelet's worker answers: who was given which device. Runs in `daemon.worker` alone."""

from collections.abc import Callable, Mapping
from pathlib import Path

from reclaimerd.host.wire import to_wire
from reclaimerd.observe.kubelet import read_kubelet


class KubeletDesk:
    """Role kubelet: one question, asked anew over a connection of its own each time."""

    __slots__ = ()

    def answer(self, op: str, args: Mapping[str, object], emit: Callable[[object], None]) -> None:
        """Answer `list` (socket, runtimes: paths, seconds); raises ReclaimerdError without a list."""
        match op, args:
            case "list", {
                "socket": str(socket),
                "runtimes": [*runtimes],
                "seconds": int() | float() as seconds,
            }:
                paths = [Path(one) for one in runtimes if isinstance(one, str)]
                emit({"kubelet": to_wire(read_kubelet(Path(socket), paths, float(seconds)))})
            case "list", _:
                raise ValueError("`list` takes socket, runtimes and seconds")
            case _:
                raise ValueError(f"the kubelet worker knows no {op!r}")
