"""What the worker `cri` answers: what a pod's containers are called. Runs in `daemon.worker` alone."""

from collections.abc import Callable, Mapping
from pathlib import Path

from reclaimerd.host.wire import to_wire
from reclaimerd.observe.cri import CriQuestion, read_cri_names


class CriDesk:
    """Role cri: one question, asked anew over connections of its own each time."""

    __slots__ = ()

    def answer(self, op: str, args: Mapping[str, object], emit: Callable[[object], None]) -> None:
        """Answer `names` (sockets: paths, asked: rows of container id and pod uid, seconds).

        A part for each container that a runtime told of; raises ReclaimerdError where none answered.
        """
        match op, args:
            case "names", {
                "sockets": [*sockets],
                "asked": [*rows],
                "seconds": int() | float() as seconds,
            }:
                paths = [Path(one) for one in sockets if isinstance(one, str)]
                found = read_cri_names(paths, [_question(row) for row in rows], float(seconds))
                for one, names in found.items():
                    told = to_wire(names)
                    emit({"container": one.container_id, "pod_uid": one.pod_uid, "names": told})
            case "names", _:
                raise ValueError("`names` takes sockets, asked and seconds")
            case _:
                raise ValueError(f"the cri worker knows no {op!r}")


def _question(row: object) -> CriQuestion:
    match row:
        case [str(container_id), str(pod_uid)]:
            return CriQuestion(container_id, pod_uid)
    raise ValueError("names: asked by container id and pod uid")
