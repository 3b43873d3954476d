"""Holds a parsed file against the schema: every flaw at once, and the policy of what is sound.

The one place that knows pydantic's error types; they end here.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from reclaimerd.config import rule_kinds, schema
from reclaimerd.config.faults import Flaw, dotted
from reclaimerd.config.json_schema import inner_table, written_name
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.outlet_tables import NotifyTable
from reclaimerd.config.policy_of import SELECTORS, policy_of
from reclaimerd.config.rule_tables import FaultRuleTable
from reclaimerd.config.selector_table import SelectorTable
from reclaimerd.config.units import BadValueError
from reclaimerd.config.values import shape_of, suggestion
from reclaimerd.model.policy import ONLY_TOLD, Policy

_FILE: TypeAdapter[schema.PolicyFile] = TypeAdapter(schema.PolicyFile)
_TABLE_LISTS = frozenset({"rule", "protect", "signature", "notify"})
_HOLDER_TABLES = tuple(rule_kinds.HOLDER_TABLES.values())


def _tables() -> Mapping[KeyPath, type[Any]]:
    """Return every table of the file by its path, a rule's with its kind after "rule"."""
    found: dict[KeyPath, type[Any]] = {(): schema.PolicyFile}
    found |= _settings_below((), schema.PolicyFile)
    for kind, table in rule_kinds.RULE_TABLES.items():
        found["rule", kind] = table
        sides = {field.name for field in fields(table)}.intersection(SELECTORS)
        found |= {("rule", kind, side): SelectorTable for side in SELECTORS if side in sides}
    lists = {"protect": schema.ProtectTable, "signature": schema.SignatureTable, "notify": NotifyTable}
    return found | {(name,): table for name, table in lists.items()}


def _settings_below(path: KeyPath, table: type[Any]) -> Mapping[KeyPath, type[Any]]:
    """Return the tables of settings in a table, and those in them."""
    found: dict[KeyPath, type[Any]] = {}
    for field in fields(table):
        inner = inner_table(field.type)
        if inner is not None:
            found |= {(*path, field.name): inner, **_settings_below((*path, field.name), inner)}
    return found


_TABLES = _tables()
_TELLING = frozenset((kind,) for kind in ONLY_TOLD)
"""Kinds without a key to act with."""


@dataclass(frozen=True, slots=True)
class TypedFile:
    """The policy of all that is sound (`refused` keys have their defaults), and the flaws found.

    `rule_places` and `fault_rule_places` are where the policy's rules of each kind stand in the file.
    """

    policy: Policy
    flaws: tuple[Flaw, ...] = ()
    refused: frozenset[KeyPath] = frozenset()
    rule_places: tuple[int, ...] = ()
    fault_rule_places: tuple[int, ...] = ()


def typed_file(parsed: Mapping[str, Any]) -> TypedFile:
    """Return the typed policy of a parsed file with every flaw of form in it."""
    try:
        return _typed(_FILE.validate_python(parsed))
    except ValidationError as error:
        details = error.errors(include_url=False)
    sound = copy.deepcopy(dict(parsed))
    refused = frozenset(_refused_key(detail["loc"]) for detail in details)
    for key in sorted(refused, key=len, reverse=True):
        _take_out(sound, key)
    for detail in details:
        match detail["loc"]:
            case ("rule", int(index), str(kind), "kind"):  # the kind that it was taken for stays
                sound["rule"][index]["kind"] = kind
            case _:
                pass
    flaws = tuple(_flaw(detail) for detail in details)
    return replace(_typed(_FILE.validate_python(sound)), flaws=flaws, refused=refused)


def _typed(file: schema.PolicyFile) -> TypedFile:
    rules = [place for place, rule in enumerate(file.rule) if isinstance(rule, _HOLDER_TABLES)]
    faults = [place for place, rule in enumerate(file.rule) if isinstance(rule, FaultRuleTable)]
    return TypedFile(policy_of(file), rule_places=tuple(rules), fault_rule_places=tuple(faults))


