"""The policy reference, docs/policy.md, made from the tables that the loader itself uses; pure.

A key's sentence stands beside its type, a table's and a kind's in its docstring, a default in the model.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, cast, get_args

from reclaimerd.config import (
    access_table,
    cluster_table,
    drain_values,
    outlet_tables,
    outlet_values,
    rule_values,
    schema,
    selector_values,
    time_windows,
    values,
)
from reclaimerd.config.json_schema import checks_of, default_of, description_of, inner_table, written_name
from reclaimerd.config.rule_bases import (
    ActingRuleTable,
    HolderRuleTable,
    SelectingRuleTable,
    WarningRuleTable,
)
from reclaimerd.config.rule_kinds import RULE_TABLES
from reclaimerd.config.selector_table import SelectorTable
from reclaimerd.config.values import Choice

_HEAD = """\
# The policy file

Made by `make docs` from the code; do not edit. Every key of `/etc/reclaimerd/reclaimerd.toml`: what may stand there, what holds without it, and what it means. The [shipped file](../config/reclaimerd.toml) has the same keys as comments, the [cookbook](cookbook.md) has recipes, and `reclaimctl policy schema` gives editors all of this.

- **duration**: `"500ms"`, `"30s"`, `"2m"`, `"1h"`, `"1m30s"`, at most a year. **size**: `"512MiB"`, `"8GiB"`; binary units only. **share**: `"70%"`. A list is written `["a", "b"]`.
- An unknown key is a fault and never ignored. Any fault refuses the whole file; all are told at once, each with its line and its mend: `reclaimctl policy check FILE`.
- The file and every folder above it must belong to root and be writable by nobody else.
"""  # noqa: E501 - a line of the page is a paragraph
_RULES = """\
## Rules

`[[rule]]`, as many as you like. All conditions of one rule must hold at once; rules are alternatives. What can't be read never makes a rule hold. The kinds are told apart by `kind`; without it a rule is of kind `memory`. A key that belongs to another kind is a fault.
"""  # noqa: E501 - the same
_WORDS: Mapping[Callable[[Any], Any], str] = {
    values.duration: "duration",
    values.positive_duration: "duration above 0",
    values.interval: "duration of 200ms or more",
    values.file_size: "size of 4KiB or more",
    values.threshold: "size or share",
    values.percent: "0 to 100",
    values.count: "whole number",
    values.positive_count: "whole number from 1",
    values.readings: "whole number from 2",
    values.name: "name of 1 to 64 letters, digits, `.`, `_`, `-`",
    values.word: "word without blanks",
    access_table.group_name: 'name of a group, or `""`',
    values.absolute_path: "absolute path",
    values.absolute_path_or_empty: 'absolute path or `""`',
    values.program_glob: "path or glob",
    values.cgroup_glob: "path or glob",
    values.pattern: "RE2 pattern",
    values.gpu: "GPU UUID",
    values.unit: "unit name",
    values.service: "service name",
    values.uid_range: "uid or range",
    values.recovery_action: "word of the driver's recovery action",
    rule_values.rate: "size for each `s`, `m` or `h`",
    rule_values.idle_share: "0 to 50 percent",
    rule_values.priority: "whole number from -1000 to 1000",
    rule_values.score: "number above 0",
    rule_values.port: "1 to 65535",
    rule_values.only_observes: "`observe`",
    rule_values.only_warns: "`observe`, `warn`",
    time_windows.window: "five fields of crontab(5)",
    time_windows.zone: "name of a time zone",
    selector_values.digest: "64 hex digits",
    selector_values.name_glob: "name or glob",
    selector_values.unit_glob: "unit name or glob",
    cluster_table.credentials_path: '`""`, `"in-cluster"` or absolute path',
    cluster_table.node_name: 'name of a node, or `""`',
    selector_values.label_term: "term of a label selector",
    drain_values.call_limit: "duration above 0, at most 10m",
    drain_values.web_address: "web address",
    drain_values.drain_target: "name of a systemd target",
    drain_values.program_path: "absolute path",
    drain_values.namespace: "name of a namespace",
    drain_values.slurm_node: 'name of one node, or `""`',
    outlet_values.listen_address: '`"ADDRESS:PORT"` or `""`',
    outlet_values.textfile_path: 'absolute path that ends in `.prom`, or `""`',
    outlet_values.notice_template: 'template, or `""`',
}
"""What each check of a value takes, in a reader's words."""
_LISTS = frozenset({values.listed, rule_values.some_listed})


