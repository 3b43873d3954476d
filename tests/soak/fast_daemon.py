"""The daemon with a shorter least interval than a policy may ask for, and a wall clock that runs ahead.

Put before the words that start the daemon (`python -m reclaimerd.daemon.main ...`); those after the
module's name are its options. A day by the wall clock takes half a minute: what is kept for a day
(spent budgets, ends that a cool-down counts) is seen to go, and daily records are seen to come.
"""

import sys
import time

FAST_INTERVAL_SECONDS = 0.05
"""20 passes a second."""
SECONDS_PER_SECOND = 2880.0
MODULE = "reclaimerd.daemon.main"
_BEGAN_AT, _BEGAN_MONO = time.time(), time.monotonic()


def fast_time() -> float:
    """Return the wall clock as it would be if it ran so much faster since the start."""
    return _BEGAN_AT + (time.monotonic() - _BEGAN_MONO) * SECONDS_PER_SECOND


if __name__ == "__main__":
    time.time = fast_time
    from reclaimerd.config import values

    values.LEAST_INTERVAL_SECONDS = FAST_INTERVAL_SECONDS
    sys.argv = ["reclaimerd", *sys.argv[sys.argv.index(MODULE) + 1 :]]
    from reclaimerd.daemon.main import main

    main()
