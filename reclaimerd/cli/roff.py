"""Roff from the Markdown that our own pages are written in: headings, paragraphs, lists, tables, code; pure.

It knows no more Markdown than that: its input is made by this program. Output is for man(7), in UTF-8.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_CODE = "    "
_BULLET = "- "
_INLINE = re.compile(r"`([^`]*)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Title:
    """What stands above and below a page, and its line in the index of manuals."""

    name: str
    section: int
    summary: str
    version: str


def page(title: Title, markdown: str) -> str:
    """Return one manual page; the first heading of the Markdown gives way to the title."""
    head = (
        f'.TH "{title.name.upper()}" "{title.section}" "" "reclaimerd {_escaped(title.version)}" "reclaimerd"'
    )
    name = [".SH NAME", f"{_escaped(title.name)} \\- {_inline(title.summary)}", ".SH DESCRIPTION"]
    lines = markdown.splitlines()
    body = lines[1:] if lines and lines[0].startswith("# ") else lines
    return "\n".join(_without_idle([head, *name, *_body(body)])) + "\n"


def _without_idle(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines without a paragraph's beginning right below a heading, which has begun one."""
    before = ""
    for line in lines:
        if line != ".PP" or not before.startswith((".SH", ".SS")):
            yield line
        before = line


def _body(lines: Sequence[str]) -> Iterator[str]:
    """Yield the page's lines, block by block."""
    at = 0
    while at < len(lines):
        line = lines[at]
        match line:
            case "":
                at += 1
                continue
            case _ if line.startswith("## "):
                yield f'.SH "{_quoted(line[3:].upper())}"'
            case _ if line.startswith("### "):
                yield f'.SS "{_quoted(line[4:])}"'
            case _ if line.startswith(_CODE):
                end = _end(lines, at, _CODE)
                yield from (".PP", ".RS 4", ".nf", *(_text(one[4:]) for one in lines[at:end]), ".fi", ".RE")
                at = end
                continue
            case _ if line.startswith("|"):
                end = _end(lines, at, "|")
                yield from _table(lines[at:end])
                at = end
                continue
            case _ if line.startswith(_BULLET):
                yield from _item(line[2:])
            case _:
                yield from (".PP", _text_of(line)) if _begins(lines, at) else (_text_of(line),)
        at += 1


def _begins(lines: Sequence[str], at: int) -> bool:
    """Tell whether a paragraph begins here: a line of one follows the line before."""
    before = lines[at - 1] if at else ""
    return not before or before.startswith(("#", "|", _CODE, _BULLET))


def _end(lines: Sequence[str], at: int, mark: str) -> int:
    """Return the first line after a block whose lines all begin with a mark."""
    return next((index for index in range(at, len(lines)) if not lines[index].startswith(mark)), len(lines))


def _item(text: str) -> Iterator[str]:
    """Yield a list's item: an option with its meaning as a term, anything else with a bullet."""
    term = re.match(r"(`[^`]*`|\*\*[^*]+\*\*): ", text)
    if term is None:
        yield from (".IP \\(bu 3", _text_of(text))
    else:
        yield from (".TP", _inline(term[1]), _text_of(text[term.end() :]))


def _table(rows: Sequence[str]) -> Iterator[str]:
    """Yield each row as a term: its last cell is the text, what stands between is named by its heading."""
    headings, _, *cells = [_cells(row) for row in rows]
    for row in cells:
        yield from (".TP", _inline(row[0]) or "\\&", _text_of(row[-1]) or "\\&")
        named = zip(headings[1:-1], row[1:-1], strict=True)
        between = "; ".join(f"{heading}: {cell}" for heading, cell in named if cell)
        if between:
            yield from (".br", _text_of(f"{between[0].upper()}{between[1:]}."))


def _cells(row: str) -> list[str]:
    """Return a row's cells; a bar that is written with a backslash belongs to its cell."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip())[1:-1]]


def _text_of(line: str) -> str:
    return _guarded(_inline(line))


def _text(line: str) -> str:
    return _guarded(_escaped(line))


def _guarded(line: str) -> str:
    """Return a line that no roff takes for a request."""
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _inline(text: str) -> str:
    """Return text with code and stress in bold, and links as their words."""
    made, at = "", 0
    for found in _INLINE.finditer(text):
        code, stress, link = found.groups()
        made += _escaped(text[at : found.start()])
        made += (
            _inline(link) if link is not None else f"\\fB{_escaped(code if code is not None else stress)}\\fR"
        )
        at = found.end()
    return made + _escaped(text[at:])


def _quoted(text: str) -> str:
    return _escaped(text.replace("`", "")).replace('"', "\\(dq")


def _escaped(text: str) -> str:
    """Return text whose every character stands for itself."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("^", "\\(ha")
