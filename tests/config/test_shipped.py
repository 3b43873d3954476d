"""The files that ship: they load, they enforce nothing unless they say so, and they drift nowhere."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.lines import KeyPath, key_lines
from reclaimerd.config.load import load
from reclaimerd.config.typed import known_keys
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule, RuleKind

CONFIG = Path(__file__).resolve().parents[2] / "config"
SHIPPED = CONFIG / "reclaimerd.toml"
EXAMPLES = sorted((CONFIG / "examples").glob("*.toml"))


def uncommented() -> str:
    """Return the shipped file with every commented key taken into force."""
    return re.sub(r"(?m)^#(?=[a-z_\[])", "", SHIPPED.read_text(encoding="utf-8"))


def without_positions(path: KeyPath) -> KeyPath:
    """Return a key path without its list positions."""
    return tuple(part for part in path if isinstance(part, str))


def written_with_kinds() -> set[KeyPath]:
    """Return every key path of the uncommented file, a rule's with its kind after "rule"."""
    kinds = [rule["kind"] for rule in tomllib.loads(uncommented())["rule"]]
    found: set[KeyPath] = set()
    for path in key_lines(uncommented()):
        match path:
            case ("rule", int(index), *inside):
                found.add(without_positions(("rule", kinds[index], *inside)))
            case _:
                found.add(without_positions(path))
    return found


def test_the_shipped_file_is_the_built_in_policy() -> None:
    """It has no fault, enforces nothing, and equals what holds without a file."""
    assert check(SHIPPED) == ()
    policy = load(SHIPPED, enforce_ownership=False).policy
    assert replace(policy, digest="built-in", source="") == Policy()
    assert policy.mode is Mode.OBSERVE


def test_every_commented_default_is_the_true_one(tmp_path: Path) -> None:
    """With each key taken into force the settings stay the same; only the sample rules come in."""
    path = tmp_path / "all.toml"
    path.write_text(uncommented(), encoding="utf-8")
    assert check(path) == ()
    policy = load(path, enforce_ownership=False).policy
    bare = replace(policy, rules=(), fault_rules=(), protections=(), signatures=())
    assert replace(bare, digest="built-in", source="") == Policy()
    (fault,) = policy.fault_rules
    assert {RuleKind.FAULT, *(rule.kind for rule in policy.rules)} == set(RuleKind)
    defaults = Policy().ladder
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, fault)
    for rule in rules:
        assert rule.sigterm_seconds == defaults.sigterm_seconds
        assert rule.sigkill_seconds == defaults.sigkill_seconds
        assert rule.mode is Mode.OBSERVE


def test_every_key_stands_in_the_shipped_file() -> None:
    """No key of the schema is left out of what the administrator reads."""
    written = written_with_kinds()
    known: Mapping[KeyPath, tuple[str, ...]] = known_keys()
    sides = {path for path in known if path[-1:] and path[-1] in ("match", "exempt", "avoid")}
    same = sides - {("rule", "memory", "match")}  # their keys are told once
    assert {(*table, key) for table, keys in known.items() for key in keys if table not in same} <= written
    assert sides <= written


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (RuleKind.MEMORY, 'above = "8GiB"'),
        (RuleKind.MEMORY_GROWTH, 'growth = "50MiB/s"\nolder_than = "1h"'),
        (RuleKind.AGE, 'older_than = "1h"'),
        (RuleKind.IDLE, 'idle = 1\nolder_than = "1h"'),
        (RuleKind.UNALLOCATED, ""),
    ],
)
def test_the_built_in_rule_defaults_are_those_of_the_sample(tmp_path: Path, kind: RuleKind, own: str) -> None:
    """A sample rule's commented values are what a rule of its kind gets without them."""
    path = tmp_path / "all.toml"
    path.write_text(uncommented(), encoding="utf-8")
    rules = load(path, enforce_ownership=False).policy.rules
    (sample,) = [rule for rule in rules if rule.kind is kind]
    path.write_text(f'[[rule]]\nname = "{sample.name}"\nkind = "{kind}"\n{own}\n', encoding="utf-8")
    (bare,) = load(path, enforce_ownership=False).policy.rules
    same = replace(
        sample,
        match=bare.match,
        exempt=bare.exempt,
        avoid=bare.avoid,
        sigterm_seconds=None,
        sigkill_seconds=None,
    )
    assert same == bare


def test_the_built_in_fault_rule_defaults_are_those_of_the_sample(tmp_path: Path) -> None:
    """The same for the rule of kind `fault`: only what it waits for and the signals' times are its own."""
    path = tmp_path / "all.toml"
    path.write_text(uncommented(), encoding="utf-8")
    (sample,) = load(path, enforce_ownership=False).policy.fault_rules
    path.write_text(
        '[[rule]]\nname = "mend-gpu"\nkind = "fault"\n'
        'xid_class = ["reset", "drain_and_reset"]\nrecovery_action = ["reset", "drain_and_reset"]\n',
        encoding="utf-8",
    )
    (bare,) = load(path, enforce_ownership=False).policy.fault_rules
    assert replace(sample, sigterm_seconds=None, sigkill_seconds=None) == bare


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_loads(path: Path) -> None:
    """An example has no fault."""
    assert check(path) == ()


def test_the_examples_are_there() -> None:
    """Those that the documents name."""
    assert {path.name for path in EXAMPLES} >= {
        "memory-cap.toml",
        "demo.toml",
        "dry-run-first.toml",
        "cookbook.toml",
    }


def test_the_demo_policy_is_the_one_that_is_shown() -> None:
    """The demo runs on the very file that the reader sees among the examples."""
    packaged = resources.files("reclaimerd.simulation").joinpath("demo.toml").read_bytes()
    assert packaged == (CONFIG / "examples" / "demo.toml").read_bytes()


def test_the_cookbook_only_observes() -> None:
    """Recipes of every kind about holders, and none of them acts; nothing in them is unusual."""
    loaded = load(CONFIG / "examples" / "cookbook.toml", enforce_ownership=False)
    assert loaded.policy.mode is Mode.OBSERVE
    assert all(rule.mode is Mode.OBSERVE for rule in loaded.policy.rules)
    assert {rule.kind for rule in loaded.policy.rules} >= {
        RuleKind.MEMORY,
        RuleKind.MEMORY_GROWTH,
        RuleKind.AGE,
        RuleKind.IDLE,
    }


def test_dry_run_first_enforces_nothing() -> None:
    """Neither the daemon nor a rule of it acts."""
    policy = load(CONFIG / "examples" / "dry-run-first.toml", enforce_ownership=False).policy
    assert policy.mode is Mode.DRY_RUN
    assert all(rule.mode is Mode.DRY_RUN for rule in policy.rules)
