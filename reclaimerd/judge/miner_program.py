"""Say what the program of a holder shows of a miner: its name, file, arguments, parents and connections.

A process chooses its own name and arguments: they may tell against it, nothing in them speaks for it, and
none of them is put into a sentence. Each table here is of public facts; what the administrator adds
stands in `MinerSettings`. Pure.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeVar

from reclaimerd.judge.exit_path import live_tasks
from reclaimerd.judge.miner_signs import MinerSign, Signs, shown, together
from reclaimerd.model.policy import MinerSettings
from reclaimerd.model.process import PF_KTHREAD, Connection, ProcessReading, ProgramSigns
from reclaimerd.model.reading import Known, Reading, known_or_none, text_of

T = TypeVar("T")

_NAMES = """
bfgminer bminer bzminer ccminer cgminer claymore cpuminer cryptodredge ethdcrminer64 ethminer gminer hellminer
kaspa-miner kawpowminer kdevtmpfsi kinsing lolminer minerd miniz nanominer nbminer nsfminer onezerominer
phoenixminer sgminer srbminer srbminer-multi t-rex teamredminer verthashminer wildrig wildrig-multi xmr-stak
xmrig xmrig-cuda xmrig-nvidia xmrigdaemon xmrigminer z-enemy
"""
KNOWN_NAMES = frozenset(_NAMES.split())
"""Names of public miners (their own releases). Names that other programs bear are left out (`miner`)."""
POOL_PORTS = frozenset({3333, 6688, 10128, 14433, 14444, 20128})
"""Ports that public pools tell their miners to use, and hardly anything else is met on."""
SHARED_PORTS = frozenset({4444, 5555, 6060, 7777, 9999})
"""Ports of pools that other services have too. None of either table is in Linux's ephemeral range
(32768 to 60999): any connection may meet one there by chance."""
_POOL_ADDRESS = re.compile(r"stratum[a-z0-9]{0,3}(?:\+[a-z0-9]+)?://", re.IGNORECASE)
"""The scheme of a pool's address in nearly all miners' command lines, also glued to its option (C53)."""

_DELETED = " (deleted)"
_COMM_BYTES = 15
"""What the kernel keeps of a name (TASK_COMM_LEN without its end)."""
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/shm/")  # noqa: S108 (looked for, never opened)
_MEMORY_FILE = "/memfd:"
_PACKAGED = ("/nix/store/", "/gnu/store/")
"""There wrappers put a dot before the real program's name."""
_APPIMAGE = ".mount_"
"""An AppImage runs from /tmp/.mount_NAME."""
_BLANKS = 16
_PADDING = re.compile(rf"[\n\r\v\f\x1b]|\s{{{_BLANKS},}}")
"""What pushes the rest out of sight; eight or so blanks align a title of columns."""
_KERNEL_THREAD = re.compile(
    r"\[?(?:kworker|kthreadd|ksoftirqd|kswapd|khugepaged|kcompactd|kblockd|kauditd|kdevtmpfs|khungtaskd|ksmd"
    r"|rcu_(?:sched|preempt|gp|par_gp)|(?:migration|watchdog|cpuhp|idle_inject)/\d|jbd2/\w|irq/\d)"
    r"(?:[/:\d][^\]]*)?\]?"
)
_SHELLS = ("sh", "dash", "bash", "busybox", "toybox", "zsh", "ksh", "mksh")
_PROGRAMS = {
    "apache": ("apache", "httpd"),
    "bash": _SHELLS,
    "cron": ("cron", "busybox"),
    "crond": ("cron", "busybox"),
    "dbus-daemon": ("dbus-",),
    "httpd": ("httpd", "apache", "busybox"),
    "java": ("java",),
    "mysqld": ("mysqld", "mariadbd"),
    "nginx": ("nginx", "openresty"),
    "node": ("node", "bun"),
    "php-fpm": ("php",),
    "python": ("python", "pypy", "graalpy"),
    "redis-server": ("redis", "valkey"),
    "sh": _SHELLS,
    "sshd": ("sshd",),
    "systemd": ("systemd",),
    "zsh": _SHELLS,
}
"""Programs whose names a disguise borrows, and how the files begin that rightly bear them."""
_LOADERS = ("ld-", "qemu-", "valgrind", "memcheck", "rosetta")
"""Files that run another program under its own name."""
_NOTEBOOKS = ("jupyter", "ipykernel", "ipython", "zeppelin", "rsession")
_KERNEL_ARGUMENT = "ipykernel"


