"""Metrics and notices of the real daemon: by curl, over TCP, as a file, and to a real HTTPS server."""

import os
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.rig import GPU_A, GPU_B, Rig, rule, simulated_host
from tests.rigs.simulated import GIB, wait_until
from tests.rigs.web_receiver import Certificates, Receiver, Reply, make_certificates, receiving

pytestmark = [pytest.mark.process]
KEY = "0123456789abcdef0123456789abcdef"
SAMPLE = re.compile(r"^(reclaimerd_\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return one CA for all receivers of this module."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def scraped(text: str) -> dict[str, float]:
    """Return each series of a scrape by its name with labels."""
    return {name + labels: float(value) for name, labels, value in SAMPLE.findall(text)}


def by_curl(rig: Rig) -> dict[str, float]:
    """Return a scrape of the control socket, as an operator makes it."""
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl here")
    words = [curl, "-sS", "--fail", "--max-time", "10", "--unix-socket", str(rig.socket)]
    ran = subprocess.run(
        [*words, "http://localhost/metrics"], check=True, capture_output=True, text=True, timeout=20
    )
    return scraped(ran.stdout)


def with_lines(rig: Rig, text: str, *rules: Any) -> None:
    """Write the policy with these lines at its end."""
    rig.write_policy(*rules)
    with rig.policy.open("a", encoding="utf-8") as policy:
        policy.write(text)


def notify(receiver: Receiver, certificates: Certificates, key: Path, more: str = "") -> str:
    """Return the table of one receiver that wants everything."""
    return (
        f'\n[[notify]]\nname = "on-call"\nurl = "{receiver.url}"\nca_file = "{certificates.ca}"\n'
        f'secret_file = "{key}"\nseverities = ["info", "warning", "critical"]\n{more}\n'
    )


def key_in(directory: Path) -> Path:
    """Return the file of the key that signs."""
    path = directory / "key"
    path.write_text(KEY + "\n", encoding="ascii")
    path.chmod(0o600)
    return path


def test_a_reclaim_as_metrics_tell_it() -> None:
    """Memory and holders before, then acts, the end, its time and the record; GPUs by UUID alone."""
    with simulated_host(rule(grace="1s")) as rig:
        rig.start_daemon()
        rig.passes(1)
        first = by_curl(rig)
        assert first[f'reclaimerd_gpu_memory_total_bytes{{gpu="{GPU_B}"}}'] == 80 * GIB
        assert first['reclaimerd_mode{mode="enforce"}'] == 1
        assert first['reclaimerd_incidents{stage="pending"}'] == 0
        pid = rig.launch().pid
        rig.wait_record("incident_ended", pid=pid)
        rig.passes(2)
        last = by_curl(rig)
    assert last['reclaimerd_incidents_opened_total{actor="rule"}'] == 1
    assert last['reclaimerd_incidents_ended_total{end="reclaimed"}'] == 1
    assert last['reclaimerd_acts_total{outcome="sent",stage="sigterm"}'] == 1
    assert last["reclaimerd_time_to_reclaim_seconds_count"] == 1
    assert 0 < last["reclaimerd_time_to_reclaim_seconds_sum"] < 30
    assert last[f'reclaimerd_gpu_holders{{gpu="{GPU_A}"}}'] == 0
    assert last["reclaimerd_audit_head_sequence"] > first["reclaimerd_audit_head_sequence"]
    assert last["reclaimerd_pass_duration_seconds_count"] > first["reclaimerd_pass_duration_seconds_count"]
    assert not [name for name in last if str(pid) in name]


def test_over_tcp_and_as_a_file() -> None:
    """Both have the same families; over TCP nothing else is served, and the file is for everybody."""
    with simulated_host() as rig:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        path = rig.directory / "reclaimerd.prom"
        with_lines(rig, f'\n[metrics]\nlisten = "127.0.0.1:{port}"\ntextfile = "{path}"\n')
        rig.start_daemon()
        wait_until(path.exists, "the file is written, so every door is open")
        base = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:  # noqa: S310  # our own daemon
            over_tcp = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{base}/v1/status", timeout=10)  # noqa: S310  # the same
        refused.value.close()
        assert refused.value.code == 404
        text = path.read_text(encoding="utf-8")
        assert path.stat().st_mode & 0o777 == 0o644
    families = [line for line in over_tcp.splitlines() if line.startswith("# TYPE")]
    assert families == [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(families) > 30


def test_a_reclaim_is_told_to_a_real_server(certificates: Certificates) -> None:
    """Opened and ended, each once, signed, over TLS that is verified; the command line is not in it."""
    with simulated_host() as rig, receiving(certificates) as receiver:
        with_lines(rig, notify(receiver, certificates, key_in(rig.directory)), rule(grace="1s"))
        rig.start_daemon()
        pid = rig.launch().pid
        ended = rig.wait_record("incident_ended", pid=pid)
        wait_until(lambda: len(receiver.sent) == 2, f"both are told: {rig.story()}", 30.0)
        opened, over = receiver.bodies()
        found = by_curl(rig)
    assert (opened["kind"], opened["severity"], opened["rule"]) == ("incident_opened", "warning", "over-cap")
    assert (over["kind"], over["severity"], over["end"]) == ("incident_ended", "info", "reclaimed")
    for body in (opened, over):
        assert (body["incident"], body["pid"], body["gpus"]) == (ended["incident"], pid, [GPU_A])
        assert body["dry_run"] is False
    assert all(sent.headers["webhook-signature"].startswith("v1,") for sent in receiver.sent)
    assert found['reclaimerd_notices_total{notify="on-call",result="sent"}'] == 2
    command = ended["target"]["command"]
    assert command
    assert not any(command.encode() in sent.body for sent in receiver.sent)


@pytest.mark.slow
def test_an_alarm_in_the_receiver_s_own_words(certificates: Certificates, tmp_path: Path) -> None:
    """A template makes the body; a dry run of the daemon tells nothing without leave."""
    template = '{"text": "$severity on $host: $reason"}'
    with simulated_host() as rig, receiving(certificates) as receiver:
        key = key_in(tmp_path)
        with_lines(rig, notify(receiver, certificates, key, f"template = '{template}'"), rule(grace="1s"))
        daemon = rig.start_daemon("--dry-run")
        pid = rig.launch().pid
        rig.wait_record("incident_opened", pid=pid)
        rig.passes(2)
        assert receiver.sent == []
        daemon.stop()
        rig.start_daemon()
        wait_until(lambda: bool(receiver.sent), f"it is told: {rig.story()}", 30.0)
        said = receiver.bodies()[0]["text"]
    assert said.startswith(f"warning on {os.uname().nodename}: ")


def test_a_receiver_that_hangs_holds_up_no_reclaim(certificates: Certificates, tmp_path: Path) -> None:
    """It never answers; the target is reclaimed all the same, and the daemon ends within its promise."""
    with simulated_host() as rig, receiving(certificates, Reply(stall=True)) as receiver:
        with_lines(rig, notify(receiver, certificates, key_in(tmp_path)), rule(grace="1s"))
        daemon = rig.start_daemon()
        pid = rig.launch().pid
        assert rig.wait_record("incident_ended", pid=pid)["end"] == "reclaimed"
        wait_until(lambda: bool(receiver.sent), "it was asked", 30.0)
        daemon.stop()
        assert daemon.process.returncode == 0
