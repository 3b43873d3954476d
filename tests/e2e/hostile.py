"""A process on a simulated host whose every name is chosen to mislead whoever reads it.

The names hold escape sequences, line ends, bidirectional and invisible marks, bytes that are no UTF-8,
and more letters than any screen has.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from reclaimerd.observe.peers import cgroup_root
from tests.e2e.rig import GPU_A, OVER_CAP, Rig

FORGED = "4242@1 FORGED"
"""What stands at the begin of a line only where a name could make a line of its own."""
MARKS = "\x1b[2J\x1b]0;title\x07\u202eexe\u200b\u2066\ufeff\x9b31m\r\x0b\u2028\x00e9"
NAME = f"my,job{MARKS.replace(chr(0), '')}\n{FORGED}\r\n{FORGED}"
"""A name as a process may choose it: everything but a NUL."""
BYTES = os.fsdecode(b"\xff\xfe\xc3(\xed\xa0\x80")
LONG = "L" * 4096
COMM = "\x1b[2Jc\n4242@1\u202e"
FOLDER = f"d\x1b[2J\n{FORGED}\u202e{BYTES}".replace("/", "")
_CODE = (
    "import sys, os; sys.path[:0] = sys.argv[1].split(os.pathsep)\n"
    "open('/proc/self/comm', 'wb').write(os.fsencode(sys.argv[2])); os.chdir(sys.argv[3])\n"
    "from reclaimerd.simulation.workload import main; main(sys.argv[4:])"
)


def launch_hostile(rig: Rig) -> int:
    """Start a workload with hostile comm, arguments, working directory and program file; return its pid."""
    folder = rig.directory / FOLDER
    folder.mkdir()
    program = folder / "python\x1b[2J\n\u202e"
    shutil.copy(Path(sys.executable).resolve(), program)
    libraries = f"LD_LIBRARY_PATH={Path(sys.base_prefix) / 'lib'}"
    options = ["--dir", str(rig.host), "--gpu", GPU_A, "--bytes", OVER_CAP, "--label", NAME + BYTES + LONG]
    argv = ["/usr/bin/env", f"PYTHONHOME={sys.base_prefix}", libraries, str(program), "-c", _CODE]
    argv += [os.pathsep.join(sys.path), COMM, str(folder), *options]
    return rig.keeper.launch_commands([argv])[0].pid


@contextmanager
def in_hostile_cgroup(pid: int) -> Iterator[bool]:
    """Put a process into a cgroup with a hostile name; give whether that could be done here."""
    folder = None
    with suppress(OSError):
        folder = cgroup_root("") / f"job\x1b[2J\u202e{FORGED}.scope"
        folder.mkdir()
        (folder / "cgroup.procs").write_text(str(pid))
    try:
        yield folder is not None and folder.is_dir()
    finally:
        if folder is not None and folder.is_dir():
            with suppress(OSError):  # a process that is gone needs no way out
                (folder.parent / "cgroup.procs").write_text(str(pid))
            folder.rmdir()


def assert_harmless(text: str) -> None:
    """Assert that what a terminal gets holds our own line ends and nothing else that steers it."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line[:400])
        assert not line.lstrip().startswith(FORGED), repr(line[:400])
