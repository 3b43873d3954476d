"""Claims about drain requests as webhooks, against a real server over TLS, posted by the real child."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from reclaimerd.act import webhook_child
from reclaimerd.act.drain_body import Action, action_bytes, request_body
from reclaimerd.act.drain_webhook import DrainWebhook
from reclaimerd.act.webhook_signing import read_key, signature_headers
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.drain_ports import Asked, DrainTargetPort, Foreign, NotAsked, TargetAnswer
from tests.act.drain_builders import a_request
from tests.act.reset_tools import program
from tests.rigs.web_receiver import Certificates, Receiver, Reply, make_certificates, receiving

pytestmark = pytest.mark.process
KEY = "0123456789abcdef0123456789abcdef"
FOREIGN = json.dumps({"state": "foreign", "text": "drained\x1b[2J by\n alice"}).encode()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return one CA for all receivers of this module."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """Return a file of the key, as it should be."""
    path = tmp_path / "key"
    path.write_text(KEY + "\n", encoding="ascii")
    path.chmod(0o600)
    return path


@dataclass(frozen=True, slots=True)
class Rig:
    """A receiver and the target that asks it."""

    receiver: Receiver
    target: DrainTargetPort

    def request(self, incident: str = "inc-1") -> TargetAnswer:
        """Ask once."""
        answer = asyncio.run(self.target.request(a_request(incident)))
        assert "sesame" not in answer.text
        assert KEY not in answer.text
        return answer


def delivered(settings: WebhookTarget, receiver: Receiver) -> TargetAnswer:
    """Do in this process what the child does, where only the meaning of an answer is the claim."""
    order = webhook_child.Order(
        receiver.url, settings.secret_file, settings.ca_file, False, 10.0, 30.0, "inc-1-request", "{}"
    )
    answer = asyncio.run(webhook_child.deliver(order))
    assert "sesame" not in answer.text
    return answer


@pytest.fixture
def certain(certificates: Certificates, key_file: Path) -> WebhookTarget:
    """Return settings that trust our CA, and have no patience."""
    return WebhookTarget("", str(key_file), str(certificates.ca), seconds=2.0)


def verified(receiver: Receiver, place: int = 0) -> None:
    """Verify a signature as a receiver does: over the id, the time and the body that came in."""
    sent = receiver.sent[place]
    signed = f"{sent.headers['webhook-id']}.{sent.headers['webhook-timestamp']}.".encode() + sent.body
    digest = base64.b64encode(hmac.new(KEY.encode(), signed, hashlib.sha256).digest()).decode()
    assert sent.headers["webhook-signature"] == f"v1,{digest}"
    assert abs(int(sent.headers["webhook-timestamp"]) - time.time()) < 60


def test_a_request_is_one_signed_post(certificates: Certificates, certain: WebhookTarget) -> None:
    """The body is the file's with its action, the signature holds, and the key names request and action."""
    with receiving(certificates) as receiver:
        rig = Rig(receiver, DrainWebhook(replace(certain, url=receiver.url)))
        answer = rig.request()
    assert isinstance(answer, Asked), answer
    assert answer.text == f"127.0.0.1:{receiver.url.split(':')[2].split('/')[0]} took it (200)"
    (sent,) = receiver.sent
    assert sent.path == "/drain/sesame?key=sesame"
    assert sent.headers["idempotency-key"] == sent.headers["webhook-id"] == "inc-1-request"
    assert sent.headers["content-type"] == "application/json"
    assert json.loads(sent.body) == {"action": "request", **request_body(a_request())}
    verified(receiver)


def test_the_same_request_twice_has_one_key_and_one_body(
    certificates: Certificates, certain: WebhookTarget
) -> None:
    """After a death of ours it comes again: a receiver that goes by the key does nothing twice."""
    with receiving(certificates) as receiver:
        rig = Rig(receiver, DrainWebhook(replace(certain, url=receiver.url)))
        assert isinstance(rig.request(), Asked)
        assert isinstance(rig.request(), Asked)
        assert isinstance(rig.request("inc-2"), Asked)
    first, second, other = receiver.sent
    assert first.body == second.body
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert other.headers["idempotency-key"] == "inc-2-request"