def program_signs(reading: ProcessReading, signs: ProgramSigns | None, settings: MinerSettings) -> Signs:
    """Return what the program itself, its place, its arguments, parents and connections show."""
    parts = [
        _names(reading, settings),
        _of_known(reading.exe, "its program file", _place),
        _of_known(reading.cmdline, "its arguments", lambda words: _arguments(words, reading)),
        _kernel_name(reading),
    ]
    if signs is None:
        return together((*parts, Signs(unknown=("its connections, the digest of its file and its parents",))))
    digest = _of_known(signs.sha256, "the digest of its file", lambda found: _digest(found, settings))
    network = _of_known(signs.connections, "its connections", lambda found: _network(found, settings))
    return together((*parts, digest, network, _origin(reading, signs.ancestors)))


def _of_known(reading: Reading[T], name: str, signs_of: Callable[[T], Signs]) -> Signs:
    if isinstance(reading, Known):
        return signs_of(reading.value)
    return Signs(unknown=(f"{name}: {text_of(reading)}",))


def _names(reading: ProcessReading, settings: MinerSettings) -> Signs:
    """Return whether its name, its file's or its first argument's is a miner's; the kernel cuts the first."""
    words = known_or_none(reading.cmdline)
    comm = _plain(reading.comm)
    borne = {comm, _file_name(known_or_none(reading.exe) or ""), _file_name((words or ("",))[0])}
    own = {_plain(name) for name in settings.names} - {""}
    cut = {name for name in own if name[:_COMM_BYTES] == comm}  # none that is built in is so long
    known = sorted((borne & KNOWN_NAMES) | (borne & own) | cut)
    return shown(MinerSign.KNOWN_NAME, f"bears the name of the miner {known[0]}") if known else Signs()


def _file_name(path: str) -> str:
    return _plain(path.removesuffix(_DELETED).rpartition("/")[2])


def _plain(name: str) -> str:
    return name.strip().lower().removesuffix(".exe")


def _digest(digest: str, settings: MinerSettings) -> Signs:
    if digest.lower() in {listed.lower() for listed in settings.sha256}:
        return shown(MinerSign.KNOWN_DIGEST, "its program file is one that the policy lists")
    return Signs()


def _place(path: str) -> Signs:
    return together(shown(sign, text) for sign, text in _place_signs(path.removesuffix(_DELETED), path))


def _place_signs(file_path: str, path: str) -> Iterator[tuple[MinerSign, str]]:
    if path.startswith(_MEMORY_FILE):
        yield MinerSign.TEMPORARY_FILE, "its program is no file but memory"
    temporary = next((folder for folder in _TEMPORARY if path.startswith(folder)), "")
    if temporary:
        yield MinerSign.TEMPORARY_FILE, f"its program file is in {temporary.removesuffix('/')}"
    if _is_hidden(file_path, temporary):
        yield MinerSign.HIDDEN_FILE, "its program file is hidden"
    if path != file_path:
        yield MinerSign.DELETED_FILE, "its program file is deleted"


def _is_hidden(file_path: str, temporary: str) -> bool:
    """Tell whether a file is hidden: a dot before a folder's name hides only in folders for what passes.

    Elsewhere whole environments lie behind a dot (~/.conda, ~/.local, ~/.venv, ~/.FAHClient).
    """
    folders = file_path.removeprefix(temporary).split("/")
    name = folders.pop()
    odd = any(folder and not folder.strip(". ") for folder in folders)
    dotted = any(folder.startswith(".") and not folder.startswith(_APPIMAGE) for folder in folders)
    hides_itself = name.startswith(".") and not file_path.startswith(_PACKAGED)
    return odd or hides_itself or (bool(temporary) and dotted)


