"""What a web address of the policy may be: https, or plain http to this very host. Pure.

It is held to when the policy is read and once more before anything is sent.
"""

import ipaddress
from urllib.parse import SplitResult, urlsplit

_SCHEMES = frozenset({"http", "https"})
_MOST_LETTERS = 2048


def address_fault(url: str) -> str:
    """Return why this is no address that can be asked, or ""."""
    if len(url) > _MOST_LETTERS or not url.isascii() or any(not "!" <= letter <= "~" for letter in url):
        return "it is longer than 2048 characters, or not all of them are plain ASCII"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "its host or its port can't be read"
    if parts.scheme not in _SCHEMES or not parts.hostname:
        return "it is no https:// address with a host"
    if "@" in parts.netloc:
        return "it has a name or a password in it, which would stand in the open"
    return "it has a fragment, which is never sent" if "#" in url else ""


def plain_fault(url: str, *, allowed: bool) -> str:
    """Return why an address without TLS may not be asked, or ""; only this host's own is ever allowed."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return ""
    if not allowed:
        return "without TLS nobody knows who answers"
    return "" if _is_loopback(parts) else "only a loopback address such as 127.0.0.1 may be asked without TLS"


def shown_host(url: str) -> str:
    """Return the host and the port as they may be told: a path or a query may be a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port is None else f"{host}:{parts.port}"


def _is_loopback(parts: SplitResult) -> bool:
    """Tell whether the host is such an address itself; a name could come to mean another."""
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
