"""How long from the start of `reclaimctl kill` to the signal: through the daemon, and in the foreground.

The target itself notes when SIGTERM came (CLOCK_MONOTONIC, which all processes share). Medians of
several kills, each of a target of its own; wall-clock, so a busy machine spoils them.

    .venv/bin/python benchmarks/start_time.py [--rounds 9]
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# After the line above: `python benchmarks/start_time.py` has this folder on its path, not the one above.
from benchmarks.rig import clean_environment, daemon, print_table, simulated_host
from reclaimerd.simulation.keeper import Keeper

TARGET = Path(__file__).with_name("target.py")
PROGRAM = Path(sys.executable).with_name("reclaimctl")
DAEMON_GOAL_MS = 150
FOREGROUND_GOAL_MS = 600
POLICY = '[daemon]\nmode = "observe"\n'


def launch(keeper: Keeper, rounds: int) -> list[tuple[int, Path]]:
    """Start the targets; return each one's pid and where it notes the time."""
    notes = [keeper.directory.parent / f"note-{number}" for number in range(rounds)]
    argvs = [
        [sys.executable, str(TARGET), str(keeper.directory), f"GPU-{number % 8}", str(note)]
        for number, note in enumerate(notes)
    ]
    return [(one.pid, note) for one, note in zip(keeper.launch_commands(argvs), notes, strict=True)]


def milliseconds_to_signal(keeper: Keeper, pid: int, note: Path) -> float:
    """Kill one target by the command that people use, and return how long its signal took."""
    argv = [str(PROGRAM), "kill", "--pid", str(pid), "--simulate", str(keeper.directory)]
    policy = keeper.directory.parent / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    environment = clean_environment()
    began = time.monotonic_ns()
    done = subprocess.run(
        [*argv, "--config", str(policy)], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise SystemExit(f"the kill ended with exit code {done.returncode}: {done.stdout}{done.stderr}")
    return (int(note.read_text(encoding="ascii")) - began) / 1e6


def measured(rounds: int, *, through_daemon: bool) -> list[float]:
    """Return the milliseconds of each kill, with a daemon or without."""
    with simulated_host() as keeper:
        targets = launch(keeper, rounds + 1)
        if not through_daemon:
            milliseconds_to_signal(keeper, *targets.pop())  # the first writes the bytecode that is missing
            return [milliseconds_to_signal(keeper, *target) for target in targets]
        with daemon(keeper, POLICY):
            milliseconds_to_signal(keeper, *targets.pop())
            return [milliseconds_to_signal(keeper, *target) for target in targets]


def row(what: str, figures: list[float], goal: int) -> tuple[str, str, str]:
    """Return one line of the table."""
    span = f"{min(figures):.0f} to {max(figures):.0f}"
    return f"{what} ({span})", f"{statistics.median(figures):.0f} ms", f"<= {goal} ms"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    through = measured(rounds, through_daemon=True)
    alone = measured(rounds, through_daemon=False)
    print_table(
        f"from the start of `reclaimctl kill` to the signal, {rounds} kills each",
        [
            row("through the daemon", through, DAEMON_GOAL_MS),
            row("in the foreground", alone, FOREGROUND_GOAL_MS),
        ],
    )


if __name__ == "__main__":
    main()
