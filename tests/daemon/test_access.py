"""Who may call: real peers with other uids, groups and namespaces on the daemon's own socket."""

import asyncio
import errno
import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from reclaimerd.daemon import access
from reclaimerd.daemon.access import Rights, Role, caller_of, local_user_name, read_peer
from reclaimerd.daemon.groups import group_id
from reclaimerd.observe.answers import Failed, Silent
from reclaimerd.observe.probe import Answered, Probe
from tests.e2e.rig import GPU_A, Rig, is_alive, simulated_host
from tests.rigs.simulated import wait_until

CALL = """
import os, socket, sys
path, group, request = sys.argv[1:4]
if len(sys.argv) > 4:
    os.setgroups([int(group)] if group else [])
    os.setgid(65534)
    os.setuid(int(sys.argv[4]))
channel = socket.socket(socket.AF_UNIX)
channel.settimeout(20)
channel.connect(path)
channel.sendall(request.encode())
answer = b""
while piece := channel.recv(65536):
    answer += piece
    while answer.startswith(b"HTTP/1.1 102"):
        answer = answer.partition(b"\\r\\n\\r\\n")[2]
    if b"403" in answer or b"result" in answer:
        break
sys.stdout.write(answer.decode())
"""
GET = "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"
GROUP = 4242
BEYOND_SELECT = 1500


def kill_call(pid: int) -> str:
    """Return the bytes of an order for one process."""
    body = json.dumps({"targets": [{"pid": pid}], "force": True, "grace_seconds": 0.5})
    return f"POST /v1/reclaims HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"


def status_from(
    rig: Rig, request: str, *, uid: int | None = None, group: str = "", front: tuple[str, ...] = ()
) -> int:
    """Call from a process of its own and return the HTTP status."""
    argv = [*front, sys.executable, "-I", "-S", "-c", CALL, str(rig.host / "reclaimerd.sock"), group, request]
    argv += [] if uid is None else [str(uid)]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout, told.stderr
    return int(told.stdout.split(" ", 2)[1])


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Return a host whose socket everybody may open, with a daemon that no rule makes act."""
    with simulated_host(tables={"access": {"owner_access": True, "group": "games"}}) as made:
        made.directory.chmod(0o711)
        made.host.chmod(0o711)
        made.start_daemon()
        made.wait_record("started")
        yield made


@pytest.mark.root
@pytest.mark.process
def test_another_user_is_denied_once_on_record_and_nothing_happens(rig: Rig) -> None:
    """Uid 65534: 403 to read and to act, one DENIED for the hour; the target lives."""
    target = rig.launch(gpu=GPU_A).pid
    for request in (GET, kill_call(target), GET, kill_call(target)):
        assert status_from(rig, request, uid=65534) == 403
    denied = rig.records("denied")
    assert len(denied) == 1
    assert denied[0]["actor"]["uid"] == 65534
    assert rig.records("incident_opened") == []
    assert is_alive(target)


@pytest.mark.root
@pytest.mark.process
def test_a_member_of_the_group_reads_and_can_not_act(rig: Rig) -> None:
    """By a supplementary group, as SO_PEERGROUPS gives it."""
    target = rig.launch(gpu=GPU_A).pid
    games = str(group_id("games"))
    assert status_from(rig, GET, uid=65534, group=games) == 200
    assert status_from(rig, kill_call(target), uid=65534, group=games) == 403
    assert is_alive(target)


@pytest.mark.root
@pytest.mark.process
@pytest.mark.parametrize("flags", [("--user", "--map-root-user"), ("--pid", "--fork")])
def test_uid_0_of_another_namespace_is_nobody(rig: Rig, flags: tuple[str, ...]) -> None:
    """A container's root shows uid 0: it may neither read nor act."""
    target = rig.launch(gpu=GPU_A).pid
    assert status_from(rig, GET, front=("/usr/bin/unshare", *flags)) == 403
    assert status_from(rig, kill_call(target), front=("/usr/bin/unshare", *flags)) == 403
    assert "namespace" in rig.records("denied")[0]["reason"]
    assert is_alive(target)


@pytest.mark.root
@pytest.mark.process
def test_root_acts_and_is_on_record_with_uid_and_pid(rig: Rig) -> None:
    """The actor of the incident is the peer, by the kernel's word."""
    target = rig.launch(gpu=GPU_A).pid
    assert status_from(rig, kill_call(target)) == 200
    opened = rig.wait_record("incident_opened", pid=target)
    assert opened["actor"]["uid"] == 0
    assert opened["actor"]["name"] == "root"
    assert opened["actor"]["pid"] > 1
    wait_until(lambda: not is_alive(target), "the target goes")


