"""The files that ship: they load, they enforce nothing unless they say so, and they drift nowhere."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.drain_tables import SETTINGS_OF
from reclaimerd.config.json_schema import written_name
from reclaimerd.config.lines import KeyPath, key_lines
from reclaimerd.config.load import load
from reclaimerd.config.rule_bases import ActingRuleTable
from reclaimerd.config.rule_kinds import HOLDER_TABLES
from reclaimerd.config.rule_tables import FaultRuleTable
from reclaimerd.config.schema import PolicyFile
from reclaimerd.config.selector_table import SelectorTable
from reclaimerd.config.typed import known_keys
from reclaimerd.model.drain_policy import (
    CommandTarget,
    KubernetesTarget,
    SlurmTarget,
    UnitTarget,
    WebhookTarget,
)
from reclaimerd.model.outlets import AnchorWebhook, NotifyTarget
from reclaimerd.model.policy import FaultRule, Mode, Policy, Rule, RuleKind, Selector, Threshold

CONFIG = Path(__file__).resolve().parents[2] / "config"
SHIPPED = CONFIG / "reclaimerd.toml"
EXAMPLES = sorted((CONFIG / "examples").glob("*.toml"))


TARGETS = {
    "webhook": WebhookTarget("https://fleet.example.org/drain"),
    "command": CommandTarget("/usr/local/sbin/drain-node"),
    "unit": UnitTarget(),
    "slurm": SlurmTarget(),
    "kubernetes": KubernetesTarget(),
}
"""Whom a drain is asked of by the sample tables; left out, nobody of them is."""


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
    nobody: dict[str, Any] = dict.fromkeys(TARGETS)
    drain = replace(policy.drain, **nobody)
    bare = replace(policy, rules=(), fault_rules=(), protections=(), signatures=(), notices=(), drain=drain)
    bare = replace(bare, anchor_webhook=AnchorWebhook())
    assert replace(bare, digest="built-in", source="") == Policy()
    assert {name: getattr(policy.drain, name) for name in TARGETS} == TARGETS
    assert policy.notices == (NotifyTarget("on-call", "https://alerts.example.org/hook"),)
    assert policy.anchor_webhook == AnchorWebhook("https://anchors.example.org/reclaimerd")
    (fault,) = policy.fault_rules
    assert {RuleKind.FAULT, *(rule.kind for rule in policy.rules)} == set(RuleKind)
    defaults = Policy().ladder
    rules: tuple[Rule | FaultRule, ...] = (*policy.rules, fault)
    for rule in rules:
        assert rule.sigterm_seconds in (defaults.sigterm_seconds, None)
        assert rule.sigkill_seconds in (defaults.sigkill_seconds, None)
        assert rule.mode is Mode.OBSERVE
    memory = next(rule for rule in policy.rules if rule.kind is RuleKind.MEMORY)
    assert (memory.sigterm_seconds, memory.sigkill_seconds) == (300.0, 60.0)
    assert all(set(window.minutes) == set(range(60)) for window in memory.windows)


def test_every_key_stands_in_the_shipped_file() -> None:
    """No key of the schema is left out of what the administrator reads."""
    written = written_with_kinds()
    known: Mapping[KeyPath, tuple[str, ...]] = known_keys()
    sides = {path for path in known if path[-1:] and path[-1] in ("match", "exempt", "avoid")}
    same = sides - {("rule", "memory", "match")}  # their keys are told once
    wanted = {(*table, key) for table, keys in known.items() for key in keys if table not in same}
    shared = {field.name: written_name(field) for field in fields(ActingRuleTable)}
    acting = {kind for kind, table in HOLDER_TABLES.items() if issubclass(table, ActingRuleTable)}
    told = acting | {
        RuleKind.MINER
    }  # what they share with `memory` is told there, and of `miner` what it lacks
    wanted -= {("rule", kind, key) for kind in told - {RuleKind.MEMORY} for key in shared.values()}
    assert wanted <= written
    assert ("rule", "memory", "avoid") in written


def test_every_setting_of_the_policy_has_a_key() -> None:
    """What the model knows can be set in the file; what can't is named here."""
    known = {path[0]: set(keys) for path, keys in known_keys().items() if len(path) == 1}
    tables: dict[str, Any] = {
        field.name: field.type for field in fields(PolicyFile) if is_dataclass(field.type)
    }
    without = {
        f"{name}.{key.name}"
        for name, settings in ((field.name, getattr(Policy(), field.name)) for field in fields(Policy))
        if is_dataclass(settings) and not isinstance(settings, type)
        for key in fields(settings)
        if name not in tables or key.name not in {own.name for own in fields(tables[name])}
    }
    assert without == set()
    for table, settings in SETTINGS_OF.items():
        assert {key.name for key in fields(table)} == {key.name for key in fields(settings)}, table
    assert set(known) >= set(tables)


