"""The page of licences, made from what is locked and what the installed packages say of themselves.

`python -m tests.docs.licences` prints it, for docs/licences.md.
"""

import re
import sys
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "lock" / "runtime.txt"
_HEAD = """# Licences of dependencies

reclaimerd itself is under the [Apache License 2.0](../LICENSE). A package of it (`tools/build-deb`) carries these, by the versions of `lock/runtime.txt`, each with the text of its licence in `/opt/reclaimerd/lib`. They are as each package's metadata state them. Made by `python -m tests.docs.licences`.

| package | licence |
| --- | --- |
"""  # noqa: E501  # a paragraph of Markdown is one line
_CLASSIFIER = "License :: OSI Approved :: "
_LONG = 60
"""Old metadata have the licence's whole text where its name belongs."""


def locked(path: Path) -> tuple[Requirement, ...]:
    """Return what a lock file pins, without hashes."""
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    lines = [line.split("--hash")[0].strip() for line in text.splitlines()]
    return tuple(Requirement(line) for line in lines if line and not line.startswith("#"))


def licence_of(about: PackageMetadata) -> str:
    """Return the licence that a package states: the SPDX expression, else its classifiers, else the field."""
    expression = " ".join(about.get_all("License-Expression") or ())
    named = [each for each in about.get_all("Classifier") or () if each.startswith(_CLASSIFIER)]
    stated = " ".join(about.get_all("License") or ()).strip()
    if expression:
        return expression
    if stated and len(stated) <= _LONG and "\n" not in stated:
        return stated
    return ", ".join(each.removeprefix(_CLASSIFIER) for each in named)


def rows() -> dict[str, str]:
    """Return the licence of each package that is locked for this platform and installed here."""
    found: dict[str, str] = {}
    for one in locked(RUNTIME):
        if one.marker is None or one.marker.evaluate():
            try:
                found[canonicalize_name(one.name)] = licence_of(metadata(one.name))
            except PackageNotFoundError:
                continue
    return found


def page() -> str:
    """Return the whole page."""
    return _HEAD + "".join(f"| {name} | {licence} |\n" for name, licence in sorted(rows().items()))


if __name__ == "__main__":
    sys.stdout.write(page())
