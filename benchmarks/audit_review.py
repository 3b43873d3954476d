"""How quickly a big audit log is reviewed: a million records, about 1 GB, in full files packed and not.

Makes the log once, in a folder of its own (kept with --keep, used again with --log-dir), then measures
the commands that people use, each a process of its own, wall clock; and the peak of their memory.

    .venv/bin/python benchmarks/audit_review.py [--records 1000000] [--plain] [--keep DIR] [--log-dir DIR]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# After the line above: `python benchmarks/audit_review.py` has this folder on its path, not the one above.
from benchmarks.rig import clean_environment, print_table
from reclaimerd.record.audit_keeping import pack_full_files
from reclaimerd.record.chain import FIRST_PREVIOUS, Head, Stamp, rotated_name, sealed_line

PROGRAM = Path(sys.executable).with_name("reclaimctl")
FILE_BYTES = 64 << 20
USERS, GPUS, RULES = 50, 8, 5
BEGAN = 1.79e9
GAP_SECONDS = 2.0
BOOT = "5e0f9a4c-0000-4000-8000-000000000000"
KINDS = ("incident_opened", "intent", "outcome", "refused", "intent", "outcome", "note", "incident_ended")


def bodies() -> Iterator[dict[str, Any]]:
    """Return the bodies of records without end: incidents of eight records, as the daemon writes them."""
    for number in count():
        pid = 1000 + number % 4_000_000
        ref: dict[str, Any] = {"boot_id": BOOT, "pid": pid, "start_ticks": 9_000_000 + number}
        gpu = f"GPU-00000000-0000-4000-8000-{number % GPUS:012d}"
        target = {
            "scope": "tree",
            "root": ref,
            "members": [ref],
            "gpus": [gpu],
            "uid": 1000 + number % USERS,
            "exe": "/usr/bin/python3.11",
            "command": f"python train.py --config runs/{number}/config.yaml --epochs 90 --batch-size 256",
            "workload": {
                "kind": "pod",
                "name": f"pod-{number % 977}",
                "path": f"/kubepods/pod{number % 977}",
            },
            "held_bytes": [[gpu, 8 << 30]],
        }
        actor = {"kind": "rule", "name": f"rule-{number % RULES}", "policy_digest": "ab" * 32}
        for step, kind in enumerate(KINDS):
            body: dict[str, Any] = {
                "kind": kind,
                "incident": f"inc-{number:x}-{number % 65521:04x}",
                "actor": actor,
            }
            body |= {"action": "sigkill" if step > 3 else "sigterm"} if kind in {"intent", "outcome"} else {}
            body |= {"target": target, "reason": f"it held 8.0 GiB over its cap for {number % 600} s"}
            if kind == "intent":
                body["gates"] = [{"gate": "mode", "text": "enforce"}, {"gate": "budgets", "text": "2 left"}]
            if kind == "outcome":
                body["outcome"] = {"kind": "sent", "targets": [{"ref": ref, "kind": "sent"}]}
            if kind == "incident_ended":
                body |= {"end": "reclaimed", "proof": {"kind": "exclusive", "text": "gone, memory is back"}}
            yield body


def make_log(directory: Path, records: int, *, packed: bool) -> None:
    """Write the log as the daemon would, full files put aside, and packed."""
    directory.mkdir(parents=True, exist_ok=True)
    head, size, first = Head(0, FIRST_PREVIOUS), 0, 1
    current = directory / "audit.jsonl"
    stream = current.open("wb")
    for number, body in zip(range(records), bodies(), strict=False):
        stamp = Stamp(BEGAN + number * GAP_SECONDS, number * GAP_SECONDS, BOOT, "gpu-host-1")
        line, head = sealed_line(head, stamp, body)
        if size + len(line) > FILE_BYTES:
            stream.close()
            current.rename(directory / rotated_name(first))
            stream, size, first = current.open("wb"), 0, head.seq
        stream.write(line)
        size += len(line)
    stream.close()
    if packed:
        pack_full_files(directory)


def measured(directory: Path, *words: str) -> str:
    """Return wall seconds, CPU seconds and peak memory of one `reclaimctl audit`."""
    argv = [str(PROGRAM), "audit", *words, "--log-dir", str(directory), "--state-dir", str(directory)]
    began = time.monotonic()
    null = os.open(os.devnull, os.O_WRONLY)
    pid = os.posix_spawn(argv[0], argv, clean_environment(), file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
    os.close(null)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"reclaimctl audit {' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}")
    return f"{seconds:.1f} s (CPU {usage.ru_utime + usage.ru_stime:.1f} s, {usage.ru_maxrss // 1024} MiB)"


def report(directory: Path, records: int) -> None:
    """Measure and print; the load of the machine stands beside."""
    incident = records // 16
    name, gpu = f"inc-{incident:x}-{incident % 65521:04x}", f"GPU-00000000-0000-4000-8000-{3:012d}"
    cases = (
        ("verify", ("verify",), "<= 10 s"),
        ("list, newest 50", ("list",), "<= 2 s"),
        ("list of one incident, no index", ("list", "--incident", name), ""),
        ("make the index", ("index",), ""),
        ("list of one incident", ("list", "--incident", name), "<= 2 s"),
        ("list of one pid", ("list", "--pid", str(1000 + incident)), "<= 2 s"),
        ("list of a user's failures (none)", ("list", "--user", "1007", "--outcome", "failed"), "<= 2 s"),
        ("list of a rule and a GPU", ("list", "--rule", "rule-3", "--gpu", gpu), "<= 2 s"),
        ("list of a text, found nowhere", ("list", "--text", "no such text"), ""),
        ("the story of one incident", ("show", name), "<= 2 s"),
        ("statistics of everything", ("stats",), ""),
        ("export one user as CSV", ("export", "--format", "csv", "--user", "1007"), ""),
    )  # fmt: skip
    rows = []
    for what, words, goal in cases:
        rows.append((what, measured(directory, *words), goal))
    size = sum(path.stat().st_size for path in directory.glob("audit*.jsonl*"))
    index = (directory / "audit-index.sqlite").stat().st_size
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print_table(
        f"{records} records, {size / 1e6:.0f} MB on disk, index {index / 1e6:.0f} MB; load average {load}",
        rows,
    )


def main() -> None:
    """Make the log, measure, print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--plain", action="store_true", help="leave full files unpacked")
    options.add_argument("--keep", type=Path, help="make the log here, and keep it")
    options.add_argument("--log-dir", type=Path, help="measure a log that --keep made")
    asked = options.parse_args()
    if asked.log_dir:
        (asked.log_dir / "audit-index.sqlite").unlink(missing_ok=True)
        report(asked.log_dir, asked.records)
        return
    with tempfile.TemporaryDirectory(prefix="audit-review-") as place:
        directory = asked.keep or Path(place) / "log"
        began = time.monotonic()
        make_log(directory, asked.records, packed=not asked.plain)
        print(f"made in {time.monotonic() - began:.0f} s in {directory}")
        report(directory, asked.records)


if __name__ == "__main__":
    main()
