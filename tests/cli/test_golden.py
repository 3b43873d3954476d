"""What people see, whole: each screen at 80 and 200 columns, as text, in colour, in the C locale.

The answers are bodies as the daemon gives them, the records a log made here (`golden_scene.py`); all goes
through the real command line. The screens stand in `tests/cli/golden/`. After a change that is meant,
`RECLAIMERD_GOLDEN=write pytest tests/cli/test_golden.py` writes them anew; a person reviews the difference.
"""

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from reclaimerd import __version__
from reclaimerd.cli import doctor_run
from reclaimerd.cli.doctor_words import Finding
from reclaimerd.cli.main import run
from reclaimerd.cli.tables import columns_of
from tests.cli import golden_hands, golden_scene
from tests.cli.canned import canned, command, environment
from tests.cli.golden_hands import AT_TERMINAL, FOUND, SERVERS, SHARED, TYPED
from tests.cli.golden_scene import NOW, write_log, write_policy

GOLDEN = Path(__file__).with_name("golden")
CALLS = golden_scene.CALLS | golden_hands.CALLS
WRITES = os.environ.get("RECLAIMERD_GOLDEN") == "write"
FREE = re.compile(r"^(ATTENTION|driver|policy|note|  |reclaimctl|[a-z ]+:|GPU GPU|\d{4}-)|: ")
"""Sentences: they are one line each, and the terminal breaks them."""
FITS = {"doctor", "help", "top once"}
"""Screens of which no line is wider than the terminal."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Serve the recorded answers; give the options that lead there."""
    folder = tmp_path_factory.mktemp("golden")
    write_log(folder / "log")
    write_policy(folder / "policy.toml")
    with contextlib.ExitStack() as servers:
        servers.enter_context(canned(folder / "s", SHARED))
        for name, own in SERVERS.items():
            servers.enter_context(canned(folder / socket_name(name), SHARED | own))
        yield [
            "--socket",
            str(folder / "s"),
            "--log-dir",
            str(folder / "log"),
            "--config",
            str(folder / "policy.toml"),
        ]


def compare(name: str, text: str) -> None:
    """Assert that the text is the golden one, or write it."""
    path = GOLDEN / name
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs; see this module's docstring"


def steady(text: str, scene: list[str]) -> str:
    """Return the output without what differs from run to run: the places of this run's files."""
    folder = str(Path(scene[1]).parent)
    steadied = text.replace(folder, "/run/golden")
    return re.sub(rf"\b(reclaimctl|reclaimerd) {re.escape(__version__)}", r"\1 VERSION", steadied)


def called(name: str, scene: list[str]) -> list[str]:
    """Return the words of one call, with the options of this run."""
    folder = Path(scene[1]).parent
    words = [word.replace("{folder}", str(folder)) for word in (CALLS | AT_TERMINAL)[name]]
    own = ["--socket", str(folder / socket_name(name))] if name in SERVERS else []
    return [*scene, *own, *words]


def socket_name(call: str) -> str:
    """Return the name of the socket where a call has answers of its own."""
    return "s-" + call.replace(" ", "-")


@pytest.fixture(autouse=True)
def _same_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the clock, at one place on earth, on a host where `doctor` finds a bit of everything."""

    async def examined(*_where: object) -> tuple[Finding, ...]:
        return FOUND

    monkeypatch.setattr(doctor_run, "examine", examined)
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: NOW)


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_screen_as_text(
    scene: list[str],
    name: str,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Off a terminal: no colour, and what COLUMNS says is the width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    run(called(name, scene))
    out, err = capfd.readouterr()
    text = steady(out + err, scene)
    assert "\x1b" not in text
    for line in table_lines(text):
        assert columns_of(line) <= columns, line
    if name in FITS:
        assert max(map(columns_of, text.splitlines())) <= columns
    compare(f"{name.replace(' ', '-')}.{columns}.txt", text)


def table_lines(text: str) -> Iterator[str]:
    """Yield the lines of tables: a line in capitals alone, and what follows it up to a sentence."""
    within = False
    for line in text.splitlines():
        heading = re.fullmatch(r"\s*[A-Z0-9@]+( [A-Z@]+)*(  +[A-Z0-9@]+( [A-Z@]+)*)+", line) is not None
        within = heading or (within and not FREE.search(line))
        if within:
            yield line


@pytest.mark.parametrize("name", sorted(CALLS))
def test_without_a_width_every_row_is_one_line(
    scene: list[str], name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For grep: no row is cut for a width, none folded; nothing of the wide screen is missing."""
    monkeypatch.delenv("COLUMNS", raising=False)
    run(called(name, scene))
    whole = steady("".join(capfd.readouterr()), scene)
    monkeypatch.setenv("COLUMNS", "200")
    run(called(name, scene))
    wide = steady("".join(capfd.readouterr()), scene)
    words = {word for word in wide.split() if "…" not in word}
    assert words <= set(whole.split())
    assert "no room for" not in whole


