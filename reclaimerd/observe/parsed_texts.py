"""Parse a process's stat and status only when they have changed since its last look. Reads nothing."""

from reclaimerd.host.proc_text import StatText, StatusText, parse_stat, parse_status
from reclaimerd.observe.recent import IDLE_ROUNDS, Recent

_MOST_REMEMBERED = 4096


class ParsedTexts:
    """The last texts of each pid, beside what they say; an equal text says the same."""

    def __init__(self) -> None:
        self._leaders: Recent[int, tuple[str, StatText]] = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)
        self._statuses: Recent[int, tuple[str, StatusText]] = Recent(_MOST_REMEMBERED, IDLE_ROUNDS)

    def leader(self, text: str, pid: int) -> StatText:
        """Return what a leader's stat line says; raises ValueError for a text that is none."""
        remembered = self._leaders.get(pid)
        if remembered is not None and remembered[0] == text:
            return remembered[1]
        leader = parse_stat(text)
        self._leaders.put(pid, (text, leader))
        return leader

    def status(self, text: str, pid: int) -> StatusText:
        """Return what we use of a status file; raises ValueError for a text that is none."""
        used = text[: text.find("\nSigBlk:") + 1]
        remembered = self._statuses.get(pid)
        if remembered is not None and remembered[0] == used:
            return remembered[1]
        status = parse_status(used)
        self._statuses.put(pid, (used, status))
        return status
