"""One bounded conversation with a cluster's API: lightkube's client, over a transport that has limits.

For workers and children alone: it blocks. A conversation has one deadline and one sum of bytes over all its
requests; what lightkube, its HTTP library or the server do wrong leaves here as one kind of error.
"""

import base64
import json
import os
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.files import write_all
from reclaimerd.host.kube_credentials import SERVICE_ACCOUNT, read_credentials

if TYPE_CHECKING:
    import httpx2
    from lightkube import Client
    from lightkube.config.kubeconfig import SingleConfig

MOST_BYTES = 32 * 1024 * 1024
"""Of one conversation: a full node's pods are some 5 MiB."""
_SHOWN_CHARACTERS = 300
_OK = range(200, 300)
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404


class ClusterRefusalError(ReclaimerdError):
    """The cluster answered with something else than success: `code` is HTTP's, `said` its own words."""

    def __init__(self, message: str, mend: str = "", code: int = 0, said: str = "") -> None:
        super().__init__(message, mend)
        self.code = code
        self.said = said


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """By which credentials the cluster is asked, and how long and how much it may answer.

    `credentials` are as in the policy: "in-cluster", or the path of a kubeconfig. `most_skew_seconds`: so far
    the cluster's clock may be from ours, None: times do not matter.
    """

    credentials: str
    seconds: float
    most_bytes: int = MOST_BYTES
    most_skew_seconds: float | None = None
    account: Path = SERVICE_ACCOUNT


