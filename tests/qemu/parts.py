"""What a guest is made of: a kernel, its modules, a module of ours, busybox, and an archive of them.

Nothing is installed here: the kernel comes by `apt-get download` and is unpacked into a cache of its own,
keyed by its version. What the machine can't give is told as CannotBootError.
"""

import hashlib
import lzma
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
WANTED_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
MODULE_FOLDERS = ("drivers/virtio/", "fs/9p/", "fs/netfs/", "fs/fscache/", "fs/overlayfs/", "net/9p/")
KERNEL = re.compile(r"linux-headers-([0-9][0-9.+-]*(?:deb[0-9+]*)?-amd64)")
"""Debian's plain kernel: its cloud kernel has no 9p."""
DOWNLOAD_SECONDS = 240
BUILD_SECONDS = 120


class CannotBootError(Exception):
    """This machine can't boot a guest; the text says why."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All that a guest is packed from; `modules` in the order in which they load."""

    version: str
    kernel: Path
    modules: tuple[Path, ...]
    stand_in: Path
    busybox: Path
    qemu: Path


def gather_parts() -> Parts:
    """Return the parts of a guest, from the cache where it has them; raises CannotBootError."""
    if platform.machine() != "x86_64":
        raise CannotBootError(f"the guest is built for x86_64, this is {platform.machine()}")
    qemu = _program("qemu-system-x86_64", "qemu-system-x86")
    busybox = _program("busybox", "busybox-static")
    for name, package in (("make", "make"), ("gcc", "gcc"), ("dpkg-deb", "dpkg"), ("setpriv", "util-linux")):
        _program(name, package)
    version, headers = _headers()
    folder = _cache() / version
    if not (folder / "complete").exists():
        _fetch_kernel(version, folder)
    modules = _load_order({_module_name(path): path for path in folder.glob("*.ko*")})
    return Parts(version, folder / "vmlinuz", modules, _built(headers, folder), busybox, qemu)


def _program(name: str, package: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise CannotBootError(f"{name} is missing (as root: apt-get install {package})")
    return Path(found)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = Path(base) / "reclaimerd" / "qemu"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _headers() -> tuple[str, Path]:
    """Return the newest Debian kernel whose headers are installed: its version, and where they are."""
    found = [
        ([int(number) for number in re.findall(r"\d+", match[1])], match[1], path)
        for path in Path("/usr/src").glob("linux-headers-*")
        if (match := KERNEL.fullmatch(path.name)) and (path / "Makefile").exists()
    ]
    if not found:
        raise CannotBootError("no Debian kernel headers (as root: apt-get install linux-headers-amd64)")
    _numbers, version, path = max(found)
    return version, path


def _fetch_kernel(version: str, folder: Path) -> None:
    """Download the kernel's package and keep the kernel and the few modules that a guest needs."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as place:
        package = _download(f"linux-image-{version}", Path(place))
        fresh = Path(place) / "kept"
        fresh.mkdir()
        _unpack(package, fresh)
        (fresh / "complete").touch()
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def _download(package: str, place: Path) -> Path:
    """Download one package; with old lists, and as root, the lists are fetched anew once."""
    download = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package]
    said = _quiet(download, place)
    if not list(place.glob("*.deb")) and os.geteuid() == 0:
        _quiet(["apt-get", "-qq", "update"], place)
        said = _quiet(download, place)
    for found in place.glob("*.deb"):
        return found
    raise CannotBootError(
        f"apt-get could not download {package}: {said.strip()[-300:]} "
        "(a newer kernel may have replaced it; as root: apt-get install linux-headers-amd64)",
    )


def _quiet(argv: Sequence[str], place: Path) -> str:
    try:
        done = subprocess.run(
            argv,
            cwd=place,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{argv[0]} took more than {DOWNLOAD_SECONDS} s"
    return done.stdout + done.stderr


def _unpack(package: Path, folder: Path) -> None:
    """Write the kernel and the modules of a few folders out of a package, flat."""
    argv = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as unpacker:
        assert unpacker.stdout is not None
        with tarfile.open(fileobj=unpacker.stdout, mode="r|") as archive:
            for member in archive:
                name = Path(member.name).name
                is_kernel = name.startswith("vmlinuz-")
                is_module = "/kernel/" in member.name and ".ko" in name
                if not member.isfile() or not (is_kernel or is_module):
                    continue
                if is_kernel or member.name.partition("/kernel/")[2].startswith(MODULE_FOLDERS):
                    content = archive.extractfile(member)
                    assert content is not None
                    (folder / ("vmlinuz" if is_kernel else name)).write_bytes(content.read())
    if not (folder / "vmlinuz").exists():
        raise CannotBootError(f"{package.name} holds no kernel")


def _module_name(path: Path) -> str:
    return path.name.partition(".")[0].replace("-", "_")


def module_bytes(path: Path) -> bytes:
    """Return a kernel module as the kernel takes it, whether its package compressed it or not."""
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def _load_order(modules: Mapping[str, Path]) -> tuple[Path, ...]:
    """Return the wanted modules and what they need, each after its needs (modinfo's `depends`)."""
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order:
            return
        if name not in modules:
            raise CannotBootError(f"the kernel's package has no module {name}")
        found = module_bytes(modules[name]).partition(b"\0depends=")[2].partition(b"\0")[0].decode()
        for need in found.split(",") if found else ():
            add(need.replace("-", "_"))
        order[name] = modules[name]

    for name in WANTED_MODULES:
        add(name)
    return tuple(order.values())


def _built(headers: Path, folder: Path) -> Path:
    """Return our module, built for this kernel: kept beside it, under the digest of its source."""
    sources = sorted((HERE / "module").iterdir())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    kept = folder / f"stand-in-{digest}"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix="module-") as place:
        for path in sources:
            shutil.copy(path, place)
        done = subprocess.run(
            ["make", "-C", str(headers), f"M={place}", "modules"],  # noqa: S607  # any make will do
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"our own module does not build: {done.stdout}{done.stderr}"
        fresh = folder / f".stand-in-{os.getpid()}"
        shutil.copy(Path(place) / "nvidia.ko", fresh)
    fresh.rename(kept)
    return kept


def packed(parts: Parts, seconds: int) -> bytes:
    """Return the initial file system of a guest that ends itself after so many seconds."""
    modules = {
        f"{number:02d}-{_module_name(path)}.ko": module_bytes(path)
        for number, path in enumerate(parts.modules)
    }
    modules[f"{len(modules):02d}-nvidia.ko"] = parts.stand_in.read_bytes()
    words = {
        "@SECONDS@": str(seconds),
        "@PYTHON@": sys.executable,
        "@CHECKOUT@": str(CHECKOUT),
        "@MODULES@": " ".join(modules),
    }
    script = (HERE / "init").read_text(encoding="utf-8")
    for word, value in words.items():
        script = script.replace(word, value)
    files = {
        "init": script.encode(),
        "bin/busybox": parts.busybox.read_bytes(),
        **{f"modules/{name}": content for name, content in modules.items()},
    }
    folders = ("bin", "modules", "proc", "sys", "dev")
    entries = [_entry(name, 0o040755, b"") for name in folders]
    entries += [_entry(name, 0o100755, content) for name, content in files.items()]
    return b"".join((*entries, _entry("TRAILER!!!", 0, b"")))


def _entry(name: str, mode: int, content: bytes) -> bytes:
    """Return one file of a cpio archive, format newc (Documentation/driver-api/early-userspace/)."""
    called = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(called), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + called
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
