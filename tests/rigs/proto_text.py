"""Fields of protobuf messages, encoded for services of the tests' own."""


def text(number: int, value: str) -> bytes:
    """Return a text's field."""
    return message(number, value.encode())


def message(number: int, body: bytes) -> bytes:
    """Return a message's field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def number(field: int, value: int) -> bytes:
    """Return a number's field."""
    return varint(field << 3) + varint(value)


def varint(value: int) -> bytes:
    """Return a number, seven bits a byte."""
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])
