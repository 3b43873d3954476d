"""Rules of kind `unallocated` and `[attribution]` in the policy file."""

from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.faults import Fault
from reclaimerd.config.load import load
from reclaimerd.model.policy import AttributionSettings, Policy, RuleKind

RULE = '[[rule]]\nname = "thief"\nkind = "unallocated"\n'


def written(tmp_path: Path, text: str) -> Path:
    """Write a policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def faults_of(tmp_path: Path, text: str) -> tuple[Fault, ...]:
    """Return the faults of a policy text."""
    return check(written(tmp_path, text))


def loaded(tmp_path: Path, text: str) -> Policy:
    """Return the policy of a text."""
    return load(written(tmp_path, text), enforce_ownership=False).policy


def test_a_rule_becomes_typed_values(tmp_path: Path) -> None:
    """It needs nothing but its name and kind, and shares within a pod unless it says otherwise."""
    (rule,) = loaded(tmp_path, RULE).rules
    assert rule.kind is RuleKind.UNALLOCATED
    assert (rule.pod_shares, rule.static_pods, rule.outside_pods) == (True, False, False)
    keys = "pod_shares = false\nstatic_pods = true\noutside_pods = true\n"
    (rule,) = loaded(tmp_path, RULE + keys).rules
    assert (rule.pod_shares, rule.static_pods, rule.outside_pods) == (False, True, True)


def test_the_table_becomes_typed_values(tmp_path: Path) -> None:
    """Each key of `[attribution]`; left out it is the built-in one."""
    text = (
        '[attribution]\nkubelet_socket = ""\nruntime_sockets = ["/run/x.sock"]\nrefresh = "10s"\n'
        'steady = "5m"\nsystem_namespaces = ["gpu-tools"]\n'
    )
    assert loaded(tmp_path, text).attribution == AttributionSettings(
        "", ("/run/x.sock",), 10.0, 300.0, ("gpu-tools",)
    )
    assert loaded(tmp_path, "").attribution == AttributionSettings()


@pytest.mark.parametrize(
    ("text", "line", "key", "what"),
    [
        (RULE + "even_if_allocated = true", 4, "rule[0].even_if_allocated", "not known"),
        (RULE + 'above = "8GiB"', 4, "rule[0].above", "not known"),
        (RULE + 'pod_shares = "no"', 4, "rule[0].pod_shares", "true or false"),
        (RULE + 'mode = "enforce"', 1, "rule[0].match", "an enforcing unallocated rule needs a match"),
        ('[[rule]]\nname = "x"\nabove = "1GiB"\npod_shares = true', 4, "rule[0].pod_shares", "not known"),
        ('[attribution]\nkubelet_socket = "kubelet.sock"', 2, "attribution.kubelet_socket", "absolute"),
        ('[attribution]\nrefresh = "0s"', 2, "attribution.refresh", "shorter"),
        ('[attribution]\nruntime_sockets = "/run/x"', 2, "attribution.runtime_sockets", "place of a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, key: str, what: str
) -> None:
    """Keys of other kinds, wrong shapes, and an enforcing rule for nobody in particular."""
    faults = faults_of(tmp_path, text)
    assert [(fault.line, fault.key) for fault in faults if fault.key == key] == [(line, key)]
    assert what in next(fault.what for fault in faults if fault.key == key)


def test_a_misspelt_kind_is_guessed_by_its_keys(tmp_path: Path) -> None:
    """The kind is the one fault, and its keys are none."""
    (fault,) = faults_of(tmp_path, '[[rule]]\nname = "x"\nkind = "unalocated"\npod_shares = false\n')
    assert fault.key == "rule[0].kind"
    assert 'did you mean "unallocated"?' in fault.mend