def test_the_peer_of_a_socket_is_the_kernel_s_word() -> None:
    """Both ends of our own pair are us, with all our groups."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = read_peer(ours)
    assert (peer.pid, peer.uid) == (os.getpid(), os.getuid())
    assert peer.groups == frozenset((os.getgid(), *os.getgroups()))


@dataclass(frozen=True, slots=True)
class Older:
    """An accepted connection under a kernel that gives no pidfd of a peer, and says why."""

    channel: socket.socket
    number: int

    def getsockopt(self, level: int, option: int, *size: int) -> int | bytes:
        """Answer as the real one does all but that."""
        if option == access.SO_PEERPIDFD:
            raise OSError(self.number, os.strerror(self.number))
        return self.channel.getsockopt(level, option, *size)


class OnTheHost:
    """Whoever has that pid now is the host's own."""

    async def ask(self, _op: str, _args: object) -> Answered:
        """Find nothing strange."""
        return Answered(({"stranger": "", "loginuid": None, "comm": "cat"},), 0.0, 0.0)


def role_under(number: int, path: Path, *, ends: str) -> Role:
    """Return the role of a caller with our own uid that ends `before` it is looked at, `after`, or never."""
    code = "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); sys.stdin.read()"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(20)
        argv = [sys.executable, "-I", "-S", "-c", code, str(path)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
            channel, _ = listener.accept()
            with channel:
                if ends == "before":
                    child.communicate(timeout=20)
                peer = read_peer(cast("socket.socket", Older(channel, number)))
                if ends == "after":
                    child.communicate(timeout=20)
                caller = asyncio.run(caller_of(peer, cast("Probe", OnTheHost()), Rights()))
                peer.close()
    return caller.role


@pytest.mark.process
def test_who_ended_since_it_connected_is_nobody_on_any_kernel(tmp_path: Path) -> None:
    """Its pid may be another's by now: a container's root would pass for a process of the host's."""
    older = errno.ENOPROTOOPT  # before Linux 6.5
    assert role_under(older, tmp_path / "a", ends="never") is Role.ADMIN
    assert role_under(older, tmp_path / "b", ends="before") is Role.NONE
    assert role_under(older, tmp_path / "c", ends="after") is Role.NONE
    for number in (errno.EINVAL, errno.ESRCH):  # up to 6.15, of one that was reaped; its pid lives again here
        assert role_under(number, tmp_path / str(number), ends="never") is Role.NONE


def test_a_caller_beyond_the_thousandth_descriptor_is_told_like_any_other() -> None:
    """A raised limit of descriptors makes no call fail."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= BEYOND_SELECT:
        pytest.skip(f"descriptors end below {BEYOND_SELECT} here")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = read_peer(ours)
    peer.close()
    own = os.pidfd_open(os.getpid())
    far = replace(peer, pidfd=fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT), gone=False)
    os.close(own)
    assert asyncio.run(caller_of(far, cast("Probe", OnTheHost()), Rights())).role is Role.ADMIN
    far.close()


class Replaced:
    """A worker that is being replaced, or one that could not read the caller."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def ask(self, _op: str, _args: object) -> object:
        """Answer as it was told to."""
        return self.answer


@pytest.mark.parametrize(
    "answer", [Silent("it is being replaced", 0.0), Failed("failed", "it died"), Answered(({},), 0.0, 0.0)]
)
def test_who_can_t_be_told_at_the_moment_is_unknown_and_nobody(answer: object) -> None:
    """Root too: no role, no right of an owner, and it says that it may be asked again."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = read_peer(ours)
        rights = Rights(owner_access=True)
        caller = asyncio.run(caller_of(peer, cast("Probe", Replaced(answer)), rights))
        peer.close()
    assert (caller.role, caller.unknown, caller.may_own) == (Role.NONE, True, False)


@pytest.mark.root
@pytest.mark.process
def test_who_is_in_more_groups_than_can_be_asked_for_counts_by_its_own_alone(tmp_path: Path) -> None:
    """No fault and no right by chance: 300 supplementary groups read as none."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        code = (
            "import os, socket, sys; os.setgroups(range(1000, 1300))\n"
            "c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); c.recv(1)"
        )
        child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "s")])
        try:
            listener.settimeout(20)
            channel, _ = listener.accept()
            with channel:
                assert read_peer(channel).groups == frozenset({os.getgid()})
        finally:
            child.kill()
            child.wait(10)


def test_a_uid_without_a_name_is_shown_as_a_number() -> None:
    """No name service is asked: the local file alone."""
    assert local_user_name(0) == "root"
    assert local_user_name(4_000_000_000) == "uid 4000000000"


def test_a_group_that_is_not_there_is_none() -> None:
    """Then the socket stays root's alone."""
    assert group_id("no-such-group-here") is None
    assert group_id("root") == 0
    assert Path("/etc/group").exists()