def test_each_action_says_what_it_is(certificates: Certificates, certain: WebhookTarget) -> None:
    """A withdrawal has a key of its own; a question is a new one each time, or a cache would answer it."""
    with receiving(certificates) as receiver:
        target = DrainWebhook(replace(certain, url=receiver.url))
        assert isinstance(asyncio.run(target.withdraw(a_request())), Asked)
        assert isinstance(asyncio.run(target.status(a_request())), Asked)
        assert isinstance(asyncio.run(target.status(a_request())), Asked)
    assert [body["action"] for body in receiver.bodies()] == ["withdraw", "status", "status"]
    keys = [sent.headers["idempotency-key"] for sent in receiver.sent]
    assert keys[0] == "inc-1-withdraw"
    assert all(key.startswith("inc-1-status-") for key in keys[1:])
    assert len(set(keys)) == 3


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_what_may_pass_is_tried_again(
    certificates: Certificates, certain: WebhookTarget, status: int
) -> None:
    """With the same key and a signature of its own."""
    with receiving(certificates, Reply(status), Reply(202)) as receiver:
        answer = delivered(certain, receiver)
    assert isinstance(answer, Asked), answer
    assert {sent.headers["idempotency-key"] for sent in receiver.sent} == {"inc-1-request"}
    assert len(receiver.sent) == 2
    verified(receiver, 0)
    verified(receiver, 1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_a_no_is_not_tried_again(certificates: Certificates, certain: WebhookTarget, status: int) -> None:
    """Asking again changes nothing until a person mends it."""
    with receiving(certificates, Reply(status, body=b'{"state": "sesame"}')) as receiver:
        answer = delivered(certain, receiver)
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert f"({status})" in answer.text
    assert len(receiver.sent) == 1


def test_a_receiver_that_stays_away_is_given_up(certificates: Certificates, certain: WebhookTarget) -> None:
    """Within three times the limit of one try, and it is worth another time."""
    settings = replace(certain, seconds=0.5)
    with receiving(certificates, Reply(503)) as receiver:
        began = time.monotonic()
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
        took = time.monotonic() - began
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "503" in answer.text
    assert len(receiver.sent) >= 2
    assert took < 1.5 + 10.0


def test_a_server_that_never_answers_is_bounded(certificates: Certificates, certain: WebhookTarget) -> None:
    """One try ends at its limit, and then there is another."""
    settings = replace(certain, seconds=0.6)
    with receiving(certificates, Reply(stall=True), Reply(200)) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
        assert isinstance(answer, Asked), answer
        assert len(receiver.sent) == 2
    with receiving(certificates, Reply(stall=True)) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "did not answer within" in answer.text


def test_a_yes_needs_no_end_of_its_body(certificates: Certificates, certain: WebhookTarget) -> None:
    """The status is the answer; what a receiver says at length is not waited for."""
    with receiving(certificates, Reply(200, body=b"x" * 1000, body_stalls=True)) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(certain, url=receiver.url))).request()
    assert isinstance(answer, Asked), answer
    assert len(receiver.sent) == 1


def test_a_wait_that_the_receiver_asks_for_is_kept(
    certificates: Certificates, certain: WebhookTarget
) -> None:
    """Within our own limit it is waited for; beyond it nobody is asked again now."""
    settings = replace(certain, seconds=2.0)
    with receiving(certificates, Reply(429, {"Retry-After": "2"}), Reply(200)) as receiver:
        began = time.monotonic()
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
        assert time.monotonic() - began >= 2.0
    assert isinstance(answer, Asked), answer
    with receiving(certificates, Reply(503, {"Retry-After": "3600"})) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "3600 s" in answer.text
    assert len(receiver.sent) == 1


def test_another_drain_is_told_from_a_no(certificates: Certificates, certain: WebhookTarget) -> None:
    """A conflict that says so is FOREIGN; its words are shown safely."""
    with receiving(certificates, Reply(409, body=FOREIGN)) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(certain, url=receiver.url))).request()
    assert isinstance(answer, Foreign)
    assert answer.text.endswith("another's drain stands there: drained?[2J by alice")


