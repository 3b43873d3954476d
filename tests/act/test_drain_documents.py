"""The examples in docs/drain.md do what is said of them."""

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.act.drain_body import Action, action_bytes
from reclaimerd.act.drain_command import DrainCommand
from reclaimerd.act.webhook_signing import signature_headers
from reclaimerd.config.check import check
from reclaimerd.model.drain_policy import CommandTarget
from reclaimerd.model.drain_ports import Asked, Foreign, NotAsked
from tests.act.drain_builders import a_request
from tests.act.reset_tools import program

PAGE = Path(__file__).parents[2] / "docs" / "drain.md"
KEY = b"0123456789abcdef0123456789abcdef"
NOMAD = """
cd "$(dirname "$0")"
case "$*" in
"node status -self -json") [ -e away ] && exit 1; echo "{\\"SchedulingEligibility\\": \\"$(cat state)\\"}";;
"node eligibility -self -disable") echo ineligible > state; echo disable >> calls;;
"node eligibility -self -enable") echo eligible > state; echo enable >> calls;;
*) exit 99;;
esac
"""


def blocks(language: str) -> list[str]:
    """Return the page's examples in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_every_field_of_the_body_is_told() -> None:
    """And no other."""
    text = PAGE.read_text(encoding="utf-8").split("### The body")[1].split("###")[0]
    rows = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert told == list(json.loads(action_bytes(Action.REQUEST, a_request())))


def test_the_policies_load(tmp_path: Path) -> None:
    """Each example is a sound file."""
    path = tmp_path / "policy.toml"
    for text in blocks("toml"):
        path.write_text(text, encoding="utf-8")
        assert check(path) == (), text


def test_the_receiver_verifies_what_we_sign() -> None:
    """Ours, of now, unchanged; of all others it says no."""
    room: dict[str, Any] = {}
    (text,) = blocks("python")
    exec(compile(text, str(PAGE), "exec"), room)  # noqa: S102 - our own page
    is_genuine: Callable[[bytes, dict[str, str], bytes], bool] = room["is_genuine"]
    body = action_bytes(Action.REQUEST, a_request())
    now = int(time.time())
    headers = signature_headers(KEY, "inc-1-request", now, body)
    assert is_genuine(KEY, headers, body)
    assert is_genuine(KEY, headers | {"webhook-signature": f"v1,x {headers['webhook-signature']}"}, body)
    assert not is_genuine(KEY[::-1], headers, body)
    assert not is_genuine(KEY, headers, body + b" ")
    assert not is_genuine(KEY, headers | {"webhook-id": "inc-2-request"}, body)
    assert not is_genuine(KEY, headers | {"webhook-timestamp": str(now + 1)}, body)
    assert not is_genuine(KEY, signature_headers(KEY, "inc-1-request", now - 600, body), body)


@pytest.mark.process
def test_nomad_is_asked_once_and_given_back(tmp_path: Path) -> None:
    """Ineligible for one request, kept where somebody else made it so, and tried again when it is away."""
    if shutil.which("jq") is None:
        pytest.skip("the example needs jq")
    (text,) = (block for block in blocks("sh") if "nomad" in block)
    text = text.replace("/var/lib/drain-nomad", str(tmp_path / "note"))
    program(tmp_path / "nomad", NOMAD)
    path = Path(program(tmp_path / "drain-nomad", f"PATH={tmp_path}:$PATH\n{text}"))
    state, calls = tmp_path / "state", tmp_path / "calls"
    state.write_text("eligible\n", encoding="ascii")
    target = DrainCommand(CommandTarget(str(path)), any_owner=os.geteuid() != 0)
    ours, other = a_request(), a_request("inc-2")
    assert asyncio.run(target.request(ours)) == Asked("made ineligible")
    assert asyncio.run(target.request(ours)) == Asked("ineligible already")
    assert asyncio.run(target.status(ours)) == Asked("ineligible by us")
    assert isinstance(asyncio.run(target.request(other)), Foreign)
    assert asyncio.run(target.withdraw(other)) == Asked("nothing of ours")
    assert asyncio.run(target.withdraw(ours)) == Asked("eligible again")
    assert asyncio.run(target.withdraw(ours)) == Asked("nothing of ours")
    assert isinstance(asyncio.run(target.status(ours)), NotAsked)
    (tmp_path / "away").touch()
    answer = asyncio.run(target.request(ours))
    assert isinstance(answer, NotAsked)
    assert not answer.lasting
    assert calls.read_text(encoding="ascii").split() == ["disable", "enable"]
