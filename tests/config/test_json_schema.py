"""The schema for editors takes what the loader takes, and refuses what it refuses for its form."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BeforeValidator

from reclaimerd.config import json_schema, rule_kinds, rule_values, schema, typed, value_kinds, values
from reclaimerd.config.check import check
from reclaimerd.config.json_schema import policy_schema
from tests.config.test_shipped import EXAMPLES, SHIPPED, uncommented

Schema = Mapping[str, Any]
SHAPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
WORDS = {
    *("$schema", "title", "description", "examples", "default"),
    *("type", "properties", "additionalProperties", "required", "items", "anyOf"),
    *("enum", "pattern", "minItems", "minLength", "minimum", "maximum"),
}
RULE = '[[rule]]\nname = "x"\nabove = "8GiB"\n'


def faults(value: object, form: Schema, at: str = "file") -> Iterator[str]:
    """Yield what is wrong with a value by the schema: as much of draft 7 as ours uses, and no more."""
    assert set(form) <= WORDS, form
    if "anyOf" in form and all(list(faults(value, each, at)) for each in form["anyOf"]):
        yield f"{at}: none of the alternatives"
    if "enum" in form and value not in form["enum"]:
        yield f"{at}: {value!r} is none of {form['enum']}"
    wanted = form.get("type")
    if wanted is None or (
        isinstance(value, SHAPES[wanted]) and isinstance(value, bool) is (wanted == "boolean")
    ):
        yield from _content_faults(value, form, at)
    else:
        yield f"{at}: {value!r} is no {wanted}"


def _content_faults(value: object, form: Schema, at: str) -> Iterator[str]:
    match value:
        case str():
            if re.search(form.get("pattern", ""), value) is None or len(value) < form.get("minLength", 0):
                yield f"{at}: {value!r} has not the form"
        case int() | float():
            if not form.get("minimum", value) <= value <= form.get("maximum", value):
                yield f"{at}: {value} is out of range"
        case list():
            if len(value) < form.get("minItems", 0):
                yield f"{at}: it is empty"
            for place, item in enumerate(value):
                yield from faults(item, form.get("items", {}), f"{at}[{place}]")
        case dict():
            yield from _table_faults(value, form, at)


def _table_faults(table: Mapping[str, object], form: Schema, at: str) -> Iterator[str]:
    known = form.get("properties", {})
    for key in form.get("required", ()):
        if key not in table:
            yield f"{at}: {key} is missing"
    for key, value in table.items():
        if key in known:
            yield from faults(value, known[key], f"{at}.{key}")
        elif form.get("additionalProperties") is False:
            yield f"{at}: {key} is not known"


def of_text(text: str) -> list[str]:
    """Return what the schema has against a policy's text."""
    return list(faults(tomllib.loads(text), policy_schema()))


def checks_in(room: object) -> set[object]:
    """Return every check of a value that a module's kinds name."""
    found: set[object] = set()
    for kind in vars(room).values():
        found |= {
            note.func for note in getattr(kind, "__metadata__", ()) if isinstance(note, BeforeValidator)
        }
    return found


@pytest.mark.parametrize("path", [SHIPPED, *EXAMPLES], ids=lambda path: path.name)
def test_each_file_that_ships_fits(path: Path) -> None:
    """The shipped policy and every example have nothing wrong by the schema."""
    assert of_text(path.read_text(encoding="utf-8")) == []


def test_every_key_of_the_shipped_file_fits() -> None:
    """Also with every commented key taken into force: each is known, with its default."""
    assert of_text(uncommented()) == []


def test_every_default_fits_its_own_form() -> None:
    """What the schema shows as a default is what may be written there."""

    def look(form: Schema, at: str) -> Iterator[str]:
        if "default" in form:
            yield from faults(form["default"], form, at)
        for key, below in form.get("properties", {}).items():
            yield from look(below, f"{at}.{key}")
        for below in (form.get("items"), *form.get("anyOf", ())):
            if below is not None:
                yield from look(below, at)

    assert list(look(policy_schema(), "file")) == []
    keys = policy_schema()["properties"]
    assert keys["ladder"]["properties"]["sigterm"]["default"] == "5m"
    assert keys["audit"]["properties"]["file_size"]["default"] == "64MiB"
    assert keys["daemon"]["properties"]["mode"]["default"] == "observe"
    assert keys["reset"]["properties"]["peers"]["default"] is False


