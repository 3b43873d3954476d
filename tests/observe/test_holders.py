"""The full scan finds whoever really holds a device, and says what it could not look at."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.process import (
    NodeHolding,
    ScanResult,
)
from reclaimerd.model.reading import Known
from reclaimerd.observe import open_nodes
from reclaimerd.observe.holders import _descendants_by_parent, descendants, scan
from reclaimerd.observe.processes import ProcessReader
from tests.rigs.proc_children import ZOMBIE_LEADER, device, script
from tests.rigs.raw_fuse import RawFuse, why_unavailable

pytestmark = pytest.mark.process

IDLE = "\nimport signal\nready()\nsignal.pause()\n"
FULL = DeviceNumber(1, 7)
ZERO = DeviceNumber(1, 5)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def scanned(*devices: DeviceNumber, deep: bool = False, root: int | None = None) -> ScanResult:
    """Scan once with a fresh reader."""
    reader = ProcessReader()
    reader.watch_devices(devices)
    return scan(reader, root=os.getpid() if root is None else root, deep=deep)


def nodes_of(result: ScanResult, pid: int) -> tuple[NodeHolding, ...]:
    """Return what the scan found for one process."""
    return next((row.nodes for row in result.rows if row.pid == pid), ())


@pytest.fixture
def reaped() -> Iterator[list[int]]:
    """Kill what a test notes here."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_a_forked_child_with_an_inherited_descriptor_is_the_holder(reaped: list[int]) -> None:
    """The parent died; the child that inherited its descriptor is found, with its start time."""
    body = (
        "\npid = os.fork()\nif pid == 0:\n    import signal\n    signal.pause()\n"
        "os.write(2, b'%d\\n' % pid)\nready()\nsys.stdin.readline()\n"
    )
    with device() as (slave, _path, number):
        parent = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "def ready(): pass\nimport os, sys" + body],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(slave,),
        )
        assert parent.stderr is not None
        assert parent.stdin is not None
        heir = int(parent.stderr.readline())
        reaped.append(heir)
        parent.stdin.close()
        parent.wait(10)
        parent.stderr.close()
        reader = ProcessReader()
        reader.watch_devices([number])
        result = scan(reader, root=None, deep=False)
        row = next(row for row in result.rows if row.pid == heir)
        assert row.nodes == (NodeHolding(number),)
        assert row.start_ticks == reader.look(heir, whole=False).reading.ref.start_ticks
        assert parent.pid not in {row.pid for row in result.rows}


def test_a_thread_with_descriptors_of_its_own_is_searched() -> None:
    """A device opened in one thread after unshare(CLONE_FILES) shows in no other table, and is found."""
    body = (
        "\nimport ctypes, threading\ndef apart():\n    assert ctypes.CDLL(None).unshare(0x400) == 0\n"
        "    os.open('/dev/full', os.O_RDONLY)\n    ready()\n    threading.Event().wait()\n"
        "for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "threading.Thread(target=apart, daemon=True).start()\nthreading.Event().wait()\n"
    )
    with script(body) as pid:
        links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
        assert "/dev/full" not in links, "the rig does not hide the descriptor"
        assert nodes_of(scanned(FULL), pid) == (NodeHolding(FULL),)
        reader = ProcessReader()
        reader.watch_devices([FULL])
        assert reader.look(pid, whole=False).nodes == Known((NodeHolding(FULL),))


