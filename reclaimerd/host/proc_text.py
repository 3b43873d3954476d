"""Pure parsers of what /proc says, and the two filters every foreign text goes through.

A process chooses its own name, arguments and cgroup names: they are data. Nothing here reads a
file, and no text makes a parser do anything but return values or raise ValueError.
"""

import re
from dataclasses import dataclass

_SIGKILL_BIT = 0x100
MOST_DIGITS = 20
"""As many as 64 bits have. Of some thousands Python makes no number, but an error."""
MOST_GROUPS = 4096
"""A process may have 65,536 (limits.h, NGROUPS_MAX), and each look would carry them."""


@dataclass(frozen=True, slots=True)
class StatText:
    """One /proc/PID/stat or /proc/PID/task/TID/stat (proc(5)); times in clock ticks.

    `argument_span` are the addresses of the arguments: they change with every exec and are zeros
    where the kernel doesn't tell.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    flags: int
    utime: int
    stime: int
    thread_count: int
    start_ticks: int
    processor: int
    argument_span: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class StatusText:
    """What we use of /proc/PID/status; pending signal sets are bit masks (bit 0 is signal 1)."""

    tgid: int
    uids: tuple[int, int, int, int]
    gids: tuple[int, int, int, int]
    threads: int
    sig_pnd: int
    shd_pnd: int
    ns_pids: tuple[int, ...]
    core_dumping: bool
    tracer_pid: int
    vm_rss_bytes: int | None
    ppid: int = 0
    groups: tuple[int, ...] = ()
    """Supplementary groups, at most MOST_GROUPS of them: the kernel sorts them, the lowest stay."""

    @property
    def kill_pending(self) -> bool:
        """Tell whether SIGKILL waits to be taken; who sent it is not to be seen here."""
        return bool((self.sig_pnd | self.shd_pnd) & _SIGKILL_BIT)


@dataclass(frozen=True, slots=True)
class CgroupLine:
    """One line of /proc/PID/cgroup; `controllers` is "" for cgroup v2."""

    hierarchy: int
    controllers: str
    path: str


def parse_stat(text: str) -> StatText:
    """Return the fields of one stat line, read after the LAST `)`: a comm may hold anything.

    Raises ValueError for a text that is no stat line.
    """
    opened, closed = text.find(" ("), text.rfind(")")
    fields = text[closed + 1 :].split()
    if opened < 0 or closed < opened or len(fields) < _STAT_FIELDS:
        raise ValueError(f"not a stat line: {printable(text[:80])!r}")
    span = (int(fields[45]), int(fields[46])) if len(fields) > _ARGUMENT_END else (0, 0)
    return StatText(
        pid=int(text[:opened]),
        comm=text[opened + 2 : closed],
        state=fields[0],
        ppid=int(fields[1]),
        flags=int(fields[6]),
        utime=int(fields[11]),
        stime=int(fields[12]),
        thread_count=int(fields[17]),
        start_ticks=int(fields[19]),
        processor=int(fields[36]),
        argument_span=span,
    )


_STAT_FIELDS = 37  # up to `processor`, counted from the state letter
_ARGUMENT_END = 46


def parse_status(text: str) -> StatusText:
    """Return what we use of one status file (the kernel escapes line ends in its Name line).

    Raises ValueError for a text that is no status file.
    """
    try:
        tgid = int(_value(text, "\nTgid:"))
        ns_pids = _value(text, "\nNSpid:", str(tgid))
        rss = _value(text, "\nVmRSS:", "")
        return StatusText(
            tgid=tgid,
            uids=_four(_value(text, "\nUid:")),
            gids=_four(_value(text, "\nGid:")),
            threads=int(_value(text, "\nThreads:")),
            sig_pnd=int(_value(text, "\nSigPnd:"), 16),
            shd_pnd=int(_value(text, "\nShdPnd:"), 16),
            ns_pids=tuple(map(int, ns_pids.split())),
            core_dumping=_value(text, "\nCoreDumping:", "0").strip() == "1",
            tracer_pid=int(_value(text, "\nTracerPid:")),
            vm_rss_bytes=int(rss.split()[0]) * 1024 if rss else None,
            ppid=int(_value(text, "\nPPid:", "0")),
            groups=tuple(map(int, _value(text, "\nGroups:", "").split(maxsplit=MOST_GROUPS)[:MOST_GROUPS])),
        )
    except (ValueError, IndexError) as fault:
        raise ValueError(f"not a status file: {printable(text[:80])!r}") from fault


def _value(text: str, key: str, missing: str | None = None) -> str:
    """Return what follows `key` on its line; raises ValueError when it is absent and must be there."""
    begin = text.find(key)
    if begin < 0:
        if missing is None:
            raise ValueError(f"no line {key.strip()}")
        return missing
    begin += len(key)
    return text[begin : text.index("\n", begin)]


def _four(text: str) -> tuple[int, int, int, int]:
    """Return real, effective, saved and filesystem id; raises ValueError when they are not four."""
    real, effective, saved, filesystem = map(int, text.split())
    return real, effective, saved, filesystem


def is_number(text: str) -> bool:
    """Tell whether a text is a plain decimal number, of no more digits than 64 bits have."""
    return len(text) <= MOST_DIGITS and text.isascii() and text.isdigit()


def parse_cgroup(text: str) -> tuple[CgroupLine, ...]:
    """Return the lines of one cgroup file; a line that is none is left out."""
    lines = []
    for line in text.split("\n"):
        number, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if colon and second and is_number(number) and path.startswith("/"):
            lines.append(CgroupLine(int(number), controllers, path))
    return tuple(lines)


def printable(text: str) -> str:
    """Return the text with every character that is not plainly visible written as an escape.

    Controls, line ends, bidirectional and zero-width marks, lone surrogates (bytes that were no
    UTF-8) and unassigned characters become hexadecimal escapes.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    """Return one character as an escape; a surrogate escape as the byte it stands for."""
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  # the range that os.fsdecode uses (PEP 383)
        code -= 0xDC00
    if code <= 0xFF:  # noqa: PLR2004  # what two hexadecimal digits can say
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  # four digits


