"""A simulated GPU host inside a booted systemd: `stage.py DIR`, told what to do by JSON lines on stdin.

It says {} when the host stands, and answers each line by one. At end of file all that it started ends.
"""

import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from reclaimerd.simulation.host import read_simulated_host, write_simulated_host
from reclaimerd.simulation.keeper import Keeper
from reclaimerd.simulation.raw_fuse import RawFuse
from tests.rigs.simulated import TWO_GPUS


def serve(directory: Path) -> None:
    """Answer every line."""
    with ExitStack() as stack, Keeper(directory, TWO_GPUS) as keeper:
        fuse: RawFuse | None = None
        sys.stdout.write("{}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            answer: dict[str, object] = {}
            match json.loads(line):
                case {"op": "launch", "words": list(words)}:
                    answer = {"pid": keeper.launch(*words).pid}
                case {"op": "hang"}:
                    fuse = stack.enter_context(RawFuse(withhold="read"))
                    _block_on(directory, str(fuse.path("driver")))
                    fuse.wait_withheld(timeout=30.0)
                case {"op": "free"} if fuse is not None:
                    _block_on(directory, "")
                    fuse.release()
                case asked:
                    answer = {"error": f"no such request: {asked}"}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


def _block_on(directory: Path, path: str) -> None:
    write_simulated_host(directory, replace(read_simulated_host(directory), block_on=path))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
