"""docs/access.md and docs/architecture.md say of each call who may make it, and access.md the bounds."""

import re
from pathlib import Path

import pytest

from reclaimerd.cli.main import reclaimctl
from reclaimerd.daemon import http_server, limits, owner_calls
from tests.daemon.test_api import a_story

DOCS = Path(__file__).parents[2] / "docs"
CALL = re.compile(r"`(GET|POST) (/[^`]+)`")


def roles_on(page: str) -> dict[tuple[str, str], str]:
    """Return the least role, and whether an owner may, of each call in a page's tables."""
    found: dict[tuple[str, str], str] = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        role = next(
            (cell for cell in cells if re.fullmatch(r"(viewer|operator|admin)(, owner)?", cell)), None
        )
        if role is not None:
            found |= dict.fromkeys(CALL.findall(line), role)
    return found


@pytest.mark.parametrize("page", ["access.md", "architecture.md"])
def test_the_page_has_each_call_with_its_role(page: str) -> None:
    """And no call that is not served."""
    routes = a_story().api.routes
    served = {(one.method, one.path): one.role.word + (", owner" if one.owner else "") for one in routes}
    assert roles_on(page) == served


def test_each_command_that_it_names_exists() -> None:
    """In the second column: a command, or one of a group."""
    text = (DOCS / "access.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| [^|]+ \| `([a-z -]+)` \|", text, re.MULTILINE)
    assert len(named) > 10
    for words in named:
        command = reclaimctl
        for word in words.split():
            found = getattr(command, "commands", {}).get(word)
            assert found is not None, words
            command = found


def test_the_bounds_are_the_code_s() -> None:
    """Figure by figure."""
    text = (DOCS / "access.md").read_text(encoding="utf-8")
    for line in (
        f"| head of a request | {http_server.MOST_HEAD_BYTES // 1024} KiB |",
        f"| body | {http_server.MOST_BODY_BYTES // 1024} KiB |",
        f"| time to send a request | {http_server.READ_SECONDS:.0f} s in all |",
        f"| time to take a piece of the answer | {http_server.WRITE_SECONDS:.0f} s |",
        f"| calls of one uid | {limits.CALLS_PER_SECOND:.0f} a second, {limits.CALLS_AT_ONCE:.0f} at once;",
        f"| connections of one uid | {limits.MOST_OF_ONE} |",
        f"| connections of all but root | {limits.MOST_OF_OTHERS} |",
        f"| of these, of who is in no group with a role | {limits.MOST_OF_STRANGERS} |",
        f"| connections in all | {limits.MOST_CONNECTIONS} |",
        f"Owners get {owner_calls.ORDERS_AT_ONCE:.0f} orders at once and one more every",
        f" every {1 / owner_calls.ORDERS_PER_SECOND:.0f} s",
    ):
        assert line in text