def test_without_kcmp_every_thread_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel can't compare descriptor tables, none is taken for another's."""
    monkeypatch.setattr(open_nodes, "share_descriptors", lambda _one, _other: None)
    test_a_thread_with_descriptors_of_its_own_is_searched()


def test_a_mapped_device_is_found_when_it_is_no_longer_open() -> None:
    """A mapping holds the device after close; it is found by its number, in scan and look."""
    body = (
        "\nimport mmap\nfile = os.open('/dev/zero', os.O_RDWR)\n"
        "kept = mmap.mmap(file, 4096, flags=mmap.MAP_PRIVATE)\nos.close(file)\n"
        # mmap keeps a duplicate of the descriptor: close that too
        "os.closerange(3, 64)\n" + IDLE
    )
    with script(body) as pid:
        assert nodes_of(scanned(ZERO), pid) == (NodeHolding(ZERO, mapped=True),)
        reader = ProcessReader()
        reader.watch_devices([ZERO])
        held = Known((NodeHolding(ZERO, mapped=True),))
        assert reader.look(pid, whole=False).nodes == held
        assert reader.look(pid, whole=False).nodes == held


def test_a_zombie_leader_holds_through_its_thread() -> None:
    """The leader's own folder is empty; what its living thread has open and mapped is found."""
    body = (
        "\nimport mmap\nfile = os.open('/dev/zero', os.O_RDWR)\n"
        "kept = mmap.mmap(file, 4096, flags=mmap.MAP_PRIVATE)\nos.closerange(3, 64)\n"
    )
    with device() as (slave, _path, number):
        with script(ZOMBIE_LEADER, keep=(slave,)) as pid:
            assert list(Path(f"/proc/{pid}/fd").iterdir()) == [], "the rig's leader is not dead"
            assert nodes_of(scanned(number), pid) == (NodeHolding(number),)
            reader = ProcessReader()
            reader.watch_devices([number])
            assert reader.look(pid, whole=False).nodes == Known((NodeHolding(number),))
        with script(body + ZOMBIE_LEADER) as pid:
            assert nodes_of(scanned(ZERO), pid) == (NodeHolding(ZERO, mapped=True),)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_threads_that_can_not_be_listed_are_named(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A zombie leader's own table is empty: without its threads' a scan would call the holder free."""
    real = os.listdir

    def short_of_means(folder: bytes) -> list[bytes]:
        if folder.endswith(b"/task"):
            raise OSError(number, os.strerror(number))
        return real(folder)

    with script(ZOMBIE_LEADER) as pid:
        monkeypatch.setattr(os, "listdir", short_of_means)
        finder = ProcessReader().finder
        for found in (finder.search(pid, deep=False), finder.opened(pid)):
            assert found.troubles == (f"threads: {os.strerror(number).lower()}",)


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("name", ["plain", "memfd:x (deleted)", "socket:[1]"])
def test_a_node_under_any_path_is_the_same_device(tmp_path: Path, name: str) -> None:
    """A node made elsewhere, whatever it is called, is found by its number."""
    node = tmp_path / name
    os.mknod(node, 0o20666, os.makedev(FULL.major, FULL.minor))
    with script("\nkept = os.open(sys.argv[1], os.O_RDONLY)\n" + IDLE, str(node)) as pid:
        node.unlink()
        assert nodes_of(scanned(FULL), pid) == (NodeHolding(FULL),)


def test_a_file_named_like_a_device_is_none(tmp_path: Path) -> None:
    """A regular file called nvidia0 holds nothing: a path is no proof."""
    fake = tmp_path / "nvidia0"
    fake.write_bytes(b"x" * 4096)
    body = "\nimport mmap\nfile = os.open(sys.argv[1], os.O_RDWR)\nkept = mmap.mmap(file, 4096)\n" + IDLE
    with script(body, str(fake)) as pid:
        assert nodes_of(scanned(FULL, DeviceNumber(195, 0)), pid) == ()


def test_only_descendants_of_the_root_are_searched() -> None:
    """With a root, its descendants count and neither itself nor a stranger does."""
    tree = (
        "\nif os.fork() == 0:\n    import signal\n    ready()\n    signal.pause()\n"
        "\nimport signal\nsignal.pause()\n"
    )
    with (
        device() as (slave, _path, number),
        script(tree, keep=(slave,)) as top,
        script(IDLE, keep=(slave,)) as other,
    ):
        below = descendants(top)
        assert len(below) == 1
        try:
            result = scanned(number, root=top)
            assert [row.pid for row in result.rows] == list(below)
            assert result.looked_at == 1
            ours = {row.pid for row in scanned(number).rows}
            assert {top, other, *below} <= ours
            assert os.getpid() not in ours
        finally:
            os.kill(below[0], signal.SIGKILL)


def test_descendants_come_parents_first_also_through_threads() -> None:
    """A child forked by a thread is a descendant; both ways of finding them agree."""
    body = (
        "\nimport signal, threading\ndef fork():\n    if os.fork() == 0:\n        if os.fork() == 0:\n"
        "            ready()\n        signal.pause()\n    threading.Event().wait()\n"
        "threading.Thread(target=fork, daemon=True).start()\nthreading.Event().wait()\n"
    )
    with script(body) as pid:
        found = descendants(pid)
        try:
            assert len(found) == 2
            parent = Path(f"/proc/{found[1]}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1]
            assert int(parent) == found[0]
            assert set(_descendants_by_parent(pid, b"/proc/")) == set(found)
        finally:
            for child in found:
                os.kill(child, signal.SIGKILL)
    assert descendants(pid) == ()


def test_a_scan_teaches_the_reader_and_a_quiet_process_is_named_by_no_trouble() -> None:
    """What a scan found is proven by one look in the next pass; nothing readable is in `skipped`."""
    with device() as (slave, _path, number), script(IDLE, keep=(slave,)) as pid:
        reader = ProcessReader()
        reader.watch_devices([number])
        result = scan(reader, root=os.getpid(), deep=False)
        assert not [line for line in result.skipped if line.startswith(f"pid {pid}:")]
        assert reader.look(pid, whole=False).nodes == Known((NodeHolding(number),))


def test_files_in_flight_over_a_socket_are_named_by_a_deep_scan() -> None:
    """A descriptor that was sent and not received is in no table; the deep scan says whose socket has it."""
    body = (
        "\nimport socket\na, b = socket.socketpair()\nfile = os.open('/dev/full', os.O_RDONLY)\n"
        "socket.send_fds(a, [b'x'], [file])\nos.close(file)\n" + IDLE
    )
    with script(body) as pid:
        shallow, deep = scanned(FULL), scanned(FULL, deep=True)
        assert nodes_of(deep, pid) == ()
        assert not [line for line in shallow.skipped if line.startswith(f"pid {pid}:")]
        assert [line for line in deep.skipped if line.startswith(f"pid {pid}:")] != []
        assert any("1 files in flight" in line for line in deep.skipped)


@pytest.mark.root
@pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}")
def test_a_file_of_a_dead_file_system_does_not_hang_the_scan() -> None:
    """A descriptor on a FUSE mount that answers nothing is passed by without asking its server."""
    body = "\nfile = os.open(sys.argv[1], os.O_RDWR)\nready()\nos.read(file, 1)\n"
    with (
        RawFuse(withhold="read") as fuse,
        device() as (slave, _path, number),
        script(body, str(fuse.path("a")), keep=(slave,)) as pid,
    ):
        fuse.wait_withheld()
        assert nodes_of(scanned(number), pid) == (NodeHolding(number),)
        fuse.release()
