"""Checks of `doctor` about what is kept: folders, room, the audit log's end, who writes, and the clock.

A reader writes nothing: room is asked with statvfs, permission by looking.
"""

import ctypes
import os
import stat
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from reclaimerd.cli.doctor_host import Host
from reclaimerd.cli.doctor_words import Said, fail, gravest, ok, unknown, warn
from reclaimerd.cli.http_socket import NoAnswer
from reclaimerd.cli.render import age_text, size_text
from reclaimerd.record.audit_files import each_file
from reclaimerd.record.audit_read import read_records
from reclaimerd.record.audit_tail import broken_why, read_tail
from reclaimerd.record.chain import Head
from reclaimerd.record.reserve import RESERVE_NAME
from reclaimerd.record.store import STORE_NAME, Store
from reclaimerd.record.writer_claim import current_writer

_LEAST_BYTES, _FEW_BYTES = 64 << 20, 1 << 30
_LEAST_INODES, _FEW_INODES = 100, 10_000
_OTHERS_WRITE, _OTHERS = 0o022, 0o077
_AHEAD_SECONDS = 60.0
"""A clock that was set back by less is told by nobody: records of one second are not in order either."""
_UNSYNCHRONISED = 0x40
"""STA_UNSYNC (adjtimex(2)); `status` is the int at byte 40 of struct timex on 64-bit Linux."""
_STATUS_AT, _TIMEX_BYTES = 40, 256
_NO_CLOCK = "start chronyd or systemd-timesyncd (chronyc tracking, timedatectl)"


def read_state_directory(host: Host) -> Said:
    """Say whether the state directory is root's alone and has room."""
    return _folder(host, host.where.state_dir, _OTHERS)


def read_log_directory(host: Host) -> Said:
    """Say whether the audit log's directory is root's, closed to other writers, and has room."""
    return _folder(host, host.where.log_dir, _OTHERS_WRITE)


def _folder(host: Host, path: Path, closed: int) -> Said:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return warn(
            f"{path} is not there yet", "the daemon makes it at its first start: systemctl start reclaimerd"
        )
    if not stat.S_ISDIR(status.st_mode):
        return fail(f"{path} is no directory", "move it away: nothing is kept through a link")
    owners = {0} if host.where.simulate is None else {0, os.geteuid()}
    said = [*_owner(path, status, owners, closed), *_room(path)]
    free = os.statvfs(path)
    shown = size_text(free.f_bavail * free.f_frsize)
    return gravest(said, ok(f"{path} is {stat.S_IMODE(status.st_mode):04o}, {shown} free"))


def _owner(path: Path, status: os.stat_result, owners: set[int], closed: int) -> Iterator[Said]:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in owners:
        yield fail(f"{path} belongs to uid {status.st_uid}", f"chown root {path}")
    if mode & _OTHERS_WRITE:
        yield fail(f"{path} can be written by its group or by others ({mode:04o})", f"chmod go-w {path}")
    elif mode & closed:
        yield warn(f"{path} can be read by others ({mode:04o})", f"chmod 0700 {path}")
    if status.st_uid == os.geteuid() and not os.access(path, os.W_OK | os.X_OK):
        yield fail(f"{path} can't be written", "remount it read-write, or take back what forbids it")


def _room(path: Path) -> Iterator[Said]:
    free = os.statvfs(path)
    left = free.f_bavail * free.f_frsize
    if free.f_flag & os.ST_RDONLY:
        yield fail(
            f"{path} lies on a read-only file system",
            "remount it read-write: without a record nothing is done",
        )
    if left < _LEAST_BYTES:
        yield fail(f"{path} has {size_text(left)} left", "make room: without a record nothing is done")
    elif left < _FEW_BYTES:
        yield warn(f"{path} has {size_text(left)} left", "make room")
    if free.f_files and free.f_favail < _LEAST_INODES:
        yield fail(f"{path} has {free.f_favail} inodes left", "remove small files there")
    elif free.f_files and free.f_favail < _FEW_INODES:
        yield warn(f"{path} has {free.f_favail} inodes left", "remove small files there")


def read_reserve(host: Host) -> Said:
    """Say whether the room is kept that puts an operator's acts on record when the disk is full."""
    path = host.where.log_dir / RESERVE_NAME
    try:
        status = path.lstat()
    except FileNotFoundError:
        return warn(
            f"there is no {path}: on a full disk nothing can be recorded",
            "start the daemon; it needs free room",
        )
    except PermissionError:
        return unknown(f"{path} may not be seen", "run doctor as root")
    return ok(f"{size_text(status.st_blocks * 512)} are kept for a full disk")


