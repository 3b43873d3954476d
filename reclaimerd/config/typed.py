"""Holds a parsed file against the schema: every flaw at once, and the policy of what is sound.

The one place that knows pydantic's error types; they end here.
"""

import copy
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from reclaimerd.config import rule_tables, schema
from reclaimerd.config.faults import Flaw, dotted
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import BadValueError
from reclaimerd.config.values import shape_of, suggestion
from reclaimerd.model import policy as model
from reclaimerd.model.policy import Policy

T = TypeVar("T")

_SELECTORS = ("match", "exempt", "avoid")

_FILE: TypeAdapter[schema.PolicyFile] = TypeAdapter(schema.PolicyFile)
_TABLES: Mapping[KeyPath, type[Any]] = {
    (): schema.PolicyFile,
    ("daemon",): schema.DaemonTable,
    ("ladder",): schema.LadderTable,
    ("gates",): schema.GatesTable,
    ("budgets",): schema.BudgetsTable,
    ("breaker",): schema.BreakerTable,
    ("drain",): schema.DrainTable,
    ("workers",): schema.WorkersTable,
    ("reset",): schema.ResetTable,
    ("attribution",): schema.AttributionTable,
    ("audit",): schema.AuditTable,
    ("access",): schema.AccessTable,
    **{("rule", kind): table for kind, table in rule_tables.HOLDER_TABLES.items()},
    **{
        ("rule", kind, side): rule_tables.SelectorTable
        for kind in rule_tables.HOLDER_TABLES
        for side in _SELECTORS
    },
    ("rule", rule_tables.FAULT): rule_tables.FaultRuleTable,
    ("protect",): schema.ProtectTable,
    ("signature",): schema.SignatureTable,
}
_TABLE_LISTS = frozenset({"rule", "protect", "signature"})
_KINDS = frozenset({*rule_tables.HOLDER_TABLES, rule_tables.FAULT})
_HOLDER_TABLES = tuple(rule_tables.HOLDER_TABLES.values())


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
    faults = [place for place, rule in enumerate(file.rule) if isinstance(rule, rule_tables.FaultRuleTable)]
    return TypedFile(_policy(file), rule_places=tuple(rules), fault_rule_places=tuple(faults))


def known_keys() -> Mapping[KeyPath, tuple[str, ...]]:
    """Return the keys of each table, as they are written; positions are left out of the paths.

    A rule's path has its kind after "rule": each kind has keys of its own.
    """
    return {path: tuple(_written_name(field) for field in fields(table)) for path, table in _TABLES.items()}


def _written_name(field: Field[Any]) -> str:
    """Return a field's key in the file: its alias, or its own name."""
    for note in getattr(field.type, "__metadata__", ()):
        if isinstance(note, FieldInfo) and note.alias is not None:
            return note.alias
    return field.name


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
    what = "this key is not known here"
    meant = suggestion(word, here)
    if meant:
        return Flaw(path, what, meant + "else take it out")
    homes = [home for home, known in keys.items() if word in known and home]
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
        case ("rule", int(index), kind, *inside) if kind in _KINDS:
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


def _mirrored(kind: type[T], table: object, **given: object) -> T:
    """Return a model value from the table that has its fields under the same names."""
    own = {field.name: getattr(table, field.name) for field in fields(kind) if field.name not in given}  # type: ignore[arg-type] # always a dataclass
    return kind(**own, **given)


def _policy(file: schema.PolicyFile) -> Policy:
    return Policy(
        mode=file.daemon.mode,
        interval_seconds=file.daemon.interval_seconds,
        full_scan_seconds=file.daemon.full_scan_seconds,
        nvidia_smi=file.daemon.nvidia_smi,
        ladder=_mirrored(model.LadderSettings, file.ladder),
        gates=_mirrored(model.GateSettings, file.gates),
        budgets=_mirrored(model.BudgetSettings, file.budgets),
        breaker=_mirrored(model.BreakerSettings, file.breaker),
        drain=_mirrored(model.DrainSettings, file.drain),
        workers=_mirrored(model.WorkerSettings, file.workers),
        reset=_mirrored(model.ResetSettings, file.reset),
        attribution=_mirrored(model.AttributionSettings, file.attribution),
        audit=_mirrored(model.AuditSettings, file.audit),
        access=_mirrored(model.AccessSettings, file.access),
        protections=tuple(_mirrored(model.UserProtection, protection) for protection in file.protect),
        rules=tuple(_rule(rule) for rule in file.rule if isinstance(rule, _HOLDER_TABLES)),
        fault_rules=tuple(
            _mirrored(model.FaultRule, rule)
            for rule in file.rule
            if isinstance(rule, rule_tables.FaultRuleTable)
        ),
        signatures=tuple(_mirrored(model.Signature, signature) for signature in file.signature),
    )


def _rule(table: rule_tables.HolderRuleTable) -> model.Rule:
    """Return a rule; keys that its kind does not have stay at their defaults."""
    own: dict[str, Any] = {field.name: getattr(table, field.name) for field in fields(table)}
    own |= {side: _mirrored(model.Selector, getattr(table, side)) for side in _SELECTORS}
    return model.Rule(**own)
