"""Whom we are to a cluster: what is taken, and each thing that is refused before anybody is asked."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.errors import ReclaimerdError
from reclaimerd.host.kube_credentials import read_credentials
from tests.rigs.fake_cluster import make_certificate, write_kubeconfig

pytestmark = pytest.mark.root

SERVER = {"server": "https://10.0.0.1:6443"}


def refusal(path: Path | str) -> str:
    """Return why these credentials are refused."""
    with pytest.raises(ReclaimerdError) as caught:
        read_credentials(str(path))
    assert "the-secret" not in str(caught.value)
    return str(caught.value)


def written(tmp_path: Path, user: dict[str, Any], **cluster: object) -> Path:
    """Write a kubeconfig."""
    return write_kubeconfig(tmp_path / "k", user, SERVER | cluster)


def test_a_token_and_a_tokens_file_are_taken(tmp_path: Path) -> None:
    """The file is read now, without its line's end; a relative one beside the kubeconfig."""
    user = read_credentials(str(written(tmp_path, {"token": "abc"}))).user
    assert user is not None
    assert (user.token, user.token_file) == ("abc", None)
    (tmp_path / "t").write_text("def\n")
    (tmp_path / "t").chmod(0o600)
    for name in ("t", f"{tmp_path}/t"):
        user = read_credentials(str(written(tmp_path, {"tokenFile": name}))).user
        assert user is not None
        assert (user.token, user.token_file) == ("def", None)


def test_a_client_certificate_is_taken_as_the_kubelet_has_it(tmp_path: Path) -> None:
    """By files or inside; a key that everybody may read is none."""
    make_certificate(tmp_path, "me")
    files = {"client-certificate": f"{tmp_path}/me.crt", "client-key": f"{tmp_path}/me.key"}
    user = read_credentials(str(written(tmp_path, files))).user
    assert user is not None
    assert user.client_key == f"{tmp_path}/me.key"
    inside = {
        f"{name}-data": base64.b64encode(Path(file).read_bytes()).decode() for name, file in files.items()
    }
    user = read_credentials(str(written(tmp_path, inside))).user
    assert user is not None
    assert user.client_key_data == inside["client-key-data"]
    (tmp_path / "me.key").chmod(0o604)
    assert "everybody may read; chmod o-r" in refusal(written(tmp_path, files))


def test_a_file_that_somebody_else_could_change_is_refused(tmp_path: Path) -> None:
    """The kubeconfig, its folder, its token's file: whoever writes one of them answers for the cluster."""
    path = written(tmp_path, {"token": "the-secret"})
    path.chmod(0o660)
    assert "somebody else could change it; chmod go-w" in refusal(path)
    path.chmod(0o600)
    os.chown(path, 1000, -1)
    assert "belongs to uid 1000" in refusal(path)
    os.chown(path, 0, -1)
    tmp_path.chmod(0o777)
    assert f"{tmp_path} can be written" in refusal(path)
    tmp_path.chmod(0o755)
    path.chmod(0o644)
    assert "everybody may read" in refusal(path)
    token = tmp_path / "t"
    token.write_text("the-secret")
    token.chmod(0o666)
    assert "could change it" in refusal(written(tmp_path, {"tokenFile": "t"}))
    token.chmod(0o644)
    assert "everybody may read" in refusal(written(tmp_path, {"tokenFile": "t"}))


def test_an_authority_that_somebody_else_could_change_is_refused(tmp_path: Path) -> None:
    """Whoever writes that file vouches for a cluster of their own; one of root's is taken."""
    authority = tmp_path / "ca.crt"
    authority.write_text("cert")
    authority.chmod(0o644)
    path = written(tmp_path, {"token": "abc"}, **{"certificate-authority": "ca.crt"})
    assert read_credentials(str(path)).cluster.certificate_auth == "ca.crt"
    authority.chmod(0o666)
    assert f"{authority} can be written" in refusal(path)
    os.chown(authority, 1000, -1)
    assert "belongs to uid 1000" in refusal(path)


