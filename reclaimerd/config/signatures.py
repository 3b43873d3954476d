"""The known places where tasks hang: the package's own file, and the policy's tables before it.

No pydantic: this is read in the foreground too, and the file is ours. Faults are shown with file and
table, all at once. It reads one file and judges no stack.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from reclaimerd.errors import ConfigError
from reclaimerd.model.policy import FaultDomain, Signature

BUILT_IN = Path(__file__).with_name("signatures.toml")
_POLICY = "policy"
_MEND = "see the head of the package's signatures.toml"

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_TEXTS = ("name", "title", "meaning", "mend", "issue")
_NEEDED = ("name", "title", "meaning", "mend", "fault_domain")
_LISTS = ("symbols", "modules", "within", "kernel_threads")
_KEYS = frozenset((*_TEXTS, *_LISTS, "fault_domain", "forbids_reset"))


def load_signatures(extra: Sequence[Signature | Mapping[str, object]] = ()) -> tuple[Signature, ...]:
    """Return the administrator's signatures, then the package's own, in the order they are tried.

    One of the administrator's with the name of one of ours takes its place. Raises ConfigError with
    one line for each fault: file, table, key and what is wrong.
    """
    users = _typed(extra, _POLICY)
    ours = _typed(_read_tables(BUILT_IN), str(BUILT_IN))
    names = {signature.name for signature in users}
    return (*users, *(signature for signature in ours if signature.name not in names))


def _read_tables(path: Path) -> list[Mapping[str, object]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: {error}",), "install the package again") from error
    found = tables.pop("signature", [])
    if tables or not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise ConfigError((f"{path}: only [[signature]] tables may stand here",), _MEND)
    return found


def _typed(tables: Sequence[Signature | Mapping[str, object]], where: str) -> tuple[Signature, ...]:
    """Return all tables as signatures, or raise ConfigError with every fault of them."""
    faults: list[str] = []
    found: list[Signature] = []
    names: set[str] = set()
    for index, table in enumerate(tables):
        place = f"{where}: signature[{index}]"
        if not isinstance(table, Signature):
            flaws = [f"{place}.{flaw}" for flaw in _flaws(table)]
            faults += flaws
            if flaws:
                continue
        signature = table if isinstance(table, Signature) else _signature(table)
        if signature.name in names:
            faults.append(f"{place}.name: {signature.name!r} stands there twice")
        names.add(signature.name)
        found.append(signature)
    if faults:
        raise ConfigError(tuple(faults), _MEND)
    return tuple(found)


def _flaws(table: Mapping[str, object]) -> Iterator[str]:
    for key in sorted(table.keys() - _KEYS):
        yield f"{key}: is no key of a signature"
    for key in _NEEDED:
        if not table.get(key):
            yield f"{key}: is missing"
    for key in _TEXTS:
        if not isinstance(table.get(key, ""), str):
            yield f"{key}: must be text"
    for key in _LISTS:
        yield from _list_flaws(key, table.get(key, []))
    yield from _value_flaws(table)
    if not any(table.get(key) for key in ("symbols", "modules", "kernel_threads")):
        yield "symbols: it matches nothing; give symbols, modules or kernel_threads"


def _value_flaws(table: Mapping[str, object]) -> Iterator[str]:
    name = table.get("name")
    if isinstance(name, str) and name and not _NAME.fullmatch(name):
        yield "name: only small letters, digits and _, and a letter first"
    domain = table.get("fault_domain")
    if domain and (not isinstance(domain, str) or domain not in set(FaultDomain)):
        yield "fault_domain: must be one of " + ", ".join(FaultDomain)
    if not isinstance(table.get("forbids_reset", True), bool):
        yield "forbids_reset: must be true or false"


def _list_flaws(key: str, value: object) -> Iterator[str]:
    if not _is_texts(value):
        yield f"{key}: must be a list of texts, none of them empty"
        return
    for text in value:
        if "*" in text[:-1] or text == "*" or (text.endswith("*") and key in {"modules", "kernel_threads"}):
            yield f"{key}: {text!r}: a * may only end the name of a function"


def _is_texts(value: object) -> TypeGuard[Sequence[str]]:
    return isinstance(value, list | tuple) and all(isinstance(text, str) and text for text in value)


def _signature(table: Mapping[str, object]) -> Signature:
    """Return one table, known to be without a flaw, as a signature."""
    texts = {key: str(table.get(key, "")) for key in _TEXTS}
    lists = {key: _texts(table.get(key, ())) for key in _LISTS}
    return Signature(
        **texts,
        symbols=lists["symbols"],
        modules=lists["modules"],
        within=lists["within"],
        kernel_threads=lists["kernel_threads"],
        fault_domain=FaultDomain(str(table["fault_domain"])),
        forbids_reset=bool(table.get("forbids_reset", True)),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(value) if _is_texts(value) else ()
