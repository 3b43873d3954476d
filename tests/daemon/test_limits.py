"""How much one uid may ask: the buckets alone, and a flood, a crowd and a slow reader on a real socket."""

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reclaimerd.daemon import http_server, limits
from reclaimerd.daemon.limits import Buckets, Limits
from tests.daemon.test_http_server import LONG_BYTES, Served, get, read_all, serving, status_of, wait_until
from tests.rigs.peers import Peer, request
from tests.rigs.peers import status_of as status_in

UID = 65532
OPERATORS = frozenset({64999})
"""A group that has a role."""
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone becomes another user")


class Clock:
    """The time, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return it."""
        return self.now


def test_a_bucket_gives_its_burst_and_fills_again() -> None:
    """Each uid has its own; what was taken too much is owed, down to a bound."""
    clock = Clock()
    buckets = Buckets(2.0, 3.0, clock)
    assert [buckets.take(7) for _ in range(4)] == [2.0, 1.0, 0.0, -1.0]
    assert buckets.take(8) == 2.0
    assert [buckets.take(7) for _ in range(5)][-1] == -3.0
    clock.now += 2.0
    assert buckets.take(7) == 0.0
    clock.now += 1000.0
    assert buckets.take(7) == 2.0
    clock.now -= 500.0
    assert buckets.take(7) == 1.0


@pytest.mark.slow
def test_many_uids_cost_a_bounded_memory_and_share_one_bucket_past_it() -> None:
    """65536 uids of one user namespace are no 65536 buckets; who is back at the full is forgotten."""
    clock = Clock()
    buckets = Buckets(1.0, 5.0, clock)
    for uid in range(100_000, 103_000):
        buckets.take(uid)
    assert len(buckets._levels) <= limits._MOST_UIDS + 1
    assert buckets.take(200_000) == -5.0
    clock.now += 60.0
    assert buckets.take(200_001) == 4.0


def test_the_counts_of_connections_go_up_and_down() -> None:
    """One uid has 16, all but root 48; root has what is left, and a place that is left is free again."""
    clock = Clock()
    found = Limits(clock, lambda: OPERATORS)
    for uid in (1, 2, 3):
        taken = [found.enter(uid, OPERATORS) for _ in range(limits.MOST_OF_ONE)]
        assert taken == [True] * limits.MOST_OF_ONE
        assert found.enter(uid, OPERATORS) is None
    assert found.enter(4, OPERATORS) is None
    rest = limits.MOST_CONNECTIONS - limits.MOST_OF_OTHERS
    assert [found.enter(0) for _ in range(rest)] == [True] * rest
    assert found.enter(0) is None
    found.leave(1, OPERATORS)
    assert found.enter(4, OPERATORS) is True
    assert found.enter(1, OPERATORS) is None


def test_those_without_a_role_leave_places_for_those_with_one() -> None:
    """32 of the 48; who counts as what is asked at each connection, so a reload holds at once."""
    known: set[int] = set(OPERATORS)
    found = Limits(Clock(), lambda: frozenset(known))
    for uid in (1, 2):
        assert all(found.enter(uid, frozenset({uid})) for _ in range(limits.MOST_OF_ONE))
    assert found.enter(3, frozenset({3})) is None
    assert found.enter(3) is None
    assert [found.enter(3, OPERATORS | {3}) for _ in range(limits.MOST_OF_ONE)] == [True] * limits.MOST_OF_ONE
    assert found.enter(4, OPERATORS) is None
    found.leave(1, frozenset({1}))
    assert found.enter(4, frozenset({4})) is True
    found.leave(4, frozenset({4}))
    found.leave(2, frozenset({2}))
    known.clear()
    assert found.enter(5, OPERATORS) is None
    assert found.enter(0) is True


def test_too_many_calls_are_told_so_then_cut_and_never_root_s() -> None:
    """429 for the next 40, no answer at all past them; a second later twenty are served."""
    clock = Clock()
    found = Limits(clock)

    def enter(uid: int) -> bool | None:
        answer = found.enter(uid)
        if answer is not None:
            found.leave(uid)
        return answer

    answers = [enter(7) for _ in range(100)]
    assert answers == [True] * 40 + [False] * 39 + [None] * 21
    assert [enter(0) for _ in range(500)] == [True] * 500
    clock.now += 3.0
    assert [enter(7) for _ in range(21)] == [True] * 20 + [False]


@pytest.fixture
def served() -> Iterator[Served]:
    """Yield a server that everybody may reach, in a folder that other users can enter."""
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        Path(folder).chmod(0o755)
        with serving(Path(folder) / "s") as made:
            made.path.chmod(0o666)
            yield made


FLOOD = """
import os, socket, sys, time
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(*[int(sys.argv[2])] * 3)
end = time.monotonic() + float(sys.argv[3]); counts = {}
print("begun", flush=True)
while time.monotonic() < end:
    channel = socket.socket(socket.AF_UNIX); channel.settimeout(10)
    try:
        channel.connect(sys.argv[1])
        channel.sendall(b"GET /ok HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        word = channel.recv(65536)[9:12].decode() or "cut"
    except OSError:
        word = "cut"
    channel.close()
    counts[word] = counts.get(word, 0) + 1
print(counts.get("200", 0), counts.get("429", 0), counts.get("cut", 0))
"""


