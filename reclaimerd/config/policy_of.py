"""From the tables of a sound file to the policy of the model; pure."""

from dataclasses import fields, replace
from typing import Any, TypeVar

from reclaimerd.config import schema
from reclaimerd.config.drain_tables import SETTINGS_OF
from reclaimerd.config.rule_bases import HolderRuleTable
from reclaimerd.config.rule_tables import FaultRuleTable
from reclaimerd.model import policy as model
from reclaimerd.model.outlets import NotifyTarget
from reclaimerd.model.policy import ONLY_TOLD, Policy

T = TypeVar("T")

SELECTORS = ("match", "exempt", "avoid")
_POLICY = Policy()
_SETTINGS = tuple(
    field.name
    for field in fields(schema.PolicyFile)
    if field.name in {known.name for known in fields(Policy)}
)
"""The tables that are settings of their own in the policy, under the same name."""


def policy_of(file: schema.PolicyFile) -> Policy:
    """Return the policy of a file; what the file has no key for stays at its default."""
    return Policy(
        **_keys(file.daemon),
        **{name: _mirrored(type(getattr(_POLICY, name)), getattr(file, name)) for name in _SETTINGS},
        notices=tuple(_mirrored(NotifyTarget, table) for table in file.notify),
        protections=tuple(_mirrored(model.UserProtection, protection) for protection in file.protect),
        rules=tuple(_rule(rule) for rule in file.rule if isinstance(rule, HolderRuleTable)),
        fault_rules=tuple(
            _mirrored(model.FaultRule, rule) for rule in file.rule if isinstance(rule, FaultRuleTable)
        ),
        signatures=tuple(_mirrored(model.Signature, signature) for signature in file.signature),
    )


def _keys(table: object) -> dict[str, Any]:
    return {field.name: getattr(table, field.name) for field in fields(table)}  # type: ignore[arg-type] # always a dataclass


def _mirrored(kind: type[T], table: object) -> T:
    """Return a model value from a table whose keys have the names of its fields, and so for tables in it."""
    own = _keys(table)
    own |= {
        name: _mirrored(SETTINGS_OF[type(value)], value)
        for name, value in own.items()
        if type(value) in SETTINGS_OF
    }
    return kind(**own)


def _rule(table: HolderRuleTable) -> model.Rule:
    """Return a rule; keys that its kind does not have stay at their defaults, and none of them acts."""
    own = _keys(table)
    own |= {side: _mirrored(model.Selector, own[side]) for side in SELECTORS if side in own}
    zone = own.pop("zone", None)
    if zone is not None:
        own["windows"] = tuple(replace(window, zone=zone) for window in own["windows"])
    if table.kind in ONLY_TOLD:
        own["stages"] = ()
    return model.Rule(**own)
