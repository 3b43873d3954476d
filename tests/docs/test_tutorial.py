"""The walk-through: every command of it is run in order by one shell, and prints what the page says.

The page's pids, times and incidents are samples. Where a line of the page meets a line that was printed, its
`PID@START` and its incident are known from then on, and later commands get the real ones.
"""

import contextlib
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.root]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKEN = re.compile(r"\.\.\.|inc-[0-9a-f]+-[0-9a-f]+|\d+@\d+|pid \d+|\s+|GPU-[0-9a-f-]+|[\d.]*\d")
STEP_SECONDS = 60.0
END = "@@ended"


@dataclass(slots=True)
class Shell:
    """One bash in a directory of its own, and what the page's names stand for in it."""

    process: "subprocess.Popen[bytes]"
    directory: Path
    known: dict[str, str] = field(default_factory=dict)

    def run(self, block: str) -> list[str]:
        """Run a block to its end; return the lines that it printed."""
        commands = self.meant(block)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{commands}\necho {END}\n".encode())
        self.process.stdin.flush()
        said = self._read(commands)
        return said.replace(str(self.directory), "/tmp/tour").splitlines()  # as the page has it

    def meant(self, text: str) -> str:
        """Return the page's text with the real names in it."""
        for name, real in sorted(self.known.items(), key=lambda pair: -len(pair[0])):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", real, text)
        return text.replace("/tmp/tour", str(self.directory))  # the same

    def learn(self, expected: str, printed: str) -> bool:
        """Tell whether a printed line has all that the page's line says; if so keep its names."""
        names: list[str] = []
        form = ""
        at = 0
        for found in TOKEN.finditer(expected):
            form += re.escape(expected[at : found.start()])
            form += _form_of(found[0], names, self.known)
            at = found.end()
        met = re.search(form + re.escape(expected[at:]), printed)
        if met is None:
            return False
        for name, real in zip(names, met.groups(), strict=True):
            self.known.setdefault(name, real)
            if "@" in name:
                self.known.setdefault(name.partition("@")[0], real.partition("@")[0])
        return True

    def _read(self, commands: str) -> str:
        assert self.process.stdout is not None
        said = b""
        deadline = time.monotonic() + STEP_SECONDS
        while f"{END}\n".encode() not in said:
            left = deadline - time.monotonic()
            assert left > 0, f"no end of {commands!r}; so far: {said.decode()}"
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 65536)
                assert more, f"the shell ended in {commands!r}: {said.decode()}"
                said += more
        return said.decode().replace(f"{END}\n", "")


def _form_of(token: str, names: list[str], known: dict[str, str]) -> str:
    """Return the pattern of one word of the page; a name that is not known yet is a group."""
    name = token.removeprefix("pid ")
    front = token[: len(token) - len(name)]
    if name in known:
        return re.escape(front + known[name])
    for form in ("pid (\\d+)",) if front else (r"(\d+@\d+)", r"(inc-[0-9a-f]+-[0-9a-f]+)"):
        if re.fullmatch(form, token):
            names.append(name)
            return form
    return {"...": ".*"}.get(token, r"\s+" if token.isspace() else re.escape(token))


@contextmanager
def shell() -> Iterator[Shell]:
    """Start the shell that a reader sits at; the page's own last block removes what it made."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        directory = Path(folder) / "tour"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}
        environment.pop("COLUMNS", None)
        process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],  # noqa: S607  # the reader's own
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        here = Shell(process, directory)
        try:
            yield here
        finally:
            with contextlib.suppress(OSError, AssertionError):
                here.run("kill $(jobs -p) 2> /dev/null")
            stop = [
                sys.executable,
                "-m",
                "reclaimerd.simulation.playground",
                str(directory / "host"),
                "--stop",
            ]
            subprocess.run(stop, check=False, capture_output=True, cwd=ROOT, timeout=60)
            process.communicate(timeout=60)


def steps() -> list[tuple[str, list[str]]]:
    """Return each block of commands with the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "sh":
            found.append((text, []))
        else:
            found[-1][1].extend(text.splitlines())
    return found


@pytest.mark.slow
def test_every_command_prints_what_the_page_says() -> None:
    """In order, in one shell; at the end nothing is left of it."""
    with shell() as here:
        for commands, expected in steps():
            printed = here.run(commands)
            assert not any("internal error" in line for line in printed), printed
            left = iter(printed)
            for line in expected:
                found = line.strip() == "..." or any(here.learn(line, one) for one in left)
                assert found, f"after\n{commands}\nthe page says\n{line}\nbut printed was\n" + "\n".join(
                    printed
                )
        assert not here.directory.exists()


def test_the_page_has_no_other_blocks() -> None:
    """What stands in a fence is run or compared, nothing is shown untested."""
    assert PAGE.read_text(encoding="utf-8").count("```") == 2 * len(
        BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    )
