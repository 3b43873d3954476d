"""The daemon with a wall clock that a file shifts: `clock_daemon.py FILE ... -m reclaimerd.daemon.main ...`.

The kernel's own clock is the machine's, and everybody's.
"""

import sys
import time
from contextlib import suppress
from pathlib import Path

MODULE = "reclaimerd.daemon.main"
_true_time = time.time


def shifted() -> float:
    """Return the time, and the seconds that stand in the file on top."""
    with suppress(OSError, ValueError):
        return _true_time() + float(Path(SHIFT).read_text(encoding="ascii"))
    return _true_time()


if __name__ == "__main__":
    SHIFT = sys.argv[1]
    time.time = shifted
    sys.argv = ["reclaimerd", *sys.argv[sys.argv.index(MODULE) + 1 :]]
    from reclaimerd.daemon.main import main

    main()
