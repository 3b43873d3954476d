"""The lists of commands in `--help`: each line is whole and fits, none is of a command that is gone."""

import click
import pytest

from reclaimerd.cli import texts
from reclaimerd.cli.headlines import HEADLINES, LONGEST, first_sentence
from reclaimerd.cli.main import reclaimctl, run

GROUPS = dict(texts.groups(reclaimctl))


def test_every_command_has_one_line_that_fits() -> None:
    """No more, so that a renamed command does not keep its old line."""
    shown = {name for name, command in reclaimctl.commands.items() if not command.hidden}
    assert set(HEADLINES) == shown
    assert max(map(len, HEADLINES.values())) <= LONGEST


@pytest.mark.parametrize("words", [[], *(path.split()[1:] for path in GROUPS)], ids=" ".join)
def test_no_line_is_cut(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of the whole and of each group."""
    assert run([*words, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.replace("[ARGS]...", "")


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_a_group_tells_the_first_sentence(group: click.Group) -> None:
    """The same words as the command's own help."""
    for command in group.commands.values():
        assert command.short_help
        assert " ".join((command.help or "").split()).startswith(command.short_help)


def test_a_sentence_ends_at_its_full_stop() -> None:
    """Not at a dot within a word, and never beyond its paragraph."""
    assert first_sentence("Look at a.toml\nand end. More.") == "Look at a.toml and end"
    assert first_sentence("Look.\n\nMore. And more.") == "Look"
