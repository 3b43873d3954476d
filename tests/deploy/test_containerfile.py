"""The Containerfile, as far as it can be judged without an engine: what it names exists and fits."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """Return each instruction and its words, continued lines joined."""
    text = FILE.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_it_is_built_on_the_release_that_the_package_fits() -> None:
    """One base image with a whole name and a release, never the latest; nothing is fetched by an address."""
    found = instructions()
    bases = [words for name, words in found if name == "FROM"]
    assert bases == ["docker.io/library/debian:12-slim"]
    assert "ADD" not in [name for name, _ in found]
    assert not any("http" in words for _, words in found)


def test_it_takes_what_the_build_makes_and_starts_what_the_unit_starts() -> None:
    """The package's name is the build's, the program and its policy are the unit's."""
    words = dict(instructions())
    assert words["COPY"] == "dist/reclaimerd_*.deb /tmp/"
    assert "${1:-dist}" in (ROOT / "tools" / "build-deb").read_text(encoding="utf-8")
    command = [*exec_form(words["ENTRYPOINT"]), *exec_form(words["CMD"])]
    unit = (ROOT / "systemd" / "reclaimerd.service").read_text(encoding="utf-8")
    assert f"ExecStart={' '.join(command)}\n" in unit


def test_it_leaves_no_lists_and_no_package_behind() -> None:
    """One RUN installs and clears, so no layer keeps what was cleared."""
    (run,) = [words for name, words in instructions() if name == "RUN"]
    assert "--no-install-recommends" in run
    assert run.index("rm -rf") > run.index("install")
    assert "/var/lib/apt/lists/*" in run


def test_it_knows_the_authorities_that_sign_certificates() -> None:
    """A webhook's receiver is judged by them; the image has none, and what is recommended stays away."""
    (run,) = [words for name, words in instructions() if name == "RUN"]
    assert "ca-certificates" in run.split()


def exec_form(words: str) -> list[str]:
    """Return the exec form's words."""
    return [word.strip().strip('"') for word in words.strip("[]").split(",")]