@contextmanager
def opened_cluster(access: ClusterAccess) -> Iterator["Client"]:
    """Return a client for as long as the block runs.

    Raises ReclaimerdError, also for what goes wrong inside the block: ClusterRefusalError for an answer
    that is no success. Nothing is asked again by itself.
    """
    chosen = read_credentials(access.credentials, access.account)
    import httpx2  # noqa: PLC0415  # an extra of the package, and read_credentials says so when it is missing
    import msgspec  # noqa: PLC0415  # the same
    from lightkube import Client  # noqa: PLC0415  # the same

    where = f"the cluster at {chosen.cluster.server}"
    transport = _Bounded(
        httpx2.HTTPTransport(verify=_tls(chosen, access.credentials), trust_env=False),
        until=time.monotonic() + access.seconds,
        left_bytes=access.most_bytes,
        access=access,
        where=where,
    )
    try:
        # The environment's proxies and credentials are for people's own clients.
        with Client(chosen, trust_env=False, transport=cast("httpx2.BaseTransport", transport)) as client:
            yield client
    except httpx2.TimeoutException:
        raise ReclaimerdError(f"{where} did not answer within {access.seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise ReclaimerdError(f"{where} can't be asked: {_shown(str(error))}", _mend(error)) from None
    except (msgspec.MsgspecError, httpx2.InvalidURL, UnicodeError) as error:
        raise ReclaimerdError(f"{where} sent what can't be read: {_shown(str(error))}") from None


def _tls(chosen: "SingleConfig", credentials: str) -> ssl.SSLContext:
    """Return what proves the server, and us to it, where a certificate does that."""
    cluster, user = chosen.cluster, chosen.user
    try:
        context = ssl.create_default_context(
            cafile=str(chosen.abs_file(cluster.certificate_auth)) if cluster.certificate_auth else None,
            cadata=_plain(cluster.certificate_auth_data).decode("ascii") or None,
        )
        if user is not None and (user.client_cert or user.client_cert_data):
            with ExitStack() as stack:
                context.load_cert_chain(
                    _as_file(chosen, stack, user.client_cert, user.client_cert_data),
                    _as_file(chosen, stack, user.client_key, user.client_key_data),
                )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError, and base64's errors are values
        raise ReclaimerdError(
            f"{credentials}: its certificates or its key can't be used: {_shown(str(error))}",
            "check certificate-authority, client-certificate and client-key",
        ) from None
    return context


def _plain(packed: str | None) -> bytes:
    return base64.b64decode(packed or "")


def _as_file(chosen: "SingleConfig", stack: ExitStack, path: str | None, packed: str | None) -> str:
    """Return a path for what stands in a file, or inside the kubeconfig: then of memory, never of a disk."""
    if path and not packed:
        return str(chosen.abs_file(path))
    memory = os.memfd_create("kubeconfig")
    stack.callback(os.close, memory)
    write_all(memory, _plain(packed))
    return f"/proc/self/fd/{memory}"


def _mend(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "its certificate is not the one that certificate-authority vouches for: nothing was sent to it"
    return ""


def _shown(text: str) -> str:
    """Return what the other side said as one short printable line."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:_SHOWN_CHARACTERS]


@dataclass(slots=True)
class _Bounded:
    """An HTTP transport that reads each answer whole, within what is left of time and bytes."""

    inner: "httpx2.HTTPTransport"
    until: float
    left_bytes: int
    access: ClusterAccess
    where: str

    def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
        """Return the answer to one request; raises ClusterRefusalError unless it is a success."""
        import httpx2  # noqa: PLC0415  # the same lazy import

        left = self.until - time.monotonic()
        if left <= 0:
            raise httpx2.ReadTimeout("no time is left", request=request)
        request.extensions = {
            **request.extensions,
            "timeout": dict.fromkeys(("connect", "read", "write", "pool"), left),
        }
        # A packed answer could be a thousand times what was counted.
        request.headers["accept-encoding"] = "identity"
        response = self.inner.handle_request(request)
        try:
            body = self._body(request, response)
        finally:
            response.close()
        if response.status_code not in _OK:
            raise self._refusal(response.status_code, body)
        self._refuse_skew(response.headers.get("date", ""))
        headers = {"content-type": response.headers.get("content-type", "")}
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    def close(self) -> None:
        """Close the connections."""
        self.inner.close()

    def _body(self, request: "httpx2.Request", response: "httpx2.Response") -> bytes:
        import httpx2  # noqa: PLC0415  # the same lazy import

        if response.headers.get("content-encoding", "identity") != "identity":
            raise ReclaimerdError(f"{self.where} sent a packed answer, which was not asked for")
        chunks = []
        for chunk in cast("Iterator[bytes]", response.stream):
            self.left_bytes -= len(chunk)
            if self.left_bytes < 0:
                raise ReclaimerdError(f"{self.where} sent more than {self.access.most_bytes} bytes")
            if time.monotonic() > self.until:
                raise httpx2.ReadTimeout("the answer dribbles", request=request)
            chunks.append(chunk)
        return b"".join(chunks)

    def _refuse_skew(self, said: str) -> None:
        """Refuse an answer whose times can't be compared with ours (RFC 9110, Date: whole seconds)."""
        most = self.access.most_skew_seconds
        if most is None:
            return
        try:
            skew = time.time() - parsedate_to_datetime(said).timestamp()
        except ValueError:
            raise ReclaimerdError(f"{self.where} does not say its time") from None
        if abs(skew) > most:
            raise ReclaimerdError(
                f"the clock here is {skew:+.0f} s from that of {self.where}: deadlines can't be compared",
                "set this host's clock (chronyc tracking)",
            )

    def _refusal(self, code: int, body: bytes) -> ClusterRefusalError:
        said = _words_of(body)
        source = self.access.credentials
        match code:
            case _ if code == _UNAUTHORIZED:
                what, mend = f"does not know us by {source}", "renew its token or certificate"
            case _ if code == _FORBIDDEN:
                what, mend = f"does not let {source} do this", "apply deploy/kubernetes/rbac-observer.yaml"
            case _ if code == _NOT_FOUND:
                what, mend = "has no such thing", ""
            case _:
                what, mend = "refused", ""
        text = f"{self.where} {what}: HTTP {code}" + (f", {said}" if said else "")
        return ClusterRefusalError(text, mend, code, said)


def _words_of(body: bytes) -> str:
    """Return the message of a Kubernetes Status; "" for anything else, which may be a page of a proxy's."""
    try:
        status = json.loads(body[:_STATUS_BYTES])
    except (ValueError, RecursionError):
        return ""
    message = status.get("message") if isinstance(status, dict) else None
    return _shown(message) if isinstance(message, str) else ""


_STATUS_BYTES = 64 * 1024