def _arguments(words: tuple[str, ...], reading: ProcessReading) -> Signs:
    return together(shown(sign, text) for sign, text in _argument_signs(words, reading))


def _argument_signs(words: tuple[str, ...], reading: ProcessReading) -> Iterator[tuple[MinerSign, str]]:
    if any(_POOL_ADDRESS.search(word) for word in words):
        yield MinerSign.POOL_ADDRESS, "its arguments name a mining pool"
    if not any(word.strip() for word in words):
        if live_tasks(reading) and isinstance(reading.exe, Known):
            yield MinerSign.NO_ARGUMENTS, "it has wiped its arguments, its own name too"
        return
    # Later arguments may be whole programs (`python -c`), with lines and indents of their own.
    blank = any(len(word) >= _BLANKS and not word.strip() for word in words)
    if blank or _PADDING.search(words[0].rstrip()):
        yield MinerSign.PADDED, "its arguments are padded, so that lists do not show them"
    borrowed = _borrowed(words[0], known_or_none(reading.exe))
    if borrowed:
        yield MinerSign.OTHER_NAME, f"calls itself {borrowed}, and its program file is another"


def _borrowed(first: str, exe: str | None) -> str:
    """Return which well-known program a process calls itself without being it; "" for none."""
    named = first.lstrip("-").split()
    name = named[0].rpartition("/")[2].partition(":")[0].rstrip("0123456789.") if named else ""
    if exe is None or name not in _PROGRAMS:
        return ""
    file_name = _file_name(exe).lstrip(".")
    return "" if file_name.startswith((*_PROGRAMS[name], *_LOADERS)) else name


def _kernel_name(reading: ProcessReading) -> Signs:
    """Return whether a program bears the name of a kernel thread, which has neither file nor arguments."""
    if any(task.flags & PF_KTHREAD for task in reading.tasks) or not isinstance(reading.exe, Known):
        return Signs()
    first = (known_or_none(reading.cmdline) or ("",))[0]
    if any(_KERNEL_THREAD.fullmatch(name.strip()) for name in (first, reading.comm)):
        return shown(MinerSign.KERNEL_NAME, "calls itself a kernel thread and is a program")
    return Signs()


def _network(connections: Iterable[Connection], settings: MinerSettings) -> Signs:
    """Return the weightiest of its connections to ports of pools."""
    found = [sign for one in connections for sign in _connection_sign(one, settings).found]
    most = max(found, key=lambda sign: (sign.points, sign.text), default=None)
    return Signs() if most is None else Signs((most,))


def _connection_sign(connection: Connection, settings: MinerSettings) -> Signs:
    wanted = POOL_PORTS.union(settings.ports)
    if connection.port not in wanted | SHARED_PORTS:
        return Signs()
    address = _public(connection.address)
    if address is None:
        return shown(
            MinerSign.NEAR_PORT, f"connected to port {connection.port} of a pool, inside this network"
        )
    if connection.port in wanted:
        return shown(MinerSign.POOL_PORT, f"connected to {address}, port {connection.port}: a pool's")
    text = f"connected to {address}, port {connection.port}: pools use it, and others"
    return shown(MinerSign.SHARED_PORT, text)


def _public(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address when it is one of the public network."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain = address if mapped is None else mapped
    return plain if plain.is_global else None


def _origin(reading: ProcessReading, ancestors: Iterable[str]) -> Signs:
    """Return whether a notebook started it; the notebook's own kernel works for its user openly."""
    if any(_KERNEL_ARGUMENT in word for word in known_or_none(reading.cmdline) or ()):
        return Signs()
    for name in ancestors:
        notebook = next((known for known in _NOTEBOOKS if name.startswith(known)), "")
        if notebook:
            return shown(MinerSign.NOTEBOOK, f"was started from a notebook ({notebook})")
    return Signs()
