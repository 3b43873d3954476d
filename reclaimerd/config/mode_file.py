"""Changes the mode of one rule in the policy file, in place and whole; the one place that writes that file.

Only for root, only a plain file of root's that nobody else can write, and only one line of it. Readers see
the old file or the new one. Nothing comes into force by it: the daemon is told to reload.
"""

import os
import stat
from pathlib import Path

from reclaimerd.config.mode_line import ModeLine, NotPlainError, mode_line, with_mode
from reclaimerd.config.source import MOST_FILE_BYTES, Source, read_source
from reclaimerd.errors import NotAllowedError, ReclaimerdError
from reclaimerd.host.files import opened_directory, read_bounded, write_beside
from reclaimerd.model.policy import Mode

_SET_BY_THE_KERNEL = frozenset({"security.selinux"})


def read_mode_line(path: Path, rule: str, mode: Mode) -> ModeLine:
    """Return the line that would have to change. Raises ReclaimerdError."""
    return mode_line(_source(path), rule, mode)


def write_mode(path: Path, rule: str, mode: Mode) -> ModeLine:
    """Change that line and return it; raise ReclaimerdError, and then the file is as it was.

    Owner, group and permissions stay. A link, a second name of the file, access lists and whatever else a
    new file would lose are refused.
    """
    if os.geteuid() != 0:
        raise NotAllowedError("the policy file is root's to change", "run this as root")
    source = _source(path)
    if source.concerns:
        raise NotPlainError(source.concerns[0], "mend that first")
    found = mode_line(source, rule, mode)
    content = with_mode(source, rule, mode)
    try:
        _replace(path, source.content, content)
    except OSError as error:
        raise ReclaimerdError(
            f"{path} can't be changed: {error.strerror or error}", "edit it by hand"
        ) from error
    return found


def _source(path: Path) -> Source:
    try:
        return read_source(path)
    except OSError as error:
        what = f"{path} can't be read: {error.strerror or error}"
        raise ReclaimerdError(what, "name the policy with --config") from error


def _replace(path: Path, before: bytes, content: bytes) -> None:
    """Put the new bytes in the file's place, if it is still the file that was read."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise NotPlainError(f"{path} is a link, or has another name besides", "edit it by hand")
    more = sorted(set(os.listxattr(path, follow_symlinks=False)) - _SET_BY_THE_KERNEL)
    if more:
        raise NotPlainError(f"{path} has {', '.join(more)}, which a new file would lose", "edit it by hand")
    with opened_directory(path.parent) as directory:
        temporary = write_beside(directory, path.name, content, stat.S_IMODE(status.st_mode))
        try:
            os.chown(temporary, status.st_uid, status.st_gid, dir_fd=directory, follow_symlinks=False)
            _must_be(path, directory, before)
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)


def _must_be(path: Path, directory_fd: int, before: bytes) -> None:
    """Raise NotPlainError where the file is not any more what was read and checked."""
    if read_bounded(directory_fd, path.name, MOST_FILE_BYTES) != before:
        raise NotPlainError(f"{path} was changed by somebody else meanwhile", "look at it, and try again")