def as_markdown() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *_settings(), _RULES, *_shared(), *_kinds()])


def _settings() -> Iterator[str]:
    yield from _tables_in(schema.PolicyFile, "")
    yield _section("## [[protect]]", schema.ProtectTable)
    yield _section("## [[signature]]", schema.SignatureTable)
    yield _section("## [[notify]]", outlet_tables.NotifyTable)


def _tables_in(table: type, above: str) -> Iterator[str]:
    """Return a section for each table of settings in a table, and then for those in it."""
    for key in fields(table):
        inner = inner_table(key.type)
        if inner is not None:
            yield _section(f"{'###' if above else '##'} [{above}{key.name}]", inner)
            yield from _tables_in(inner, f"{above}{key.name}.")


def _shared() -> Iterator[str]:
    yield _section("### Keys of every rule about processes", HolderRuleTable)
    yield _section("### Keys of rules that concern some and not others", SelectingRuleTable, HolderRuleTable)
    yield _section("### Keys of rules of which an owner may hear", WarningRuleTable, SelectingRuleTable)
    yield _section("### Keys of rules that may act", ActingRuleTable, WarningRuleTable)
    yield _section("### match, exempt, avoid", SelectorTable)


def _kinds() -> Iterator[str]:
    for kind, table in RULE_TABLES.items():
        base = table.__mro__[1]
        yield _section(f"### Kind {kind}", table, base if is_dataclass(base) else object)


def _section(heading: str, table: type, base: type = object) -> str:
    """Return a heading, what the table's docstring says, and a row for each key that its base has not."""
    above = {key.name for key in fields(base)} if is_dataclass(base) else set[str]()
    said = inspect.cleandoc(table.__doc__ or "")
    parts = [_sentence(" ".join(part.split())) for part in said.split("\n\n")]
    if issubclass(table, HolderRuleTable) and table in RULE_TABLES.values():
        parts.append(_also(base))
    rows = [_row(key) for key in fields(table) if key.name not in above]
    if rows:
        head = "| key | value | without it | meaning |\n| --- | --- | --- | --- |"
        parts.append("\n".join([head, *rows]))
    return "\n\n".join([heading, *parts]) + "\n"


def _sentence(said: str) -> str:
    """Return a paragraph without the table's name before it, which the heading has."""
    name, colon, rest = said.partition(": ")
    return rest[0].upper() + rest[1:] if colon and name.startswith(("`[", "`match")) else said


def _also(base: type) -> str:
    """Return which shared keys a kind has."""
    if base is ActingRuleTable:
        return "Besides: all shared keys."
    if base is WarningRuleTable:
        return "Besides: all shared keys but those of rules that may act."
    inner = ", `match` and `exempt`" if base is SelectingRuleTable else ""
    return f"Besides: the keys of every rule about processes{inner}."


def _row(key: Field[Any]) -> str:
    default = default_of(key)
    shown = "" if default is None else f"`{_toml(default)}`"
    inner = inner_table(key.type)
    kind = _kind_of(key.type) if inner in (None, SelectorTable) else "table, told below"
    return f"| `{written_name(key)}` | {kind} | {shown} | {description_of(key)} |"


def _toml(default: object) -> str:
    match default:
        case bool():
            return str(default).lower()
        case str():
            return f'"{default}"'
        case list():
            return "[" + ", ".join(_toml(item) for item in default) + "]"
        case _:
            return f"{default:g}" if isinstance(default, float) else str(default)


def _kind_of(kind: Any) -> str:  # noqa: ANN401  # a type as `fields` gives it: a class, or one of typing's forms
    """Return what may stand at a key."""
    for check in checks_of(kind) - _LISTS:
        if isinstance(check, Choice):
            return ", ".join(f"`{word}`" for word in check.allowed)
        return _WORDS[cast("Callable[[Any], Any]", check)]
    inner = [each for each in get_args(kind) if each not in (type(None), ...)]
    if hasattr(kind, "__metadata__"):
        return _kind_of(inner[0])
    if kind is SelectorTable:
        return "table, see [match](#match-exempt-avoid)"
    if inner:
        return ("list: " if kind.__class__.__name__ == "GenericAlias" else "") + _kind_of(inner[0])
    return "`true` or `false`" if kind is bool else "text"