_TELLING_NAME = (
    r"[\w.\-]{0,64}?(?:password|passwd|passphrase|pwd|token|secret|api[_\-]?key|access[_\-]?key|private[_\-]?key"
    r"|auth[_\-]?key|account[_\-]?key|session[_\-]?key|credentials?)(?![A-Za-z])[\w.\-]{0,64}+"
)
"""A name that says it holds a secret; lengths are bounded so that no argument costs much."""
_NAME = rf"(?<![\w.\-])(?:{_TELLING_NAME}|AWS_\w{{1,64}}+)[\"']?\s{{0,8}}+[=:]\s{{0,8}}+"
# Texts, compiled (and kept by `re`) at their first use: most who import this never mask anything.
_WHOLE = rf"(?is)(?P<name>-{{0,2}}D?{_NAME})(?P<value>.+)"
_ASSIGNED = rf"(?i)(?P<name>{_NAME})(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)"
_OPTION = rf"(?i)-{{1,2}}(?:{_TELLING_NAME})"
_HEADER = (
    r"(?i)(?P<name>authorization[\"']?\s{0,8}+[:=]\s{0,8}+[\"']?)(?:(?P<scheme>bearer|basic|token|digest)\s+)?"
    r"(?P<value>[^\"']+)"
)
_BEARER = r"(?i)(?P<name>\b(?:bearer|basic)\s{1,8}+)(?P<value>[\w\-.~+/=]{6,})"
_IN_URL = r"(?P<name>[A-Za-z][\w+.\-]{0,20}://)[^\s/@?#]{1,512}@"
_KNOWN_FORM = (
    r"\b(?:sk-[\w\-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w\-]{16,}|hf_\w{16,}|xox[abpr]-[\w\-]{10,}"
    r"|AKIA[0-9A-Z]{16}|nvapi-[\w\-]{16,}|eyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*)"
)
MASK = "***"


def mask_secrets(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with secret values replaced by `***`; names stay readable.

    Masked: `--token=..`, `--password X`, `password=..`, `AWS_..=..`, an Authorization header,
    a user and password in a URL, and tokens known by their form. No promise: a program may take a
    secret under any name, so command lines never leave the host.
    """
    masked: list[str] = []
    value_follows = False
    for arg in args:
        if value_follows and not arg.startswith("--"):
            masked.append(MASK)
            value_follows = False
            continue
        masked.append(_masked(arg))
        value_follows = re.fullmatch(_OPTION, arg) is not None
    return tuple(masked)


def _masked(arg: str) -> str:
    """Return one argument with its secrets masked."""
    whole = re.fullmatch(_WHOLE, arg)
    if whole is not None:
        return f"{whole['name']}{MASK}"
    arg = re.sub(_IN_URL, lambda found: f"{found['name']}{MASK}@", arg)
    arg = re.sub(
        _HEADER,
        lambda found: f"{found['name']}{found['scheme'] + ' ' if found['scheme'] else ''}{MASK}",
        arg,
    )
    arg = re.sub(_ASSIGNED, lambda found: f"{found['name']}{MASK}", arg)
    arg = re.sub(_BEARER, lambda found: f"{found['name']}{MASK}", arg)
    return re.sub(_KNOWN_FORM, MASK, arg)
