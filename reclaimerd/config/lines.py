"""The line of every key in a TOML text, which no TOML parser gives; pure.

It only finds places. `tomllib` has accepted the text before, so what is not TOML ends the scan
without an error: this never judges a file.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
# Multi-line strings first: their three quotes would else be read as an empty string and a quote.
# A multi-line string may end in up to two quotes of its own before the closing three (TOML 1.0).
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


@dataclass(slots=True)
class _Scan:
    """A walk through one text: where it stands, the table in force, and what it has found."""

    text: str
    at: int = 0
    line: int = 1
    counted_to: int = 0
    table: KeyPath = ()
    found: dict[KeyPath, int] = field(default_factory=dict)
    lengths: dict[KeyPath, int] = field(default_factory=dict)

    def skip(self, pattern: re.Pattern[str]) -> str:
        """Move past what the pattern matches here and return it ("" when it matches nothing)."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]

    def next_is(self, mark: str) -> bool:
        """Move past this mark and tell whether it stood here."""
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def note(self, path: KeyPath) -> None:
        """Remember the first line of a path; positions only grow, so newlines are counted once."""
        self.line += self.text.count("\n", self.counted_to, self.at)
        self.counted_to = self.at
        self.found.setdefault(path, self.line)


def key_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the 1-based line of each key path of a TOML text.

    A path is made of keys and list positions, such as `("rule", 0, "stages", 1)`. The line is the
    one where the key is written first; for a list's item, the one where the item begins.
    """
    scan = _Scan(text.replace("\r\n", "\n"))
    while True:
        scan.skip(_BLANK)
        before = scan.at
        if scan.next_is("[["):
            _list_header(scan)
        elif scan.next_is("["):
            scan.table = _keys(scan, (), through_lists=True)
            scan.next_is("]")
        else:
            _assignment(scan, scan.table)
        if scan.at == before:
            return scan.found


def _keys(scan: _Scan, base: KeyPath, *, through_lists: bool = False) -> KeyPath:
    """Read a dotted key and return its path below the base, noting each part."""
    path = base
    while True:
        if through_lists and path in scan.lengths:
            path = (*path, scan.lengths[path] - 1)
        scan.skip(_SPACE)
        begin = scan.at
        part = scan.skip(_KEY_PART)
        if scan.at == begin:
            return path
        path = (*path, _plain(part))
        scan.note(path)
        scan.skip(_SPACE)
        if not scan.next_is("."):
            # The header [list.of.tables] names its last item; an assignment can't name a list.
            return path


def _plain(part: str) -> str:
    """Return a key without its quotes; escapes are left to the real parser."""
    if not part.startswith(('"', "'")):
        return part
    try:
        decoded = tomllib.loads(f"key = {part}")["key"]
    except tomllib.TOMLDecodeError:
        return part
    return str(decoded)


def _list_header(scan: _Scan) -> None:
    """Read `name]]`: a new item of a list of tables, which is then the table in force."""
    path = _keys(scan, (), through_lists=True)
    scan.next_is("]]")
    position = scan.lengths.get(path, 0)
    scan.lengths[path] = position + 1
    scan.table = (*path, position)
    scan.note(scan.table)


def _assignment(scan: _Scan, base: KeyPath) -> None:
    """Read `key = value` below the base."""
    path = _keys(scan, base)
    scan.skip(_SPACE)
    if path != base and scan.next_is("="):
        scan.skip(_SPACE)
        _value(scan, path)


def _value(scan: _Scan, path: KeyPath) -> None:
    """Move past one value, noting the keys and items inside it."""
    if scan.next_is("["):
        _items(scan, path)
    elif scan.next_is("{"):
        _inline_table(scan, path)
    elif not scan.skip(_TEXT):
        scan.skip(_SCALAR)


def _items(scan: _Scan, path: KeyPath) -> None:
    """Move past a list after its opening bracket."""
    position = 0
    while True:
        scan.skip(_BLANK)
        if scan.next_is("]") or scan.at >= len(scan.text):
            return
        before = scan.at
        scan.note((*path, position))
        _value(scan, (*path, position))
        scan.skip(_BLANK)
        position += 1
        if not scan.next_is(",") and scan.at == before:
            return


def _inline_table(scan: _Scan, path: KeyPath) -> None:
    """Move past an inline table after its opening brace."""
    while True:
        scan.skip(_BLANK)
        if scan.next_is("}") or scan.at >= len(scan.text):
            return
        before = scan.at
        _assignment(scan, path)
        scan.skip(_BLANK)
        if not scan.next_is(",") and scan.at == before:
            return
