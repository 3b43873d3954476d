"""A real web server on the loopback address, over TLS by a CA of its own, that keeps what it is sent."""

import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OPENSSL = "/usr/bin/openssl"
STALLED_SECONDS = 30.0
"""How long an answer that never comes is held back at most; the receiver's end lets it go."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it came in; `headers` have small letters."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What the receiver answers; a `stall` is no answer at all, `body_stalls` one without an end."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    stall: bool = False
    body_stalls: bool = False


@dataclass(frozen=True, slots=True)
class Receiver:
    """The server: `replies` are given in order, the last one for ever."""

    url: str
    sent: list[Sent]
    replies: list[Reply]

    def next_reply(self) -> Reply:
        """Return what comes now."""
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def bodies(self) -> list[Any]:
        """Return each body as JSON."""
        return [json.loads(each.body) for each in self.sent]


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: whom to trust, and what the server shows."""

    ca: Path
    server: Path
    key: Path


def make_certificates(directory: Path, name: str = "IP:127.0.0.1") -> Certificates:
    """Return a new CA and a certificate of it for one name."""
    directory.mkdir(exist_ok=True)
    ca, ca_key = directory / "ca.pem", directory / "ca.key"
    server, key, request = directory / "server.pem", directory / "server.key", directory / "server.csr"
    extensions = directory / "extensions"
    extensions.write_text(f"subjectAltName={name}\nbasicConstraints=CA:FALSE\n", encoding="ascii")
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    _openssl("req", "-x509", *ec, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=a test")
    _openssl("req", *ec, "-keyout", key, "-out", request, "-subj", "/CN=receiver")
    signing = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions)
    _openssl("x509", "-req", "-in", request, *signing, "-out", server)
    return Certificates(ca, server, key)


def _openssl(*words: str | Path) -> None:
    subprocess.run([OPENSSL, *map(str, words)], check=True, capture_output=True, timeout=60)


@contextmanager
def receiving(certificates: Certificates | None, *replies: Reply) -> Iterator[Receiver]:
    """Have a receiver stand on a free port; without certificates it speaks plain HTTP."""
    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.daemon_threads = True
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scheme = "http" if certificates is None else "https"
    url = f"{scheme}://127.0.0.1:{server.server_address[1]}/drain/sesame?key=sesame"
    receiver = Receiver(url, [], list(replies) or [Reply()])
    server.RequestHandlerClass = _answering(receiver, over.wait)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        over.set()
        server.shutdown()
        thread.join(10.0)
        server.server_close()


def _answering(receiver: Receiver, wait: Callable[[float], bool]) -> type[BaseHTTPRequestHandler]:
    """Return what answers for one receiver."""

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Keep what came in, and answer what is due."""
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", "0")))
            receiver.sent.append(Sent(self.path, headers, body))
            reply = receiver.next_reply()
            if reply.stall:
                wait(STALLED_SECONDS)
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body) + reply.body_stalls))
            self.end_headers()
            try:
                self.wfile.write(reply.body)
                if reply.body_stalls:
                    wait(STALLED_SECONDS)
            except OSError:
                self.close_connection = True

        def do_GET(self) -> None:
            """Note it as well: nobody should come by this way."""
            self.do_POST()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    return Answering
