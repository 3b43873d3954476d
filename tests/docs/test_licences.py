"""The lock files and the page of licences: nothing is shipped unpinned, and nothing without a licence."""

import re
import tomllib
from importlib.metadata import version

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.licences import ROOT, RUNTIME, locked, rows

DEV = ROOT / "lock" / "dev.txt"
PAGE = ROOT / "docs" / "licences.md"
KNOWN = re.compile(r"(MIT|BSD|Apache|PSF|LGPL|MPL|ISC|Python Software Foundation)", re.IGNORECASE)


def wanted(*extras: str) -> dict[str, Requirement]:
    """Return what pyproject.toml asks for by itself and with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for one in extras for line in project["optional-dependencies"][one]),
    ]
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): one for one in found}


def pinned(name: str) -> dict[str, str]:
    """Return the version of each package in a lock file that is for Linux."""
    found: dict[str, str] = {}
    here = [one for one in locked(ROOT / "lock" / name) if one.marker is None or one.marker.evaluate()]
    for one in here:
        (exactly,) = one.specifier
        assert exactly.operator == "=="
        found[canonicalize_name(one.name)] = exactly.version
    return found


def test_everything_that_is_asked_for_is_pinned() -> None:
    """Each dependency stands in the lock file in a version that pyproject.toml allows."""
    for name, extras in (
        ("runtime.txt", ("kubernetes", "webhook")),
        ("dev.txt", ("kubernetes", "webhook", "dev")),
    ):
        versions = pinned(name)
        for package, requirement in wanted(*extras).items():
            assert requirement.specifier.contains(versions[package]), f"{package} in {name}: run tools/lock"


def test_what_runs_is_what_is_tested() -> None:
    """Development has every package that is shipped, in the same version."""
    assert pinned("runtime.txt").items() <= pinned("dev.txt").items()


def test_every_version_has_its_hashes_and_no_source_has_a_name() -> None:
    """Each row has a SHA-256, and no address of an index stands in the files."""
    for path in (RUNTIME, DEV):
        text = path.read_text(encoding="utf-8")
        assert text.count("--hash=sha256:") > len(locked(path))
        assert not re.findall(r"\n[a-z0-9][^\n]*\\\n(?!\s+--hash=sha256:[0-9a-f]{64})", text)
        assert "://" not in text
        assert "--index" not in text


def test_the_page_has_every_package_with_a_licence_we_may_ship() -> None:
    """Each pinned package has a row, each row a licence that is known; none asks for our own source."""
    lines = [
        line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    told = {cells[1].strip(): cells[2].strip() for cells in lines[2:]}
    assert set(pinned("runtime.txt")) - set(told) == set(), (
        "run `python -m tests.docs.licences > docs/licences.md`"
    )
    for name, licence in told.items():
        assert KNOWN.search(licence), f"{name}: {licence!r}"
        assert not re.search(r"\bA?GPL", licence), f"{name}: {licence!r}"


def test_the_page_tells_what_the_packages_say() -> None:
    """What is installed here in the pinned version says the same of itself."""
    text = PAGE.read_text(encoding="utf-8")
    versions = pinned("runtime.txt")
    said = {name: licence for name, licence in rows().items() if version(name) == versions[name]}
    assert [name for name, licence in said.items() if f"| {name} | {licence} |" not in text] == []
