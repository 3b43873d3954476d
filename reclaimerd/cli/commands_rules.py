"""Commands about the rules in force: list them, suspend one and let it go on, take the policy file anew.

They only ask: the engine decides who may, and puts it on record.
"""

from collections.abc import Iterator
from urllib.parse import quote

import click

from reclaimerd.cli import completing, texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.commands_act import parse_some_time
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import Block, Table, moment_text, say, show, show_json
from reclaimerd.cli.rules_group import rules
from reclaimerd.cli.tables import Layout
from reclaimerd.errors import ExitCode


@rules.command("list")
@common_options
@answers
def list_rules(settings: Settings) -> int:
    """List the rules: how far each may go now, for how many it holds, and when it last opened an incident."""
    body = request(settings, Request("GET", "/v1/rules")).body
    if settings.as_json:
        show_json(body)
    else:
        show(_blocks(body))
    return int(ExitCode.OK)


@rules.command("suspend")
@click.argument("name", metavar="NAME", shell_complete=completing.rules)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@click.option(
    "--for", "for_seconds", metavar=texts.DURATION, callback=parse_some_time, help=texts.SUSPEND_FOR
)
@common_options
@answers
def suspend(settings: Settings, name: str, reason: str, for_seconds: float | None) -> int:
    """Let one rule only observe; what it has begun waits, and every other rule goes on."""
    body = _ask(settings, name, "suspend", {"reason": reason, "for_seconds": for_seconds})
    if not settings.as_json:
        until = (body.get("suspended") or {}).get("until")
        when = f"until {moment_text(until)}" if until else f"until `reclaimctl rules resume {name}`"
        say(f"rule {name} only observes {when}")
    return int(ExitCode.OK)


@rules.command("resume")
@click.argument("name", metavar="NAME", shell_complete=completing.rules)
@click.option("--reason", default="", metavar="TEXT", help=texts.REASON)
@common_options
@answers
def resume(settings: Settings, name: str, reason: str) -> int:
    """Let a suspended rule go as far as the policy says again."""
    _ask(settings, name, "resume", {"reason": reason})
    if not settings.as_json:
        say(f"rule {name} goes as far as the policy says")
    return int(ExitCode.OK)


@click.command("reload")
@common_options
@answers
def reload(settings: Settings) -> int:
    """Let the daemon take its policy file anew; a file with faults changes nothing, and all are told."""
    body = request(settings, Request("POST", "/v1/reload", body={}, acts=True)).body
    if settings.as_json:
        show_json(body)
    else:
        say(f"policy {body.get('policy')} is in force: mode {body.get('mode')}, {body.get('rules')} rules")
        for warning in body.get("warnings") or ():
            say(f"warning: {warning}")
    return int(ExitCode.OK)


def _ask(settings: Settings, name: str, what: str, asked: Json) -> Json:
    path = f"/v1/rules/{quote(name, safe='')}/{what}"
    body: Json = request(settings, Request("POST", path, body=asked, acts=True)).body
    if settings.as_json:
        show_json(body)
    return body


def _blocks(body: Json) -> Iterator[Block]:
    """Yield what `rules list` shows."""
    found = body.get("rules") or ()
    if not found:
        yield "the policy has no rules"
        return
    headings = ("RULE", "KIND", "MODE", "NOW", "HOLDS FOR", "LAST INCIDENT")
    layout = Layout(cut=(("RULE", 20), ("LAST INCIDENT", 20), ("NOW", 12)), drop=("KIND",))
    yield Table(headings, tuple(_row(one) for one in found), layout)
    for one in found:
        if stands := one.get("suspended"):
            until = f" until {moment_text(stands['until'])}" if stands.get("until") else ""
            why = f": {stands['reason']}" if stands.get("reason") else ""
            yield f"rule {one.get('name')} was suspended by {stands.get('by')}{until}{why}"


def _row(rule: Json) -> tuple[str, ...]:
    now = str(rule.get("effective_mode"))
    holds = rule.get("holds_for")
    last = rule.get("last_opened_at")
    return (
        str(rule.get("name")),
        str(rule.get("kind")),
        str(rule.get("mode")),
        f"{now} (suspended)" if rule.get("suspended") else now,
        "unknown" if holds is None else str(holds),
        moment_text(last) if last else "-",
    )
