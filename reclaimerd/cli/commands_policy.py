"""Commands about the policy file: check, test, schema, explain; and the snapshot that a test may go by.

A policy is read and judged here, by the pure judge, over a look that the daemon (or the engine in the
foreground) took. Nothing is changed, and nothing here comes into force.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reclaimerd.cli import explain_text, texts
from reclaimerd.cli.client import Settings, request
from reclaimerd.cli.commands_read import explain_process
from reclaimerd.cli.http_socket import Json, Request
from reclaimerd.cli.options import answers, common_options, needs_command
from reclaimerd.cli.out_file import refuse_missing_folder, write_out
from reclaimerd.cli.process_name import ProcessName, parse_process
from reclaimerd.cli.render import say, show, show_json
from reclaimerd.errors import ExitCode

if TYPE_CHECKING:
    from reclaimerd.config.load import LoadedPolicy
    from reclaimerd.daemon.recorded_look import RecordedLook
    from reclaimerd.judge.trial import TrialRow
    from reclaimerd.model.snapshot import Snapshot

_FILE = click.Path(path_type=Path, readable=False)
_PATIENCE_SECONDS = 60.0
"""How long a look may take: a first one in the foreground, and a large host's bytes."""


@click.command("check")
@click.argument("file", type=_FILE, required=False)
@common_options
@answers
def check_policy(settings: Settings, file: Path | None) -> int:
    """Check a policy file and print every fault at once, one line each (then exit 2).

    Without FILE the installed one (--config), as strictly as the daemon: that others may write it is a fault.
    """
    from reclaimerd.config.check import check  # noqa: PLC0415 - pydantic is for those who check
    from reclaimerd.config.load import installed, load  # noqa: PLC0415 - the same

    path = file or installed(settings.config)
    if path is None:
        return _no_file(settings)
    faults = check(path, enforce_ownership=file is None)
    warnings = () if faults else load(path, enforce_ownership=False).warnings
    _warn(warnings)
    if settings.as_json:
        names = ("path", "line", "key", "what", "mend")
        found = [{name: getattr(fault, name) for name in names} for fault in faults]
        show_json({"file": str(path), "ok": not faults, "faults": found, "warnings": list(warnings)})
    else:
        for fault in faults:
            say(str(fault))
        if not faults:
            say(f"{path}: no faults")
    return int(ExitCode.USAGE if faults else ExitCode.OK)


def _no_file(settings: Settings) -> int:
    """Say that no policy is installed, and what holds then."""
    from reclaimerd.config.load import DEFAULT_PATH  # noqa: PLC0415 - as above

    if settings.as_json:
        show_json({"file": str(DEFAULT_PATH), "ok": True, "faults": [], "warnings": []})
    else:
        say(f"{DEFAULT_PATH}: there is none: the built-in policy holds, which enforces nothing")
    return int(ExitCode.OK)


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        say(f"reclaimctl: warning: {warning}", to_stderr=True)


@click.command("schema")
@common_options
@answers
def print_schema(settings: Settings) -> int:
    """Print the JSON Schema of the policy file, for an editor."""
    del settings  # it is JSON in any case
    from reclaimerd.config.json_schema import policy_schema  # noqa: PLC0415 - pydantic is for those who check

    click.echo(json.dumps(policy_schema(), indent=2))
    return int(ExitCode.OK)


@click.command("explain")
@click.option(
    "--pid",
    "process",
    required=True,
    metavar="PID[@START]",
    callback=parse_process,
    help=texts.EXPLAIN_PID,
)
@common_options
@answers
def explain_policy(settings: Settings, process: ProcessName) -> int:
    """Say what every rule makes of a process (an alias of `explain pid`)."""
    return explain_process(settings, process)


@click.command("test")
@click.argument("file", type=_FILE)
@click.option("--snapshot", "recorded", type=_FILE, metavar="FILE", help=texts.SNAPSHOT_FILE)
@common_options
@answers
def try_policy(settings: Settings, file: Path, recorded: Path | None) -> int:
    """Say what this policy would decide about the present look, or a recorded one; nothing is changed.

    A look can't show how long something has held: the answer says for how long it must.
    """
    from reclaimerd.config.load import load  # noqa: PLC0415 - the engine's parts are for those who test
    from reclaimerd.daemon.this_host import on_this_host  # noqa: PLC0415 - the same

    loaded = on_this_host(load(file, enforce_ownership=False))
    _warn(loaded.warnings)
    look = _present_look(settings) if recorded is None else _recorded_look(recorded)
    source = "now" if recorded is None else str(recorded)
    body = _trial_body(loaded, look, source)
    if settings.as_json:
        show_json(body)
    else:
        show(explain_text.trial_blocks(body))
    return int(ExitCode.OK)


def _present_look(settings: Settings) -> "RecordedLook":
    from reclaimerd.daemon.recorded_look import look_of  # noqa: PLC0415 - see `try_policy`

    return look_of(_ask_snapshot(settings), "the daemon's look")


