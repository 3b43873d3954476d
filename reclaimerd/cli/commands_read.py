"""Commands that look and change nothing: status, ps, inspect, incidents, explain."""

import re
from collections.abc import Callable, Iterable

import click

from reclaimerd import __version__
from reclaimerd.cli import completing, explain_text, report, texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options, needs_command, stands_alone
from reclaimerd.cli.process_name import ProcessName, parse_process
from reclaimerd.cli.render import Block, say, show, show_json
from reclaimerd.errors import ExitCode, ReclaimerdError

FULL_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


class UnknownGpuError(ReclaimerdError):
    """No GPU, or more than one, goes by this name."""

    exit_code = ExitCode.USAGE


def _present(settings: Settings, body: Json, blocks: Callable[[Json], Iterable[Block]]) -> None:
    """Print an answer as the caller asked."""
    if settings.as_json:
        show_json(body)
    else:
        show(blocks(body))


@click.command()
@common_options
@answers
def status(settings: Settings) -> int:
    """Show the daemon, the driver, the GPUs and what needs a person (then exit 10)."""
    body = request(settings, Request("GET", "/v1/status")).body
    _present(settings, body, report.status_blocks)
    return int(ExitCode.ATTENTION if body.get("attention") else ExitCode.OK)


@click.command()
@common_options
@answers
def ps(settings: Settings) -> int:
    """Show who holds which GPU, and what the policy thinks of it."""
    _present(settings, request(settings, Request("GET", "/v1/ps")).body, report.ps_blocks)
    return int(ExitCode.OK)


@click.command()
@click.argument("process", metavar="PID[@START]", callback=parse_process)
@common_options
@answers
def inspect(settings: Settings, process: ProcessName) -> int:
    """Show all that is known of one process: its tasks, GPUs, workload, verdict and protection."""
    body = request(settings, Request("GET", f"/v1/processes/{process.pid}")).body
    process.refuse_another((body.get("process") or {}).get("ref"))
    _present(settings, body, report.inspect_blocks)
    return int(ExitCode.OK)


@click.group(invoke_without_command=True)
@common_options
@answers
def incidents(settings: Settings) -> int:
    """Show incidents; without a command, the newest."""
    return _list_incidents(settings, 50) if stands_alone() else int(ExitCode.OK)


@incidents.command("list")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 10000), default=50, show_default=True, help=texts.LIMIT
)
@common_options
@answers
def list_incidents(settings: Settings, limit: int) -> int:
    """List incidents, open ones and ended."""
    return _list_incidents(settings, limit)


def _list_incidents(settings: Settings, limit: int) -> int:
    body = request(settings, Request("GET", "/v1/incidents", {"limit": str(limit)})).body
    _present(settings, body, report.incident_list_blocks)
    return int(ExitCode.OK)


@incidents.command("show")
@click.argument("incident", shell_complete=completing.incidents)
@common_options
@answers
def show_incident(settings: Settings, incident: str) -> int:
    """Show one incident with everything that happened in it."""
    if not re.fullmatch(r"[A-Za-z0-9._@:-]{1,128}", incident, re.ASCII) or incident.strip(".") == "":
        raise click.BadParameter("is no incident's id; `reclaimctl incidents` lists them")
    _present(
        settings, request(settings, Request("GET", f"/v1/incidents/{incident}")).body, report.incident_blocks
    )
    return int(ExitCode.OK)


@click.group(invoke_without_command=True)
@common_options
def explain() -> int:
    """Say what every rule makes of a process, or why a GPU can't be reset; nothing is done."""
    return needs_command()


@explain.command("reset")
@click.option("--gpu", required=True, metavar="GPU", help=texts.GPU, shell_complete=completing.gpus)
@click.option("--force", is_flag=True, help=texts.FORCE_RESET)
@common_options
@answers
def explain_reset(settings: Settings, gpu: str, *, force: bool) -> int:
    """Name every reason why a GPU can't be reset now (then exit 3), and the steps if it can."""
    query = {"gpu": resolve_gpu(settings, gpu)} | ({"force": "1"} if force else {})
    body = request(settings, Request("GET", "/v1/explain/reset", query)).body
    _present(settings, body, report.explain_blocks)
    return int(ExitCode.OK if body.get("permitted") is True else ExitCode.REFUSED)


@explain.command("pid")
@click.argument("process", metavar="PID[@START]", callback=parse_process)
@common_options
@answers
def explain_pid(settings: Settings, process: ProcessName) -> int:
    """Say what every rule makes of a process, since when, what it would do, and what the gates say now."""
    return explain_process(settings, process)


def explain_process(settings: Settings, process: ProcessName) -> int:
    """Print what every rule makes of one process; return the exit code."""
    body = request(settings, Request("GET", f"/v1/explain/pid/{process.pid}")).body
    process.refuse_another(body.get("ref"))
    _present(settings, body, explain_text.process_blocks)
    return int(ExitCode.OK)


def resolve_gpu(settings: Settings, name: str) -> str:
    """Return the UUID of the one GPU that has this UUID or index, or whose UUID begins so."""
    if FULL_UUID.fullmatch(name):
        return name
    gpus = request(settings, Request("GET", "/v1/status")).body.get("gpus") or ()
    known = ", ".join(f"{gpu.get('index')}: {gpu.get('uuid')}" for gpu in gpus)
    uuids = [str(gpu.get("uuid")) for gpu in gpus]
    if name in uuids:
        return name
    if re.fullmatch(r"\d{1,4}", name, re.ASCII):
        found = [str(gpu.get("uuid")) for gpu in gpus if gpu.get("index") == int(name)]
    else:
        found = [uuid for uuid in uuids if name and uuid.lower().startswith(name.lower())]
    if len(found) != 1:
        count = "no GPU goes" if not found else f"{len(found)} GPUs go"
        mend = f"name one of {known}" if known else "no GPU was seen: `reclaimctl status` says why"
        raise UnknownGpuError(f"{count} by the name {name!r}", mend)
    return found[0]


@click.command()
@common_options
@answers
def version(settings: Settings) -> int:
    """Print the version of this program."""
    if settings.as_json:
        show_json({"version": __version__})
    else:
        say(f"reclaimctl {__version__}")
    return int(ExitCode.OK)
