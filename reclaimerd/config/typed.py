"""Holds a parsed file against the schema: every flaw at once, and the policy of what is sound.

The one place that knows pydantic's error types; they end here.
"""

import copy
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from reclaimerd.config import schema
from reclaimerd.config.faults import Flaw, dotted
from reclaimerd.config.lines import KeyPath
from reclaimerd.config.units import BadValueError
from reclaimerd.config.values import shape_of, suggestion
from reclaimerd.model import policy as model
from reclaimerd.model.policy import Policy

T = TypeVar("T")

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
    ("audit",): schema.AuditTable,
    ("access",): schema.AccessTable,
    ("rule",): schema.RuleTable,
    ("rule", "match"): schema.SelectorTable,
    ("rule", "exempt"): schema.SelectorTable,
    ("protect",): schema.ProtectTable,
    ("signature",): schema.SignatureTable,
}
_TABLE_LISTS = frozenset({"rule", "protect", "signature"})


@dataclass(frozen=True, slots=True)
class TypedFile:
    """The policy of all that is sound (`refused` keys have their defaults), and the flaws found."""

    policy: Policy
    flaws: tuple[Flaw, ...] = ()
    refused: frozenset[KeyPath] = frozenset()


def typed_file(parsed: Mapping[str, Any]) -> TypedFile:
    """Return the typed policy of a parsed file with every flaw of form in it."""
    try:
        return TypedFile(_policy(_FILE.validate_python(parsed)))
    except ValidationError as error:
        details = error.errors(include_url=False)
    sound = copy.deepcopy(dict(parsed))
    refused = frozenset(_refused_key(detail["loc"]) for detail in details)
    for key in sorted(refused, key=len, reverse=True):
        _take_out(sound, key)
    flaws = tuple(_flaw(detail) for detail in details)
    return TypedFile(_policy(_FILE.validate_python(sound)), flaws, refused)


def known_keys() -> Mapping[KeyPath, tuple[str, ...]]:
    """Return the keys of each table, as they are written; positions are left out of the paths."""
    return {path: tuple(_written_name(field) for field in fields(table)) for path, table in _TABLES.items()}


def _written_name(field: Field[Any]) -> str:
    """Return a field's key in the file: its alias, or its own name."""
    for note in getattr(field.type, "__metadata__", ()):
        if isinstance(note, FieldInfo) and note.alias is not None:
            return note.alias
    return field.name


def _flaw(detail: ErrorDetails) -> Flaw:
    path: KeyPath = detail["loc"]
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, BadValueError):
        return Flaw(path, cause.what, cause.mend)
    if detail["type"] == "unexpected_keyword_argument":
        return _unknown_key(path)
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


def _unknown_key(path: KeyPath) -> Flaw:
    """Return the flaw of a key that no table has here, with the nearest known one."""
    keys = known_keys()
    *around, last = path
    table = tuple(part for part in around if isinstance(part, str))
    word = str(last)
    here = keys[table]
    what = "this key is not known here"
    meant = suggestion(word, here)
    if meant:
        return Flaw(path, what, meant + "else take it out")
    homes = [dotted(home) for home, known in keys.items() if word in known and home]
    if homes:
        return Flaw(path, what, f"it belongs in [{homes[0]}]")
    return Flaw(path, what, f"take it out; known are {', '.join(here)}")


def _refused_key(path: KeyPath) -> KeyPath:
    """Return the smallest key that can be left out so that the rest still stands."""
    for end in range(1, len(path)):
        if _names(path[:end]) not in _TABLES:
            return path[:end]
    return path[:-1] if isinstance(path[-1], int) else path


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
        audit=_mirrored(model.AuditSettings, file.audit),
        access=_mirrored(model.AccessSettings, file.access),
        protections=tuple(_mirrored(model.UserProtection, protection) for protection in file.protect),
        rules=tuple(_rule(rule) for rule in file.rule),
        signatures=tuple(_mirrored(model.Signature, signature) for signature in file.signature),
    )


def _rule(table: schema.RuleTable) -> model.Rule:
    match = _mirrored(model.Selector, table.match)
    exempt = _mirrored(model.Selector, table.exempt)
    return _mirrored(model.Rule, table, match=match, exempt=exempt)
