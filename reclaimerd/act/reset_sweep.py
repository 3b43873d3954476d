"""Remove what old resets have left in STATE/resets: their files are of use to one boot only.

It touches nothing that is not named as a run's file, and nothing that is young. It blocks on the disk.
"""

import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from reclaimerd.host.files import opened_directory
from reclaimerd.model.identity import AttemptId

YOUNG_SECONDS = 86400.0
_KINDS = ("go", "ready", "started", "ended", "claim")
"""The claim goes last: without it a runner that was forgotten could still be given the word."""
_FILE = re.compile(rf"\.?(?P<run>[0-9A-Za-z].*)\.(?P<kind>{'|'.join(_KINDS)})(?:\.[0-9a-f]{{16}}\.new)?")


def swept(directory: Path, keep: Collection[AttemptId]) -> str:
    """Remove the files of runs that are neither kept nor of this boot's last 24 h.

    Return why something stays that should not, or "".
    """
    try:
        with opened_directory(directory) as folder:
            failures = list(_sweep(folder, keep, _oldest_young_at()))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{directory} can't be swept ({error.strerror})"
    return "; ".join(f"{directory}/{failure}" for failure in failures)


def _sweep(folder: int, keep: Collection[AttemptId], young_at: float) -> Iterator[str]:
    """Remove what is to go; yield what could not be removed, and why."""
    found = [match for name in os.listdir(folder) if (match := _FILE.fullmatch(name))]
    young = {match["run"] for match in found if _changed_at(folder, match[0]) >= young_at}
    old = [match for match in found if match["run"] not in young and match["run"] not in keep]
    for match in sorted(old, key=lambda match: _KINDS.index(match["kind"])):
        try:
            os.unlink(match[0], dir_fd=folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield f"{match[0]}: {error.strerror}"


def _changed_at(folder: int, name: str) -> float:
    """Return when a file was last written; one that is gone or can't be looked at counts as old."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _oldest_young_at() -> float:
    """Return the wall time before which a file is old: a day ago, or this boot's begin."""
    now = time.time()
    return now - min(YOUNG_SECONDS, time.clock_gettime(time.CLOCK_BOOTTIME))
