"""Who calls on the socket: a stranger is known by its namespaces and its cgroup, whatever its uid."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from reclaimerd.observe import peers
from reclaimerd.observe.peers import cgroup_root, read_members, read_peer_place
from tests.rigs.proc_children import script

pytestmark = pytest.mark.process

_SLEEP = "\nimport signal\nready()\nsignal.pause()\n"


@contextmanager
def _unshared(*flags: str) -> Iterator[int]:
    """Run a sleeper in namespaces of its own; give its pid as we see it."""
    command: Sequence[str] = ["/usr/bin/unshare", *flags, "/bin/sh", "-c", "echo ready; exec sleep 600"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        if child.stdout.readline() != "ready\n":
            pytest.skip(f"no namespaces here: {child.stderr.read().strip()}")
        below = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text(encoding="ascii").split()
        yield int(below[0]) if below else child.pid
    finally:
        for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text(encoding="ascii").split():
            os.kill(int(pid), 9)
        child.kill()
        child.wait(10)
        child.stdout.close()
        child.stderr.close()


@contextmanager
def _cgroup(*names: str) -> Iterator[Path]:
    """Make a cgroup directory below our hierarchy (v2, else the first of v1 that lets us)."""
    for controller in ("", "pids", "freezer", "cpu", "memory"):
        with suppress(OSError):
            top = cgroup_root(controller) / names[0]
            made = []
            try:
                for path in _path_chain(top, names[1:]):
                    path.mkdir()
                    made.append(path)
            except OSError:
                _remove(made)
                continue
            try:
                yield made[-1]
            finally:
                _remove(made)
            return
    pytest.skip("no cgroup hierarchy here that can be written")


def _path_chain(top: Path, below: Sequence[str]) -> list[Path]:
    paths = [top]
    for name in below:
        paths.append(paths[-1] / name)
    return paths


def _remove(made: list[Path]) -> None:
    for path in reversed(made):
        path.rmdir()


def test_a_child_in_our_own_namespaces_is_no_stranger() -> None:
    """The ordinary caller: an operator's shell on this host."""
    with script(_SLEEP) as pid:
        place = read_peer_place(pid)
        assert place["stranger"] == ""
        assert place["loginuid"] is None or isinstance(place["loginuid"], int)


@pytest.mark.root
@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--pid", "--fork", "--kill-child"), "another PID namespace"),
        (("--user", "--map-root-user"), "another user namespace"),
        (
            ("--user", "--map-root-user", "--pid", "--fork", "--kill-child"),
            "another PID namespace, another user namespace",
        ),
    ],
)
def test_a_caller_in_other_namespaces_is_a_stranger(flags: tuple[str, ...], what: str) -> None:
    """Root inside a container is uid 0 to the socket, and still no one here."""
    with _unshared(*flags) as pid:
        assert read_peer_place(pid)["stranger"] == what


@pytest.mark.root
def test_a_caller_in_a_containers_cgroup_is_a_stranger() -> None:
    """Also with the host's own namespaces, as a privileged container has them."""
    with script(_SLEEP) as pid, _cgroup(f"docker-{'a1' * 32}.scope") as folder:
        (folder / "cgroup.procs").write_text(str(pid))
        try:
            assert "the cgroup of a container" in str(read_peer_place(pid)["stranger"])
        finally:
            (folder.parent / "cgroup.procs").write_text(str(pid))


@pytest.mark.root
def test_a_caller_in_an_ordinary_cgroup_is_none() -> None:
    """A unit of the host proves nothing against anybody."""
    name = f"reclaimerd-test-{uuid4().hex[:8]}.service"
    with script(_SLEEP) as pid, _cgroup(name) as folder:
        (folder / "cgroup.procs").write_text(str(pid))
        try:
            assert read_peer_place(pid)["stranger"] == ""
        finally:
            (folder.parent / "cgroup.procs").write_text(str(pid))