@NEEDS_ROOT
@pytest.mark.root
@pytest.mark.process
def test_a_flood_of_one_user_is_held_to_its_rate_and_others_are_answered(served: Served) -> None:
    """For two seconds: at most the burst and the rate get through, root is answered all the while."""
    argv = [sys.executable, "-I", "-S", "-c", FLOOD, str(served.path), str(UID), "2.0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        assert flood.stdout.readline() == "begun\n"
        slowest = 0.0
        while flood.poll() is None:
            began = time.monotonic()
            assert served.works()
            slowest = max(slowest, time.monotonic() - began)
            select.select([], [], [], 0.05)
        good, told, cut = map(int, flood.stdout.read().split())
    assert good <= limits.CALLS_AT_ONCE + limits.CALLS_PER_SECOND * 3.0
    assert good >= 1
    assert cut > told > 0
    assert slowest < 2.0


@NEEDS_ROOT
@pytest.mark.root
@pytest.mark.process
def test_who_is_told_to_wait_gets_the_form_of_every_refusal(served: Served) -> None:
    """429 with what to do; the call was not made."""
    answers = Peer(UID).call(served.path, [request("GET", "/ok")] * 45)
    found = [status_in(one) for one in answers]
    assert found.count(200) >= 40
    assert 429 in found
    assert "calls a second" in answers[found.index(429)]
    assert len([call for call in served.calls if call.peer.uid == UID]) == found.count(200)


LORIS = """
import os, socket, sys, time
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(*[int(sys.argv[2])] * 3)
held = []
for _ in range(40):
    channel = socket.socket(socket.AF_UNIX); channel.settimeout(30); channel.connect(sys.argv[1])
    try:
        channel.sendall(b"GET /ok HTTP/1.1\\r\\nHost: x\\r\\nX: ")
    except OSError:
        pass
    held.append(channel)
print("begun", flush=True)
began = time.monotonic()
while held and time.monotonic() < began + 30:
    for channel in list(held):
        try:
            channel.send(b"x")
        except OSError:
            held.remove(channel)
    time.sleep(0.05)
print(len(held), time.monotonic() - began)
"""


@NEEDS_ROOT
@pytest.mark.root
@pytest.mark.process
def test_a_crowd_of_slow_connections_takes_sixteen_places_and_is_cut(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty that send a byte now and then: others are served meanwhile, and all forty end in time."""
    monkeypatch.setattr(http_server, "READ_SECONDS", 1.0)
    argv = [sys.executable, "-I", "-S", "-c", LORIS, str(served.path), str(UID)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as loris:
        assert loris.stdout is not None
        assert loris.stdout.readline() == "begun\n"
        for _ in range(5):
            assert served.works()
            assert Peer(UID - 1).statuses(served.path, [request("GET", "/ok")]) == [200]
        left, seconds = loris.stdout.read().split()
    assert int(left) == 0
    assert float(seconds) < 20.0
    assert not [call for call in served.calls if call.peer.uid == UID]
    assert served.works()


def test_who_does_not_read_a_long_answer_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is free again after the bound, and the rest of the answer is dropped."""
    monkeypatch.setattr(http_server, "WRITE_SECONDS", 0.3)
    with serving(tmp_path / "s") as made, ExitStack() as stack:
        channel = stack.enter_context(socket.socket(socket.AF_UNIX))
        channel.settimeout(20)
        channel.connect(str(made.path))
        channel.sendall(get("/ok?x=" + "y" * 10_000))
        assert status_of(read_all(channel)) == 200
        greedy = stack.enter_context(socket.socket(socket.AF_UNIX))
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        greedy.settimeout(20)
        greedy.connect(str(made.path))
        greedy.sendall(get("/long"))
        poll = select.poll()
        poll.register(greedy, select.POLLHUP)
        assert poll.poll(15_000), "it was never cut"
        assert len(read_all(greedy)) < LONG_BYTES
        assert made.works()


CROWD = """
import os, socket, sys
os.setgroups([]); os.setresgid(65533, 65533, 65533); os.setresuid(*[int(sys.argv[2])] * 3)
held = []
for _ in range(20):
    channel = socket.socket(socket.AF_UNIX); channel.settimeout(30); channel.connect(sys.argv[1])
    try:
        channel.sendall(b"GET /ok HTTP/1.1\\r\\nHost: x\\r\\nX: ")
    except OSError:
        pass
    held.append(channel)
print("begun", flush=True)
sys.stdin.read()
"""


@NEEDS_ROOT
@pytest.mark.root
@pytest.mark.process
def test_four_users_who_hold_all_they_can_get_keep_no_operator_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 held connections of four uids without a role: a fifth is cut, a member of a group is answered."""
    monkeypatch.setattr(http_server, "READ_SECONDS", 60.0)
    with tempfile.TemporaryDirectory(prefix="limits-") as folder, ExitStack() as stack:
        Path(folder).chmod(0o755)
        found = Limits(time.monotonic, lambda: OPERATORS)
        served = stack.enter_context(serving(Path(folder) / "s", found))
        served.path.chmod(0o666)
        for uid in range(UID - 4, UID):
            argv = [sys.executable, "-I", "-S", "-c", CROWD, str(served.path), str(uid)]
            crowd = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(crowd)
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "begun\n"
        wait_until(lambda: found._open.total() == limits.MOST_OF_STRANGERS)
        assert Peer(UID - 5).statuses(served.path, [request("GET", "/ok")]) == [0]
        operator = Peer(UID, tuple(OPERATORS))
        assert operator.statuses(served.path, [request("GET", "/ok")] * 3) == [200] * 3
        assert found._open.total() == limits.MOST_OF_STRANGERS
