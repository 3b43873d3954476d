"""C83: one process with hostile names, on a real daemon, through every command, record, metric and notice.

`CALLS` has a row for each command of reclaimctl: a new command fails the first test until it has one.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from reclaimerd.cli.main import reclaimctl, run
from tests.e2e.hostile import BYTES, COMM, FOLDER, LONG, NAME, assert_harmless, in_hostile_cgroup
from tests.e2e.hostile import launch_hostile as launch
from tests.e2e.rig import GPU_A, Rig, rule, simulated_host
from tests.rigs.simulated import wait_until
from tests.rigs.web_receiver import Receiver, receiving

pytestmark = [pytest.mark.slow, pytest.mark.process]

Call = tuple[str, ...]
CALLS: dict[str, tuple[Call, ...]] = {
    "audit export": ((), ("--format", "csv"), ("--text", "{name}")),
    "audit index": ((), ("--rebuild",)),
    "audit list": (
        (),
        ("--pid", "{pid}"),
        ("--text", "{name}"),
        ("--actor", "{name}"),
        ("--since", "{name}"),
    ),
    "audit path": (("--log-dir", "{folder}"),),
    "audit show": (("{incident}",), ("{name}",)),
    "audit stats": ((),),
    "audit verify": ((), ("--anchor", "{folder}")),
    "breaker close": (("--reason", "{name}"), ("--gpu", "{name}", "--reason", "{name}")),
    "completion": (("bash",), ("{name}",)),
    "config check": (("{bad}",), ("{folder}",)),
    "config explain": (("--pid", "{pid}"),),
    "config schema": ((),),
    "config test": (("{folder}",),),
    "doctor": ((), ("--stuck",)),
    "drain": (("--reason", "{name}", "--dry-run"), ("--reason", "{name}")),
    "evidence": (("{pid}",), ("{pid}", "--out", "{folder}/no/evidence.txt")),
    "explain pid": (("{pid}",), ("{name}",)),
    "explain reset": (("--gpu", GPU_A), ("--gpu", "{name}")),
    "healthcheck": ((), ("--socket", "{folder}")),
    "incidents list": ((), ("--limit", "{name}")),
    "incidents show": (("{incident}",), ("{name}",)),
    "inspect": (("{pid}",), ("{ref}",), ("{name}",)),
    "kill": (
        ("--pid", "{ref}", "--dry-run", "--reason", "{name}"),
        ("--pid", "{ref}", "--dry-run", "--reason", "{long}"),
        ("--pid", "{ref}", "--dry-run", "--expect-user", "4294967290", "--reason", "{bytes}"),
        ("--pid", "{name}"),
        ("--pid", "{pid}", "--expect-user", "{name}"),
        ("--pid", "{pid}", "--grace", "{name}"),
        ("--gpu", GPU_A, "--dry-run", "--reason", "{name}"),
        *((option, "{name}", "--dry-run") for option in ("--gpu", "--container", "--job", "--pod")),
    ),
    "manual": ((),),
    "pause": (("--for", "1m", "--reason", "{name}"), ("--for", "{name}")),
    "policy check": (("{bad}",), ("{folder}",)),
    "policy explain": (("--pid", "{pid}"),),
    "policy schema": ((),),
    "policy test": (("{policy}",), ("{policy}", "--snapshot", "{folder}")),
    "ps": ((),),
    "release-driver": (("--for", "1m", "--reason", "{name}"), ("--end",)),
    "reload": ((),),
    "reset": (("--gpu", GPU_A, "--dry-run", "--reason", "{name}"), ("--gpu", "{name}", "--dry-run")),
    "resume": (("--reason", "{name}"), ("--gpu", "{name}")),
    "rollout report": ((), ("--rule", "over-cap"), ("--rule", "{name}")),
    "rules list": ((),),
    "rules mode": (("over-cap", "enforce"), ("{name}", "enforce"), ("over-cap", "{name}")),
    "rules resume": (("over-cap", "--reason", "{name}"), ("{name}",)),
    "rules suspend": (("over-cap", "--for", "1m", "--reason", "{name}"), ("{name}",)),
    "slurm-unkillable": ((),),
    "snapshot": ((), ("--out", "{folder}/no/look.json")),
    "status": ((),),
    "top": (("--once",),),
    "undrain": (("--incident", "{name}", "--reason", "{name}"),),
    "version": ((),),
    "why": (
        ("--pid", "{pid}"),
        ("--pid", "{ref}", "--verify"),
        ("--pid", "{pid}", "--since", "{name}"),
        *((option, "{name}") for option in ("--job", "--pod", "--pid")),
        ("--job", "4711", "--log-dir", "{folder}"),
    ),
}
"""The words of each call of each command; those in braces are of the host below."""
ELSEWHERE = {
    "audit follow": "it never ends: a test of its own below",
    "demo": "a host of its own, whose names are ours",
}
NO_JSON = {"completion", "manual"}
"""What prints one format whatever is asked for."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The host with its one hostile process, and the words of the calls."""

    rig: Rig
    receiver: Receiver
    words: dict[str, str]
    has_cgroup: bool

    def argv(self, command: str, call: Call) -> list[str]:
        """Return one call's whole command line."""
        where = {"--simulate": str(self.rig.host), "--config": str(self.rig.policy)}
        own = [word for option, path in where.items() if option not in call for word in (option, path)]
        return [*command.split(), *own, *(word.format_map(self.words) for word in call)]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """Give the host: a rule in dry run has its story, every notice is taken by a web server."""
    with simulated_host() as rig, receiving(None) as receiver:
        rig.write_policy(rule(mode="dry-run"))
        notify = f'\n[[notify]]\nname = "all"\nurl = "{receiver.url}"\nplain_http = true\ndry_run = true\n'
        with rig.policy.open("a", encoding="utf-8") as policy:
            policy.write(notify + 'severities = ["info", "warning", "critical"]\n')
        pid = launch(rig)
        bad = rig.directory / FOLDER / "bad\x1b[2J.toml"
        bad.write_text(
            f"{json.dumps(NAME)} = 1\n[[rule]]\nname = {json.dumps(NAME)}\nkind = {json.dumps(NAME)}\n"
        )
        with in_hostile_cgroup(pid) as has_cgroup:
            rig.start_daemon()
            incident = rig.wait_record("incident_ended", pid=pid)["incident"]
            ref = next(row["ref"] for row in rig.ask("/v1/ps")["rows"] if row["pid"] == pid)
            words = {"name": NAME, "bytes": BYTES, "long": LONG + NAME, "pid": str(pid), "ref": ref}
            words |= {"incident": incident, "policy": str(rig.policy), "bad": str(bad)}
            words |= {"folder": str(rig.directory / FOLDER)}
            yield Scene(rig, receiver, words, has_cgroup)
            rig.keeper.stop()


