"""`reclaimctl completion`: the shell's own script, as click makes it, and where to put it."""

import sys

import click

from reclaimerd.cli.options import common_options
from reclaimerd.cli.render import say
from reclaimerd.errors import ExitCode

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_RECLAIMCTL_COMPLETE"
PLACES = {
    "bash": "/usr/share/bash-completion/completions/reclaimctl, or your .bashrc",
    "zsh": "a file _reclaimctl in a folder of $fpath, or your .zshrc after compinit",
    "fish": "/usr/share/fish/vendor_completions.d/reclaimctl.fish, or ~/.config/fish/completions/",
}


@click.command()
@click.argument("shell", metavar="|".join(SHELLS), type=click.Choice(SHELLS))
@common_options
def completion(shell: str) -> int:
    """Print the script by which a shell completes commands, options, GPUs, incidents and rules.

    GPUs, incidents and rules are the daemon's, asked for at most 300 ms. Where to put the script is said on
    a terminal.
    """
    from click.shell_completion import ShellComplete, get_completion_class  # noqa: PLC0415 - only here

    made = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    if made is None:
        say(f"reclaimctl: this click knows no {shell}", to_stderr=True)
        return int(ExitCode.USAGE)
    # Not the shell's own source(): bash's starts a bash to ask for its version, and a build has none.
    click.echo(ShellComplete.source(made(root, {}, "reclaimctl", VARIABLE)), nl=False)
    if sys.stdout.isatty():
        say(f"put it into {PLACES[shell]}: reclaimctl completion {shell} > FILE", to_stderr=True)
    return int(ExitCode.OK)
