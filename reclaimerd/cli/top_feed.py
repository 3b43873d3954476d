"""Asks the daemon for `top`, in a thread of its own, so that no key waits for an answer.

One call after the other, never two at once, and reading calls alone. A daemon that is away is asked
again at the same pace; never the engine in the foreground, which would look at the host anew each time.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.cli.client import DaemonSaidNoError, ask_running
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.report import inspect_blocks
from reclaimerd.cli.top_rows import Figures, Inspected, News, figures_of
from reclaimerd.errors import ExitCode, NotAllowedError, ReclaimerdError

IDLE_SECONDS = 15.0
"""Between two pieces of an answer: the daemon may take a fresh look first."""


@dataclass(slots=True)
class Feed:
    """The thread and what it has; `news` is a frozen value, put in place whole."""

    socket: Path
    interval_seconds: float
    clock: Callable[[], float] = time.monotonic
    news: News = field(default_factory=News)
    _wanted: str = ""
    _woken: threading.Event = field(default_factory=threading.Event)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask. The thread ends with the program, also while it waits for an answer."""
        threading.Thread(target=self.run, name="top-feed", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        self._woken.set()

    def inspect(self, ref: str) -> None:
        """Ask for this process too from now on, at once; for none when it is empty."""
        if ref != self._wanted:
            self._wanted = ref
            self._woken.set()

    def run(self) -> None:
        """Ask until told to stop, or until no other answer can come."""
        while not self._stopping.is_set() and self.news.over is None:
            began = self.clock()
            self._woken.clear()
            self.news = replace(self.news, asked_at=began)
            self.news = self.poll()
            self._woken.wait(max(0.0, began + self.interval_seconds - self.clock()))

    def poll(self) -> News:
        """Return the news after one round of calls."""
        done = replace(self.news, asked_at=None)
        try:
            figures = figures_of(self._get("/v1/status"), self._get("/v1/ps"))
            answered = replace(done, figures=figures, answered_at=self.clock(), trouble="")
            return replace(answered, inspected=self._inspected(self._wanted, figures))
        except DaemonSaidNoError as error:
            over = error if error.exit_code is ExitCode.NOT_ALLOWED else None
            return replace(done, trouble=error.message, over=over)
        except NotAllowedError as error:
            return replace(done, over=error)
        except ReclaimerdError as error:
            return replace(done, trouble=error.message)
        except Exception as error:  # noqa: BLE001 - a bug must end this: else old figures would stand for ever
            what = f"an answer of the daemon was not understood: {type(error).__name__}: {error}"
            return replace(done, over=ReclaimerdError(what, "`reclaimctl ps` may tell more"))

    def _inspected(self, ref: str, figures: Figures) -> Inspected | None:
        """Return what is known of one process; of one that left, what was known last."""
        if not ref:
            return None
        last = self.news.inspected
        blocks = last.blocks if last is not None and last.ref == ref else ()
        row = next((row for row in figures.rows if row.ref == ref), None)
        if row is None or row.pid is None:
            return Inspected(ref, blocks, f"process {ref} holds no GPU any more; what was known of it last:")
        try:
            body = self._get(f"/v1/processes/{row.pid}")
        except DaemonSaidNoError as error:
            return Inspected(ref, blocks, error.message)
        if (body.get("process") or {}).get("ref") != ref:
            return Inspected(ref, blocks, f"process {ref} is gone; what was known of it last:")
        return Inspected(ref, tuple(inspect_blocks(body)))

    def _get(self, path: str) -> Json:
        return ask_running(self.socket, Request("GET", path, idle_seconds=IDLE_SECONDS)).body
