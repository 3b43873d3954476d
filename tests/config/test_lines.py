"""The scanner that gives keys their lines, held against tomllib and a writer that knows them."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reclaimerd.config.lines import KeyPath, key_lines

_PLAIN = st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\x7f")
_KEYS = st.one_of(
    st.sampled_from(["a", "b", "rule", "match", "1", "-", "true"]),
    st.text(_PLAIN, max_size=5),
    st.sampled_from(["a.b", "#", "=", "]", "[[x]]", '"', "'", "\\"]),
)
_SCALARS = st.one_of(
    st.integers(),
    st.booleans(),
    st.text(st.one_of(_PLAIN, st.sampled_from("\"'#]}[{,=\\\n")), max_size=12),
)
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(_KEYS, inner, max_size=3),
        st.lists(st.dictionaries(_KEYS, inner, max_size=2), min_size=1, max_size=2),
    ),
    max_leaves=12,
)
_DOCUMENTS = st.dictionaries(_KEYS, _TREES, max_size=4)


@dataclass(slots=True)
class _Writer:
    """Writes a document in forms that hypothesis chooses, and remembers where each key begins."""

    choose: st.DataObject
    text: str = ""
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def put(self, text: str) -> None:
        self.text += text

    def note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def one_of(self, *options: str) -> str:
        return self.choose.draw(st.sampled_from(options))

    def key(self, path: KeyPath) -> None:
        word = str(path[-1])
        forms = [json.dumps(word, ensure_ascii=False)]
        if re.fullmatch(r"[A-Za-z0-9_-]+", word, re.ASCII):
            forms.append(word)
        if "'" not in word:
            forms.append(f"'{word}'")
        self.note(path)
        self.put(self.one_of(*forms))

    def scalar(self, value: object) -> None:
        match value:
            case bool():
                self.put("true" if value else "false")
            case int():
                self.put(str(value))
            case _:
                self.put(self.one_of(*_text_forms(str(value))))

    def inline(self, path: KeyPath, value: object) -> None:
        match value:
            case list():
                self.put(self.one_of("[", "[ ", "[\n# ]\n"))
                for position, item in enumerate(value):
                    self.note((*path, position))
                    self.inline((*path, position), item)
                    self.put(self.one_of(",", " , # , ]\n", ",\n\n"))
                self.put("]")
            case dict():
                self.put("{ ")
                for number, (key, item) in enumerate(value.items()):
                    self.put(", " if number else "")
                    self.assignment((*path, key), item)
                self.put(" }")
            case _:
                self.scalar(value)

    def assignment(self, path: KeyPath, value: object) -> None:
        self.key(path)
        self.rest(path, value)

    def rest(self, path: KeyPath, value: object) -> None:
        if isinstance(value, dict) and len(value) == 1 and self.one_of("dotted", "inline") == "dotted":
            ((key, item),) = value.items()
            self.put(self.one_of(".", " . "))
            self.key((*path, key))
            self.rest((*path, key), item)
            return
        self.put(self.one_of("=", " = "))
        self.inline(path, value)

    def header(self, path: KeyPath, opening: str, closing: str) -> None:
        self.put(self.one_of("", "# [x]\n", "  ") + opening)
        for end in range(1, len(path) + 1):
            if isinstance(path[end - 1], str):
                self.put("." if end > 1 else "")
                self.key(path[:end])
        self.put(closing)

    def table(self, path: KeyPath, table: dict[str, Any]) -> None:
        late: list[tuple[KeyPath, Any]] = []
        for key, value in table.items():
            below = (*path, key)
            tables = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
            if (tables or isinstance(value, dict)) and self.one_of("late", "now") == "late":
                late.append((below, value))
                continue
            self.assignment(below, value)
            self.put(self.one_of("\n", " # = [\n", "\n\n"))
        for below, value in late:
            for position, item in enumerate(value if isinstance(value, list) else [value]):
                listed = isinstance(value, list)
                self.header(below, *(("[[", "]]") if listed else ("[", "]")))
                inner = (*below, position) if listed else below
                self.note(inner)
                self.put("\n")
                self.table(inner, item)


def _text_forms(text: str) -> list[str]:
    forms = [json.dumps(text, ensure_ascii=False), f'"""\n{json.dumps(text, ensure_ascii=False)[1:-1]}"""']
    if "'" not in text:
        forms.append(f"'''\n{text}'''")
        if "\n" not in text:
            forms.append(f"'{text}'")
    return forms


def _paths(tree: object, base: KeyPath = ()) -> Iterator[KeyPath]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(tree, dict):
        items = list(tree.items())
    elif isinstance(tree, list):
        items = list(enumerate(tree))
    for part, inner in items:
        yield (*base, part)
        yield from _paths(inner, (*base, part))


@pytest.mark.slow
@settings(database=None, deadline=None, max_examples=300)
@given(_DOCUMENTS, st.data())
def test_each_key_of_any_document_has_its_line(document: dict[str, Any], choose: st.DataObject) -> None:
    """Each path that tomllib yields, and no other, has the line on which it was written first."""
    writer = _Writer(choose)
    writer.table((), document)
    parsed = tomllib.loads(writer.text)
    assert parsed == document
    found = key_lines(writer.text)
    assert set(found) == set(_paths(parsed))
    assert found == writer.lines


def test_carriage_returns_count_once() -> None:
    """A file from another system keeps its lines."""
    assert key_lines("a = 1\r\n\r\nb = '''\r\n'''\r\nc = 2\r\n") == {("a",): 1, ("b",): 3, ("c",): 5}


def test_quotes_at_the_end_of_a_long_string_belong_to_it() -> None:
    """TOML allows two quotes before the closing three."""
    text = 'a = """x"""""\nb = \'\'\'y\'\'\'\'\'\nc = ""\n'
    assert set(tomllib.loads(text)) == {"a", "b", "c"}
    assert key_lines(text) == {("a",): 1, ("b",): 2, ("c",): 3}


def test_dates_and_their_blanks_are_values() -> None:
    """A date with a blank in it does not end the scan."""
    text = "a = 1979-05-27 07:32:00\nb = [1979-05-27 07:32:00, 2]\nc = 1\n"
    assert set(key_lines(text)) == set(_paths(tomllib.loads(text)))


@pytest.mark.parametrize("text", ["[", "a = [", "a = {", 'a = """', "= 1", "[[x", "a.b", '"\\q" = 1', "\0"])
def test_what_is_no_toml_ends_the_scan(text: str) -> None:
    """The scanner never hangs nor raises on a text that tomllib would refuse."""
    assert isinstance(dict(key_lines(text)), dict)
