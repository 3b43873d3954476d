"""Metrics on a TCP address, for a Prometheus that can't reach the control socket: one path, read by anybody.

Nobody is known here, so nothing else is served and nothing can be asked for. Its bounds are the control
socket's.
"""

import socket
from collections.abc import Callable

from reclaimerd.daemon.http_server import Answer, Call, HttpServer, refusal
from reclaimerd.daemon.metrics_text import CONTENT_TYPE
from reclaimerd.record import logs

PATH = "/metrics"


def metrics_answer(text: str) -> Answer:
    """Return metrics as an answer."""
    return Answer(200, {}, text=text, content_type=CONTENT_TYPE)


async def open_metrics(listen: str, text: Callable[[], str]) -> HttpServer | None:
    """Return what serves metrics at `ADDRESS:PORT`, None where nobody wants it or it can't be had.

    An address that is taken is said in the log and stops nothing: to be watched is not our work.
    """
    if not listen:
        return None

    async def handle(call: Call) -> Answer:
        if call.path != PATH:
            return refusal(404, f"there is nothing but {PATH} here")
        if call.method not in ("GET", "HEAD"):
            return refusal(405, f"{PATH} takes GET")
        return metrics_answer(text())

    host, _, port = listen.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), int(port)), family=family)
    except OSError as error:
        logs.error("metrics_not_served", listen=listen, error=error.strerror or str(error))
        return None
    listener.setblocking(False)
    server = HttpServer(handle)
    await server.start(listener)
    return server