@pytest.mark.parametrize(
    ("user", "cluster", "why"),
    [
        ({"token": "the-secret"}, {"server": "http://10.0.0.1"}, "without TLS"),
        ({"token": "the-secret"}, {"insecure-skip-tls-verify": True}, "anybody could answer"),
        ({"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "x"}}, {}, "a program"),
        ({"auth-provider": {"name": "gcp"}}, {}, "a program"),
        ({}, {}, "neither a token nor a client certificate"),
        ({"username": "a", "password": "the-secret"}, {}, "neither a token nor a client certificate"),
        ({"token": " "}, {}, "neither a token nor a client certificate"),
        ({"token": 3}, {}, "no kubeconfig"),
        ({"tokenFile": "gone"}, {}, "gone: No such file"),
    ],
)
def test_what_would_ask_unproven_or_run_a_program_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], why: str
) -> None:
    """Each says the file and what is wrong with it."""
    assert why in refusal(written(tmp_path, user, **cluster))


def test_no_program_is_run(tmp_path: Path) -> None:
    """The one that a kubeconfig names leaves no trace."""
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(program)}}
    assert "none is run here" in refusal(written(tmp_path, user))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "[]",
        "{}",
        '{"clusters": [], "contexts": [], "users": []}',
        '{"clusters": [], "contexts": [], "users": [], "current-context": "the"}',
        '{"clusters": [{"name": "a"}], "contexts": [], "users": []}',
        '{"clusters": 3, "contexts": [], "users": []}',
        "\x00\x01",
        "[" * 5000,
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_what_is_no_kubeconfig_is_told_with_its_path(tmp_path: Path, text: str) -> None:
    """YAML that is none, or lacks a part; never a traceback."""
    path = tmp_path / "k"
    path.write_text(text)
    path.chmod(0o600)
    assert str(path) in refusal(path)


def test_a_context_without_a_user_is_told(tmp_path: Path) -> None:
    """Whom else should the cluster take us for."""
    path = written(tmp_path, {"token": "the-secret"})
    found = json.loads(path.read_text())
    found["contexts"][0]["context"].pop("user")
    path.write_text(json.dumps(found))
    assert "names no user" in refusal(path)


def test_a_file_that_is_not_there_is_too_large_or_is_no_file(tmp_path: Path) -> None:
    """A FIFO does not hang the reader."""
    assert "No such file" in refusal(tmp_path / "none")
    large = tmp_path / "large"
    large.write_bytes(b" " * (1024 * 1024 + 1))
    assert "larger than" in refusal(large)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "not a regular file" in refusal(tmp_path / "pipe")


def test_the_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kubelet mounts it: the token's file is for everybody in the pod to read, by a link."""
    inside = tmp_path / "..2026"
    inside.mkdir()
    for name, text in (("token", "abc\n"), ("namespace", "reclaimerd"), ("ca.crt", "cert")):
        (inside / name).write_text(text)
        (inside / name).chmod(0o644)
        (tmp_path / name).symlink_to(f"..2026/{name}")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ReclaimerdError, match="this is no pod"):
        read_credentials("in-cluster", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    with pytest.raises(ReclaimerdError, match="no complete kubeconfig: 'KUBERNETES_SERVICE_PORT'"):
        read_credentials("in-cluster", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    chosen = read_credentials("in-cluster", tmp_path)
    assert chosen.cluster.server == "https://[fd00::1]:443"
    assert chosen.cluster.certificate_auth == f"{tmp_path}/ca.crt"
    assert chosen.user is not None
    assert chosen.user.token == "abc"  # noqa: S105  # a test's own word
    (tmp_path / "token").unlink()
    with pytest.raises(ReclaimerdError, match="token"):
        read_credentials("in-cluster", tmp_path)
    with pytest.raises(ReclaimerdError, match="no service account"):
        read_credentials("in-cluster", tmp_path / "none")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without a cluster needs none of it."""
    monkeypatch.setitem(sys.modules, "lightkube.core.exceptions", None)
    with pytest.raises(ReclaimerdError, match=r"without lightkube; install reclaimerd\[kubernetes\]"):
        read_credentials("in-cluster")
