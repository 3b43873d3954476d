"""A real terminal of a given size: tmux with a server of its own, whose screen can be read and waited for."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.simulated import wait_until

TMUX = shutil.which("tmux")
WAIT_SECONDS = 30.0
"""A loaded machine may take long to start an interpreter; whoever waits goes on at once when it is there."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """One session; `socket` is its own server's."""

    socket: Path

    def ask(self, *words: str) -> str:
        """Run one tmux command and return what it printed."""
        argv = [str(TMUX), "-u", "-f", "/dev/null", "-S", str(self.socket), *words]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert ran.returncode == 0, f"tmux {words}: {ran.stderr}"
        return ran.stdout

    def screen(self, *options: str) -> str:
        """Return what stands on the screen; with `-e` also its colours."""
        return self.ask("capture-pane", "-p", *options)

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.ask("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Make the window another size."""
        self.ask("resize-window", "-x", str(columns), "-y", str(lines))

    def wait(self, *texts: str, without: Sequence[str] = ()) -> str:
        """Wait until all these texts stand on one screen, and none of the others; return it."""
        last = ""

        def there() -> bool:
            nonlocal last
            last = self.screen()
            return all(text in last for text in texts) and not any(text in last for text in without)

        try:
            wait_until(there, "the screen", WAIT_SECONDS)
        except AssertionError:
            raise AssertionError(f"not on the screen: {texts}, or still: {without}\n{last}") from None
        return last


@contextmanager
def a_terminal(
    command: Sequence[str], size: tuple[int, int] = (120, 30), extra: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run a command in a terminal of columns and lines; its terminal's settings, then `left CODE` follow it.

    `stty -g` is printed before it as `was` and after it as `is`. Nothing of it outlives the block.
    """
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        terminal = Terminal(Path(folder) / "s")
        names = " ".join(f"{key}={shlex.quote(value)}" for key, value in (extra or {}).items())
        call = f"env {names} {shlex.join(command)}"
        line = f'echo "was $(stty -g)"; {call}; c=$?; echo "is $(stty -g)"; echo left $c; cat'
        keep = ["-e", f"PATH={os.environ['PATH']}", "-e", "PYTHONDONTWRITEBYTECODE=1"]
        place = ["-x", str(size[0]), "-y", str(size[1])]
        terminal.ask("new-session", "-d", *place, *keep, line)
        pids = terminal.ask("display-message", "-p", "#{pid} #{pane_pid}").split()
        try:
            yield terminal
        finally:
            terminal.ask("kill-server")
            wait_until(lambda: not any(_alive(pid) for pid in pids), "nothing of it is left", WAIT_SECONDS)


def _alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
