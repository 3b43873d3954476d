"""reclaimctl: the group, and the way out: one sentence and an exit code, never a traceback."""

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import click

from reclaimerd.cli import (
    commands_act,
    commands_breaker,
    commands_completion,
    commands_drain,
    commands_files,
    commands_kill,
    commands_policy,
    commands_read,
    commands_reset,
    commands_rollout,
    commands_rules,
    commands_slurm,
    commands_stuck,
    commands_top,
    commands_why,
    headlines,
    rules_group,
    texts,
)
from reclaimerd.cli.client import Settings
from reclaimerd.cli.options import INTERRUPTED, answers, common_options, needs_command
from reclaimerd.cli.render import say, show, show_json
from reclaimerd.errors import ExitCode


@click.group(
    "reclaimctl",
    epilog=texts.epilog(),
    invoke_without_command=True,
    context_settings={"max_content_width": 110},
)
@common_options
def reclaimctl() -> int:
    """Take GPUs back from processes that will not give them up, one proven step at a time.

    To look: doctor, status, ps, top. Before an act: explain, and --dry-run. To stop everything: pause.
    Afterwards: why, incidents, audit.
    """
    return needs_command()


@click.command("manual", hidden=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "man"]),
    default="markdown",
    show_default=True,
    help=texts.MANUAL_FORMAT,
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help=texts.MANUAL_OUT)
@common_options
@answers
def manual(settings: Settings, form: str, out: Path | None) -> int:
    """Print the manual page's text (docs/reclaimctl.md), or write every page as packages carry it."""
    if form == "markdown":
        click.echo(texts.manual(reclaimctl), nl=False)
        return int(ExitCode.OK)
    if out is None:
        raise click.UsageError("--format man needs --out DIR")
    from reclaimerd.cli.man_pages import write_pages  # noqa: PLC0415 - only packaging writes them

    written = [str(path) for path in write_pages(reclaimctl, out)]
    if settings.as_json:
        show_json({"written": written})
    else:
        show(written)
    return int(ExitCode.OK)


for _command in (
    commands_read.status,
    commands_read.ps,
    commands_top.top,
    commands_read.inspect,
    commands_kill.kill,
    commands_reset.reset,
    commands_drain.drain,
    commands_drain.undrain,
    commands_slurm.slurm_unkillable,
    commands_slurm.healthcheck,
    commands_stuck.evidence,
    commands_stuck.doctor,
    commands_read.incidents,
    commands_files.audit,
    commands_why.why,
    commands_read.explain,
    commands_policy.policy,
    commands_policy.config,
    commands_policy.snapshot,
    rules_group.rules,
    commands_rules.reload,
    commands_rollout.rollout,
    commands_act.pause,
    commands_act.resume,
    commands_breaker.breaker,
    commands_act.release_driver,
    commands_act.demo,
    commands_completion.completion,
    commands_read.version,
    manual,
):
    reclaimctl.add_command(_command)
headlines.give_headlines(reclaimctl)


def _in_c_locale() -> bool:
    """Tell whether the locale is C, where Python writes UTF-8 (PEP 540) that nobody said is understood."""
    asked_for = os.environ.get("PYTHONUTF8") == "1" or bool(sys._xoptions.get("utf8"))  # noqa: SLF001  # documented
    return bool(sys.flags.utf8_mode) and not asked_for


def run(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code of one call."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal of another charset must not turn a report into an error.
            stream.reconfigure(encoding="ascii" if _in_c_locale() else None, errors="backslashreplace")
    try:
        code = reclaimctl.main(arguments, prog_name="reclaimctl", standalone_mode=False)
    except click.ClickException as error:
        say(f"reclaimctl: {error.format_message()}", to_stderr=True)
        ctx = getattr(error, "ctx", None)
        path = ctx.command_path if ctx is not None else "reclaimctl"
        say(f"reclaimctl: `{path} --help` shows how to call it", to_stderr=True)
        return int(ExitCode.USAGE)
    except click.Abort:
        say("reclaimctl: interrupted", to_stderr=True)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost border: a bug ends as exit 1 in one sentence
        last = error.__traceback__
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        where = f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}" if last is not None else "nowhere"
        say(f"reclaimctl: internal error: {type(error).__name__}: {error} ({where})", to_stderr=True)
        return int(ExitCode.INTERNAL)
    return int(code or 0)


def main() -> None:
    """Run reclaimctl and leave with its exit code."""
    raise SystemExit(run())


if __name__ == "__main__":
    main()
