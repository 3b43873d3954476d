"""The wire format of protobuf, in the parts that services of this host use: fields in, fields out.

By hand from the encoding's own description (protobuf.dev, encoding): generated code would tie us to one
protobuf version. Pure: what is not well-formed raises ValueError, and no field is interpreted here.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MOST_VARINT_BITS = 64


def fields_of(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield each field's number and value, in the order of the wire. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value: bytes | int
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind == _BYTES:
            size, at = _varint(message, at)
            value, at = _piece(message, at, size)
        elif kind in _FIXED:
            value, at = _piece(message, at, _FIXED[kind])
        else:
            raise ValueError(f"field {number} is of wire type {kind}, which is not known")
        yield number, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _MOST_VARINT_BITS:
        if at >= len(message):
            raise ValueError("the message ends in the middle of a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is longer than 64 bits")


def _piece(message: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(message):
        raise ValueError("the message ends in the middle of a field")
    return message[at : at + size], at + size


def message_of(value: bytes | int) -> bytes:
    """Return the bytes of a message's or a text's field; raises ValueError for a number."""
    if isinstance(value, int):
        raise ValueError("a number stands in the place of a message")  # noqa: TRY004  # one kind of error for the border
    return value


def text_of(value: bytes | int) -> str:
    """Return a text's field; raises ValueError for what is no UTF-8."""
    return message_of(value).decode("utf-8")


def field(number: int, body: bytes) -> bytes:
    """Return one field that is a message or a text."""
    return _number(number << 3 | _BYTES) + _number(len(body)) + body


def _number(value: int) -> bytes:
    parts = []
    while value > 0x7F:  # noqa: PLR2004  # seven bits of each byte are the number's
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
