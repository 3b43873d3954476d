"""Each role against each call over the real socket, from processes with real uids and groups."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from reclaimerd.cli.main import run
from reclaimerd.daemon.access import Role
from reclaimerd.daemon.groups import group_id
from reclaimerd.simulation.host import read_simulated_host
from tests.e2e.rig import GPU_A, Rig, is_alive, simulated_host
from tests.rigs.other_user import as_user
from tests.rigs.peers import Peer, request, status_of
from tests.rigs.simulated import wait_until

pytestmark = [
    pytest.mark.root,
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]
UID = 65532
NAMES = {"group": "games", "operator_group": "news", "admin_group": "mail"}
GROUPS = {key: group_id(name) or 0 for key, name in NAMES.items()}
PEERS = {
    Role.NONE: Peer(UID),
    Role.VIEWER: Peer(UID - 10, (GROUPS["group"],)),
    Role.OPERATOR: Peer(UID - 11, (1, GROUPS["operator_group"])),
    Role.ADMIN: Peer(UID - 12, (GROUPS["admin_group"], GROUPS["group"])),
}
CALLS = [
    # Each is one that does nothing where it is let through: what it asks for is no order, or is not there.
    (Role.VIEWER, request("GET", "/v1/status")),
    (Role.VIEWER, request("GET", "/v1/ps")),
    (Role.VIEWER, request("GET", "/v1/processes/x")),
    (Role.VIEWER, request("GET", "/v1/incidents")),
    (Role.VIEWER, request("GET", "/v1/incidents/none")),
    (Role.VIEWER, request("GET", "/v1/rules")),
    (Role.VIEWER, request("GET", "/v1/explain/reset?gpu=none")),
    (Role.VIEWER, request("GET", "/v1/explain/pid/x")),
    (Role.VIEWER, request("GET", "/metrics")),
    (Role.VIEWER, request("GET", "/v1/breakers")),
    (Role.VIEWER, request("GET", "/v1/reclaims/candidates")),
    (Role.OPERATOR, request("GET", "/v1/evidence/x")),
    (Role.OPERATOR, request("GET", "/v1/stuck")),
    (Role.OPERATOR, request("GET", "/v1/snapshot")),
    (Role.OPERATOR, request("POST", "/v1/reclaims", {})),
    (Role.OPERATOR, request("POST", "/v1/pause", {"for_seconds": -1})),
    (Role.OPERATOR, request("POST", "/v1/resume", {"gpu": "none"})),
    (Role.OPERATOR, request("POST", "/v1/rules/none/suspend", {})),
    (Role.OPERATOR, request("POST", "/v1/rules/none/resume", {})),
    (Role.OPERATOR, request("POST", "/v1/drain", {})),
    (Role.OPERATOR, request("POST", "/v1/undrain", {})),
    (Role.OPERATOR, request("POST", "/v1/unkillable", {})),
    (Role.ADMIN, request("POST", "/v1/resets", {})),
    (Role.ADMIN, request("POST", "/v1/breakers/close", {"gpu": "none"})),
    (Role.ADMIN, request("POST", "/v1/release-driver", {"for_seconds": -1})),
    (Role.ADMIN, request("POST", "/v1/reload", {})),
    (Role.ADMIN, request("POST", "/v1/audit/exports", {})),
]


@contextmanager
def a_host(**access: object) -> Iterator[Rig]:
    """Yield a host with a daemon under these settings of `[access]`, which others may reach."""
    with simulated_host(tables={"access": {**NAMES, **access}}) as made:
        made.directory.chmod(0o711)
        made.host.chmod(0o711)
        made.start_daemon()
        made.wait_record("started")
        yield made


def test_each_role_may_what_the_table_says_and_no_more() -> None:
    """403 below the needed role and never from it on; the strangers are on record, once; nothing was done."""
    with a_host(owner_access=True) as rig:
        for role, peer in PEERS.items():
            found = peer.statuses(rig.socket, [asked for _, asked in CALLS])
            for (needed, asked), status in zip(CALLS, found, strict=True):
                owners = role < needed and "/v1/reclaims" in asked  # a faulty order is 400
                allowed = role >= needed or owners
                assert (status != 403) is allowed, (role, asked, status)
                assert status not in (0, 429, 500), (role, asked, status)
        assert [one["actor"]["uid"] for one in rig.records("denied")] == [UID, UID - 10, UID - 11]
        assert not rig.records("intent")
        assert not rig.records("incident_opened")


def test_who_has_no_right_can_not_even_connect() -> None:
    """0660 and an access list: groups of the policy get in, another user does not."""
    with a_host() as rig:
        status = request("GET", "/v1/status")
        assert PEERS[Role.NONE].call(rig.socket, [status]) == ["cut PermissionError"]
        for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
            assert PEERS[role].statuses(rig.socket, [status]) == [200], role
        found = rig.socket.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o660, GROUPS["group"])


def test_a_reload_takes_groups_and_mode_anew_and_a_faulty_file_changes_nothing() -> None:
    """422 with each fault, on record; then a sound file, and the group that lost its right is out."""
    with a_host() as rig:
        asked = [request("POST", "/v1/reload", {})]
        good = rig.policy.read_text(encoding="utf-8")
        rig.policy.write_text(good + "\n[accesss]\nx = 1\n[laddder]\nx = 1\n", encoding="utf-8")
        (answer,) = PEERS[Role.ADMIN].call(rig.socket, asked)
        assert status_of(answer) == 422
        assert "accesss" in answer
        assert "laddder" in answer
        refused = next(one for one in rig.records("note") if "reload refused" in one["reason"])
        assert (refused["actor"]["uid"], refused["actor"]["role"]) == (UID - 12, "admin")
        assert PEERS[Role.OPERATOR].statuses(rig.socket, [request("GET", "/v1/status")]) == [200]
        rig.policy.write_text(good.replace('"news"', '""'), encoding="utf-8")
        assert PEERS[Role.ADMIN].statuses(rig.socket, asked) == [200]
        assert rig.records("policy_loaded")
        assert PEERS[Role.OPERATOR].call(rig.socket, [request("GET", "/v1/status")]) == [
            "cut PermissionError"
        ]
        open_to_all = good.replace("[access]", "[access]\nowner_access = true", 1)
        rig.policy.write_text(open_to_all, encoding="utf-8")
        assert PEERS[Role.ADMIN].statuses(rig.socket, asked) == [200]
        assert stat.S_IMODE(rig.socket.stat().st_mode) == 0o666
        assert PEERS[Role.NONE].statuses(rig.socket, [request("GET", "/v1/status")]) == [403]


def test_the_log_is_exported_by_admins_and_each_export_is_on_record(tmp_path: Path) -> None:
    """A viewer who may read the files is exit 4 and gets no line; both are on record under their uid."""
    with a_host() as rig:
        (rig.host / "log").chmod(0o755)
        words = ["audit", "export", "--simulate", str(rig.host), "--config", str(rig.policy)]
        assert run([*words, "--format", "csv"]) == 0  # as root, and imported for those who can't
        assert not rig.records("note")
        viewer, admin = PEERS[Role.VIEWER], PEERS[Role.ADMIN]
        code, out, err = as_user(tmp_path, viewer.uid, viewer.groups, lambda: run(words))
        assert (code, out) == (4, "")
        assert "admin" in err
        (denied,) = rig.records("denied")
        assert denied["actor"]["uid"] == viewer.uid
        assert "/v1/audit/exports" in denied["reason"]
        code, out, err = as_user(tmp_path, admin.uid, admin.groups, lambda: run(words))
        assert (code, err) == (0, "")
        (note,) = rig.records("note")
        assert (note["reason"], note["actor"]["uid"]) == ("the audit log is exported", admin.uid)
        assert '"kind":"started"' in out


HOLD_AND_DROP = """
import os, signal, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
os.setgroups([]); os.setresgid(65533, 65533, 65533)
os.setresuid(*(int(word) for word in sys.argv[2:5]))
print("ready", flush=True)
signal.pause()
"""


@contextmanager
def held_by(rig: Rig, *uids: int) -> Iterator[int]:
    """Yield the pid of a process with these uids (real, effective, saved) that holds GPU A's node."""
    device = next(gpu.device for gpu in read_simulated_host(rig.host).gpus if gpu.uuid == GPU_A)
    argv = [sys.executable, "-I", "-S", "-c", HOLD_AND_DROP, device, *map(str, uids)]
    with ExitStack() as stack:
        child = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        stack.callback(child.kill)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child.pid