def on_terminal(scene: list[str], name: str, **variables: str) -> str:
    """Return what a terminal of 200 columns gets."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.time = lambda: {NOW}\n" + IN_CHILD, *called(name, scene)],
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "200", "LC_ALL": "C.UTF-8", **variables},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    said, answers = b"", [TYPED[name]] if name in TYPED else []
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        said += more
        if answers and said.endswith(b"[y/N]: "):
            os.write(leader, answers.pop(0).encode())
    os.close(leader)
    child.wait(30)
    return steady(said.decode().replace("\r\n", "\n"), scene)


IN_CHILD = "import sys\nfrom reclaimerd.cli.main import run\nsys.exit(run(sys.argv[1:]))"


@pytest.mark.process
def test_colour_on_a_terminal_and_without_it(scene: list[str]) -> None:
    """Headings are bold and what needs a person is red, on a terminal; NO_COLOR and TERM=dumb end it."""
    shown = on_terminal(scene, "status")
    assert "\x1b[1;31mATTENTION: " in shown
    assert re.search(r"^\x1b\[1mGPU .*\x1b\[0m$", shown, re.MULTILINE)
    plain = (GOLDEN / "status.200.txt").read_text(encoding="utf-8")
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == plain
    assert on_terminal(scene, "status", NO_COLOR="1") == plain
    assert on_terminal(scene, "status", TERM="dumb") == plain


@pytest.mark.process
@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", sorted(AT_TERMINAL))
def test_what_a_person_at_the_terminal_is_told_and_asked(scene: list[str], name: str, columns: int) -> None:
    """The list, the question, what was answered, and what came of it, in their order."""
    shown = on_terminal(scene, name, NO_COLOR="1", COLUMNS=str(columns))
    if name == "completion hint":
        *script, hint = shown.splitlines(keepends=True)
        assert script
        shown = hint
    for line in table_lines(shown):
        assert columns_of(line) <= columns, line
    compare(f"{name.replace(' ', '-')}.{columns}.txt", shown)


@pytest.mark.process
@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "C"}, {}], ids=str)
def test_the_c_locale_gets_ascii(scene: list[str], locale: Mapping[str, str]) -> None:
    """Names that ASCII can't say are escapes, the ellipsis is three dots, and rows fit all the same."""
    ours = ("LC_", "LANG", "PYTHONUTF8")
    clean = {key: value for key, value in environment().items() if not key.startswith(ours)}
    text = ""
    for name in ("ps", "inspect"):
        argv, variables = command(*called(name, scene)), {**clean, "COLUMNS": "80", **locale}
        ran = subprocess.run(argv, env=variables, stdout=subprocess.PIPE, timeout=30, check=True)
        text += ran.stdout.decode("ascii")
    assert "..." in text
    assert "gr\\xf6\\xdfe" in text
    assert max(map(len, table_lines(text))) <= 80


def test_golden_files_are_those_of_the_calls() -> None:
    """No file is left of a call that is gone."""
    names = {
        f"{name.replace(' ', '-')}.{columns}.txt" for name in CALLS | AT_TERMINAL for columns in (80, 200)
    }
    assert {path.name for path in GOLDEN.glob("*.txt")} == names
