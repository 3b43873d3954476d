"""How long commands take to start: `--help`, `status`, and a `kill` from its start to the signal.

Each beside `python3 -c pass`, which is what the interpreter itself costs on this machine at this moment: the
runs take turns, so a busy machine spoils both alike and their ratio less. For a kill the target itself notes
when SIGTERM came (CLOCK_MONOTONIC, which all processes share). Medians of several runs; wall-clock.

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
HELP_GOAL_MS = 120
STATUS_GOAL_MS = 200
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


def milliseconds_of(argv: list[str]) -> float:
    """Run one command to its end and return how long that took."""
    began = time.monotonic_ns()
    subprocess.run(argv, capture_output=True, check=False, env=clean_environment())
    return (time.monotonic_ns() - began) / 1e6


def looked(rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return the milliseconds of a bare interpreter, of `--help` and of `status`, run in turns."""
    with simulated_host() as keeper, daemon(keeper, POLICY):
        launch(keeper, 8)
        commands = (
            [sys.executable, "-c", "pass"],
            [str(PROGRAM), "--help"],
            [str(PROGRAM), "status", "--simulate", str(keeper.directory)],
        )
        for command in commands:
            milliseconds_of(command)  # the first writes the bytecode that is missing
        bare, shown, status = zip(
            *([milliseconds_of(one) for one in commands] for _ in range(rounds)), strict=True
        )
    return list(bare), list(shown), list(status)


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


def row(what: str, figures: list[float], bare: float, goal: int) -> tuple[str, str, str]:
    """Return one line of the table: the median, and how many bare interpreters it is."""
    span = f"{min(figures):.0f} to {max(figures):.0f}"
    middle = statistics.median(figures)
    return f"{what} ({span})", f"{middle:.0f} ms, {middle / bare:.1f} x", f"<= {goal} ms"


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    bare_runs, shown, status = looked(rounds)
    bare = statistics.median(bare_runs)
    through = measured(rounds, through_daemon=True)
    alone = measured(rounds, through_daemon=False)
    print_table(
        f"from the start of a command, {rounds} runs each; `python3 -c pass` takes {bare:.0f} ms",
        [
            row("`reclaimctl --help`", shown, bare, HELP_GOAL_MS),
            row("`status` through the daemon", status, bare, STATUS_GOAL_MS),
            row("`kill` to the signal, through the daemon", through, bare, DAEMON_GOAL_MS),
            row("`kill` to the signal, in the foreground", alone, bare, FOREGROUND_GOAL_MS),
        ],
    )


if __name__ == "__main__":
    main()