def test_every_field_of_a_rule_has_a_key() -> None:
    """What the model's rule knows some kind of rule can say, and so for selectors and fault rules."""
    keys = {field.name for table in HOLDER_TABLES.values() for field in fields(table)}
    assert keys == {field.name for field in fields(Rule)} | {"zone"}
    assert {field.name for field in fields(SelectorTable)} == {field.name for field in fields(Selector)}
    assert {field.name for field in fields(FaultRuleTable)} == {field.name for field in fields(FaultRule)}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (RuleKind.MEMORY, 'above = "8GiB"'),
        (RuleKind.MEMORY_GROWTH, 'growth = "50MiB/s"\nolder_than = "1h"'),
        (RuleKind.AGE, 'older_than = "1h"'),
        (RuleKind.IDLE, 'idle = 1\nolder_than = "1h"\nwarn_before = "10m"'),
        (RuleKind.UNALLOCATED, ""),
        (RuleKind.LINGERING, ""),
        (RuleKind.USER_LIMIT, "gpus_at_most = 2"),
        (RuleKind.MINER, ""),
        (RuleKind.ORPHAN, ""),
        (RuleKind.HIDDEN, ""),
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
        warn_before_seconds=bare.warn_before_seconds,
        windows=(),
    )
    assert same == bare
    if kind is RuleKind.IDLE:
        assert sample.warn_before_seconds == bare.warn_before_seconds


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
        "idle-notebooks.toml",
        "thief-and-left-over.toml",
        "user-limits.toml",
        "miners.toml",
        "rollout-1-observe.toml",
        "rollout-2-dry-run.toml",
        "rollout-3-enforce.toml",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_is_in_the_cookbook(path: Path) -> None:
    """Whoever reads the cookbook finds each file; the demo's own is not for a host."""
    text = (CONFIG.parent / "docs" / "cookbook.md").read_text(encoding="utf-8")
    assert (f"config/examples/{path.name}" in text) is (path.name != "demo.toml")


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.name != "demo.toml"], ids=lambda p: p.name
)
def test_no_example_has_what_may_not_be_meant(path: Path) -> None:
    """What people copy raises no warning of the loader about its content."""
    assert load(path, enforce_ownership=False).warnings == ()


def test_the_rollout_is_one_rule_in_three_modes() -> None:
    """From looking to acting nothing changes but the two words."""
    policies = [
        load(CONFIG / "examples" / f"rollout-{step}.toml", enforce_ownership=False).policy
        for step in ("1-observe", "2-dry-run", "3-enforce")
    ]
    assert [policy.mode for policy in policies] == [Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE]
    assert [policy.rules[0].mode for policy in policies] == [Mode.OBSERVE, Mode.DRY_RUN, Mode.ENFORCE]
    same = [replace(policy, mode=Mode.OBSERVE, digest="", source="", rules=()) for policy in policies]
    assert same[0] == same[1] == same[2]
    rules = [replace(policy.rules[0], mode=Mode.OBSERVE) for policy in policies]
    assert rules[0] == rules[1] == rules[2]


def test_the_cookbook_has_the_figures_that_people_ask_for() -> None:
    """8 GiB, 70 %, an hour, 30 s and 60 s, three resets an hour."""
    policy = load(CONFIG / "examples" / "cookbook.toml", enforce_ownership=False).policy
    caps = [rule.above for rule in policy.rules if rule.kind is RuleKind.MEMORY]
    assert Threshold(above_bytes=8 * 2**30) in caps
    assert Threshold(above_percent=70.0) in caps
    assert [rule.older_than_seconds for rule in policy.rules if rule.kind is RuleKind.AGE] == [3600.0]
    assert (policy.ladder.sigterm_seconds, policy.ladder.sigkill_seconds) == (30.0, 60.0)
    assert (policy.budgets.resets_per_gpu, policy.budgets.reset_window_seconds) == (3, 3600.0)


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
        RuleKind.UNALLOCATED,
        RuleKind.MINER,
    }


def test_dry_run_first_enforces_nothing() -> None:
    """Neither the daemon nor a rule of it acts."""
    policy = load(CONFIG / "examples" / "dry-run-first.toml", enforce_ownership=False).policy
    assert policy.mode is Mode.DRY_RUN
    assert all(rule.mode is Mode.DRY_RUN for rule in policy.rules)
