"""What the procfs worker answers about names: read aside, so that a disk that hangs stops nothing else.

The questions are the daemon's own (`observe.places`), never a client's; what they name was proven by the
cgroup path before.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reclaimerd.host.wire import to_wire
from reclaimerd.model.process import WorkloadNames
from reclaimerd.observe.container_names import ContainerPlace, read_container_names
from reclaimerd.observe.side_thread import SideThread
from reclaimerd.observe.slurm_host import SlurmPlaces, read_slurm_host
from reclaimerd.observe.slurm_places import read_job_id, read_program

ASIDE_SECONDS = 0.5
"""How long a disk may keep the worker, once: while that reading hangs no other is begun."""


class PlaceRecords:
    """Reads names for one worker."""

    __slots__ = ("_aside",)

    def __init__(self) -> None:
        self._aside = SideThread()

    def answer(self, op: str, args: Mapping[str, object]) -> list[dict[str, object]]:
        """Return the parts of one answer: of `names` one for each that was asked, else one.

        Raises ValueError for a question that makes no sense.
        """
        match op, args.get("root"), args.get("asked"):
            case "scontrol", str(root), _:
                named = str(args.get("named") or "")
                found = self._aside.call(lambda: read_program(Path(root), named), ASIDE_SECONDS)
                return [{"program": found or ""}]
            case "slurm", str(_), _:
                places = _places(args)
                host = self._aside.call(lambda: read_slurm_host(places), ASIDE_SECONDS)
                return [{"slurm": None if host is None else to_wire(host)}]
            case "names", str(root), list(rows):
                asked = [_row(row) for row in rows]
                names = self._aside.call(
                    lambda: [_read_names(row, Path(root)) for row in asked], ASIDE_SECONDS
                )
                told = [None] * len(asked) if names is None else names
                return [{"names": None if one is None else to_wire(one)} for one in told]
        raise ValueError(f"names: {op!r} makes no sense with these arguments")


def _places(args: Mapping[str, object]) -> SlurmPlaces:
    """Return where to look for Slurm; read by hand, because a decoder costs this worker 13 MiB."""
    match args:
        case {"root": str(root), "scontrol": str(scontrol), "slurmd": str(slurmd), "folder": str(folder)}:
            return SlurmPlaces(root, scontrol, slurmd, folder)
    raise ValueError("slurm: asked by root, scontrol, slurmd and folder")


def _row(row: object) -> Sequence[str]:
    match row:
        case [str(container_id), str(path), str(pod_uid)]:
            return (container_id, path, pod_uid)
    raise ValueError("names: asked by container id, cgroup directory and pod uid")


def _read_names(row: Sequence[str], root: Path) -> WorkloadNames | None:
    container_id, path, pod_uid = row
    if container_id:
        return read_container_names(ContainerPlace(container_id, path, pod_uid), root)
    job = read_job_id(path)
    return None if job is None else WorkloadNames(job_id=job)
