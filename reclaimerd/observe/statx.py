"""Three system calls that Python does not offer as we need them: statx, kcmp, and their constants.

`statx` with AT_STATX_DONT_SYNC asks the kernel what it knows and not the file's own (perhaps dead)
network or FUSE server. Standard library only; no call here changes anything.
"""

import ctypes
import errno
import os
import platform
import stat
import struct

from reclaimerd.model.identity import FileIdentity

_AT_STATX_DONT_SYNC = 0x4000
_STATX_TYPE_AND_INODE = 0x1 | 0x100
_KCMP_FILE, _KCMP_FILES = 0, 2  # include/uapi/linux/kcmp.h
_KCMP_NUMBERS = {"x86_64": 312, "aarch64": 272, "ppc64le": 354, "s390x": 343, "riscv64": 272}

# struct statx (statx(2)): mode at 28, inode at 32, then rdev and dev as four 32-bit numbers at 128.
_MODE = struct.Struct("=H")
_INODE = struct.Struct("=Q")
_NUMBERS = struct.Struct("=IIII")
_STATX_BYTES = 256

_libc = ctypes.CDLL(None, use_errno=True)
_statx = _libc.statx
_statx.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
_statx.restype = ctypes.c_int
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


class FileLook:
    """Looks at files through one buffer; one object per thread."""

    def __init__(self) -> None:
        self._buffer = ctypes.create_string_buffer(_STATX_BYTES)
        self._bytes = memoryview(self._buffer)

    def device_at(self, directory: int, path: bytes) -> tuple[int, int] | None:
        """Return the number of the character device at `path` below `directory`, None for any other file.

        Raises OSError.
        """
        if _statx(directory, path, _AT_STATX_DONT_SYNC, _STATX_TYPE_AND_INODE, self._buffer) != 0:
            raise _error(path)
        if not stat.S_ISCHR(_MODE.unpack_from(self._bytes, 28)[0]):
            return None
        major, minor, _major, _minor = _NUMBERS.unpack_from(self._bytes, 128)
        return major, minor

    def identity_at(self, directory: int, path: bytes) -> FileIdentity:
        """Return device and inode of the file at `path` below `directory`, as stat(2) gives them.

        Raises OSError.
        """
        if _statx(directory, path, _AT_STATX_DONT_SYNC, _STATX_TYPE_AND_INODE, self._buffer) != 0:
            raise _error(path)
        _major, _minor, major, minor = _NUMBERS.unpack_from(self._bytes, 128)
        return FileIdentity(os.makedev(major, minor), _INODE.unpack_from(self._bytes, 32)[0])


def share_descriptors(one: int, other: int) -> bool | None:
    """Tell whether two tasks share one descriptor table (kcmp(2)); None when it can't be told.

    Raises ProcessLookupError when either is gone.
    """
    number = _KCMP_NUMBERS.get(platform.machine())
    if number is None:
        return None
    order = _syscall(number, one, other, _KCMP_FILES, 0, 0)
    if order >= 0:
        return bool(order == 0)
    if ctypes.get_errno() == errno.ESRCH:
        raise ProcessLookupError(errno.ESRCH, "no such task", str(other))
    return None


def order_of_files(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return 0 when two descriptors (task, number) are one open file, else -1 or 1 in a lasting order.

    Raises ProcessLookupError when a task or descriptor is gone, else OSError (kcmp(2)).
    """
    number = _KCMP_NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    order = _syscall(number, one[0], other[0], _KCMP_FILE, one[1], other[1])
    if order >= 0:
        return {0: 0, 1: -1}.get(order, 1)
    code = ctypes.get_errno()
    if code in {errno.ESRCH, errno.EBADF}:
        raise ProcessLookupError(errno.ESRCH, "no such descriptor", f"{one} or {other}")
    raise OSError(code, os.strerror(code))


def _error(path: bytes) -> OSError:
    """Return the last call's error as an exception of the right class."""
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code), os.fsdecode(path))
