"""The audit's head kept off the host by the real daemon's real child, at a real HTTPS server."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.rig import Ran, Rig, rule, simulated_host
from tests.rigs.simulated import wait_until
from tests.rigs.web_receiver import Certificates, Reply, Sent, make_certificates, receiving

pytestmark = [pytest.mark.slow, pytest.mark.process]
KEY = "0123456789abcdef0123456789abcdef"
RULE = rule(grace="600s")
BOUND_SECONDS = 60.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return one CA for all receivers of this module."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def host() -> Iterator[Rig]:
    """Yield a host with one rule, and the key of a receiver beside its policy."""
    with simulated_host(RULE) as rig:
        key = rig.directory / "key"
        key.write_text(KEY + "\n", encoding="ascii")
        key.chmod(0o600)
        yield rig


def verified(rig: Rig, *words: str) -> Ran:
    """Verify the log without its store."""
    return rig.ctl("audit", "verify", "--state-dir", str(rig.directory / "none"), *words)


def cut_after(path: Path, seq: int) -> None:
    """Take away each record after a number."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["seq"] <= seq))


def is_signed(sent: Sent) -> bool:
    """Tell whether a post is signed as a receiver verifies it."""
    signed = f"{sent.headers['webhook-id']}.{sent.headers['webhook-timestamp']}.".encode() + sent.body
    digest = base64.b64encode(hmac.new(KEY.encode(), signed, hashlib.sha256).digest()).decode()
    return sent.headers["webhook-signature"] == f"v1,{digest}"


def test_a_head_that_is_refused_is_told_of_and_one_that_is_kept_betrays_a_cut_tail(
    host: Rig, certificates: Certificates
) -> None:
    """`status` says why and wants a person, records go on; what is kept at last shows the cut alone."""
    with receiving(certificates, Reply(403), Reply(200)) as receiver:
        table = {"url": receiver.url, "ca_file": str(certificates.ca), "every": "1s", "within": "5s"}
        host.write_policy(RULE, anchor_webhook={**table, "secret_file": str(host.directory / "key")})
        daemon = host.start_daemon()
        wait_until(
            lambda: host.ask("/v1/status")["anchor_fault"] != "", "the refusal is known", BOUND_SECONDS
        )
        told = host.ask("/v1/status")
        assert "refused it (403)" in told["anchor_fault"]
        assert any("can't be kept elsewhere" in one for one in told["attention"])
        assert told["record_fault"] == ""
        host.launch()
        opened = host.wait_record("incident_opened", seconds=BOUND_SECONDS)["seq"]
        wait_until(lambda: receiver.bodies()[-1]["seq"] >= opened, "a later head was sent", BOUND_SECONDS)
        wait_until(lambda: host.ask("/v1/status")["anchor_fault"] == "", "it was taken", BOUND_SECONDS)
        daemon.stop()
        assert all(is_signed(sent) for sent in receiver.sent)
        kept = host.directory / "kept"
        kept.write_bytes(b"".join(sent.body for sent in receiver.sent[1:]))
    first = host.records()[0]
    body = receiver.bodies()[-1]
    assert (body["kind"], body["boot"], body["host"]) == ("audit_head", first["boot"], first["host"])
    whole = verified(host, "--anchor", str(kept))
    assert (whole.code, whole.answer["faults"]) == (0, []), whole
    assert whole.answer["anchors_compared"] >= 1
    cut_after(host.host / "log" / "audit.jsonl", opened - 1)
    assert verified(host).code == 0
    cut = verified(host, "--anchor", str(kept))
    assert cut.code == 9, cut
    assert "(cut)" in " ".join(cut.answer["faults"])
