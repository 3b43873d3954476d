"""`[cluster]` in the policy file."""

from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.load import load
from reclaimerd.model.policy import ClusterSettings


def written(tmp_path: Path, text: str) -> Path:
    """Write a policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_table_becomes_typed_values(tmp_path: Path) -> None:
    """Each key; left out it is the built-in one, which asks nobody."""
    text = '[cluster]\ncredentials = "/etc/k"\nnode = "gpu-1.example"\nrefresh = "1m"\nwithin = "9s"\n'
    policy = load(written(tmp_path, text), enforce_ownership=False).policy
    assert policy.cluster == ClusterSettings("/etc/k", "gpu-1.example", 60.0, 9.0)
    assert load(written(tmp_path, ""), enforce_ownership=False).policy.cluster == ClusterSettings("")


@pytest.mark.parametrize("word", ["", "in-cluster", "/etc/kubernetes/kubelet.conf"])
def test_credentials_are_nobody_the_account_or_a_file(tmp_path: Path, word: str) -> None:
    """The three forms."""
    text = f'[cluster]\ncredentials = "{word}"\n'
    assert load(written(tmp_path, text), enforce_ownership=False).policy.cluster.credentials == word


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ('credentials = "kubelet.conf"', "cluster.credentials", "in-cluster"),
        ("credentials = true", "cluster.credentials", "true"),
        ('node = "Gpu1"', "cluster.node", "kubectl get nodes"),
        ('node = "a,metadata.name=b"', "cluster.node", "no node's name"),
        ("node = 3", "cluster.node", "no node's name"),
        ('refresh = "0s"', "cluster.refresh", "shorter"),
        ('within = "0s"', "cluster.within", ""),
        ('token = "x"', "cluster.token", "not known"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, key: str, what: str) -> None:
    """Wrong shapes, and a name that would say more than one thing in a question."""
    (fault,) = check(written(tmp_path, f"[cluster]\n{text}\n"))
    assert (fault.line, fault.key) == (2, key)
    assert what in f"{fault.what} {fault.mend}"
