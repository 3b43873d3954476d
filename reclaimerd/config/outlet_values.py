"""What one value of `[metrics]` and `[[notify]]` may be; each takes what TOML gave and returns it typed."""

from ipaddress import ip_address

from reclaimerd.config.units import BadValueError, quoted
from reclaimerd.config.values import absolute_path_or_empty, shape_of
from reclaimerd.host.notice_text import template_fault

_LISTEN_MEND = 'write a numeric address and a port, such as "127.0.0.1:9485" or "[::1]:9485"'
_TEMPLATE_MEND = """write JSON with $names, such as '{"text": "$severity on $host: $reason"}'"""
_MOST_PORT = 65535
_MOST_TEMPLATE = 8192
_SUFFIX = ".prom"


def listen_address(value: object) -> str:
    """Return an address of TCP with its port; "" is none. A name would have to be looked up at the start."""
    if value == "":
        return ""
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of an address", _LISTEN_MEND)
    host, port = split_address(value)
    try:
        ip_address(host)
    except ValueError:
        raise BadValueError(f"{quoted(value)} has no numeric address in it", _LISTEN_MEND) from None
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(_MOST_PORT))) or not (
        1 <= int(port) <= _MOST_PORT
    ):
        raise BadValueError(f"{quoted(value)} has no port from 1 to {_MOST_PORT}", _LISTEN_MEND)
    return value


def split_address(text: str) -> tuple[str, str]:
    """Return address and port of `ADDRESS:PORT`, an IPv6 one without its brackets."""
    host, _, port = text.rpartition(":")
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host), port


def textfile_path(value: object) -> str:
    """Return the path of a file that node_exporter reads: it takes `*.prom` alone."""
    path = absolute_path_or_empty(value)
    if path and not path.endswith(_SUFFIX):
        mend = 'write a path such as "/var/lib/prometheus/node-exporter/reclaimerd.prom"'
        raise BadValueError(f"{quoted(path)} does not end in {_SUFFIX}, and nobody would read it", mend)
    return path


def notice_template(value: object) -> str:
    """Return a template of a notice's body; "" is our own JSON."""
    if not isinstance(value, str) or len(value) > _MOST_TEMPLATE:
        raise BadValueError(f"{shape_of(value)} stands in the place of a template", _TEMPLATE_MEND)
    fault = template_fault(value)
    if fault:
        raise BadValueError(f"the template can't be used: {fault}", _TEMPLATE_MEND)
    return value
