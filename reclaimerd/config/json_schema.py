"""The policy file's form as a JSON Schema, for editors; made from the tables that the loader itself uses.

It says what one value may look like, not what one value says about another: `policy check` has the last
word. Draft 7, which the editors' TOML servers know.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BeforeValidator, Tag
from pydantic.fields import FieldInfo

from reclaimerd.config import (
    access_table,
    cluster_table,
    drain_values,
    outlet_values,
    rule_values,
    selector_values,
    time_windows,
    values,
)
from reclaimerd.config.schema import PolicyFile
from reclaimerd.config.units import format_duration, format_size
from reclaimerd.config.values import Choice

Json = dict[str, Any]

_DRAFT = "http://json-schema.org/draft-07/schema#"
_NUMBER = r"\d{1,12}(\.\d{1,9})?"
_UNITS = "".join(f"({_NUMBER}{unit})?" for unit in ("d", "h", "m", "s", "ms"))
_SOME = "(?=.*[1-9])"
"""Looks ahead for a digit that is not zero."""
_BYTES = r"\d{1,18}(\.\d{1,9})? ?(B|KiB|MiB|GiB|TiB)"
_SHARE = r"\d{1,9}(\.\d{1,9})? ?%"
_MOST_COUNT = 1_000_000


def _text(pattern: str, example: str) -> Json:
    return {"type": "string", "pattern": f"^{pattern}$", "examples": [example]}


_TIME = _text(rf"(?=\d){_UNITS}", "2m")
_WAIT = _text(rf"(?=\d){_SOME}{_UNITS}", "2m")
_PATH = _text(r"/[^\u0000]*", "/usr/bin/nvidia-smi")
_GLOB = _text(r"[/*][^\u0000]*", "/usr/bin/python3*")
_ENTRIES = "reset", *values.RESET_ACTIONS, *values.REBOOT_ACTIONS
_FORMS: Mapping[Callable[[Any], Any], Json] = {
    values.duration: _TIME,
    values.positive_duration: _WAIT,
    values.interval: _WAIT,
    values.file_size: _text(_SOME + _BYTES, "64MiB"),
    values.threshold: _text(f"{_SOME}({_BYTES}|{_SHARE})", "8GiB"),
    values.percent: {"anyOf": [{"type": "number", "minimum": 0, "maximum": 100}, _text(_SHARE, "25%")]},
    values.count: {"type": "integer", "minimum": 0, "maximum": _MOST_COUNT},
    values.positive_count: {"type": "integer", "minimum": 1, "maximum": _MOST_COUNT},
    values.readings: {"type": "integer", "minimum": 2, "maximum": _MOST_COUNT},
    values.name: _text(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "over-cap"),
    values.word: _text(r"\S+", "root"),
    access_table.group_name: _text(r"\S*", "gpu-operators"),
    values.absolute_path: _PATH,
    values.absolute_path_or_empty: _text(r"(/[^\u0000]*)?", ""),
    values.program_glob: _GLOB,
    values.cgroup_glob: _GLOB,
    values.pattern: {"type": "string", "minLength": 1},
    values.gpu: _text(r"GPU-[0-9A-Za-z-]+", "GPU-00000000-0000-0000-0000-000000000000"),
    values.unit: _text(r"[A-Za-z0-9:_.\\@-]+\.(service|scope|slice)", "inference.service"),
    values.service: _text(r"[A-Za-z0-9:_.\\@-]+\.service", "inference.service"),
    values.uid_range: {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": values.MOST_UID},
            _text(r"\d{1,10}-\d{1,10}", "1000-1999"),
        ],
    },
    rule_values.rate: _text(rf"{_SOME}{_BYTES}/[smh]", "50MiB/s"),
    rule_values.idle_share: {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": rule_values.MOST_IDLE_PERCENT},
            _text(_SHARE, "5%"),
        ],
    },
    rule_values.priority: {
        "type": "integer",
        "minimum": -rule_values.MOST_PRIORITY,
        "maximum": rule_values.MOST_PRIORITY,
    },
    rule_values.score: {"type": "number", "minimum": 0, "maximum": rule_values.MOST_SCORE},
    rule_values.port: {"type": "integer", "minimum": 1, "maximum": rule_values.MOST_PORT},
    rule_values.only_observes: {"type": "string", "enum": ["observe"]},
    rule_values.only_warns: {"type": "string", "enum": ["observe", "warn"]},
    time_windows.window: _text(r"\s*[0-9*]\S*(\s+\S+){4}\s*", "* 8-17 * * mon-fri"),
    time_windows.zone: _text(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", "Europe/Berlin"),
    selector_values.digest: _text(r"[0-9a-fA-F]{64}", "0" * 64),
    selector_values.name_glob: _text(r"\S(.*\S)?", "team-*"),
    selector_values.unit_glob: _text(r".*(\.(service|scope|slice)|[*?\[].*)", "jupyter-*.service"),
    selector_values.label_term: _text(r"[^,]+(\(.*\))?", "app=trainer"),
    cluster_table.credentials_path: _text(r"(|in-cluster|/[^\u0000]*)", "in-cluster"),
    cluster_table.node_name: _text(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?", "gpu-node-1"),
    drain_values.call_limit: _WAIT,
    drain_values.web_address: _text(r"https?://[!-~]+", "https://fleet.example.org/drain"),
    drain_values.drain_target: _text(r"[0-9A-Za-z][0-9A-Za-z:_.\\@-]*\.target", "reclaimerd-drain.target"),
    drain_values.program_path: _text(r"/[^\u0000]*", "/usr/local/sbin/drain-node"),
    drain_values.namespace: _text(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "reclaimerd"),
    drain_values.slurm_node: _text(r"([0-9A-Za-z][0-9A-Za-z._-]*)?", "gpu-1"),
    outlet_values.listen_address: _text(r"(\[?[0-9A-Fa-f.:]+\]?:\d{1,5})?", "127.0.0.1:9485"),
    outlet_values.textfile_path: _text(r"(/[^\u0000]*\.prom)?", "/var/lib/node_exporter/reclaimerd.prom"),
    outlet_values.notice_template: {"type": "string"},
    values.recovery_action: {"type": "string", "enum": list(map(str, _ENTRIES))},
}
"""What each check of a value takes, in a schema's words."""
_TIMES = frozenset({values.duration, values.positive_duration, values.interval, drain_values.call_limit})


