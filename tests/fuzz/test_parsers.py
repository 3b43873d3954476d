"""What others wrote never raises what it may not, never costs much, and never moves a reader's cursor."""

import ast
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

import reclaimerd
from tests.fuzz import planted, seeds
from tests.fuzz.rows import NO_PARSERS, ROWS, Parser, Row
from tests.fuzz.strategies import texts

CI_EXAMPLES = 50
NIGHTLY_EXAMPLES = 2000
"""In one go, before the next parser has its turn."""
MOST_SECONDS = 1.0
"""Of processor time for one input of a few kilobytes: fifty times what the slowest honest one takes."""
_TEXTS = frozenset({"str", "bytes", "str | bytes", "bytes | int", "str | None"})


def attack(row: Row, examples: int, number: int | None = None) -> None:
    """Give one reader so many drawn inputs; by a seed, or the same ones each time."""

    @settings(
        max_examples=examples,
        derandomize=number is None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(row.given.drawn)
    def one(read: Any) -> None:
        bears(row, read)

    (one if number is None else seed(number)(one))()


def bears(row: Row, read: Any) -> None:
    """Assert what must hold of one answer, whatever was read."""
    began = time.process_time()
    try:
        answer = row(read)
    except row.allowed as error:
        answer = str(error) if row.shown else ""
    assert time.process_time() - began < MOST_SECONDS
    if row.shown:
        assert [text for text in texts_in(answer) if not text.isprintable()] == []


def bears_each(row: Row) -> None:
    """Assert it of every input that comes each time."""
    for read in row.given.each():
        bears(row, read)


def texts_in(answer: Any) -> Iterator[str]:
    """Yield every text in an answer, however deep."""
    if isinstance(answer, str):
        yield answer
    elif is_dataclass(answer):
        for each in fields(answer):
            yield from texts_in(getattr(answer, each.name))
    elif isinstance(answer, dict):
        yield from texts_in([*answer.keys(), *answer.values()])
    elif isinstance(answer, (list, tuple, set, frozenset)):
        for item in answer:
            yield from texts_in(item)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row.name.removeprefix("reclaimerd.") for row in ROWS])
def test_no_input_is_more_than_a_parser_can_bear(row: Row) -> None:
    """Each piece exchanged, bent, repeated, foreign: an answer in time, or an error that it may give."""
    bears_each(row)
    attack(row, CI_EXAMPLES)


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_no_input_of_half_an_hour_is_more_than_a_parser_can_bear() -> None:
    """The same, exploring; RECLAIMERD_SEED goes the same way again, RECLAIMERD_FUZZ_MINUTES sets how long."""
    number = int(os.environ.get("RECLAIMERD_SEED") or random.SystemRandom().randrange(2**32))
    minutes = float(os.environ.get("RECLAIMERD_FUZZ_MINUTES") or 30)
    sys.stdout.write(f"RECLAIMERD_SEED={number}\n")  # pytest shows it where the test fails
    until = time.monotonic() + 60 * minutes
    rounds = 0
    while rounds == 0 or time.monotonic() < until:
        for place, row in enumerate(ROWS):
            attack(row, NIGHTLY_EXAMPLES, number + rounds * len(ROWS) + place)
            if rounds and time.monotonic() >= until:
                break
        rounds += 1


def readers_of_text() -> Iterator[str]:
    """Yield every public function of host and observe whose first argument is a text or bytes."""
    root = Path(reclaimerd.__file__).parent
    for path in sorted([*root.glob("host/*.py"), *root.glob("observe/*.py")]):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or not node.args.args:
                continue
            first = node.args.args[0].annotation
            if first is not None and ast.unparse(first) in _TEXTS:
                yield f"reclaimerd.{path.parent.name}.{path.stem}.{node.name}"


def test_whoever_reads_a_text_has_a_row() -> None:
    """A new parser without one fails here; what is no parser says what it is given; no row is of the past."""
    found = set(readers_of_text())
    rows = {row.name for row in ROWS}
    assert found - rows - NO_PARSERS.keys() == set(), "give it a row in tests/fuzz/rows.py"
    assert NO_PARSERS.keys() - found == set()
    assert NO_PARSERS.keys() & rows == set()
    assert len(rows) == len(ROWS)
    assert len(found & rows) > 40


@pytest.mark.parametrize("parser", [planted.raises, planted.spins, planted.shows])
def test_an_attack_notices(parser: Parser) -> None:
    """A parser that raises another error, takes too long, or lets a terminal's escape through, is caught."""
    wrong = Row(parser, texts(seeds.HUNG), shown=True)
    with pytest.raises((KeyError, AssertionError)):
        bears_each(wrong)
