"""JSON for the model's frozen dataclasses: quick to write with the standard library alone.

Workers write and must not pay for pydantic; whoever reads (`Decoder`) pays for it at the first use.
What can't be written faithfully is refused, but for one thing: text that is no Unicode (a hostile
file or program name) is written with its odd bytes escaped, so that no name can break a reading.
"""

import dataclasses
import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

_SHOWN_FAULTS = 3
_PLAIN = frozenset({type(None), bool, int, float})


def _text(value: str) -> str:
    """Return text that every JSON reader takes: lone surrogates (odd bytes of a name) escaped."""
    if value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _key(key: object) -> str:
    """Return a mapping's key as JSON has it."""
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return _text(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise TypeError(f"a mapping keyed by {type(key).__name__} has no wire form: only text and whole numbers")


def _find_writer(cls: type) -> Callable[[Any], object]:
    """Return the function that writes one class."""
    writer: Callable[[Any], object]
    if issubclass(cls, Enum):
        writer = operator.attrgetter("value")
    elif cls in _PLAIN:
        writer = _as_it_is
    elif issubclass(cls, str):
        writer = _text
    elif issubclass(cls, tuple | list):
        writer = _items
    elif issubclass(cls, Mapping):
        writer = _pairs
    elif issubclass(cls, frozenset | set):
        writer = _sorted_items
    elif dataclasses.is_dataclass(cls):
        names = tuple(field.name for field in dataclasses.fields(cls))
        writer = functools.partial(_fields, names, _values_of(names))
    else:
        raise TypeError(f"{cls.__name__} has no wire form: only frozen dataclasses and plain values have")
    return writer


# Cached, a few dozen classes at most: a worker writes thousands of values a minute.
_writer_of: Callable[[type], Callable[[Any], object]] = functools.cache(_find_writer)


def _as_it_is(value: object) -> object:
    return value


def _items(values: Iterable[object]) -> object:
    return [_writer_of(type(value))(value) for value in values]


def _pairs(values: Mapping[object, object]) -> object:
    return {_key(key): _writer_of(type(value))(value) for key, value in values.items()}


def _sorted_items(values: Iterable[object]) -> object:
    return sorted((_writer_of(type(value))(value) for value in values), key=json.dumps)


def _values_of(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    """Return the function that takes the named fields of an object, in one step where that is possible."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda obj: tuple(getattr(obj, name) for name in names)


def _fields(names: tuple[str, ...], values_of: Callable[[object], tuple[object, ...]], obj: object) -> object:
    return {
        name: value if type(value) in _PLAIN else _writer_of(type(value))(value)
        for name, value in zip(names, values_of(obj), strict=True)
    }


def to_wire(obj: object) -> object:
    """Return the plain lists, mappings and scalars that stand for a model value.

    Sets are sorted, so equal values give equal text. Raises TypeError for what has no wire form.
    """
    return _writer_of(type(obj))(obj)


def to_json(obj: object) -> str:
    """Return one line of compact JSON; raises ValueError for a number that JSON lacks (NaN, infinity)."""
    return json.dumps(to_wire(obj), separators=(",", ":"), allow_nan=False)


class Decoder(Generic[T]):
    """Reads one type back; strict about kinds, and its errors are short and never repeat the input."""

    __slots__ = ("_adapter", "_type")

    def __init__(self, kind: type[T]) -> None:
        self._type = kind
        self._adapter: TypeAdapter[T] | None = None

    def _ready(self) -> "TypeAdapter[T]":
        """Return pydantic's validator, built at the first use."""
        if self._adapter is None:
            # Here and not above: a worker only writes, and pydantic costs it 10 MiB.
            from pydantic import TypeAdapter  # noqa: PLC0415

            self._adapter = TypeAdapter(self._type)
        return self._adapter

    def decode(self, text: str | bytes) -> T:
        """Return the value that one JSON text stands for; ValueError says what is wrong and where."""
        adapter = self._ready()
        try:
            return adapter.validate_json(text)
        except ValueError as error:
            raise ValueError(self._short(error)) from None

    def from_object(self, obj: object) -> T:
        """Return the value that parsed JSON stands for; ValueError says what is wrong and where."""
        adapter = self._ready()
        try:
            return adapter.validate_python(obj)
        except ValueError as error:
            raise ValueError(self._short(error)) from None

    def _short(self, error: ValueError) -> str:
        """Return one sentence for pydantic's report, without the input (it may hold a secret)."""
        # The same lazy import as above; by now it is loaded.
        from pydantic import ValidationError  # noqa: PLC0415

        name = getattr(self._type, "__name__", str(self._type))
        if not isinstance(error, ValidationError):
            return f"not a {name}: {error}"
        faults: list[Any] = error.errors(include_url=False, include_input=False, include_context=False)
        shown = "; ".join(
            f"{'.'.join(str(step) for step in fault['loc']) or 'whole'}: {fault['msg']}"
            for fault in faults[:_SHOWN_FAULTS]
        )
        more = len(faults) - _SHOWN_FAULTS
        return f"not a {name}: {shown}" + (f"; and {more} more" if more > 0 else "")
