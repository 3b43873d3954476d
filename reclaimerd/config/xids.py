"""The catalogue of Xids: what each code asks for, from the package's own file.

No pydantic: the file is ours, and it is read in the foreground too. It reads one file and judges no GPU.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from reclaimerd.errors import ConfigError
from reclaimerd.model.fault import FaultClass, XidEntry

BUILT_IN = Path(__file__).with_name("xids.toml")
_KEYS = ("class", "name", "source")
_WORDS: Mapping[str, FaultClass] = {fault.word: fault for fault in FaultClass if fault is not FaultClass.NONE}
_MOST_CODE = 99_999


def load_xids() -> Mapping[int, XidEntry]:
    """Return the catalogue by code; a code that is not in it is unknown, and leads to no reset.

    Raises ConfigError with one line for each fault: file, code and what is wrong.
    """
    rows = _read_rows(BUILT_IN)
    faults = tuple(f"{BUILT_IN}: xid.{flaw}" for code, row in rows.items() for flaw in _flaws(code, row))
    if faults:
        raise ConfigError(faults, "install the package again")
    return {int(code): _entry(int(code), row) for code, row in rows.items()}


def _read_rows(path: Path) -> Mapping[str, Mapping[str, object]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: {error}",), "install the package again") from error
    rows = tables.pop("xid", None)
    if tables or not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ConfigError((f"{path}: one table [xid] with a row for each code must stand here",), "")
    return rows


def _flaws(code: str, row: Mapping[str, object]) -> Iterator[str]:
    if not (code.isascii() and code.isdigit() and int(code) <= _MOST_CODE and str(int(code)) == code):
        yield f"{code}: is no number of an Xid"
    for key in sorted(row.keys() - set(_KEYS)):
        yield f"{code}.{key}: is no key of an Xid"
    for key in _KEYS:
        value = row.get(key)
        if not isinstance(value, str) or not value:
            yield f"{code}.{key}: must be a text"
    if isinstance(row.get("class"), str) and row["class"] not in _WORDS:
        yield f"{code}.class: must be one of " + ", ".join(_WORDS)


def _entry(code: int, row: Mapping[str, object]) -> XidEntry:
    return XidEntry(code, _WORDS[str(row["class"])], str(row["name"]), str(row["source"]))