def scraped(rig: Rig) -> str:
    """Return what a scrape of the control socket gives."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(20)
        channel.connect(str(rig.socket))
        channel.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: channel.recv(65536), b"")).decode()


def leaves(group: click.Group, front: str = "") -> set[str]:
    """Return the names of all commands below a group."""
    found = set()
    for name, command in group.commands.items():
        path = f"{front} {name}".strip()
        found |= leaves(command, path) if isinstance(command, click.Group) else {path}
    return found


def test_every_command_has_its_row() -> None:
    """Who adds a command says here how hostile names go through it."""
    assert leaves(reclaimctl) == set(CALLS) | set(ELSEWHERE)


def test_the_process_is_as_hostile_as_it_should_be(scene: Scene) -> None:
    """The kernel really gives these names out, and the daemon has them: tame names would show nothing."""
    proc = Path("/proc") / scene.words["pid"]
    assert os.fsencode(COMM)[:15] + b"\n" == (proc / "comm").read_bytes()
    assert os.fsencode(NAME + BYTES + LONG) in (proc / "cmdline").read_bytes()
    assert FOLDER in str((proc / "cwd").readlink())
    assert "\x1b[2J\n" in (proc / "exe").readlink().name
    process = scene.rig.ask(f"/v1/processes/{proc.name}")["process"]
    assert "\\x1b[2J" in process["command"] or "\x1b[2J" in process["command"]
    if scene.has_cgroup:
        assert b"\x1b[2J" in (proc / "cgroup").read_bytes()


@pytest.mark.parametrize("command", sorted(CALLS))
def test_no_command_lets_a_name_steer_the_terminal(
    scene: Scene, command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words: only our own line ends come out, no name begins a line, and there is no traceback."""
    monkeypatch.setenv("SLURM_JOB_ID", NAME)
    for call in CALLS[command]:
        code = run(scene.argv(command, call))
        out, err = capfd.readouterr()
        assert out + err or code == 0, "it failed and said nothing"
        assert "internal error" not in err
        assert_harmless(out)
        assert_harmless(err)