def test_a_conflict_without_an_end_says_nothing(certificates: Certificates, certain: WebhookTarget) -> None:
    """No more than 64 KiB of it is read."""
    large = FOREIGN[:-1] + b" " * 70_000 + b"}"
    with receiving(certificates, Reply(409, body=large)) as receiver:
        answer = delivered(certain, receiver)
    assert isinstance(answer, NotAsked)
    assert answer.lasting


def test_a_redirect_is_not_followed(certificates: Certificates, certain: WebhookTarget) -> None:
    """The request goes to whom the policy names, and to nobody else."""
    with receiving(certificates) as elsewhere:
        moved = Reply(307, {"Location": elsewhere.url})
        with receiving(certificates, moved) as receiver:
            answer = Rig(receiver, DrainWebhook(replace(certain, url=receiver.url))).request()
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert "redirect" in answer.text
    assert elsewhere.sent == []


def test_no_proxy_of_the_environment_is_used(
    certificates: Certificates, certain: WebhookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets one would read the request, or answer it."""
    with receiving(None) as proxy, receiving(certificates) as receiver:
        for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert isinstance(Rig(receiver, DrainWebhook(replace(certain, url=receiver.url))).request(), Asked)
    assert proxy.sent == []


@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_wrong_certificate_is_refused(tmp_path: Path, certain: WebhookTarget, wrong: str) -> None:
    """Of another authority, or for another name: nothing is sent, and a person must mend it."""
    other = make_certificates(tmp_path / "other", "DNS:receiver.example.org")
    settings = certain if wrong == "authority" else replace(certain, ca_file=str(other.ca))
    with receiving(other) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert "certificate" in answer.text
    assert receiver.sent == []


def test_nobody_there_is_tried_again_later(certain: WebhookTarget) -> None:
    """A closed port is no lasting no."""
    with receiving(None) as gone:
        url = gone.url.replace("http:", "https:")
    answer = Rig(gone, DrainWebhook(replace(certain, url=url, seconds=0.3))).request()
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert "can't be reached" in answer.text


def test_without_tls_only_by_the_policy_s_word(certain: WebhookTarget) -> None:
    """And then only to this very host; the child holds to it by itself."""
    with receiving(None) as receiver:
        plain = replace(certain, url=receiver.url)
        refused = Rig(receiver, DrainWebhook(plain)).request()
        assert isinstance(refused, NotAsked)
        assert refused.lasting
        assert receiver.sent == []
        named = replace(plain, url=receiver.url.replace("127.0.0.1", "localhost"), plain_http=True)
        assert isinstance(Rig(receiver, DrainWebhook(named)).request(), NotAsked)
        assert receiver.sent == []
        assert isinstance(Rig(receiver, DrainWebhook(replace(plain, plain_http=True))).request(), Asked)
    assert len(receiver.sent) == 1


@pytest.mark.parametrize("fault", ["missing", "mode", "short", "base64", "ca"])
def test_without_its_key_or_its_authorities_nothing_is_sent(
    certificates: Certificates, certain: WebhookTarget, key_file: Path, fault: str
) -> None:
    """An unsigned request would be refused, or worse believed; the mend is told."""
    settings = certain
    match fault:
        case "missing":
            key_file.unlink()
        case "mode":
            key_file.chmod(0o640)
        case "short":
            key_file.write_text("sesame", encoding="ascii")
        case "base64":
            key_file.write_text("whsec_sesame!", encoding="ascii")
        case _:
            settings = replace(certain, ca_file=str(key_file))
    with receiving(certificates) as receiver:
        answer = Rig(receiver, DrainWebhook(replace(settings, url=receiver.url))).request()
    assert isinstance(answer, NotAsked)
    assert answer.lasting
    assert str(key_file) in answer.text
    assert receiver.sent == []


def test_without_a_key_it_is_sent_unsigned(certificates: Certificates, certain: WebhookTarget) -> None:
    """As the policy says; there is no header that looks like a signature."""
    with receiving(certificates) as receiver:
        settings = replace(certain, url=receiver.url, secret_file="")
        assert isinstance(Rig(receiver, DrainWebhook(settings)).request(), Asked)
    assert not any(name.startswith("webhook-") for name in receiver.sent[0].headers)


def test_a_request_that_can_stand_in_no_header_is_refused(certain: WebhookTarget) -> None:
    """Nobody is asked."""
    with receiving(None) as receiver:
        target = DrainWebhook(replace(certain, url=receiver.url, plain_http=True))
        assert isinstance(Rig(receiver, target).request("x\r\nEvil: 1"), NotAsked)
    assert receiver.sent == []


def test_a_plan_is_what_would_be_posted(certain: WebhookTarget) -> None:
    """The body byte for byte, and neither path, query nor key."""
    plan = DrainWebhook(replace(certain, url="https://x.example:8443/sesame?sesame")).plan(a_request())
    head, _, body = plan.partition("\n\n")
    assert body.encode() == action_bytes(Action.REQUEST, a_request())
    assert head.splitlines()[0] == "POST to x.example:8443"
    assert "Idempotency-Key: inc-1-request" in head
    assert "sesame" not in plan
    assert KEY not in plan


def test_a_child_that_breaks_off_tells_its_kind_alone(
    tmp_path: Path, certain: WebhookTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was about to say may hold an address."""
    broken = program(tmp_path / "python", "echo 'x.ValueError: sesame' >&2; exit 1")
    monkeypatch.setattr(sys, "executable", broken)
    answer = asyncio.run(DrainWebhook(replace(certain, url="https://x/")).request(a_request()))
    assert answer == NotAsked("the child that posts broke off (x.ValueError, exit code 1)")


def test_the_daemon_s_own_process_has_no_http_client() -> None:
    """Nothing that the wiring imports brings aiohttp along: it is the child's alone."""
    code = "import sys, reclaimerd.daemon.wiring; sys.exit(any(m.startswith('aiohttp') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False, timeout=60).returncode == 0


def test_without_the_extra_the_mend_is_told(certain: WebhookTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without aiohttp says what to install, and sends nothing."""
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    order = webhook_child.Order("https://127.0.0.1:1/", "", certain.ca_file, False, 1.0, 1.0, "i", "{}")
    answer = asyncio.run(webhook_child.deliver(order))
    assert answer == NotAsked("a webhook needs aiohttp; pip install reclaimerd[webhook]", lasting=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("", 0.0),
        ("-7", 0.0),
        ("soon", 0.0),
        ("1e9", 0.0),
        ("9" * 400, 999999999.0),
        (format_datetime(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(datetime(2026, 1, 1, tzinfo=UTC) - timedelta(seconds=90), usegmt=True), 0.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 0.0),
    ],
)
def test_a_wait_is_a_number_or_a_date(value: str, seconds: float) -> None:
    """Anything else is no wish."""
    assert webhook_child._retry_after(value, datetime(2026, 1, 1, tzinfo=UTC)) == seconds


def test_a_signature_is_the_standard_s() -> None:
    """The example of the specification's own libraries: id, time, body and key give this signature."""
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for keys."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    yield folder
    folder.chmod(0o755)


def test_a_key_is_one_line_or_base64(keys: Path) -> None:
    """As `openssl rand -hex 32` writes it, or as the libraries for receivers do; through a link of root's."""
    path = keys / "plain"
    path.write_text(KEY + "\n", encoding="ascii")
    path.chmod(0o600)
    assert read_key(str(path)) == KEY.encode()
    (keys / "link").symlink_to(path)
    assert read_key(str(keys / "link")) == KEY.encode()
    path.write_text("whsec_" + base64.b64encode(bytes(range(24))).decode() + "\n", encoding="ascii")
    assert read_key(str(path)) == bytes(range(24))


@pytest.mark.root
@pytest.mark.parametrize("wrong", ["owner", "folder", "fifo"])
def test_a_key_that_others_could_change_is_refused(keys: Path, wrong: str) -> None:
    """Whoever could write it could sign as we do; a FIFO hangs nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    path = keys / "key"
    path.write_text(KEY, encoding="ascii")
    path.chmod(0o600)
    match wrong:
        case "owner":
            os.chown(path, 1234, 0)
        case "folder":
            keys.chmod(0o777)
        case _:
            path.unlink()
            os.mkfifo(path, 0o600)
    with pytest.raises(ReclaimerdError) as raised:
        read_key(str(path))
    assert KEY not in str(raised.value)