def policy_schema() -> Json:
    """Return the schema of the whole policy file."""
    return {
        "$schema": _DRAFT,
        "title": "The policy of reclaimerd",
        "description": "Checked in whole by: reclaimctl policy check FILE",
        **_table(PolicyFile),
    }


def _table(table: type) -> Json:
    """Return the schema of one table: the keys that it knows, and no others."""
    keys = fields(table)
    schema: Json = {
        "type": "object",
        "additionalProperties": False,
        "properties": {written_name(key): _key(key) for key in keys},
    }
    if any(values.name in checks_of(key.type) for key in keys):  # only tables of a list, and each needs one
        schema["required"] = ["name"]
    return schema


def written_name(key: Field[Any]) -> str:
    """Return a field's key in the file: its alias, or its own name."""
    aliases = [note.alias for note in _notes(key.type) if isinstance(note, FieldInfo)]
    return next((alias for alias in aliases if alias is not None), key.name)


def _key(key: Field[Any]) -> Json:
    said = description_of(key)
    schema = {**({"description": said} if said else {}), **_value(key.type)}
    default = default_of(key)
    return schema if default is None else {**schema, "default": default}


def description_of(key: Field[Any]) -> str:
    """Return the sentence that stands beside a key's type, without the marks of its code; "" is none."""
    said = [note.description for note in _notes(key.type) if isinstance(note, FieldInfo)]
    return next((each for each in said if each is not None), "")


def default_of(key: Field[Any]) -> object:
    """Return a key's default as it is written in the file; None where it has none to show."""
    default = None if key.default is MISSING else key.default
    checks = checks_of(key.type)
    if checks & _TIMES and isinstance(default, float):
        return format_duration(default)
    if values.file_size in checks and isinstance(default, int):
        return format_size(default)
    return _plain(default)


def _plain(default: object) -> object:
    match default:
        case "" | ():
            return None
        case Enum():
            return default.value
        case int() | float() | str():
            return default
        case tuple() if not any(is_dataclass(item) for item in default):
            return [_written_item(item) for item in default]
        case _:
            return None


def _written_item(item: object) -> object:
    match item:
        case Enum():
            return item.value
        case _:
            return item


def _value(kind: Any) -> Json:  # noqa: ANN401  # a type as `fields` gives it: a class, or one of typing's forms
    """Return the schema of one value's type: its check decides, else the type itself."""
    bare = _bare(kind)
    for check in checks_of(kind):
        return _by_check(check, bare)
    origin = get_origin(bare)
    if origin is tuple:
        return {"type": "array", "items": _value(get_args(bare)[0])}
    if origin in (Union, UnionType):
        return _one_of([each for each in get_args(bare) if each is not type(None)])
    if is_dataclass(bare):
        return _table(cast("type", bare))
    return {"type": "boolean" if bare is bool else "string"}


def _by_check(check: object, bare: Any) -> Json:  # noqa: ANN401  # see `_value`
    """Return what a check takes; anything at all for one that has no form here (a test says so)."""
    if isinstance(check, Choice):
        return {"type": "string", "enum": list(map(str, check.allowed))}
    if check is values.listed:
        return {"anyOf": [_value(bare), _value(get_args(bare)[0])]}
    if check is rule_values.some_listed:
        return {"anyOf": [{**_value(bare), "minItems": 1}, _value(get_args(bare)[0])]}
    return dict(_FORMS.get(cast("Callable[[Any], Any]", check), {}))


def _one_of(kinds: list[Any]) -> Json:
    """Return the schema of alternatives; tables are told apart by `kind`, which only the first may lack."""
    if len(kinds) == 1:
        return _value(kinds[0])
    return {"anyOf": [_tagged(each, first=place == 0) for place, each in enumerate(kinds)]}


def _tagged(kind: Any, *, first: bool) -> Json:  # noqa: ANN401  # see `_value`
    schema = _value(_bare(kind))
    tag = next(note.tag for note in _notes(kind) if isinstance(note, Tag))
    schema["properties"]["kind"] = {"type": "string", "enum": [str(tag)]}
    schema["required"] = schema["required"] if first else [*schema["required"], "kind"]
    return schema


def inner_table(kind: Any) -> type | None:  # noqa: ANN401  # see `_value`
    """Return the table that a key's type is, also where it may be left out; None for any other type."""
    bare = _bare(kind)
    choices = [each for each in get_args(bare) if each is not type(None)]
    found = choices[0] if get_origin(bare) in (Union, UnionType) and len(choices) == 1 else bare
    return found if isinstance(found, type) and is_dataclass(found) else None


def checks_of(kind: Any) -> frozenset[object]:  # noqa: ANN401  # see `_value`
    """Return the checks that a type's values go through."""
    return frozenset(note.func for note in _notes(kind) if isinstance(note, BeforeValidator))


def _notes(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401  # see `_value`
    return tuple(getattr(kind, "__metadata__", ()))


def _bare(kind: Any) -> Any:  # noqa: ANN401  # see `_value`
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
