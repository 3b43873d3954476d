"""The manual pages, made from what the programs say of themselves: commands, daemon, policy file.

Packaging writes them; no page is kept beside the code, so none can be old.
"""

import argparse
import functools
from collections.abc import Iterator
from pathlib import Path

import click

from reclaimerd import __version__
from reclaimerd.cli import texts
from reclaimerd.cli.roff import Title, page
from reclaimerd.errors import ReclaimerdError

_WIDTH = 78
_SEE_ALSO = "`reclaimctl`(1), `reclaimerd`(8), `reclaimerd.toml`(5)"
_DAEMON = "watch GPUs and take them back from processes that will not give them up"
_POLICY = "the policy of reclaimerd"
_FILES = (
    ("/etc/reclaimerd/reclaimerd.toml", "The policy."),
    ("/etc/reclaimerd/HOLD, /run/reclaimerd/HOLD", "While one exists: no act by rule, no reset, no drain."),
    ("/run/reclaimerd/reclaimerd.sock", "The control socket."),
    ("/var/lib/reclaimerd", "The store and what must bind after a restart."),
    ("/var/log/reclaimerd", "The audit log."),
)
_SIGNALS = (
    ("SIGHUP", "The policy file is taken anew; one with faults changes nothing."),
    (
        "SIGTERM, SIGINT",
        "It ends within 5 seconds; what goes on is on record, and the next start goes on with it.",
    ),
)


class NotWrittenError(ReclaimerdError):
    """A page could not be written."""


def write_pages(group: click.Group, folder: Path) -> tuple[Path, ...]:
    """Write every page into a folder, which is made; return them. Raises NotWrittenError."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages(group):
            path = folder / name
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise NotWrittenError(
            f"{folder}: {error.strerror or error}", "name another folder: --out DIR"
        ) from None
    return tuple(written)


def pages(group: click.Group) -> Iterator[tuple[str, str]]:
    """Yield each page's file name and text."""
    yield "reclaimctl.1", _made("reclaimctl", 1, group.help, texts.manual(group))
    for path, command in texts.groups(group):
        name = path.replace(" ", "-")
        yield f"{name}.1", _made(name, 1, command.help, texts.group_manual(group, path))
    yield "reclaimerd.8", _made("reclaimerd", 8, _DAEMON, _daemon())
    yield "reclaimerd.toml.5", _made("reclaimerd.toml", 5, _POLICY, _policy())


def _made(name: str, section: int, summary: str | None, markdown: str) -> str:
    first = (summary or "").strip().split("\n\n", 1)[0].replace("\n", " ").rstrip(".")
    also = f"\n## See also\n\n{_SEE_ALSO}\n"
    return page(Title(name, section, first, __version__), markdown + also)


def _policy() -> str:
    from reclaimerd.config.reference import as_markdown  # noqa: PLC0415 - heavy, and only for this page

    return as_markdown()


def _daemon() -> str:
    """Return the daemon's page: its options as it prints them itself."""
    from reclaimerd.daemon.main import option_parser  # noqa: PLC0415 - the engine, only for this page

    parser = option_parser()
    parser.formatter_class = functools.partial(argparse.HelpFormatter, width=_WIDTH)
    usage = (f"    {line}" if line else "" for line in parser.format_help().splitlines())
    lines = [f"# reclaimerd(8)\n\n{parser.description}\n\n## Options\n", *usage, "\n## Signals\n"]
    lines += [f"- `{name}`: {text}" for name, text in _SIGNALS]
    lines += ["\n## Files\n", *(f"- `{name}`: {text}" for name, text in _FILES)]
    return "\n".join(lines) + "\n"
