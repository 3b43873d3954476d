"""The policy reference is the tables' own word: nothing in it can drift, and nothing is left unsaid."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from reclaimerd.config import json_schema, reference
from reclaimerd.config.json_schema import checks_of, description_of, policy_schema, written_name
from reclaimerd.config.reference import as_markdown
from reclaimerd.config.rule_kinds import RULE_TABLES
from reclaimerd.config.rule_values import some_listed
from reclaimerd.config.typed import _TABLES, known_keys
from reclaimerd.config.values import Choice, listed
from reclaimerd.model.policy import (
    GpuSpan,
    LabelOperator,
    ListedStage,
    Mode,
    Per,
    RuleAction,
    RuleKind,
    Scope,
)

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"


def test_the_page_is_what_the_code_says() -> None:
    """docs/policy.md is what `make docs` makes of the tables now."""
    assert PAGE.read_text(encoding="utf-8") == as_markdown()


@pytest.mark.parametrize("path", [path for path in _TABLES if path], ids=str)
def test_every_key_has_a_sentence(path: tuple[str, ...]) -> None:
    """No key of any table is left without a meaning; it ends like a sentence and fits a row of the page."""
    for key in fields(_TABLES[path]):
        said = description_of(key)
        assert said.endswith("."), (path, key.name)
        assert "|" not in said
        assert "\n" not in said


def test_the_page_has_every_key() -> None:
    """Each key stands in the section of its table, or of the keys that it shares."""
    sections = dict(re.findall(r"^#+ (.+)\n\n((?:.|\n)*?)(?=^#|\Z)", as_markdown(), re.MULTILINE))
    shared = "".join(text for heading, text in sections.items() if heading.startswith("Keys of"))
    for path, keys in known_keys().items():
        match path:
            case ("rule", kind):
                text = sections[f"Kind {kind}"] + shared
            case ("rule", _, _):
                text = sections["match, exempt, avoid"]
            case ():
                continue
            case _:
                name = ".".join(map(str, path))
                text = sections.get(f"[{name}]") or sections[f"[[{name}]]"]
        assert [key for key in keys if f"| `{key}` |" not in text] == [], path


def test_every_kind_says_what_it_cannot_see() -> None:
    """A kind's docstring has the sentence that an administrator must read before enforcing it."""
    for table in RULE_TABLES.values():
        assert "It can't " in (table.__doc__ or ""), table.__name__


def test_every_check_in_any_table_has_words_and_a_form() -> None:
    """A check that is added without its words would fail the page; without its form it misleads editors."""
    checks = {check for table in _TABLES.values() for key in fields(table) for check in checks_of(key.type)}
    named = {check for check in checks if not isinstance(check, Choice)} - {listed, some_listed}
    assert named <= set(reference._WORDS)
    assert set(reference._WORDS) == set(json_schema._FORMS)


def test_every_word_that_a_rule_may_have_is_in_the_glossary() -> None:
    """An administrator finds each word of a rule explained by its value."""
    text = (PAGE.parent / "glossary.md").read_text(encoding="utf-8")
    words = [*GpuSpan, *LabelOperator, *ListedStage, *Mode, *Per, *RuleAction, *RuleKind, *Scope]
    assert [str(word) for word in words if f"`{word}`" not in text] == []


def test_editors_see_the_same_sentences() -> None:
    """`policy schema` has each key's sentence."""
    ladder = policy_schema()["properties"]["ladder"]["properties"]
    for key in fields(_TABLES["ladder",]):
        assert ladder[written_name(key)]["description"] == description_of(key)