def _recorded_look(path: Path) -> "RecordedLook":
    from reclaimerd.daemon.recorded_look import SnapshotFileError, read_recorded  # noqa: PLC0415 - see `try_policy`

    try:
        content = path.read_bytes()
    except OSError as error:
        what = f"{path} can't be read: {error.strerror or error}"
        raise SnapshotFileError(what, "name a file that `reclaimctl snapshot` wrote") from None
    return read_recorded(content, str(path))


def _ask_snapshot(settings: Settings) -> Json:
    return request(settings, Request("GET", "/v1/snapshot", idle_seconds=_PATIENCE_SECONDS)).body


def _trial_body(loaded: "LoadedPolicy", recorded: "RecordedLook", source: str) -> Json:
    """Judge the look by the policy; return all decisions as plain JSON."""
    from reclaimerd.config.user_patterns import compile_patterns  # noqa: PLC0415 - see `try_policy`
    from reclaimerd.daemon.views import driver_view  # noqa: PLC0415 - the same
    from reclaimerd.judge.evaluate import JudgeContext  # noqa: PLC0415 - the same
    from reclaimerd.judge.trial import trial  # noqa: PLC0415 - the same

    policy, look = loaded.policy, recorded.look
    context = JudgeContext(recorded.ours, compile_patterns(policy), loaded.user_ids, loaded.group_ids)
    found = trial(look, policy, recorded.xids, context)
    return {
        "policy": policy.source,
        "source": source,
        "taken_at": look.taken_at,
        "simulated": look.simulated,
        "driver": driver_view(look.driver, look.at),
        "rows": [_row(row, look) for row in found.rows],
        "breaker": found.breaker,
        "notes": list(_notes(loaded, recorded, source)),
        "skipped": list(look.scan.skipped),
    }


def _row(row: "TrialRow", look: "Snapshot") -> Json:
    from reclaimerd.model.reading import known_or_none  # noqa: PLC0415 - see `try_policy`

    reading = None if row.ref is None else look.process(row.ref)
    indices = {gpu.uuid: gpu.index for gpu in look.gpus}
    command = None if reading is None else known_or_none(reading.cmdline)
    return {
        "ref": None if row.ref is None else str(row.ref),
        "pid": None if row.ref is None else row.ref.pid,
        "uid": None if reading is None else reading.uids[0],
        "command": None if command is None else " ".join(command),
        "gpus": list(row.gpus),
        "gpu_index": [indices.get(gpu) for gpu in row.gpus],
        "rule": row.rule,
        "ruling": row.ruling.value,
        "text": row.text,
        "holds": row.holds,
        "must_hold": _must_hold(row),
        "for_seconds": row.for_seconds,
        "readings": row.readings,
        "mode": row.mode.value,
        "decides": row.decides,
        "stages": [{"stage": one.stage.value, "after_seconds": one.after_seconds} for one in row.stages],
    }


def _must_hold(row: "TrialRow") -> str:
    """Return for how long what holds in this look must go on, in words; "" where nothing holds."""
    from reclaimerd.config.units import format_duration  # noqa: PLC0415 - see `try_policy`

    if not row.holds:
        return ""
    parts = [f"for {format_duration(row.for_seconds)}"] if row.for_seconds else []
    parts += [f"over {row.readings} readings"] if row.readings > 1 else []
    return f"would hold now; must hold {' and '.join(parts)}" if parts else "would hold now"


def _notes(loaded: "LoadedPolicy", recorded: "RecordedLook", source: str) -> Iterator[str]:
    """Yield what this look can't show of this policy."""
    asked = set(recorded.programs)
    for protection in loaded.policy.protections:
        if protection.exe and protection.exe not in asked:
            yield (
                f"[[protect]] {protection.name}: the look was taken without asking for {protection.exe}, "
                "so whom it would protect does not show"
            )
    if loaded.user_ids and source != "now":
        yield "users that the policy names are looked up on this machine"


@click.command()
@click.option("--out", type=_FILE, metavar="FILE", help=texts.SNAPSHOT_OUT)
@common_options
@answers
def snapshot(settings: Settings, out: Path | None) -> int:
    """Record one look at the host as JSON, for `policy test --snapshot`.

    Every holder, GPU and process that was seen. Command lines are masked, no environment is read.
    """
    if out is not None:
        refuse_missing_folder(out)
    # Instants stay numbers here: it is a file for this program, not a report.
    content = json.dumps(_ask_snapshot(settings), ensure_ascii=True)
    if out is None:
        click.echo(content)
    else:
        write_out(out, content + "\n")
        say(f"written to {out}", to_stderr=settings.as_json)
    return int(ExitCode.OK)


@click.group(invoke_without_command=True)
@common_options
def policy() -> int:
    """Work on the policy file."""
    return needs_command()


@click.group(invoke_without_command=True)
@common_options
def config() -> int:
    """Work on the policy file (an alias of `policy`)."""
    return needs_command()


for _command in (check_policy, explain_policy, print_schema, try_policy):
    policy.add_command(_command)
    config.add_command(_command)
