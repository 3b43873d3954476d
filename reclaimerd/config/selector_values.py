"""What a value may be that only selectors have; each takes what TOML gave and returns it typed."""

import re

from reclaimerd.config.units import BadValueError, quoted
from reclaimerd.config.values import shape_of
from reclaimerd.model.policy import LabelOperator, LabelTerm

RUNTIMES = ("cri-containerd", "containerd", "crio", "docker", "libpod", "nerdctl")
"""The words by which container runtimes name cgroups; Podman's is libpod, Kubernetes' mostly the first."""
MOST_GLOB = 256
_GLOB_MARKS = frozenset("*?[")
_UNIT_ENDS = (".service", ".scope", ".slice")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_LABEL_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_PREFIX = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
LABEL_KEY = rf"(?:{_LABEL_PREFIX}/)?{_LABEL_WORD}"
"""A label's key and value: Kubernetes, "Labels and Selectors", syntax and character set."""
_KEY = re.compile(LABEL_KEY, re.ASCII)
_VALUE = re.compile(rf"(?:{_LABEL_WORD})?", re.ASCII)
_EQUAL = re.compile(r"(?P<key>[^=!,()\s]+)\s*(?P<sign>==?|!=)\s*(?P<value>[^=!,()\s]*)")
_SET = re.compile(r"(?P<key>[^=!,()\s]+)\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)")
_BARE = re.compile(r"(?P<not>!?)\s*(?P<key>[^=!,()\s]+)")
_LABEL_MEND = 'write one term, such as "app=trainer", "app!=trainer", "tier in (a, b)", "gpu" or "!gpu"'


def digest(value: object) -> str:
    """Return a SHA-256 in small letters."""
    mend = "write the 64 hex digits that `sha256sum FILE` prints"
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a SHA-256", mend)
    if _DIGEST.fullmatch(value) is None:
        raise BadValueError(f"{quoted(value)} is not a SHA-256", mend)
    return value.lower()


def name_glob(value: object) -> str:
    """Return a name or a glob of names, such as a namespace's or a GPU model's; blanks may stand in it."""
    mend = 'write a name or a glob of names, such as "team-*"'
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a name", mend)
    if not value.strip() or value != value.strip() or not value.isprintable() or len(value) > MOST_GLOB:
        raise BadValueError(f"{quoted(value)} can never match a name", mend)
    return value


def unit_glob(value: object) -> str:
    """Return a systemd unit's full name or a glob of them."""
    mend = 'write full names with their ending, such as "inference.service" or "jupyter-*.service"'
    text = name_glob(value)
    if "/" in text or not (text.endswith(_UNIT_ENDS) or _GLOB_MARKS & set(text)):
        raise BadValueError(f"{quoted(text)} can never match a unit's name", mend)
    return text


def label_term(value: object) -> LabelTerm:
    """Return one term of a Kubernetes label selector."""
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a label selector", _LABEL_MEND)
    text = value.strip()
    found = _EQUAL.fullmatch(text)
    if found is not None:
        operator = LabelOperator.NOT_IN if found["sign"] == "!=" else LabelOperator.IN
        return _checked(text, LabelTerm(found["key"], operator, (found["value"],)))
    found = _SET.fullmatch(text)
    if found is not None:
        values = tuple(each.strip() for each in found["values"].split(","))
        return _checked(text, LabelTerm(found["key"], LabelOperator(found["sign"]), values))
    found = _BARE.fullmatch(text)
    if found is not None:
        operator = LabelOperator.ABSENT if found["not"] else LabelOperator.EXISTS
        return _checked(text, LabelTerm(found["key"], operator))
    if "," in text:
        raise BadValueError(
            f"{quoted(text)} is more than one term", "give each term a text of its own in the list"
        )
    raise BadValueError(f"{quoted(text)} is not a term of a label selector", _LABEL_MEND)


def _checked(text: str, term: LabelTerm) -> LabelTerm:
    """Return the term if its words can be a label's: what can be none would match nothing, or everything."""
    if _KEY.fullmatch(term.key) is None:
        raise BadValueError(f"{quoted(text)}: {quoted(term.key)} can be no label's key", _LABEL_MEND)
    for each in term.values:
        if _VALUE.fullmatch(each) is None:
            raise BadValueError(f"{quoted(text)}: {quoted(each)} can be no label's value", _LABEL_MEND)
    if term.operator in (LabelOperator.IN, LabelOperator.NOT_IN) and "(" in text and not any(term.values):
        raise BadValueError(f"{quoted(text)} names no value", _LABEL_MEND)
    return term