def known_keys() -> Mapping[KeyPath, tuple[str, ...]]:
    """Return the keys of each table, as they are written; positions are left out of the paths.

    A rule's path has its kind after "rule": each kind has keys of its own.
    """
    return {path: tuple(written_name(field) for field in fields(table)) for path, table in _TABLES.items()}


def _flaw(detail: ErrorDetails) -> Flaw:
    path = _written_path(detail["loc"])
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, BadValueError):
        return Flaw(path, cause.what, cause.mend)
    if detail["type"] == "unexpected_keyword_argument":
        return _unknown_key(detail["loc"])
    match detail["type"]:
        case "dataclass_type":
            wanted, mend = "a table", _table_mend(path)
        case "tuple_type" if path[0] in _TABLE_LISTS and len(path) == 1:
            wanted, mend = "tables", f"write [[{path[0]}]]"
        case "tuple_type":
            wanted, mend = "a list", 'write a list: ["...", "..."]'
        case "bool_type":
            wanted, mend = "true or false", "write true or false"
        case _:
            return Flaw(path, detail["msg"], "see the commented file that ships with the program")
    return Flaw(path, f"{shape_of(detail['input'])} stands in the place of {wanted}", mend)


def _table_mend(path: KeyPath) -> str:
    if path[0] in _TABLE_LISTS and len(path) <= 2:  # noqa: PLR2004 - ("rule", 0) is the item itself
        return f"write [[{path[0]}]] and its keys below"
    return (
        f"write a table: {path[-1]} = {{ ... }}" if len(path) > 1 else f"write [{path[0]}] and its keys below"
    )


def _unknown_key(place: KeyPath) -> Flaw:
    """Return the flaw of a key that no table has here, with the nearest known one."""
    keys = known_keys()
    path = _written_path(place)
    *around, last = place
    table = _names(tuple(around))
    word = str(last)
    here = keys[table]
    if table[:1] == ("rule",) and table[1:] in _TELLING and word in keys["rule", rule_kinds.MEMORY]:
        return Flaw(path, f'a rule of kind "{table[1]}" only tells, and has no {word}', "take it out")
    what = "this key is not known here"
    homes = [home for home, known in keys.items() if word in known and home]
    meant = suggestion(word, here)
    if meant and not any(home[:1] == table[:1] for home in homes):
        return Flaw(path, what, meant + "else take it out")
    if homes:
        near = next((home for home in homes if home[:1] == table[:1]), homes[0])
        return Flaw(path, what, f"it belongs in {_home(near)}")
    return Flaw(path, what, f"take it out; known are {', '.join(here)}")


def _home(table: KeyPath) -> str:
    """Return a table as people write it, a rule's with its kind."""
    match table:
        case ("rule", str(kind)):
            return f'a rule of kind "{kind}"'
        case ("rule", _, *inside):
            return f"[{dotted(('rule', *inside))}]"
        case _:
            return f"[{dotted(table)}]"


def _refused_key(place: KeyPath) -> KeyPath:
    """Return the smallest key that can be left out so that the rest still stands."""
    path = _written_path(place)
    tables = {_without_kind(table) for table in _TABLES}
    for end in range(1, len(path)):
        if _names(path[:end]) not in tables:
            return path[:end]
    return path[:-1] if isinstance(path[-1], int) else path


def _written_path(place: KeyPath) -> KeyPath:
    """Return where a key stands in the file: a rule's kind is no part of its path there."""
    match place:
        case ("rule", int(index), kind, *inside) if kind in rule_kinds.RULE_TABLES:
            return ("rule", index, *inside)
        case _:
            return place


def _without_kind(table: KeyPath) -> KeyPath:
    match table:
        case ("rule", _, *inside):
            return ("rule", *inside)
        case _:
            return table


def _names(path: KeyPath) -> KeyPath:
    return tuple(part for part in path if isinstance(part, str))


def _take_out(table: dict[str, Any], path: KeyPath) -> None:
    """Delete one key of a nested table; one that is gone already is no error."""
    inside: Any = table
    for part in path[:-1]:
        inside = inside[part]
    inside.pop(path[-1], None)