def test_every_check_of_a_value_has_a_form() -> None:
    """A kind of value that is added without its form here would be anything at all to an editor."""
    checks = {
        one
        for one in checks_in(value_kinds)
        if not isinstance(one, values.Choice) and one not in (values.listed, rule_values.some_listed)
    }
    assert checks <= set(json_schema._FORMS)


def test_the_schema_has_every_key_of_every_table() -> None:
    """It is made from the loader's own tables: none is left out."""
    top = policy_schema()["properties"]
    assert set(top) == set(typed.known_keys()[()])
    rules = top["rule"]["items"]["anyOf"]
    for form in rules:
        keys = set(form["properties"])
        kinds = form["properties"]["kind"]["enum"]
        assert all(keys == set(typed.known_keys()["rule", kind]) for kind in kinds), kinds
    assert schema.PolicyFile.__dataclass_fields__.keys() == set(top)
    assert rule_kinds.MEMORY in rules[0]["properties"]["kind"]["enum"]


@pytest.mark.parametrize(
    "text",
    [
        '[daemon]\nmode = "enforc"',
        "[daemon]\nbogus = 1",
        '[daemon]\ninterval = "0s"',
        '[daemon]\ninterval = "2"',
        '[daemon]\ninterval = "1s1m"',
        "[daemon]\ninterval = 2",
        '[daemon]\nnvidia_smi = "nvidia-smi"',
        "[budgets]\nresets_per_day = -1",
        "[breaker]\ngpu_percent = 101",
        '[audit]\nfile_size = "64MB"',
        '[access]\ngroup = "a b"',
        "[reset]\npeers = 1",
        '[reset]\nstop_units = ["user.slice"]',
        "[rule]\nx = 1",
        "[[rule]]\nabove = '8GiB'",
        RULE.replace("8GiB", "-8GiB"),
        RULE.replace("8GiB", "0B"),
        RULE.replace("8GiB", "0%"),
        RULE + 'kind = "memry"',
        RULE + "readings = 1",
        RULE + "readings = true",
        RULE + 'stages = ["sigint"]',
        RULE + "match = { uid = [4294967295] }",
        RULE + 'match = { uid = ["all"] }',
        RULE + 'match = { exe = ["python3"] }',
        RULE + 'match = { gpu = ["0"] }',
        RULE + 'match = { cmdline = [""] }',
        RULE + 'xid_class = "reset"',
        '[[rule]]\nname = "x"\nkind = "fault"\nxid_class = "unknown"',
        '[[rule]]\nname = "x"\nkind = "fault"\nabove = "8GiB"',
    ],
)
def test_what_has_a_wrong_form_fits_neither(tmp_path: Path, text: str) -> None:
    """The loader refuses it, and the editor shows it."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    assert check(path) != ()
    assert of_text(text) != []


@pytest.mark.parametrize(
    "text",
    [
        '[daemon]\ninterval = "1m30s"\nfull_scan = "1h500ms"',
        '[gates]\nsettling = "0s"',
        '[breaker]\ngpu_percent = "25%"',
        "[breaker]\ngpu_percent = 12.5",
        '[drain]\ndirectory = ""',
        RULE.replace("8GiB", "70%"),
        RULE.replace("8GiB", "0.5 GiB"),
        RULE + "match = { uid = [0, 1000, '1000-1999'] }",
        RULE + 'match = { exe = ["*/bin/x"], cgroup = ["/user.slice/*"] }',
        '[[rule]]\nname = "x"\nkind = "fault"\nxid_class = "reset"',
        '[[rule]]\nname = "x"\nkind = "fault"\nrecovery_action = ["reset", "gpu_reset"]',
    ],
)
def test_what_may_be_written_fits_both(tmp_path: Path, text: str) -> None:
    """The editor marks nothing that the loader takes."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    assert check(path) == ()
    assert of_text(text) == []


def test_the_schema_is_json() -> None:
    """It can be written to a file and is the same when it is read back."""
    assert json.loads(json.dumps(policy_schema())) == policy_schema()
