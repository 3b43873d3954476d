"""One TOML table of a description of the simulation, read with every fault at once.

It knows types and forms; what a key means is its caller's business.
"""

import re
from collections.abc import Mapping

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def size_bytes(text: str) -> int:
    """Return "16GiB", "512 MiB" or "123" in bytes; raises ValueError with the sentence to show."""
    digits = text.strip()
    unit = digits.lstrip("0123456789.")
    number = digits[: len(digits) - len(unit)]
    factor = UNITS.get(unit.strip() or "B")
    if factor is None or not number or number.count(".") > 1 or number == ".":
        raise ValueError(f"{text!r} is no size: write a number and one of {', '.join(UNITS)}")
    return int(float(number) * factor) if "." in number else int(number) * factor


class Table:
    """One TOML table while it is read: gives typed keys out and collects every fault."""

    def __init__(self, where: str, entries: Mapping[str, object], faults: list[str]) -> None:
        self.where = where
        self.left = dict(entries)
        self.faults = faults

    def fault(self, key: str, text: str) -> None:
        """Note one fault of one key."""
        self.faults.append(f"{self.where}{key}: {text}")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string; without a default the key must be there."""
        value = self.left.pop(key, default)
        if isinstance(value, str):
            return value
        self.fault(key, "must be a string" if value is not None else "is missing")
        return ""

    def flag(self, key: str) -> bool:
        """Return a boolean, false when it is not there."""
        value = self.left.pop(key, False)
        if isinstance(value, bool):
            return value
        self.fault(key, "must be true or false")
        return False

    def number(self, key: str) -> float:
        """Return a number that is not negative, 0 when it is not there."""
        value = self.left.pop(key, 0)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return float(value)
        self.fault(key, "must be a number, not negative")
        return 0.0

    def size(self, key: str, default: int | None = None) -> int:
        """Return a size in bytes, written as a number or as "16GiB"."""
        value = self.left.pop(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if isinstance(value, str):
            try:
                return size_bytes(value)
            except ValueError as error:
                self.fault(key, str(error))
                return 0
        self.fault(key, "must be a size such as 16GiB" if value is not None else "is missing")
        return 0

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings, empty when it is not there."""
        value = self.left.pop(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.fault(key, "must be a list of strings")
        return ()

    def word(self, key: str, words: frozenset[str], default: str) -> str:
        """Return one of these words."""
        value = self.text(key, default)
        if value not in words:
            self.fault(key, f"one of {', '.join(sorted(words))}")
            return default
        return value

    def pattern(self, key: str, form: re.Pattern[str], default: str) -> str:
        """Return a string of this form."""
        value = self.text(key, default)
        if not form.fullmatch(value):
            self.fault(key, f"must be written as {default!r} is")
            return default
        return value

    def finish(self) -> None:
        """Count every key that nobody asked for as a fault."""
        for key in self.left:
            self.fault(key, "is not a key of the simulation")
