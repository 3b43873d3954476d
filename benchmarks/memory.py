"""How much memory all our processes take: PSS of the daemon and of its workers.

In the simulation with 8 GPUs and 64 holders of 50 threads, after some passes and the first full scan.
PSS counts a page shared by n processes as 1/n (proc(5), smaps_rollup): other Python programs on the
machine make it smaller, so the private part stands beside it.

    .venv/bin/python benchmarks/memory.py [--passes 40]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# After the line above: `python benchmarks/memory.py` has this folder on its path, not the one above.
from benchmarks.rig import HOLDERS, daemon, hold, print_table, rollup_bytes, simulated_host
from reclaimerd.cli.http_socket import Request, ask_daemon

POLICY = '[daemon]\nmode = "observe"\ninterval = "200ms"\n'
GOAL_BYTES = 84 << 20
MIB = 1 << 20


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--passes", type=int, default=40)
    chosen = options.parse_args()
    with simulated_host() as keeper:
        hold(keeper, HOLDERS, 50)
        with daemon(keeper, POLICY) as running:
            running.wait_passes(chosen.passes)
            # Somebody has asked: only then the worker runs that looks at who comes to the door.
            ask_daemon(keeper.directory / "reclaimerd.sock", Request("GET", "/v1/ps"), None)
            running.wait_passes(2)
            pids = running.pids()
            shares = {name: rollup_bytes(pid, "Pss") for name, pid in pids.items()}
            private = {
                name: rollup_bytes(pid, "Private_Clean") + rollup_bytes(pid, "Private_Dirty")
                for name, pid in pids.items()
            }
    rows = [
        (f"PSS of {name} (private {private[name] / MIB:.1f} MiB)", f"{shares[name] / MIB:.1f} MiB", "")
        for name in pids
    ]
    total = sum(shares.values())
    rows.append(("PSS in all", f"{total / MIB:.1f} MiB", f"<= {GOAL_BYTES / MIB:.0f} MiB"))
    print_table(f"memory, {HOLDERS} holders of 50 threads, {chosen.passes} passes", rows)


if __name__ == "__main__":
    main()
