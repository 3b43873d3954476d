"""Claims about the addresses that a webhook may have."""

import pytest

from reclaimerd.host.web_address import address_fault, plain_fault, shown_host


@pytest.mark.parametrize(
    "url",
    ["https://x", "https://x.example:8443/a/b?c=d", "https://[2001:db8::1]:443/", "http://127.0.0.1/"],
)
def test_an_address_has_a_scheme_and_a_host(url: str) -> None:
    """With or without a port, a path and a query."""
    assert address_fault(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "//x/", "https:/x", "https://", "https://:443/", "file:///etc/passwd", "ftp://x/"),
        *("https://me@x/", "https://me:pw@x/", "https://x/#a", "https://x/#", "https://x:port/"),
        *("https://x:65536/", "https://[::1", "https://x/\n", "https://x/ä", "https://x/" + "a" * 2048),
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    """Names, passwords, fragments, and what no request line can hold."""
    assert address_fault(url) != ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9:80", "[::1]:9000"])
def test_only_this_very_host_is_asked_without_tls(host: str) -> None:
    """By a loopback address, and only where it is allowed."""
    assert plain_fault(f"http://{host}/", allowed=True) == ""
    assert plain_fault(f"http://{host}/", allowed=False) != ""


@pytest.mark.parametrize(
    "host", ["localhost", "10.0.0.1", "192.0.2.1", "[::]", "127.0.0.1.x", "[::ffff:10.0.0.1]"]
)
def test_nobody_else_ever_is(host: str) -> None:
    """A name could come to mean another host."""
    assert plain_fault(f"http://{host}/", allowed=True) != ""
    assert plain_fault(f"https://{host}/", allowed=False) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://X.example/sesame?sesame", "x.example"),
        ("https://x:8443/sesame", "x:8443"),
        ("https://[::1]:9/sesame", "[::1]:9"),
    ],
)
def test_host_and_port_are_all_that_is_told(url: str, shown: str) -> None:
    """A path or a query may be a secret."""
    assert shown_host(url) == shown
