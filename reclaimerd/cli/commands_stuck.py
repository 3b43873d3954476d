"""Commands about what is wrong: `evidence` of one process, `doctor` and `doctor --stuck` for the host.

They look and act on nothing. `doctor --stuck` asks neither the daemon nor NVML: it works while both hang.
"""

import json
import os
from pathlib import Path

import click

from reclaimerd.cli import texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.evidence_text import perf_lines, stuck_blocks
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.out_file import refuse_missing_folder, write_out
from reclaimerd.cli.process_name import ProcessName, parse_process
from reclaimerd.cli.render import printable, say, show, show_json, with_utc_times
from reclaimerd.errors import ExitCode, ReclaimerdError

_PATIENCE_SECONDS = 60.0
"""How long evidence may take: another's before ours, a first look in the foreground, and its own 10 s."""


@click.command()
@click.argument("process", metavar="PID[@START]", callback=parse_process)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help=texts.OUT)
@click.option("--perf", is_flag=True, help=texts.PERF)
@common_options
@answers
def evidence(settings: Settings, process: ProcessName, out: Path | None, perf: bool) -> int:  # noqa: FBT001  # click calls it
    """Collect what shows of one stuck process, for a report: tasks, stacks, waits, kernel log, driver.

    Takes up to 10 seconds and 1 MiB. No environment, no memory content; command lines are masked.
    """
    if out is not None:
        refuse_missing_folder(out)
    asked = Request("GET", f"/v1/evidence/{process.pid}", idle_seconds=_PATIENCE_SECONDS)
    page = request(settings, asked).body
    process.refuse_another(page.get("ref"))
    if perf:
        from reclaimerd.cli.perf_sample import running_tasks, sample_running  # noqa: PLC0415  # only for --perf

        missing = [one for one in page.get("missing") or () if "--perf" not in str(one)]
        page = {**page, "missing": missing, "perf": sample_running(running_tasks(page))}
    as_json = settings.as_json or (out is not None and out.suffix == ".json")
    if out is not None:
        write_out(out, _json_text(page) if as_json else _text(page))
        say(f"written to {out}", to_stderr=settings.as_json)
    elif as_json:
        show_json(page)
    else:
        for line in _text(page).splitlines():
            say(line)
    return int(ExitCode.OK)


def _json_text(page: Json) -> str:
    return json.dumps(with_utc_times(page), indent=1, ensure_ascii=True) + "\n"


def _text(page: Json) -> str:
    """Return the page for people, every line of it printable."""
    from reclaimerd.daemon.evidence_pages import as_text  # noqa: PLC0415  # heavy, and only for this command

    try:
        lines = as_text(page).splitlines()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"the evidence has another form than this version knows ({type(error).__name__}: {error})"
        raise ReclaimerdError(what, "use --json, or the reclaimctl of the daemon's version") from None
    if page.get("perf"):
        lines += ["", *perf_lines(page["perf"])]
    return "\n".join(map(printable, lines)) + "\n"


@click.command()
@click.option("--stuck", is_flag=True, help=texts.STUCK)
@common_options
@answers
def doctor(settings: Settings, stuck: bool) -> int:  # noqa: FBT001  # click calls it
    """Ask whether this host is ready, with the mend beside what is wrong; exit 10 unless all are ok or warn.

    Nothing is changed, and nothing is sent but questions. Works without the daemon and as a user too.
    """
    if not stuck:
        from reclaimerd.cli.doctor_run import run_doctor  # noqa: PLC0415  # heavy, and only for this

        return run_doctor(settings)
    # The engine's eyes are heavy, and only this command needs them without a daemon.
    import asyncio  # noqa: PLC0415

    from reclaimerd.daemon.stuck_scan import find_stuck_here, simulated_devices  # noqa: PLC0415

    devices = () if settings.simulate is None else simulated_devices(settings.simulate)
    body: Json = dict(asyncio.run(find_stuck_here(devices)).as_json())
    if os.geteuid() != 0:
        body["skipped"] = [*body["skipped"], "kernel stacks: only root may read them"]
    if settings.as_json:
        show_json(body)
    else:
        show(stuck_blocks(body))
    # What could not be looked at may be what is stuck: unknown is never "nothing".
    return int(ExitCode.ATTENTION if body["rows"] or body["skipped"] else ExitCode.OK)
