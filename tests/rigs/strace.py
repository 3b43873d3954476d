"""What one process asked of the kernel, by strace: its own threads only, from its first instruction on.

Children, exec'd or not yet, are followed by strace and left out here: a thread is ours if a thread of ours
made it with CLONE_THREAD.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = (
    "open,openat,openat2,stat,lstat,newfstatat,statx,readlink,readlinkat,access,faccessat,faccessat2,"
    "chdir,truncate,unlink,unlinkat,getxattr,execve"
)
WAITS = "wait4,waitid,poll,ppoll,select,pselect6,epoll_wait,epoll_pwait,epoll_pwait2,flock,fsync,fdatasync"
OTHERS = "clone,clone3,fork,vfork,kcmp,ptrace,process_vm_readv,pidfd_open,pidfd_send_signal,kill,tgkill"
_LINE = re.compile(r"^(\d+) +\d+\.\d+ (.*)$")
_CALL = re.compile(r"^([a-z_0-9]+)\((.*)\) += (.*?)(?: <([0-9.]+)>)?$", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. [a-z_0-9]+ resumed>(.*)$", re.DOTALL)
_UNFINISHED = " <unfinished ...>"
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FOLDER = re.compile(r"^(?:AT_FDCWD|[0-9]+)<((?:[^>\\]|\\.)*)>$")


def why_unavailable() -> str:
    """Return why nothing can be traced here, or ""."""
    program = shutil.which("strace")
    if program is None:
        return "no strace (apt install strace)"
    tried = subprocess.run(
        [program, "-qq", "-e", "trace=none", "/bin/true"], capture_output=True, check=False
    )
    return (
        "" if tried.returncode == 0 else f"strace does not work here: {tried.stderr.decode(errors='replace')}"
    )


def front(log: Path) -> tuple[str, ...]:
    """Return what to put before a program, so that it is traced and keeps its own pid."""
    program = shutil.which("strace")
    assert program is not None
    calls = f"trace={FILES},{WAITS},{OTHERS}"
    return (program, "-D", "-f", "-qq", "-ttt", "-T", "-y", "-s", "512", "-e", "signal=none",
            "--seccomp-bpf", "-e", calls, "-o", str(log))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One finished system call: which thread, its name, the text of its arguments, its result and time."""

    tid: int
    name: str
    args: str
    result: str
    seconds: float

    def paths(self) -> tuple[str, ...]:
        """Return the paths it names, absolute where strace knows the folder."""
        found = []
        words = _split(self.args)
        for number, word in enumerate(words):
            text = _TEXT.fullmatch(word.removesuffix("..."))
            if text is None:
                continue
            path = text[1]
            folder = _FOLDER.fullmatch(words[number - 1]) if number else None
            if not path.startswith("/") and folder is not None:
                path = f"{folder[1]}/{path}".rstrip("/")
            found.append(path)
        return tuple(found)

    def argument(self, number: int) -> str:
        """Return one argument's text, "" where there is none."""
        words = _split(self.args)
        return words[number] if -len(words) <= number < len(words) else ""

    def __str__(self) -> str:
        """Return it as strace wrote it."""
        return f"{self.tid} {self.name}({self.args}) = {self.result}"


def _split(args: str) -> list[str]:
    """Return the arguments of a call, split at commas outside of quotes and brackets."""
    found, depth, quoted, word = [], 0, False, ""
    position = 0
    while position < len(args):
        letter = args[position]
        if quoted and letter == "\\":
            word += args[position : position + 2]
            position += 2
            continue
        if letter == '"':
            quoted = not quoted
        if not quoted:
            depth += (letter in "{[(") - (letter in "}])")
            if letter == "," and depth == 0:
                found.append(word.strip())
                word = ""
                position += 1
                continue
        word += letter
        position += 1
    return [*found, word.strip()] if word.strip() or found else []


def _finished(lines: Iterator[str]) -> Iterator[tuple[int, str]]:
    """Yield each call's whole text with its thread; what was cut in two is put together."""
    begun: dict[int, str] = {}
    for line in lines:
        parsed = _LINE.match(line)
        if parsed is None:
            continue
        tid, text = int(parsed[1]), parsed[2]
        if text.endswith(_UNFINISHED):
            begun[tid] = text.removesuffix(_UNFINISHED)
            continue
        resumed = _RESUMED.match(text)
        if resumed is not None:
            text = begun.pop(tid, "") + resumed[1]
        yield tid, text


def read_calls(log: Path, main: int) -> list[Call]:
    """Return the calls of one process's own threads, in the order in which they ended."""
    calls: list[Call] = []
    with log.open(encoding="utf-8", errors="replace") as file:
        for tid, text in _finished(iter(file.read().splitlines())):
            parsed = _CALL.match(text)
            if parsed is not None:
                name, args, result = parsed[1], parsed[2], parsed[3]
                calls.append(Call(tid, name, args, result, float(parsed[4] or 0.0)))
    threads = _threads(calls, main)
    return [call for call in calls if call.tid in threads]


def _threads(calls: list[Call], main: int) -> set[int]:
    """Return the thread ids of one process: its first, and whomever those made with CLONE_THREAD."""
    made = [
        (call.tid, int(call.result.split()[0]))
        for call in calls
        if call.name in {"clone", "clone3"} and "CLONE_THREAD" in call.args and call.result[:1].isdigit()
    ]
    found = {main}
    while more := {child for parent, child in made if parent in found} - found:
        found |= more
    return found