def test_a_caller_that_is_gone_raises() -> None:
    """Nobody can be judged who can't be read: the caller is refused above."""
    with script(_SLEEP) as pid:
        pass
    with pytest.raises(OSError, match="No such file"):
        read_peer_place(pid)


def _place_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loginuid: str | None) -> object:
    """Read a caller whose /proc files are ours, with this loginuid."""
    for pid in ("self", "77"):
        (tmp_path / pid / "ns").mkdir(parents=True)
        for name in ("pid", "user"):
            (tmp_path / pid / "ns" / name).symlink_to(f"{name}:[1]")
        (tmp_path / pid / "cgroup").write_text("0::/\n", encoding="utf-8")
    if loginuid is not None:
        (tmp_path / "77" / "loginuid").write_text(loginuid, encoding="ascii")
    monkeypatch.setattr(peers, "Path", lambda path: Path(str(path).replace("/proc", str(tmp_path))))
    return read_peer_place(77)["loginuid"]


@pytest.mark.parametrize(
    ("text", "expected"), [("1000", 1000), ("0", 0), ("4294967295", None), ("", None), (None, None)]
)
def test_loginuid_is_a_number_or_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: int | None
) -> None:
    """The kernel's "unset", an empty file and no audit at all are no uid; 0 is one."""
    assert _place_with(tmp_path, monkeypatch, text) == expected


@pytest.mark.root
def test_members_are_those_of_a_cgroup_and_all_below_it() -> None:
    """Each pid once, whichever level it is in."""
    name = f"reclaimerd-test-{uuid4().hex[:8]}"
    with script(_SLEEP) as one, script(_SLEEP) as two, _cgroup(name, "below") as folder:
        (folder.parent / "cgroup.procs").write_text(str(one))
        (folder / "cgroup.procs").write_text(str(two))
        try:
            controller = _controller_of(folder)
            found = read_members(controller, f"/{name}")
            assert sorted(found) == sorted((one, two))
            assert read_members(controller, f"/{name}/below") == (two,)
        finally:
            for pid in (one, two):
                (folder.parent.parent / "cgroup.procs").write_text(str(pid))


@pytest.mark.root
def test_too_many_members_are_an_error_and_never_a_shorter_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was left out would not be judged."""
    monkeypatch.setattr(peers, "MOST_MEMBERS", 1)
    name = f"reclaimerd-test-{uuid4().hex[:8]}"
    with script(_SLEEP) as one, script(_SLEEP) as two, _cgroup(name) as folder:
        for pid in (one, two):
            (folder / "cgroup.procs").write_text(str(pid))
        try:
            with pytest.raises(ValueError, match="more than 1"):
                read_members(_controller_of(folder), f"/{name}")
        finally:
            for pid in (one, two):
                (folder.parent / "cgroup.procs").write_text(str(pid))


@pytest.mark.parametrize("path", ["", "/", "//", "/a/../..", "../x"])
def test_the_root_and_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    """Before anything is looked up."""
    with pytest.raises(ValueError, match="names no cgroup"):
        read_members("", path)


def test_a_cgroup_that_is_not_there_raises() -> None:
    """Gone is not empty."""
    controller = _any_controller()
    with pytest.raises(OSError, match="No such file"):
        read_members(controller, f"/reclaimerd-test-{uuid4().hex}")


def test_a_hierarchy_that_is_not_mounted_raises() -> None:
    """And says which."""
    with pytest.raises(FileNotFoundError, match="no-such-controller"):
        cgroup_root("no-such-controller")


def _any_controller() -> str:
    for controller in ("", "pids", "freezer", "cpu", "memory"):
        with suppress(FileNotFoundError):
            cgroup_root(controller)
            return controller
    pytest.skip("no cgroup hierarchy is mounted here")


def _controller_of(folder: Path) -> str:
    for controller in ("", "pids", "freezer", "cpu", "memory"):
        with suppress(FileNotFoundError):
            if folder.is_relative_to(cgroup_root(controller)):
                return controller
    raise AssertionError(f"{folder} lies in no hierarchy")
