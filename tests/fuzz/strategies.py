"""How an input is bent: a real one with a few places changed, or anything at all. It tests nothing."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

_ODD_TEXTS = (
    "", " ", "\n", "\n\n", "\t", "\r\n", "\0", ":", "=", ",", ";", "/", "//", "..", "(", ")", ") ", "[", "]",
    "{", "}", '"', "'", "\\", "\\x", "\\x41", "-1", "0", "1", "2147483648", "18446744073709551616", "9" * 30,
    "9" * 5000, "0x", "1e999", "nan", "\u00b2", "\u0665", "\u202e", "\x1b[2J", "\ud800", "\udcff", "\x85",
    "\u2028", "\ufeff", "a" * 300, "(null)", "N/A", "[0-99999999]", "{1..9}", "%00", "#", "$", "*", "?", "|",
)  # fmt: skip
_ODD_BYTES = (
    b"\x00", b"\xff", b"\x80", b"\n", b"\x0a\x7f", b"\x0b", b"\x08\x01", b"\xff" * 10, b"\x7f" * 3,
    b"\x0a\x00", b"\xc3\x28", b"\xed\xa0\x80", b"a" * 200, b"\x12\x02\x0a\x00",
)  # fmt: skip
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")
MOST_EDITS = 5
MOST_COPIES = 400
"""Of one piece, side by side: what a pattern that looks back and forth would take for ever over."""
_LETTERS = st.characters() | st.sampled_from(" \n:=,;()[]{}\"'\\/-0123456789\0\x1b\u202e\udcff")


@dataclass(frozen=True, slots=True)
class Given:
    """What one reader is given: inputs that are drawn, and inputs that come each time."""

    drawn: st.SearchStrategy[Any]
    each: Callable[[], Iterable[Any]] = tuple

    def map(self, change: Callable[[Any], Any]) -> "Given":
        """Return the same, each changed."""
        return Given(self.drawn.map(change), lambda: map(change, self.each()))

    def filter(self, wanted: Callable[[Any], bool]) -> "Given":
        """Return those of them that are wanted."""
        return Given(self.drawn.filter(wanted), lambda: filter(wanted, self.each()))


def exchanged(seed: str) -> Iterator[str]:
    """Yield a real text with each of its words, gaps and signs exchanged for each odd one, and cut there."""
    for piece in _PIECES.finditer(seed):
        yield seed[: piece.start()]
        for odd in _ODD_TEXTS:
            yield seed[: piece.start()] + odd + seed[piece.end() :]


def exchanged_bytes(seed: bytes) -> Iterator[bytes]:
    """Yield real bytes with each of them exchanged for each odd piece, and cut there."""
    for at in range(len(seed)):
        yield seed[:at]
        for odd in _ODD_BYTES:
            yield seed[:at] + odd + seed[at + 1 :]


@st.composite
def bent_texts(draw: st.DrawFn, *seeds: str) -> str:
    """Return a real text in which up to five places are put in, taken out, doubled or exchanged."""
    made = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, MOST_EDITS))):
        start = draw(st.integers(0, len(made)))
        end = draw(st.integers(start, min(len(made), start + 40)))
        piece = draw(st.sampled_from(_ODD_TEXTS) | st.text(_LETTERS, max_size=12))
        put = draw(st.sampled_from((piece, made[start:end] + piece, "", made[start:end] * 2, made[:end])))
        made = made[:start] + put + made[end:]
    return made


@st.composite
def repeated_texts(draw: st.DrawFn, *seeds: str) -> str:
    """Return one short piece of a real text many times over, between two other pieces."""
    seed = draw(st.sampled_from(seeds))
    start = draw(st.integers(0, len(seed)))
    piece = seed[start : start + draw(st.integers(1, 12))] or draw(st.sampled_from(_ODD_TEXTS))[:12]
    return seed[:start] + piece * draw(st.integers(2, MOST_COPIES)) + draw(st.sampled_from(_ODD_TEXTS))


def texts(*seeds: str) -> Given:
    """Return texts like these, texts that repeat a piece of one, and any text."""
    drawn = bent_texts(*seeds) | repeated_texts(*seeds) | st.text(_LETTERS, max_size=200)
    return Given(drawn, lambda: (text for seed in seeds for text in exchanged(seed)))


@st.composite
def bent_bytes(draw: st.DrawFn, *seeds: bytes) -> bytes:
    """Return real bytes in which up to five places are changed."""
    made = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, MOST_EDITS))):
        start = draw(st.integers(0, len(made)))
        end = draw(st.integers(start, min(len(made), start + 20)))
        piece = draw(st.sampled_from(_ODD_BYTES) | st.binary(max_size=6))
        put = draw(st.sampled_from((piece, made[start:end] + piece, b"", made[start:end] * 2)))
        made = made[:start] + put + made[end:]
    return made


def payloads(*seeds: bytes) -> Given:
    """Return bytes like these, and any bytes."""
    drawn = bent_bytes(*seeds) | st.binary(max_size=200)
    return Given(drawn, lambda: (payload for seed in seeds for payload in exchanged_bytes(seed)))


_SCALARS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(_ODD_TEXTS)
    | st.text(_LETTERS, max_size=12)
)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _bent_json(draw: st.DrawFn, *seeds: Any) -> Any:
    made = json.loads(json.dumps(draw(st.sampled_from(seeds))))
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(made))
        if not places:
            break
        table, key = draw(st.sampled_from(places))
        if draw(st.booleans()):
            table[key] = draw(ANY_JSON)
        else:
            del table[key]
    return made


def _exchanged_json(seed: Any) -> Iterator[Any]:
    odds: tuple[Any, ...] = (*_ODD_TEXTS, None, True, 0, -1, 10**400, 1e999, [], {}, [[]], [None], {"a": {}})
    for at in range(len(list(_places(seed)))):
        for odd in odds:
            made = json.loads(json.dumps(seed))
            table, key = list(_places(made))[at]
            table[key] = odd
            yield made


def objects(*seeds: Any) -> Given:
    """Return objects like these: up to three values drawn, and each value exchanged for each odd one."""
    return Given(_bent_json(*seeds), lambda: (made for seed in seeds for made in _exchanged_json(seed)))


def json_texts(*seeds: Any) -> Given:
    """Return the texts of objects like these, of any JSON, and texts that were JSON before they were bent."""
    written = texts(*(json.dumps(seed) for seed in seeds))
    drawn = _bent_json(*seeds).map(json.dumps) | ANY_JSON.map(json.dumps) | written.drawn
    return Given(drawn, objects(*seeds).map(_dumped).each)


def _dumped(made: Any) -> str:
    try:
        return json.dumps(made)
    except ValueError:  # a number of 400 digits and more can be read, and not always written
        return "[]"


def _places(made: Any) -> list[tuple[Any, Any]]:
    if isinstance(made, dict):
        own: list[tuple[Any, Any]] = [(made, key) for key in made]
        return own + [place for value in made.values() for place in _places(value)]
    if isinstance(made, list):
        return [(made, at) for at in range(len(made))] + [place for value in made for place in _places(value)]
    return []


def policies(*files: str) -> Given:
    """Return policy files like these: lines gone, doubled or with another value; and bytes that are none."""

    @st.composite
    def bent_lines(draw: st.DrawFn) -> bytes:
        lines = draw(st.sampled_from(files)).splitlines()
        for _ in range(draw(st.integers(1, 4))):
            at = draw(st.integers(0, len(lines) - 1))
            key, equals, _ = lines[at].lstrip("# ").partition(" = ")
            value = draw(st.sampled_from(_ODD_VALUES))
            other = draw(st.sampled_from(("", lines[at], f"{key}{equals}{value}", f"{value} = {key}")))
            lines[at] = draw(st.sampled_from((other, f"{lines[at]}\n{other}")))
        return "\n".join(lines).encode("utf-8", "surrogatepass")

    return Given(bent_lines() | payloads(*(file.encode() for file in files)).drawn)


_ODD_VALUES = (
    "true", "false", "0", "-1", "1.5", "9" * 40, "inf", "nan", '""', '" "', '"\\u0000"', '"\\u202e"', '"x"',
    '"120s"', '"-1s"', '"9999999999999d"', '"5%"', '"-5%"', '"(a+)+$"', '"["', '"GPU-x"', '"/../x"',
    '"~root"',
    "[]", "[[]]", "[1]", '["a", "a"]', "{}", "{a = 1}", "[{}]", "1979-05-27", "07:32:00", "'''\nx'''",
)  # fmt: skip
