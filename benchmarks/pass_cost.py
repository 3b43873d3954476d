"""What one pass costs: CPU of the daemon and of its workers, seen from outside, and the idle share.

In the simulation: 8 GPUs, 64 holders of 1, 10 and 50 threads, and 2,000 other processes. The mean of
many passes at the shortest interval, so the rare parts (a look at every thread each 30 s, the full
scan each 60 s) are in it as often as they come; the shares are measured at the shipped interval.

    .venv/bin/python benchmarks/pass_cost.py [--passes 150] [--idle-passes 60] [--others 2000]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# After the line above: `python benchmarks/pass_cost.py` has this folder on its path, not the one above.
from benchmarks.rig import (
    HOLDERS,
    OTHERS,
    cpu_of_passes,
    daemon,
    hold,
    print_table,
    simulated_host,
    sleepers,
)

QUICK = '[daemon]\nmode = "observe"\ninterval = "200ms"\n'
SHIPPED = '[daemon]\nmode = "observe"\n'
RULE = '\n[[rule]]\nname = "cap"\nkind = "memory"\nabove = "70%"\naction = "observe"\n'
PASS_GOAL_SECONDS = 0.010
SHARE_GOAL_PERCENT = 0.5
INTERVAL_SECONDS = 2.0


def measured(policy: str, passes: int, holders: int, threads: int) -> dict[str, float]:
    """Return the CPU seconds of one pass of each of our processes, with so many holders."""
    with simulated_host() as keeper:
        if holders:
            hold(keeper, holders, threads)
        with daemon(keeper, policy + RULE) as running:
            running.wait_passes(3)
            return cpu_of_passes(running, passes)


def pass_row(threads: int, parts: dict[str, float]) -> tuple[str, str, str]:
    """Return one line of the table: a pass with holders of so many threads."""
    shares = ", ".join(f"{name} {seconds * 1000:.1f}" for name, seconds in parts.items())
    target = f"<= {PASS_GOAL_SECONDS * 1000:.0f} ms" if threads == 50 else ""
    what = f"CPU of a pass, {HOLDERS} holders of {threads:2} threads ({shares})"
    return what, f"{sum(parts.values()) * 1000:.1f} ms", target


def share_row(what: str, parts: dict[str, float]) -> tuple[str, str, str]:
    """Return one line of the table: the share of a core at the shipped interval."""
    share = sum(parts.values()) / INTERVAL_SECONDS * 100
    return what, f"{share:.2f} %", f"<= {SHARE_GOAL_PERCENT} %"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--passes", type=int, default=150)
    options.add_argument("--idle-passes", type=int, default=60)
    options.add_argument("--others", type=int, default=OTHERS)
    options.add_argument("--threads", type=int, nargs="*", default=[1, 10, 50])
    chosen = options.parse_args()
    with sleepers(chosen.others):
        rows = [
            pass_row(threads, measured(QUICK, chosen.passes, HOLDERS, threads)) for threads in chosen.threads
        ]
        if chosen.idle_passes:
            idle = measured(SHIPPED, chosen.idle_passes, 0, 0)
            rows.append(share_row("share of a core at 2 s, nobody holds a GPU", idle))
            busy = measured(SHIPPED, chosen.idle_passes, HOLDERS, 50)
            rows.append(share_row(f"share of a core at 2 s, {HOLDERS} holders of 50 threads", busy))
    print_table(f"a pass, 8 GPUs, {chosen.others} other processes", rows)


if __name__ == "__main__":
    main()
