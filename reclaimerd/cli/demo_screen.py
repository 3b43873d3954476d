"""What the demo shows: live on a terminal, plain lines elsewhere, and a table at the end."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from reclaimerd.cli.demo_cast import Stage

Rows = Mapping[int, dict[str, Any]]
Incidents = Mapping[str, dict[str, Any]]


class Screen:
    """The demo's screen; `quiet` shows nothing (for --json)."""

    def __init__(self, stage: Stage, policy: str, *, quiet: bool) -> None:
        self._stage = stage
        self._policy = policy
        self._quiet = quiet
        self._live: Any = None
        self._said: dict[str, str] = {}
        self._began = time.monotonic()

    def begin(self) -> None:
        """Say what this is, show the policy, and open the live table on a terminal."""
        if self._quiet:
            return
        self._line("reclaimerd demo: the real daemon on a SIMULATED GPU host with real child processes.")
        self._line("Its policy:")
        for line in self._policy.splitlines():
            self._line(f"  | {line}" if line else "  |")
        if self._stage.without_unkillable:
            self._line(f"Without the unkillable process: {self._stage.without_unkillable}.")
        if sys.stdout.isatty():
            from rich.live import Live  # noqa: PLC0415  # rich is for terminals only

            self._live = Live(refresh_per_second=8, transient=True)
            self._live.start()

    def update(self, rows: Rows, incidents: Incidents) -> None:
        """Show the present state."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(self._table(rows, incidents))
            return
        for one in incidents.values():
            for word in _words(one):
                if word not in self._said.get(one["id"], ""):
                    self._said[one["id"]] = self._said.get(one["id"], "") + word
                    self._line(f"{time.monotonic() - self._began:6.1f} s  pid {one['pid']:>7}  {word}")

    def stop(self) -> None:
        """Close the live table."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def end(self, incidents: Incidents, audit: Mapping[str, Any]) -> None:
        """Show who, what was done, how long, and the result."""
        by_pid = {one["pid"]: one for one in incidents.values()}
        wide = max(len(one.who) for one in self._stage.players)
        self._line("")
        self._line(f"{'PID':>7}  {'WHO':<{wide}}  {'DONE':<32}  {'TOOK':>7}  RESULT")
        for one in self._stage.players:
            found = by_pid.get(one.pid)
            if found is None:
                result = "spared" if one.spared else "nothing happened"
                self._line(f"{one.pid:>7}  {one.who:<{wide}}  {'-':<32}  {'-':>7}  {result}")
                continue
            done = " > ".join(step["stage"] for step in found["stages"] if step["at"] is not None)
            took = (found["ended_at"] or found["opened_at"]) - found["opened_at"]
            self._line(f"{one.pid:>7}  {one.who:<{wide}}  {done:<32}  {took:6.1f}s  {found['end'] or 'open'}")
        for found in by_pid.values():
            for step in found["stages"]:
                if (
                    step["at"] is None
                    and step["stage"] == "reset"
                    and "among the rule" not in step["outcome"]
                ):
                    self._line(f"pid {found['pid']}: reset {step['outcome']}")
            if found["end"] == "handed_over":
                self._line(f"pid {found['pid']}: {found['end_text']}")
        verdict = "intact" if audit["verified"] else "BROKEN: " + "; ".join(audit["faults"])
        self._line(f"audit verify: {audit['records']} records, {verdict}")

    def _table(self, rows: Rows, incidents: Incidents) -> object:
        from rich.table import Table  # noqa: PLC0415  # rich is for terminals only
        from rich.text import Text  # noqa: PLC0415  # the same

        table = Table(title="simulated GPU host", title_justify="left")
        for name in ("pid", "who", "memory", "state", "stage"):
            table.add_column(name, no_wrap=name == "pid")
        by_pid = {one["pid"]: one for one in incidents.values()}
        for one in self._stage.players:
            row, found = rows.get(one.pid), by_pid.get(one.pid)
            used = (row or {}).get("used_bytes")
            memory = "-" if used is None else f"{used / 1024**3:.1f} GiB"
            stage = (
                "spared"
                if found is None and one.spared
                else (found["end"] or found["stage"])
                if found
                else ""
            )
            state = row["state"] if row else "gone"
            table.add_row(str(one.pid), one.who, memory, Text(str(state)), str(stage))
        return table

    def _line(self, text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _words(one: Mapping[str, Any]) -> list[str]:
    words = [f"{one['reason']}"] if one.get("reason") else []
    for step in one["stages"]:
        if step["at"] is not None:
            words.append(f"{step['stage']}: {step['outcome']}")
        elif "among the rule" not in step["outcome"]:
            words.append(f"{step['stage']} {step['outcome']}")
    if one["end"]:
        words.append(f"end: {one['end']} ({one['end_text']})")
    return words
