"""Sign a webhook as "Standard Webhooks" 1.0 says: HMAC-SHA256 over id, time and body, in three headers.

The key comes from a file that only root may read, and goes nowhere else.
"""

import base64
import binascii
import errno
import hashlib
import hmac
import os
import stat
from pathlib import Path

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.files import ROOT_ALONE, file_concerns, walk_owners

LEAST_KEY_BYTES = 16
_PREFIX = b"whsec_"
"""Before a key in base64, as the libraries for receivers write it."""
_MOST_FILE_BYTES = 4096
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: str) -> bytes:
    """Return the key that stands in a file: its one line, which is base64 after `whsec_`.

    Raises ReclaimerdError when somebody besides root can read or change it, or when it is no key. No text
    of an error has anything of the file in it.
    """
    try:
        content = _read_private(Path(path))
    except OSError as error:
        raise ReclaimerdError(
            f"{path} can't be read: {error.strerror}", "name root's own file, mode 0600"
        ) from None
    key = content.strip()
    if key.startswith(_PREFIX):
        try:
            key = base64.b64decode(key.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            raise ReclaimerdError(f"{path}: what follows whsec_ is no base64", "write the key anew") from None
    if len(key) < LEAST_KEY_BYTES:
        mend = f"write one: openssl rand -hex 32 > {path}"
        raise ReclaimerdError(f"{path}: the key has less than {LEAST_KEY_BYTES} bytes", mend)
    return key


def signature_headers(key: bytes, message: str, at: int, body: bytes) -> dict[str, str]:
    """Return the three headers; `message` is the id of the message, `at` whole seconds since 1970."""
    digest = hmac.new(key, f"{message}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _read_private(path: Path) -> bytes:
    """Return the bytes of a file that nobody but root, or whom we run as, can read or change.

    Raises OSError or ReclaimerdError.
    """
    trusted = ROOT_ALONE | {os.geteuid()}
    resolved, concerns = walk_owners(path, trusted, most_concerns=1)
    if concerns:
        raise ReclaimerdError(concerns[0].text, concerns[0].mend)
    descriptor = os.open(resolved, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        if concern := next(iter(file_concerns(resolved, status, trusted)), None):
            raise ReclaimerdError(concern.text, concern.mend)
        if status.st_mode & _OTHERS:
            raise ReclaimerdError(f"{path} can be read by others than its owner", f"chmod 0600 {path}")
        return os.read(descriptor, _MOST_FILE_BYTES)
    finally:
        os.close(descriptor)
