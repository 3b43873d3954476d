"""Whom we are to a Kubernetes cluster: a kubeconfig of root's, or the account of the pod that we run in.

Nothing here asks the cluster. What could run a program, speak to an unproven server or be changed by
somebody else is refused: whoever answers for the cluster decides who counts as ended.
"""

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.files import ROOT_ALONE, file_concerns, opened_directory, read_bounded, walk_owners

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig
    from lightkube.config.models import Cluster, User

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOST_BYTES = 1024 * 1024
_SECRETS = ("token", "password", "client_key_data")
_EXTRA = "install reclaimerd[kubernetes]"
_CHECK = "check it: kubectl --kubeconfig FILE get pods"


def read_credentials(credentials: str, account: Path = SERVICE_ACCOUNT) -> "SingleConfig":
    """Return the server and the user that `credentials` name: "in-cluster", or a kubeconfig's path.

    Raises ReclaimerdError when something is missing, unsafe, or not to be understood.
    """
    try:
        # Here and not above: a host without a cluster needs no lightkube, and it is an extra of the package.
        from lightkube.core.exceptions import ConfigError  # noqa: PLC0415
    except ImportError:
        raise ReclaimerdError("a cluster can't be asked without lightkube", _EXTRA) from None
    try:
        return _checked(credentials, account)
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = str(error) if isinstance(error, ConfigError | KeyError) else type(error).__name__
        raise ReclaimerdError(f"{credentials} is no complete kubeconfig: {what}", _CHECK) from None
    except OSError as error:
        named = str(error.filename or credentials)
        if named in (credentials, str(account)):
            raise ReclaimerdError(f"{named}: {error.strerror or error}") from None
        raise ReclaimerdError(
            f"{credentials}: a file that it names can't be used: {named}: {error.strerror or error}",
            "check certificate-authority, client-certificate, client-key and tokenFile",
        ) from None


def _checked(credentials: str, account: Path) -> "SingleConfig":
    found = _account(account) if credentials == IN_CLUSTER else _kubeconfig(Path(credentials))
    chosen = found.get()
    if chosen is None or chosen.user is None:
        raise ReclaimerdError(f"{credentials}: its current context names no user")
    _refuse_server(credentials, chosen.cluster)
    authority = chosen.cluster.certificate_auth
    if authority and credentials != IN_CLUSTER:
        _read_file(Path(chosen.abs_file(authority)))
    return chosen._replace(user=_bare_user(credentials, chosen, chosen.user))


def _account(folder: Path) -> "KubeConfig":
    """Return the pod's own account; its files are the kubelet's, on a mount of their own."""
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415  # the same lazy import

    if "KUBERNETES_SERVICE_HOST" not in os.environ or not folder.is_dir():
        raise ReclaimerdError(
            "the in-cluster account is not there: this is no pod, or it has no service account",
            "name a kubeconfig in [cluster] credentials",
        )
    return KubeConfig.from_service_account(folder)


def _kubeconfig(path: Path) -> "KubeConfig":
    import msgspec  # noqa: PLC0415  # the same lazy import
    from lightkube.config.kubeconfig import KubeConfig  # noqa: PLC0415

    text = _read_file(path)
    try:
        found = KubeConfig.from_dict(msgspec.yaml.decode(text), fname=path)
    except (msgspec.MsgspecError, RecursionError):
        # What the library says may hold a part of the file.
        raise ReclaimerdError(f"{path} is no kubeconfig: it is no YAML of that form", _CHECK) from None
    if any(getattr(user, name) for user in found.users.values() for name in _SECRETS):
        _refuse_readers(path)
    return found


def _read_file(path: Path) -> bytes:
    """Return the content of a file of root's; raises OSError, and ReclaimerdError when it is unsafe."""
    resolved, concerns = walk_owners(path, ROOT_ALONE, most_concerns=1)
    if not concerns:
        concerns = tuple(file_concerns(resolved, resolved.stat(), ROOT_ALONE))
    if concerns:
        raise ReclaimerdError(f"{concerns[0].text}: somebody else could change it", concerns[0].mend)
    with opened_directory(resolved.parent) as folder:
        return read_bounded(folder, resolved.name, _MOST_BYTES)


def _refuse_readers(path: Path) -> None:
    if path.stat().st_mode & stat.S_IROTH:
        raise ReclaimerdError(f"{path} holds a secret that everybody may read", f"chmod o-r {path}")


def _refuse_server(credentials: str, cluster: "Cluster") -> None:
    """Refuse a server that anybody could answer for."""
    if not cluster.server.startswith("https://"):
        raise ReclaimerdError(f"{credentials}: the server {cluster.server} is not asked without TLS")
    if cluster.insecure:
        raise ReclaimerdError(
            f"{credentials} has insecure-skip-tls-verify: anybody could answer for the cluster",
            "name its certificate-authority instead",
        )


def _bare_user(credentials: str, chosen: "SingleConfig", user: "User") -> "User":
    """Return the user with a token's text or a certificate, and no program to run.

    A token's file is read now: it is made anew every hour or so, and we ask anew each time.
    """
    from lightkube.config.models import User  # noqa: PLC0415  # the same lazy import

    if user.exec or user.auth_provider:
        raise ReclaimerdError(
            f"{credentials} gets its credentials from a program, and none is run here",
            "use a tokenFile or a client certificate",
        )
    if user.client_cert or user.client_cert_data:
        for name in (user.client_cert, user.client_key):
            if name:
                _read_file(Path(chosen.abs_file(name)))
        if user.client_key:
            _refuse_readers(Path(chosen.abs_file(user.client_key)))
        return User(
            client_cert=user.client_cert,
            client_cert_data=user.client_cert_data,
            client_key=user.client_key,
            client_key_data=user.client_key_data,
        )
    token = user.token or ""
    if user.token_file:
        path = Path(chosen.abs_file(user.token_file))
        token = _read_file(path).decode("ascii")
        if credentials != IN_CLUSTER:
            _refuse_readers(path)
    if not token.strip():
        raise ReclaimerdError(f"{credentials} has neither a token nor a client certificate")
    return User(token=token.strip())
