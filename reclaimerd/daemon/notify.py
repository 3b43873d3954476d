"""Tell the service manager how we are (sd_notify(3)): a datagram that never blocks.

Written here, in a dozen lines: docs/adr/0004 says why no package does it.
"""

import os
import socket
import time


def notify(*fields: str) -> bool:
    """Send fields like `READY=1`; tell whether a service manager took them."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as end:
        try:
            end.sendto("\n".join(fields).encode(), address)
        except OSError:
            return False
    return True


def reloading() -> bool:
    """Say that a reload began, as Type=notify-reload wants it (systemd 253), harmless before."""
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def watchdog_seconds() -> float | None:
    """Return how often the manager wants to hear from us, None when it doesn't watch us."""
    text = os.environ.get("WATCHDOG_USEC", "")
    ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(text) / 1e6 if text.isdigit() and ours else None