@pytest.mark.parametrize("command", sorted(set(CALLS) - NO_JSON))
def test_json_stays_json(
    scene: Scene, command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json: one object, or one a line, in ASCII that steers nothing; a wrong call prints none."""
    monkeypatch.setenv("SLURM_JOB_ID", NAME)
    for call in CALLS[command]:
        code = run([*scene.argv(command, call), "--json"])
        out, err = capfd.readouterr()
        assert out or code != 0
        assert out.isascii()
        assert_harmless(out)
        assert_harmless(err)
        if "csv" not in call:
            objects = [out] if out.startswith("{\n") else out.splitlines()
            assert all(isinstance(json.loads(text), dict) for text in objects), out[:400]


@pytest.mark.parametrize("as_json", [False, True], ids=["words", "json"])
def test_who_follows_the_log_sees_one_line_a_record(scene: Scene, *, as_json: bool) -> None:
    """A reason with line ends in it is one line of `audit follow`."""
    argv = [sys.executable, "-m", "reclaimerd.cli.main", *scene.argv("audit follow", ())]
    with subprocess.Popen(
        argv + ["--json"] * as_json, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert "following" in following.stderr.readline()
        assert run(scene.argv("pause", ("--reason", "{name}"))) == 0
        assert run(scene.argv("resume", ())) == 0
        line = following.stdout.readline()
        assert "paused" in line
        assert_harmless(line)
        assert not as_json or NAME[:6] in json.loads(line)["reason"]
        following.stdout.close()
        following.wait(20)


def test_log_audit_metrics_and_notices(scene: Scene) -> None:
    """After all that: one line an event, one an entry, whole JSON, and no name among metrics."""
    rig = scene.rig
    assert_harmless(rig.daemons[0].words())
    audit = (rig.host / "log" / "audit.jsonl").read_text(encoding="ascii")
    assert_harmless(audit)
    kinds = [json.loads(line)["kind"] for line in audit.splitlines()]
    assert {"incident_opened", "paused", "resumed"} <= set(kinds)
    assert rig.verify_audit().code == 0
    wait_until(lambda: len(scene.receiver.sent) > 1, "the notices have come", 30)
    for sent in scene.receiver.sent:
        assert_harmless(sent.body.decode("ascii"))
        assert isinstance(json.loads(sent.body), dict)
    metrics = scraped(rig)
    assert "reclaimerd_gpu_memory_total_bytes" in metrics
    assert_harmless(metrics.replace("\r\n", "\n"))
    assert "FORGED" not in metrics


def test_a_real_kill_tells_its_whole_way_in_harmless_lines(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    """SIGTERM, the proof and the end of the hostile process itself, then its story."""
    assert run(scene.argv("kill", ("--pid", "{ref}", "--reason", "{name}"))) == 0
    out, err = capfd.readouterr()
    assert "reclaimed" in out
    assert_harmless(out + err)
    ended = scene.rig.records("incident_ended", pid=int(scene.words["pid"]))[-1]
    assert ended["end"] == "reclaimed"
    assert run(scene.argv("audit show", (ended["incident"],))) == 0
    out, err = capfd.readouterr()
    assert re.search(r"\\x1b\[2J", out)
    assert_harmless(out + err)