def read_audit(host: Host) -> Said:
    """Say whether the audit log ends as the store remembers; only its end is read."""
    path = host.where.state_dir / STORE_NAME
    try:
        path.lstat()
    except FileNotFoundError:
        return ok("nothing was recorded yet")
    why: str | None = None
    for _ in range(3):  # beside a writer the log may be rotated away between the two readings
        store = Store.open(path, read_only=True)
        try:
            anchor = store.read_anchor()
        finally:
            store.close()
        why = _broken(host.where.log_dir, anchor)
        if why is None:
            return ok("the audit log ends as the store remembers; `reclaimctl audit verify` reads all of it")
    return fail(f"the audit log is broken: {why}", "reclaimctl audit verify; docs/runbooks/audit_broken.md")


def _broken(log_dir: Path, anchor: Head | None) -> str | None:
    tail, torn = None, b""
    for file in each_file(log_dir, newest_first=True):
        tail = read_tail(file.content, None if anchor is None else anchor.seq)
        torn = tail.torn + torn
        if tail.head is not None:
            break
    if tail is None:
        return None if anchor is None else f"it is gone, but record {anchor.seq} was written"
    return broken_why(tail, anchor, torn)


def read_anchor(host: Host) -> Said:
    """Say whether the audit log's head is kept elsewhere, where the policy asks for it; by the daemon."""
    policy, status = host.policy, host.status
    places = [place for place in (policy.audit.anchor_file, policy.anchor_webhook.url) if place]
    fault = "" if isinstance(status, NoAnswer) else str(status.get("anchor_fault") or "")
    if fault:
        return fail(f"the audit log's head can't be kept elsewhere: {fault}", "mend the place; docs/audit.md")
    if not places:
        return ok("the audit log's head is kept nowhere else: the policy asks for none (docs/audit.md)")
    if isinstance(status, NoAnswer):
        return unknown("no daemon answers that would keep the audit log's head", "systemctl start reclaimerd")
    return ok(f"the audit log's head is kept at {', '.join(places)}")


def read_writer(host: Host) -> Said:
    """Say whether one writer alone keeps this state directory."""
    writer = current_writer(host.where.state_dir)
    status = host.status
    if writer is None:
        return ok("nobody claims the state directory")
    if isinstance(status, NoAnswer):
        if host.daemon_pid is None:
            return ok(f"pid {writer.pid} claims the state directory and is gone; the next start takes over")
        mend = "wait for it, or look why it is silent: docs/runbooks/writer_busy.md"
        return fail(f"pid {writer.pid} writes to {host.where.state_dir} and does not answer", mend)
    if int(status["pid"]) != writer.pid:
        text = f"pid {status['pid']} answers, but pid {writer.pid} claims {host.where.state_dir}"
        return fail(text, "two daemons run, or they have different --state-dir: end one of them")
    return ok(f"pid {writer.pid} alone writes there")


def read_synchronised(_host: Host) -> Said:
    """Say whether the kernel's clock is held to others' (adjtimex, which only reads here)."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
        return unknown(f"the kernel does not tell: {os.strerror(ctypes.get_errno())}")
    status = ctypes.c_int.from_buffer(buffer, _STATUS_AT).value
    if status & _UNSYNCHRONISED:
        return warn("the clock is not synchronised: times on record may not fit those of others", _NO_CLOCK)
    return ok("the clock is synchronised")


def read_clock(host: Host) -> Said:
    """Say whether the wall clock stands after this boot and after the last record."""
    now = time.time()
    booted = next(
        float(line.split()[1]) for line in host.read("/proc/stat").splitlines() if line.startswith("btime ")
    )
    if now < booted:
        return fail(f"the clock says a time {age_text(booted - now)} before this host's boot", _NO_CLOCK)
    try:
        last = next(read_records(host.where.log_dir, newest_first=True, limit=1), None)
    except PermissionError:
        return unknown("the clock is after the boot; the last record may not be read", "run doctor as root")
    if last is None:
        return ok("the clock is after the boot, and nothing is on record yet")
    ahead = datetime.fromisoformat(str(last["at"])).timestamp() - now
    if ahead > _AHEAD_SECONDS:
        return fail(f"the last record is {age_text(ahead)} ahead of the clock, which was set back", _NO_CLOCK)
    return ok("the clock is after the boot and after the last record")