def order(pid: int) -> str:
    """Return an order for one process, with SIGKILL soon."""
    body = {"targets": [{"pid": pid}], "force": True, "grace_seconds": 0.5, "reason": "mine"}
    return request("POST", "/v1/reclaims", body)


def test_an_owner_ends_their_own_process_and_no_other() -> None:
    """With one foreign uid of four it is denied and lives; their own goes, with their right on record."""
    with a_host(owner_access=True) as rig:
        with held_by(rig, UID, UID, UID - 1) as saved, held_by(rig, UID - 1, UID - 1, UID - 1) as foreign:
            assert PEERS[Role.NONE].statuses(rig.socket, [order(saved), order(foreign)]) == [403, 403]
            assert is_alive(saved)
            assert is_alive(foreign)
        assert not rig.records("incident_opened")
        with held_by(rig, UID, UID, UID) as own:
            assert PEERS[Role.NONE].statuses(rig.socket, [order(own)]) == [200]
            wait_until(lambda: not is_alive(own), "it goes")
            opened = rig.wait_record("incident_opened", pid=own)
        actor = opened["actor"]
        assert (actor["uid"], actor["role"], actor["comm"]) == (UID, "owner", Path(sys.executable).name[:15])


def test_without_owner_access_a_member_who_may_look_ends_nothing() -> None:
    """Also of their own."""
    with a_host() as rig, held_by(rig, UID, UID, UID) as own:
        assert Peer(UID, (GROUPS["group"],)).statuses(rig.socket, [order(own)]) == [403]
        assert is_alive(own)


def test_a_caller_who_has_ended_is_nobody() -> None:
    """Root connects, hands the connection to a child and ends: its pid may be anybody's by now."""
    with a_host() as rig:
        script = (
            "import os, socket, sys\n"
            "channel = socket.socket(socket.AF_UNIX)\n"
            "channel.connect(sys.argv[1])\n"
            "parent = os.pidfd_open(os.getpid())\n"
            "if os.fork():\n"
            "    os._exit(0)\n"
            "import select\n"
            "select.select([parent], [], [], 20)\n"
            "channel.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
            "answer = b''\n"
            "while piece := channel.recv(65536):\n"
            "    answer += piece\n"
            "sys.stdout.write(answer.decode())\n"
        )
        told = subprocess.run(
            [sys.executable, "-I", "-S", "-c", script, str(rig.socket)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert " 403 " in told.stdout, told.stdout
        assert "where you come from" in told.stdout or "has ended" in told.stdout
